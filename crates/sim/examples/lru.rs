//! Counts hits of plain LRU: `cargo run --release -p memfit-sim --example lru -- WORKLOAD PAGES...`
//! writes a line `pages,hits,hits` for each size. The first count comes from stack distances, the
//! second from a list of that size. They are equal.

use memfit_sim::generate::Spec;
use memfit_sim::lru::{Distances, Lru};

fn main() {
    let usage = || -> ! {
        eprintln!("usage: lru WORKLOAD PAGES...");
        std::process::exit(2);
    };
    let mut args = std::env::args().skip(1);
    let Some(spec) = args.next() else { usage() };
    let spec = Spec::parse(&spec).unwrap_or_else(|error| {
        eprintln!("lru: {error}");
        std::process::exit(2);
    });
    let sizes: Option<Vec<u64>> = args.map(|size| size.parse().ok().filter(|&size| size > 0)).collect();
    let Some(sizes) = sizes else { usage() };
    let mut distances = Distances::new();
    let mut lists: Vec<Lru> = sizes.iter().map(|&size| Lru::new(size)).collect();
    for event in spec.make() {
        distances.event(&event);
        lists.iter_mut().for_each(|list| list.event(&event));
    }
    let curve = distances.curve();
    for (size, list) in sizes.iter().zip(&lists) {
        println!("{size},{},{}", curve.hits(*size).hits, list.hits().hits);
    }
}
