//! Writes the touches of a workload as plain text for other simulators: a line `process,page` for
//! each touch.
//!
//! Usage: `cargo run --release -p memfit-sim --example touches -- [--frees] WORKLOAD > FILE`, with
//! a workload such as `zipf:pages=10000,skew=1.0`. With `--frees` it writes a line
//! `process,page,free` for each touched page that is freed.

use memfit_sim::generate::Spec;
use memfit_sim::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

fn main() -> io::Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let frees = args.first().is_some_and(|arg| arg == "--frees");
    args.drain(..usize::from(frees));
    let [spec] = &args[..] else {
        eprintln!("usage: touches [--frees] WORKLOAD");
        std::process::exit(2);
    };
    let spec = Spec::parse(spec).unwrap_or_else(|error| {
        eprintln!("touches: {error}");
        std::process::exit(2);
    });
    let mut out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    let mut touched: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for event in spec.make() {
        let (proc, range) = match event {
            Event::Touches { proc, page, .. } | Event::Present { proc, page } => {
                writeln!(out, "{proc},{page}")?;
                if frees {
                    touched.entry(proc).or_default().insert(page);
                }
                continue;
            }
            Event::Frees { proc, first, pages } => (proc, first..first.saturating_add(pages)),
            Event::Ends { proc } => (proc, 0..u64::MAX),
            _ => continue,
        };
        let pages = touched.entry(proc).or_default();
        let gone: Vec<u64> = pages.range(range).copied().collect();
        for page in gone {
            pages.remove(&page);
            writeln!(out, "{proc},{page},free")?;
        }
    }
    out.flush()
}
