//! A number for each page of each process: 4 bytes a page, in chunks of 512 pages.

use crate::hash::NumberMap;

/// Pages of a chunk.
const CHUNK: u64 = 512;

type Chunk = [u32; CHUNK as usize];

/// The chunks of a process, by page / [`CHUNK`].
#[derive(Debug, Default)]
struct Pages {
    chunks: Vec<Chunk>,
    index: NumberMap<u64, u32>,
    /// Chunks that no page uses.
    unused: Vec<u32>,
    last: Option<(u64, u32)>,
}

impl Pages {
    fn number(&mut self, page: u64) -> &mut u32 {
        let (chunk, at) = (page / CHUNK, (page % CHUNK) as usize);
        let place = match self.last {
            Some((last, place)) if last == chunk => place,
            _ => self.find(chunk),
        };
        &mut self.chunks[place as usize][at]
    }

    fn find(&mut self, chunk: u64) -> u32 {
        let (chunks, unused) = (&mut self.chunks, &mut self.unused);
        let new = || {
            unused.pop().unwrap_or_else(|| {
                chunks.push([0; CHUNK as usize]);
                chunks.len() as u32 - 1
            })
        };
        let place = *self.index.entry(chunk).or_insert_with(new);
        self.last = Some((chunk, place));
        place
    }

    fn take(&mut self, first: u64, pages: u64, taken: &mut impl FnMut(u64, u32)) {
        let end = first.saturating_add(pages);
        if first >= end {
            return;
        }
        let range = first / CHUNK..=(end - 1) / CHUNK;
        let mut known: Vec<u64> = match pages / CHUNK > self.index.len() as u64 {
            true => self.index.keys().copied().filter(|chunk| range.contains(chunk)).collect(),
            false => range.filter(|chunk| self.index.contains_key(chunk)).collect(),
        };
        // The order of a map depends on its history.
        known.sort_unstable();
        for chunk in known {
            let place = self.index[&chunk];
            let start = chunk * CHUNK;
            let (from, to) = (first.max(start) - start, (end - start).min(CHUNK));
            for at in from..to {
                match std::mem::take(&mut self.chunks[place as usize][at as usize]) {
                    0 => {}
                    number => taken(start + at, number),
                }
            }
            if to - from == CHUNK {
                self.index.remove(&chunk);
                self.unused.push(place);
                self.last = None;
            }
        }
    }
}

/// Numbers by process and page; 0: no number.
#[derive(Debug, Default)]
pub struct Table {
    procs: Vec<Pages>,
    index: NumberMap<u32, u32>,
    unused: Vec<u32>,
    last: Option<(u32, u32)>,
}

impl Table {
    fn pages(&mut self, proc: u32) -> &mut Pages {
        let place = match self.last {
            Some((last, place)) if last == proc => place,
            _ => {
                let (procs, unused) = (&mut self.procs, &mut self.unused);
                let new = || {
                    unused.pop().unwrap_or_else(|| {
                        procs.push(Pages::default());
                        procs.len() as u32 - 1
                    })
                };
                let place = *self.index.entry(proc).or_insert_with(new);
                self.last = Some((proc, place));
                place
            }
        };
        &mut self.procs[place as usize]
    }

    /// The number of a page.
    pub fn number(&mut self, proc: u32, page: u64) -> &mut u32 {
        self.pages(proc).number(page)
    }

    /// Takes the numbers out of a range; calls `taken` with each page that had one.
    pub fn take(&mut self, proc: u32, first: u64, pages: u64, mut taken: impl FnMut(u64, u32)) {
        self.pages(proc).take(first, pages, &mut taken);
    }

    /// Takes the numbers of a whole process out.
    pub fn take_process(&mut self, proc: u32, mut taken: impl FnMut(u32)) {
        let Some(place) = self.index.remove(&proc) else { return };
        self.last = None;
        self.unused.push(place);
        let pages = std::mem::take(&mut self.procs[place as usize]);
        // Unused chunks hold zeros, which are no numbers.
        for chunk in pages.chunks {
            chunk.iter().copied().filter(|&number| number != 0).for_each(&mut taken);
        }
    }

    /// Processes that have chunks, and places for such.
    #[cfg(test)]
    pub fn processes(&self) -> (usize, usize) {
        (self.index.len(), self.procs.len())
    }

    /// Calls `each` for every number.
    pub fn each(&mut self, mut each: impl FnMut(&mut u32)) {
        let chunks = self.procs.iter_mut().flat_map(|pages| pages.chunks.iter_mut());
        chunks.for_each(|chunk| chunk.iter_mut().filter(|number| **number != 0).for_each(&mut each));
    }
}
