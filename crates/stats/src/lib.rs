//! Schema 1: all statistics of a tree, as `--stats` writes them and a running pager tells them.
//!
//! Every reader uses these types, and docs/stats.md is made of these tables: a new statistic is a
//! field here, a counter where it happens, and a line of the pager's `stats.rs` that copies it.
//! Readers take a missing key for 0 and ignore those that they do not know, so that the pager of
//! another version can be asked.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Types with the meanings of their fields; a heading begins a section of docs/stats.md.
macro_rules! schema {
    ($($(#[doc = $about:literal])? struct $name:ident {
        $($(-- $heading:literal)? $(#[serde($($serde:tt)+)])? $field:ident: $type:ty $(= $meaning:literal)?,)+
    })+) => {$(
        $(#[doc = $about])?
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[allow(missing_docs)]
        pub struct $name {
            $($(#[doc = $meaning])? $(#[serde($($serde)+)])? pub $field: $type,)+
        }

        #[cfg(test)]
        impl tests::Documented for $name {
            fn document(key: &str, _: &str, page: &mut String) {
                $(
                    $(tests::begin_section($heading, page);)?
                    let is_flat = concat!($($(stringify!($serde)),+)?) == "flatten";
                    let place = if is_flat { key.to_owned() } else { tests::inside(key, stringify!($field)) };
                    <$type>::document(&place, concat!($($meaning)?), page);
                )+
            }
        }
    )+};
}

/// Types with the same of each of several things.
macro_rules! by_name {
    ($(#[doc = $about:literal] struct $name:ident[$count:literal] { $($field:ident = $meaning:literal,)+ })+) => {$(
        #[doc = $about]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name<T> {
            $(#[doc = $meaning] pub $field: T,)+
        }

        impl<T: Clone> $name<T> {
            /// The names, in the order of the values.
            pub const KEYS: [&'static str; $count] = [$(stringify!($field)),+];

            /// The values.
            pub fn values(&self) -> [T; $count] {
                [$(self.$field.clone()),+]
            }

            /// Two of each together.
            pub fn zip<U>(&self, other: &Self, with: impl Fn(T, T) -> U) -> $name<U> {
                $name { $($field: with(self.$field.clone(), other.$field.clone())),+ }
            }
        }

        impl<T> From<[T; $count]> for $name<T> {
            fn from([$($field),+]: [T; $count]) -> Self {
                Self { $($field),+ }
            }
        }

        #[cfg(test)]
        impl<T: tests::Documented> tests::Documented for $name<T> {
            fn document(key: &str, of_each: &str, page: &mut String) {
                match of_each {
                    "" => {$(T::document(&tests::inside(key, stringify!($field)), $meaning, page);)+}
                    _ => tests::add_row(&tests::inside(key, "*"), of_each, page),
                }
            }
        }
    )+};
}

by_name! {
    /// By the place where the page of a fault was.
    struct BySource[6] {
        zero = "faults in new memory",
        staged = "faults for evicted pages that were not compressed yet",
        filled = "faults for evicted pages that repeat one word",
        pool = "faults for evicted pages in the pool",
        swap = "faults for evicted pages in the swap tier",
        file = "faults for pages of a mapped file",
    }

    /// Where memory is.
    struct Memory[6] {
        total_bytes = "all that counts towards the budget",
        resident_bytes = "pages of paged processes in memory; those that fork relatives share count once",
        staged_bytes = "evicted pages that are not compressed yet",
        pool_bytes = "frames of the compressed pool",
        metadata_bytes = "the pager's tables",
        swap_bytes = "space in use in the swap tier",
    }

    /// By the reason why a page did not go into the pool.
    struct Rejected[7] {
        incompressible = "pages that no codec made small enough, or that were not tried after many such pages; \
            `stored_raw` of them are in the pool",
        by_entropy = "pages that compress too badly, compared with what is in the pool",
        by_need = "pages of processes that need too little memory for the pool to take them (`admission.need_permille`)",
        in_advance = "pages written without compression, because they were taken in advance",
        pool_full = "pages for which the pool had no room",
        not_moved = "pages that the kernel did not let go",
        refaulted = "pages that were accessed or freed while they were compressed",
    }
}

schema! {
    /// All of them.
    struct Stats {
        -- "The run"
        schema: u64 = "1; changes when a key changes its meaning or goes",
        version: String = "of memfit",
        command: Vec<String> = "the command and its arguments; of a long one an answer of a running pager has the beginning",
        pid: i32 = "of the `memfit run` process",
        scheme: String = "name of the scheme",
        budget_bytes: u64 = "the budget",
        wall_ns: u64 = "time since the start",
        #[serde(skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        warnings: Vec<String> = "the warnings, as printed",
        #[serde(skip_serializing_if = "Option::is_none")]
        processes_left_out: Option<u64> =
            "processes that are not in `processes`: with `--stats` ended ones, if there are more than 1000 of them; in an answer of a running pager running ones, if there are too many",
        -- "Memory now and at its peak\n\n`peak.*` has the largest value that each of them had, at different times."
        now: Now,
        peak: Memory<u64>,
        -- "Faults"
        faults: Faults,
        fault_latency_ns: FaultLatency,
        -- "Evictions"
        evictions: Evictions,
        codecs: BTreeMap<String, Codec>,
        pool: Pool,
        -- "Swap tier"
        swap: Swap,
        files: Files,
        -- "Inside"
        transitions: Transitions,
        lock: Lock,
        monitor: Monitor,
        -- "Processes\n\n`processes` is an array with one object for each pid; see `processes_left_out`."
        processes: Vec<Process>,
    }

    struct Exit {
        code: Option<i32> = "exit status of the command, if it exited (only with `--stats`)",
        signal: Option<i32> = "signal that killed the command, if one did (only with `--stats`)",
    }

    struct Now {
        #[serde(flatten)]
        memory: Memory<u64>,
        unmanaged_bytes: u64 = "the rest: memory of the programs that memfit does not page (yet), and memfit's own code and stacks",
        #[serde(skip_serializing_if = "Option::is_none")]
        pages: Option<Pages>,
    }

    struct Pages {
        staged: u64 = "evicted pages that are not compressed yet",
        pooled: u64 = "evicted pages in the pool",
        swapped: u64 = "evicted pages in the swap tier",
        filled: u64 = "evicted pages that repeat one word, kept without a place",
        evicting: u64 = "pages that are being taken out of the programs",
        quarantined: u64 = "pages that a system call of the program may still be freeing",
        parked: u64 = "resident pages that are left alone for a while, because the kernel refused to move them",
    }

    /// Page faults that the pager served.
    struct Faults {
        total: u64 = "all faults",
        #[serde(flatten)]
        by_source: BySource<u64>,
        present: u64 = "faults whose page another fault had brought back",
        around_pages: u64 = "evicted pages that came back with the page of a fault (fault-around, read-ahead)",
        brought_pages: u64 = "evicted pages that the pager brought back without a fault (`memfit fg`, `--background`, `--turns`, detach, forks)",
        zero_run_pages: u64 = "new pages that were filled ahead",
    }

    /// From reading a fault to waking its thread.
    struct FaultLatency {
        #[serde(flatten)]
        all: Quantiles,
        by_source: BySource<Quantiles> = "the same for the faults of each source",
    }

    /// Times of several faults.
    struct Quantiles {
        count: u64 = "faults whose time was taken",
        p50: u64 = "half of the faults took at most that (within an eighth, as the next two)",
        p90: u64 = "90 % took at most that",
        p99: u64 = "99 % took at most that",
        max: u64 = "the longest time",
    }

    struct Evictions {
        pages: u64 = "pages taken out of the programs",
        compressed: u64 = "of these, pages compressed into the pool",
        filled: u64 = "of these, pages that repeat one word",
        clean: u64 = "pages whose contents the swap tier still had: nothing was written",
        same: u64 = "pages that fork relatives shared, and whose contents were stored already",
        to_swap: u64 = "pages that went to the swap tier",
        dropped: u64 = "evicted pages that the program freed",
        file_dropped: u64 = "clean pages of files that were dropped",
        stored_raw: u64 = "pages stored raw in the pool; `rejected.incompressible` has them, too",
        parked_runs: u64 = "runs of 16 pages that the kernel refused to move and that were left alone for a while",
        spared: u64 = "hot pages that stayed when their run was the oldest",
        accessed: u64 = "pages that the kernel's accessed bits showed as used, in all looks together",
        rejected: Rejected<u64>,
    }

    struct Codec {
        pages: u64 = "pages compressed with each codec",
        in_bytes: u64 = "bytes of these pages",
        out_bytes: u64 = "bytes of these pages after compression",
    }

    struct Pool {
        zpages: u64 = "compressed pages in the pool",
        bytes: u64 = "bytes of these pages",
        frames: u64 = "frames that hold them",
        limit_bytes: u64 = "the most that the pool may have now",
        evicted_frames: u64 = "frames freed by writeback",
        evicted_units: u64 = "units (frames, zspages, buffers) chosen for writeback",
        cached_reads: u64 = "blocks that were read and became a buffer (`swap_format.cache_reads`)",
    }

    struct Swap {
        enabled: bool = "whether there is one",
        reads: u64 = "read transfers",
        read_bytes: u64 = "bytes read",
        writes: u64 = "write transfers",
        write_bytes: u64 = "bytes written",
        errors: u64 = "transfers that failed",
        used_bytes: u64 = "space in use",
        live_bytes: u64 = "of this, data that is still wanted",
        object_bytes: u64 = "data written, without padding and headers",
        cleaned_bytes: u64 = "data that was moved to free segments",
        held_back: u64 = "how often nothing was written for a while, because of `--swap-writes`",
        write_bytes_per_hour: u64 = "bytes written in an hour, at the pace of the run",
        endurance_bytes: Option<u64> = "value of `--endurance`",
        endurance_days: Option<f64> = "how many days that lasts at this pace",
    }

    struct Files {
        reads: u64 = "reads of mapped files, with schemes that page them; also ahead of a reader",
        read_bytes: u64 = "bytes of these reads",
        resident_bytes: u64 = "the page cache: pages of shared mappings in memory, once for all processes of a user; a part of `now.resident_bytes`",
    }

    struct Transitions {
        adopted: u64 = "pages found in memory when a range was registered",
        quarantined: u64 = "pages put into quarantine",
        unquarantined: u64 = "pages released from quarantine",
        remapped: u64 = "pages moved by mremap",
        forks: u64 = "forks of paged processes",
        compaction_moves: u64 = "objects moved inside the pool",
        unexpected_present: u64 = "pages found present that should have been outside, for a reason that is known",
        swap_failed: u64 = "pages that the swap tier could not take",
        core_calls: u64 = "calls into the core",
        killed: u64 = "processes in the background that were killed because the programs did not fit (`--on-full`)",
        stopped: u64 = "processes in the background that were stopped for that",
        held: u64 = "times that a process waited for its turn, while programs took pages from each other (`--turns`)",
        waited_at_start: u64 = "times that a new process had to wait, since little memory was free and others were new",
        left_for_others: u64 = "processes in the background that left because memory was short outside of the tree",
    }

    struct Lock {
        longest_hold_ns: u64 = "the longest time that the core's lock was held",
    }

    struct Monitor {
        longest_delay_ns: u64 = "the longest time by which a sample of the tree was late, for want of a CPU",
        longest_sample_ns: u64 = "the longest time that a sample took",
    }

    struct Process {
        pid: i32 = "process id",
        comm: String = "name of the process",
        running: bool = "whether it runs",
        paged: bool = "whether it was ever paged",
        background: bool = "whether it is in the background (`memfit bg`)",
        waits: bool = "whether its page faults wait for its turn now (`--turns`)",
        why_not_paged: Option<String> = "why its memory cannot be evicted; null: it can, or it is not known yet",
        compressed: bool = "whether the pool took its pages when it last gave some (`admission.need_permille`)",
        resident_bytes: u64 = "its memory now",
        peak_total_bytes: u64 = "its memory at most",
        faults: u64 = "its faults",
        evicted_pages: u64 = "evictions of its pages since the run began; a page counts each time",
    }
}

/// Where the page of a fault comes from.
pub const SOURCES: [&str; 6] = BySource::<()>::KEYS;

impl Process {
    /// Its name for a list, without control characters.
    #[must_use]
    pub fn title(&self) -> String {
        let state = match (&self.why_not_paged, self.background, self.waits) {
            (Some(why), ..) => format!(" (not paged: {why})"),
            (_, true, _) => " (background)".into(),
            (.., true) => " (waits for its turn)".into(),
            _ => String::new(),
        };
        (self.comm.clone() + &state).replace(memfit_wire::is_unprintable, " ")
    }
}

impl Memory<u64> {
    /// What counts towards the budget and is none of the other parts.
    #[must_use]
    pub fn unmanaged_bytes(&self) -> u64 {
        let parts = self.resident_bytes + self.staged_bytes + self.pool_bytes + self.metadata_bytes;
        self.total_bytes.saturating_sub(parts)
    }
}

impl Stats {
    /// How many times larger the pages in the pool are than what holds them; `None` when there are
    /// none.
    #[must_use]
    pub fn pool_ratio(&self) -> Option<f64> {
        let (pages, bytes) = (self.pool.zpages, self.now.memory.pool_bytes);
        (pages > 0 && bytes > 0).then(|| (pages * 4096) as f64 / bytes as f64)
    }

    /// The codecs by the pages that they compressed, the most used first.
    #[must_use]
    pub fn codecs_by_pages(&self) -> Vec<(&str, &Codec)> {
        let mut all: Vec<_> = self.codecs.iter().map(|(name, codec)| (name.as_str(), codec)).collect();
        all.sort_by_key(|(_, codec)| std::cmp::Reverse(codec.pages));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    /// What has rows in docs/stats.md.
    pub(super) trait Documented {
        fn document(key: &str, meaning: &str, page: &mut String) {
            add_row(key, meaning, page);
        }
    }

    impl Documented for bool {}
    impl Documented for i32 {}
    impl Documented for u64 {}
    impl Documented for f64 {}
    impl Documented for String {}

    impl<T: Documented> Documented for Option<T> {
        fn document(key: &str, meaning: &str, page: &mut String) {
            T::document(key, meaning, page);
        }
    }

    impl<T: Documented> Documented for Vec<T> {
        fn document(key: &str, meaning: &str, page: &mut String) {
            T::document(key, meaning, page);
        }
    }

    impl<T: Documented> Documented for BTreeMap<String, T> {
        fn document(key: &str, meaning: &str, page: &mut String) {
            T::document(&inside(key, "NAME"), meaning, page);
        }
    }

    pub(super) fn begin_section(heading: &str, page: &mut String) {
        *page += &format!("\n## {heading}\n\n| key | meaning |\n|---|---|\n");
    }

    pub(super) fn add_row(key: &str, meaning: &str, page: &mut String) {
        assert!(!meaning.is_empty(), "{key} needs a meaning");
        *page += &format!("| `{key}` | {meaning} |\n");
    }

    pub(super) fn inside(place: &str, name: &str) -> String {
        if place.is_empty() {
            name.to_owned()
        } else {
            format!("{place}.{name}")
        }
    }

    /// `MEMFIT_BLESS=1` writes its sections anew.
    #[test]
    fn the_document_has_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stats.md");
        let there = std::fs::read_to_string(path).unwrap();
        let mut page = there[..there.find("\n## ").unwrap()].to_owned();
        Stats::document("", "", &mut page);
        if std::env::var_os("MEMFIT_BLESS").is_some() {
            std::fs::write(path, page).unwrap();
        } else {
            assert_eq!(there, page, "MEMFIT_BLESS=1 cargo test -p memfit-stats writes docs/stats.md");
        }
    }

    #[test]
    fn all_that_is_written_is_read() {
        let stats = Stats {
            schema: 1,
            command: vec!["sort".into()],
            exit: Some(Exit { code: None, signal: Some(9) }),
            now: Now { pages: Some(Pages { staged: 3, ..Pages::default() }), ..Now::default() },
            peak: Memory { total_bytes: u64::MAX, ..Memory::default() },
            faults: Faults { total: 21, by_source: [1, 2, 3, 4, 5, 6].into(), ..Faults::default() },
            codecs: [("zstd".to_owned(), Codec { pages: 7, in_bytes: 28_672, out_bytes: 9000 })].into(),
            swap: Swap { endurance_days: Some(0.1), ..Swap::default() },
            processes: vec![Process { pid: 5, comm: "sort".into(), running: true, ..Process::default() }],
            ..Stats::default()
        };
        let json = serde_json::to_value(&stats).unwrap();
        assert_eq!(serde_json::from_value::<Stats>(json.clone()).unwrap(), stats);
        assert_eq!((&json["faults"]["file"], &json["fault_latency_ns"]["p50"]), (&json!(6), &json!(0)));
        assert_eq!(
            (&json["exit"], &json["swap"]["endurance_bytes"]),
            (&json!({"code": null, "signal": 9}), &Value::Null)
        );
        assert_eq!(json.get("processes_left_out"), None, "what is not known is not written");
    }

    #[test]
    fn another_version_can_be_read() {
        let read = |json: Value| serde_json::from_value::<Stats>(json);
        assert_eq!(read(json!({})).unwrap(), Stats::default());
        let newer = json!({"new": [1], "faults": {"total": 4, "new": 1}, "evictions": {"rejected": {"new": 2}}});
        assert_eq!(read(newer).unwrap().faults.total, 4);
        let error = read(json!({"budget_bytes": "1G"})).unwrap_err().to_string();
        assert!(error.contains("invalid type: string \"1G\", expected u64"), "{error}");
    }
}
