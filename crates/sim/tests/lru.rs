//! Plain LRU: the numbers of docs/yardsticks.md.

use memfit_sim::generate::Spec;
use memfit_sim::lru::{lru, Lru};

/// Rows of the table in the document: workload, touches, pages of memory, their hits, our hits.
fn table() -> Vec<(String, [u64; 4])> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/yardsticks.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let workload = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let numbers: Vec<u64> = cells[2..6].iter().map(|cell| cell.parse().unwrap()).collect();
        Some((workload.to_owned(), numbers.try_into().unwrap()))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn the_hits_are_those_of_the_document() {
    let table = table();
    assert!(table.len() >= 40, "{} rows", table.len());
    let mut checked = 0;
    for (workload, [touches, size, theirs, ours]) in table {
        assert_eq!(theirs, ours, "{workload}, {size} pages");
        // lab/bench/lru_agreement.py checks the rows with more touches.
        if touches > 200_000 {
            continue;
        }
        let spec = Spec::parse(&workload).unwrap();
        let hits = lru(&mut spec.make(), &mut |_| {}).unwrap().hits(size);
        assert_eq!((hits.touches, hits.hits), (touches, ours), "{workload}, {size} pages");
        let mut list = Lru::new(size);
        spec.make().for_each(|event| list.event(&event));
        assert_eq!(list.hits(), hits, "{workload}, {size} pages");
        checked += 1;
    }
    assert!(checked >= 15, "{checked} rows");
}

#[test]
fn with_memory_enough_only_what_is_cold_is_missed() {
    for name in ["scan", "burst", "uniform"] {
        let spec = Spec::parse(&format!("{name}:pages=700")).unwrap();
        let curve = lru(&mut spec.make(), &mut |_| {}).unwrap();
        assert_eq!(curve.hits(curve.enough()).misses(), 0, "{name}");
        assert!(curve.hits(curve.enough() - 1).misses() > 0, "{name}");
    }
}
