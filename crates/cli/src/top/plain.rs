//! Lines of numbers, for pipes, files and terminals without a screen. Pure.

use super::sample::Rates;
use super::units::{age, byte_rate, bytes, count, nanoseconds};
use memfit_stats::Stats;

const COLUMNS: [(&str, usize); 14] = [
    ("UP", 8),
    ("PID", 8),
    ("BUDGET", 7),
    ("USED", 7),
    ("RESIDENT", 9),
    ("STAGED", 7),
    ("POOL", 7),
    ("SWAP", 7),
    ("RATIO", 6),
    ("FAULTS/S", 9),
    ("P99", 7),
    ("OUT", 8),
    ("READ", 8),
    ("WRITE", 8),
];

fn line<'a>(cells: impl IntoIterator<Item = &'a str>) -> String {
    let cells = cells.into_iter().zip(COLUMNS);
    let text: String = cells.map(|(cell, (_, width))| format!(" {cell:>width$}")).collect();
    text[1..].to_owned() + "\n"
}

/// The names of the columns.
#[must_use]
pub fn head() -> String {
    line(COLUMNS.map(|(name, _)| name))
}

/// The line of one tree.
#[must_use]
pub fn row(pid: &str, stats: &Stats, rates: &Rates) -> String {
    let rates = [
        count(rates.faults),
        nanoseconds(stats.fault_latency_ns.all.p99),
        byte_rate(rates.evicted_pages * 4096.0),
        byte_rate(rates.swap_read_bytes),
        byte_rate(rates.swap_write_bytes),
    ];
    let (first, sizes) = ([age(stats.wall_ns), pid.to_owned()], sizes(stats));
    line(first.iter().chain(&sizes).chain(&rates).map(String::as_str))
}

/// The columns from the budget to the ratio.
#[must_use]
pub fn sizes(stats: &Stats) -> [String; 7] {
    let now = &stats.now.memory;
    let [total, resident, staged, pool, swap] =
        [now.total_bytes, now.resident_bytes, now.staged_bytes, now.pool_bytes, now.swap_bytes].map(bytes);
    let ratio = stats.pool_ratio().map_or_else(|| "-".into(), |ratio| format!("{ratio:.1}"));
    [bytes(stats.budget_bytes), total, resident, staged, pool, swap, ratio]
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::answer;
    use super::*;

    #[test]
    fn columns_are_under_their_names() {
        let stats = answer(10, 1);
        let row = row("4242", &stats, &Rates::between(None, &stats));
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "0:10", "4242", "128M", "127M", "70.0M", "4.0M", "36.0M", "12.0M", "3.3", "10", "80.0us", "1.2M/s",
                "102K/s", "205K/s"
            ]
        );
        assert_eq!((head().len(), head().split_whitespace().count()), (row.len(), words.len()));
        assert!(row.len() <= 120 && !row.contains('\u{1b}'));
    }
}
