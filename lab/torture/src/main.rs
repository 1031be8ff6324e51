//! Self-verifying torture program. It changes its memory and mappings at random, in many threads
//! and processes, and knows at every moment what each byte must be. It does not know memfit: paging
//! must not change what it sees.

mod arena;
mod content;
mod ctx;
mod model;
mod multi;
mod ops;
mod ops_advise;
mod ops_fork;
mod ops_heap;
mod ops_io;
mod ops_map;
mod ops_mem;
mod ops_thread;
mod opts;
mod race;
mod report;
mod rng;
mod shared;
mod status;
mod sys;
mod watchdog;
mod worker;
mod world;

use opts::{Command, Opts};
use report::{RawOut, EXIT_BROKEN, EXIT_OK, EXIT_USAGE};
use status::Status;
use std::sync::atomic::Ordering::SeqCst;

/// Runs a worker process of a supervisor.
fn work(opts: Opts, index: usize, status_fd: i32) -> i32 {
    // SAFETY: getppid cannot fail.
    sys::die_with_parent(unsafe { libc::getppid() });
    match Status::attach(status_fd) {
        Ok(status) => worker::run(opts, index, status, false),
        Err(e) => {
            eprintln!("torture: worker cannot map its counters: {e}");
            EXIT_BROKEN
        }
    }
}

/// Runs the process that the user started.
fn lead(opts: Opts) -> i32 {
    let (status, fd) = match Status::create() {
        Ok(made) => made,
        Err(e) => {
            eprintln!("torture: cannot map counters: {e}");
            return EXIT_BROKEN;
        }
    };
    let now = sys::now_ns();
    status.start_ns.store(now, SeqCst);
    status.deadline_ns.store(now + (opts.seconds * 1e9) as u64, SeqCst);
    let seed = opts.seed;
    let code = if opts.supervised() { multi::supervise(&opts, status, fd) } else { worker::run(opts, 0, status, true) };
    if code != EXIT_OK && status.errors.load(SeqCst) == 0 {
        status.errors.store(1, SeqCst);
    }
    let mut out = RawOut::new();
    let _ = status.write_summary(&mut out);
    let _ = status.write_json(&mut out, seed);
    out.flush(1);
    code
}

fn main() {
    let code = match opts::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", opts::help());
            EXIT_OK
        }
        Ok(Command::Noop) => EXIT_OK,
        Ok(Command::Run(opts)) => match opts.worker {
            Some((index, fd)) => work(*opts, index, fd),
            None => lead(*opts),
        },
        Err(message) => {
            eprintln!("torture: {message} (see --help)");
            EXIT_USAGE
        }
    };
    std::process::exit(code);
}
