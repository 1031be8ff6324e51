//! `memfit`: fit any program into the memory you have.
#![forbid(unsafe_code)]

fn main() {
    std::process::exit(memfit_cli::main_with(memfit_pager::serve));
}
