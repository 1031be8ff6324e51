//! stub
#[derive(Debug, Default)]
pub(crate) struct Selective;
impl Selective {
    pub fn admits(&self, _e: u32, _file: bool, _used: u64, _total: u64) -> bool { true }
    pub fn entered(&mut self, _l: u32, _f: bool) {}
    pub fn left(&mut self, _l: u32, _f: bool) {}
    pub fn paged_in(&mut self, _h: bool) {}
}
