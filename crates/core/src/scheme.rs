//! Schemes: one choice on each axis, and numbers.
//!
//! Everything is driven by tables: [`AXES`] and [`NUMBERS`] are the keys with their help. The crate
//! `scheme`, which reads and writes schemes as TOML, and `memfit schemes` walk them. A new choice
//! is a line in an `axis!`, a new number a field and an entry in [`NUMBERS`]. Pools come from
//! [`POOLS`], and what chooses the zpages that leave them from [`REPLACEMENTS`]. The core knows a
//! codec by its number alone; the crate `scheme` adds the axis `codec` to those here.

#[cfg(test)]
mod dummies;

use crate::heat::CHANCES_MAX;
use crate::pool::{Pool, PoolEntry, PoolParams, FRAME_BYTES, POOLS};
use crate::replacement::{find, PolicyParams, ReplacementEntry, ReplacementMode, REPLACEMENTS};
use alloc::{boxed::Box, string::String};

/// One choice on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Name in TOML.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
}

/// An axis. Its choice is the key `NAME.kind`; overrides may use just `NAME`.
pub struct Axis {
    /// Name in TOML.
    pub name: &'static str,
    /// What it decides.
    pub help: &'static str,
    /// A choice by its index; `None` after the last one.
    pub choice: fn(usize) -> Option<Choice>,
    /// Index of the choice that a scheme makes.
    pub get: fn(&Scheme) -> usize,
    /// Makes the choice with an index.
    pub set: fn(&mut Scheme, usize),
}

impl Axis {
    /// All choices of the axis.
    pub fn choices(&self) -> impl Iterator<Item = Choice> {
        (0..).map_while(self.choice)
    }

    /// The choice that a scheme makes.
    pub fn chosen(&self, scheme: &Scheme) -> Choice {
        (self.choice)((self.get)(scheme)).expect("a scheme holds choices of the table only")
    }

    /// Makes the choice of that name; false if there is none.
    #[must_use]
    pub fn choose(&self, scheme: &mut Scheme, name: &str) -> bool {
        let index = self.choices().position(|choice| choice.name == name);
        index.inspect(|&index| (self.set)(scheme, index)).is_some()
    }
}

/// A whole number in a scheme.
pub struct Number {
    /// Dotted name in TOML.
    pub key: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Value of a missing key.
    pub default: u32,
    /// Smallest value.
    pub min: u32,
    /// Largest value.
    pub max: u32,
    get: fn(&Scheme) -> u32,
    set: fn(&mut Scheme, u32),
}

impl Number {
    /// The value in a scheme.
    pub fn value(&self, scheme: &Scheme) -> u32 {
        (self.get)(scheme)
    }

    /// Sets it; false if the value is out of range.
    #[must_use]
    pub fn set(&self, scheme: &mut Scheme, value: i128) -> bool {
        let value = u32::try_from(value).ok().filter(|value| (self.min..=self.max).contains(value));
        value.inspect(|&value| (self.set)(scheme, value)).is_some()
    }
}

/// Defines the type of an axis: one variant per line, with its name in TOML and its help.
macro_rules! axis {
    ($(#[$doc:meta])* $type:ident { $($variant:ident $name:literal $help:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type {
            $(#[doc = $help] $variant,)+
        }

        impl $type {
            /// All choices, in the order of the variants.
            pub const ALL: &[$type] = &[$($type::$variant,)+];
            const CHOICES: &[Choice] = &[$(Choice { name: $name, help: $help },)+];

            /// Name in TOML.
            pub fn name(self) -> &'static str {
                Self::CHOICES[self as usize].name
            }
        }
    };
}

axis! {
    /// Which evicted pages are offered to the pool.
    Classes {
        Anonymous "anonymous" "private anonymous pages; pages of files are the kernel's",
        FileDropped "file-dropped" "the same, but read-only file mappings are in the budget, and their pages dropped",
        FilePooled "file-pooled" "both: clean pages of such mappings go to the pool as well",
    }
}
axis! {
    /// Which pages the pool takes.
    AdmissionKind {
        SizeCap "size-cap" "pages that compress to more than max_len bytes go to swap raw; without swap they go to the pool",
        All "all" "every page; one that does not compress takes a whole frame",
        Entropy "entropy" "what is worth as much as the mean of the pool by the entropy of its first 512 bytes; the rest is not compressed",
        None "none" "no page: all go to swap raw",
    }
}
axis! {
    /// Which pages leave the program.
    ReclaimKind {
        Fifo "fifo" "oldest runs first; a page that refaults from staging makes its run young",
        Bimodal "bimodal" "what comes back leaves first again, but for one run in 32: keeps a part of a loop that does not fit",
        Dueling "dueling" "either of the others, whichever brings fewer pages back on a sample of the runs",
    }
}
axis! {
    /// How the pool and the resident pages share the budget.
    SizingKind {
        Adaptive "adaptive" "the pool may take what the floor of resident pages leaves, as long as that is worth more than more resident pages",
        Fixed "fixed" "the pool may take pool_permille of the budget",
        Zones "zones" "the pool gets and gives zones by how much room it has free; none until memory is short",
    }
}
axis! {
    /// Where evicted pages go.
    RoutingKind {
        ColdestToSwap "coldest-to-swap" "all to the pool; when it cannot grow, its coldest pages to swap, or the new one if none leaves",
        ByOrigin "by-origin" "to swap as they are when taken in advance, to the pool when a program waits for room",
    }
}
axis! {
    /// What is written to the swap tier.
    SwapFormat {
        CompressedExtents "compressed-extents" "compressed pages as they are in the pool, packed into a log of segments",
        RawSlots "raw-slots" "whole pages, decompressed, each in a slot of 4 KiB that it has from the moment it is evicted",
        CompressedBatches "compressed-batches" "whole buffers of the pool, many in one write, to contiguous blocks of 4 KiB",
    }
}
/// One choice on each axis, and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Name of the scheme.
    pub name: String,
    /// One-line description.
    pub summary: String,
    /// Axis `classes`.
    pub classes: Classes,
    /// Axis `admission`.
    pub admission: Admission,
    /// Axis `pool`.
    pub pool: PoolScheme,
    /// Axis `reclaim`.
    pub reclaim: Reclaim,
    /// Axis `replacement`.
    pub replacement: ReplacementScheme,
    /// Axis `sizing`.
    pub sizing: Sizing,
    /// Axis `routing`.
    pub routing: Routing,
    /// Axis `swap_format`.
    pub swap_format: SwapFormatScheme,
    /// Axis `codec`.
    pub codec: Codec,
    /// How many pages a fault brings.
    pub fault: FaultScheme,
}

/// Defines a part of [`Scheme`] that has these numbers, and the kind of the default scheme.
/// [`NUMBERS`] has their meaning and units.
macro_rules! part {
    ($(#[$doc:meta])* $type:ident { $([$kind:ty = $default:expr])? $($field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct $type {
            $(pub kind: $kind,)?
            $(pub $field: u32,)*
        }

        impl $type {
            /// [`NUMBERS`] has the defaults of the numbers.
            fn without_numbers() -> $type {
                $type { $(kind: $default,)? $($field: 0,)* }
            }
        }
    };
}

part! {
    /// Axis `admission`, see [`NUMBERS`].
    Admission {
        [AdmissionKind = AdmissionKind::SizeCap]
        max_len, busy_max_len, cap_below_percent, raw_percent, offered_window, need_permille,
    }
}
part! {
    /// Axis `pool`, see [`NUMBERS`].
    PoolScheme {
        [&'static PoolEntry = &POOLS[0]]
        chain_frames, block_bytes, zone_kib, entries_per_frame, header_chunks,
    }
}
part! {
    /// Axis `reclaim`, see [`NUMBERS`].
    Reclaim { [ReclaimKind = ReclaimKind::Dueling] staging_percent, batch_pages, file_age, hot_chances, accessed_bits, per_process, }
}
part! {
    /// Axis `replacement`, see [`NUMBERS`].
    ReplacementScheme {
        [&'static ReplacementEntry = find("dueling").expect("it is in the table")]
        seed, extra_bins, threshold_percent,
    }
}
part! {
    /// Axis `sizing`, see [`NUMBERS`].
    Sizing {
        [SizingKind = SizingKind::Adaptive]
        resident_floor_percent, dense_floor_percent, low_percent, high_percent, pool_permille, grow_below_zones,
        shrink_above_zones, check_ms, check_stores, reserve_pages,
    }
}
part! {
    /// Axis `routing`.
    Routing { [RoutingKind = RoutingKind::ColdestToSwap] }
}
part! {
    /// Axis `swap_format`, see [`NUMBERS`].
    SwapFormatScheme { [SwapFormat = SwapFormat::CompressedExtents] virtual_percent, synchronous, cache_reads, }
}
part! {
    /// Axis `codec`, see [`NUMBERS`]. The kind is the number of a codec. Without a kind, memfit
    /// selects a codec for each region.
    Codec { [Option<u8> = None] same_filled, }
}
part! {
    /// How many pages a fault brings, see [`NUMBERS`].
    FaultScheme { around_pages, zero_run_pages, }
}

impl PoolScheme {
    /// Parameters of a pool over a frame area of `area_frames` frames, of which it may use
    /// `limit_frames`.
    pub fn params(&self, area_frames: u32, limit_frames: u32) -> PoolParams {
        PoolParams {
            area_frames,
            limit_frames,
            chain_frames: self.chain_frames,
            block_bytes: self.block_bytes,
            zone_frames: self.zone_kib / (FRAME_BYTES >> 10),
            entries_per_frame: self.entries_per_frame,
            header_chunks: self.header_chunks,
        }
    }

    /// An empty pool with these parameters.
    pub fn make(&self, area_frames: u32, limit_frames: u32) -> Box<dyn Pool> {
        (self.kind.make)(&self.params(area_frames, limit_frames))
    }
}

impl ReplacementScheme {
    /// The replacement mode, empty, for a pool of at most `limit_frames` frames.
    pub fn make(&self, limit_frames: u32) -> ReplacementMode {
        (self.kind.make)(&PolicyParams {
            seed: u64::from(self.seed),
            limit_frames,
            extra_bins: self.extra_bins != 0,
            threshold_percent: self.threshold_percent,
        })
    }
}

/// An entry of [`AXES`] for a type made by `axis!`: name, help, type and field.
macro_rules! axis_entry {
    ($name:literal, $help:literal, $type:ident, $($field:ident).+) => {
        Axis {
            name: $name,
            help: $help,
            choice: |index| $type::CHOICES.get(index).copied(),
            get: |scheme| scheme.$($field).+ as usize,
            set: |scheme, index| scheme.$($field).+ = $type::ALL[index],
        }
    };
}

/// Every axis but `codec`, in the order of listings.
pub static AXES: &[Axis] = &[
    axis_entry!("classes", "Which evicted pages are offered to the pool", Classes, classes),
    axis_entry!("admission", "Which pages the pool takes", AdmissionKind, admission.kind),
    Axis {
        name: "pool",
        help: "How compressed pages are placed in 4 KiB frames",
        choice: |index| POOLS.get(index).map(|entry| Choice { name: entry.name, help: entry.help }),
        get: |scheme| POOLS.iter().position(|entry| entry == scheme.pool.kind).expect("pools come from the table"),
        set: |scheme, index| scheme.pool.kind = &POOLS[index],
    },
    axis_entry!("reclaim", "Which pages leave the program", ReclaimKind, reclaim.kind),
    Axis {
        name: "replacement",
        help: "Which pages leave the pool",
        choice: |index| REPLACEMENTS.get(index).map(|entry| Choice { name: entry.name, help: entry.help }),
        get: |scheme| {
            let kind = scheme.replacement.kind;
            REPLACEMENTS.iter().position(|entry| entry == kind).expect("replacements come from the table")
        },
        set: |scheme, index| scheme.replacement.kind = &REPLACEMENTS[index],
    },
    axis_entry!("sizing", "How the pool and the resident pages share the budget", SizingKind, sizing.kind),
    axis_entry!("routing", "Where evicted pages go", RoutingKind, routing.kind),
    axis_entry!("swap_format", "What is written to the swap tier", SwapFormat, swap_format.kind),
];

/// An entry of [`NUMBERS`]: section and key, default, range, unit, help.
macro_rules! number {
    ($section:ident.$field:ident = $default:literal, $min:literal..=$max:expr, $unit:literal, $help:literal) => {
        Number {
            key: concat!(stringify!($section), ".", stringify!($field)),
            help: $help,
            unit: $unit,
            default: $default,
            min: $min,
            max: $max,
            get: |scheme| scheme.$section.$field,
            set: |scheme, value| scheme.$section.$field = value,
        }
    };
}

/// Every number, in the order of listings.
#[rustfmt::skip]
pub static NUMBERS: &[Number] = &[
    number!(admission.max_len = 3264, 256..=4096, "bytes",
        "Size cap: longest compressed page worth the time to decompress it. With zspages of 4 frames nothing above 3264 \
         bytes saves a frame"),
    number!(admission.busy_max_len = 2048, 256..=4096, "bytes",
        "Size cap: the same while programs wait for a CPU and the swap tier is quick. To compress a page and back then takes \
         time from them, and a read does not"),
    number!(admission.cap_below_percent = 100, 1..=100, "percent of the pool's limit",
        "Size cap: only while less of the pool than this is free"),
    number!(admission.raw_percent = 25, 0..=100, "percent of the pool's pages",
        "Size cap: so many of those that it leaves out stay in the pool as they are, each until the pool has taken as many \
         pages as it holds. 0: all go to the swap tier at once"),
    number!(admission.offered_window = 0, 0..=1, "0 or 1",
        "Entropy: 1 counts only pages that were offered before in the window of hits, 0 every page that comes in"),
    number!(admission.need_permille = 0, 0..=1000, "permille of the budget",
        "The pool takes the pages of a process once its pages, in memory and outside, are as much as this, and as long as \
         they are half as much; those of others go to the swap tier, if there is one. 0: of all processes"),
    number!(pool.chain_frames = 4, 1..=8, "frames of 4 KiB",
        "zsmalloc: most frames that share slots. More waste less at the end of a zspage, but are emptied more rarely"),
    number!(pool.block_bytes = 128, 32..=4096, "bytes, a power of two",
        "Zones: size of a block. Each page leaves a part of its last one unused"),
    number!(pool.zone_kib = 4096, 256..=65536, "KiB, a multiple of 4",
        "Zones: size of a zone, the step in which the pool grows and shrinks"),
    number!(pool.entries_per_frame = 4, 1..=64, "pages for each frame of a zone",
        "Zones: most compressed pages of a zone, for which it has table entries: the compression factor that is expected"),
    number!(pool.header_chunks = 0, 0..=1, "chunks of 64 bytes",
        "z3fold: what the header of a frame takes. It lies elsewhere here; 1 is as in the kernel"),
    number!(reclaim.staging_percent = 3, 1..=25, "percent of the budget",
        "Pages that were taken out and are not compressed yet. A touch brings them back for a copy"),
    number!(reclaim.batch_pages = 128, 16..=256, "pages",
        "Most pages that one request takes out of a process"),
    number!(reclaim.file_age = 1, 1..=10000, "times",
        "How many times as old a page of a file counts as another when the oldest are chosen, if files are in the budget"),
    number!(reclaim.hot_chances = 7, 0..=CHANCES_MAX, "times",
        "Bimodal, dueling: how often a page that came back at once whenever it left may stay when it is the oldest. 0: never"),
    number!(reclaim.accessed_bits = 0, 0..=1, "0 or 1",
        "1: the kernel's accessed bits say which pages are hot (Linux 7.3 and later). memfit then evicts no read-only memory"),
    number!(reclaim.per_process = 1, 0..=1, "0 or 1",
        "1: when memory is short, a process in the background leaves as a whole before others give pages. 0: it gives pages \
         like the others"),
    number!(replacement.seed = 1, 0..=4294967295, "any number",
        "Lottery: seed of the draws. The same seed and the same pages give the same victims"),
    number!(replacement.extra_bins = 0, 0..=1, "0 or 1",
        "Lottery: 1 has categories for frames of which more than half is free, by the same formula"),
    number!(replacement.threshold_percent = 50, 1..=100, "percent of the buffers",
        "Full buffers: so many are full when they are written though there is room"),
    number!(sizing.resident_floor_percent = 30, 1..=50, "percent of the budget",
        "Resident pages that are never reclaimed for the pool: what does not fit then goes to swap"),
    number!(sizing.dense_floor_percent = 15, 1..=50, "percent of the budget",
        "The same while the pool's pages take half of their size or less: RAM then holds more in the pool"),
    number!(sizing.low_percent = 2, 1..=20, "percent of the budget",
        "Background reclaim starts when less than this is free"),
    number!(sizing.high_percent = 4, 2..=40, "percent of the budget",
        "Background reclaim stops when this much is free"),
    number!(sizing.pool_permille = 100, 1..=900, "permille of the budget",
        "Fixed: most that the pool may take. Zones: the same"),
    number!(sizing.grow_below_zones = 1, 1..=64, "zones",
        "Zones: the pool gets a zone when less than this is free in it"),
    number!(sizing.shrink_above_zones = 4, 2..=64, "zones",
        "Zones: the pool gives a zone back when more than this is free in it"),
    number!(sizing.check_ms = 1000, 1..=60_000, "ms",
        "Zones: the free room is looked at after so much time at the latest"),
    number!(sizing.check_stores = 1024, 1..=1_000_000, "stores",
        "Zones: the same after so many stores"),
    number!(sizing.reserve_pages = 0, 0..=4096, "pages",
        "Room that is kept free in a pool that cannot grow: its oldest pages go to swap in advance"),
    number!(swap_format.virtual_percent = 200, 100..=1600, "percent of the swap tier",
        "Compressed batches: most pages that are out at once, as if each took a block of 4 KiB"),
    number!(swap_format.synchronous = 0, 0..=1, "0 or 1",
        "1: reclaim waits until the pages that leave the pool are written. 0: it does not wait"),
    number!(swap_format.cache_reads = 0, 0..=1, "0 or 1",
        "Compressed batches. 1: a block that was read becomes a buffer of the pool, with all of its pages. 0: it does not"),
    number!(codec.same_filled = 1, 0..=1, "0 or 1",
        "1 keeps a page of one repeated 8-byte word as that word alone; 0 compresses it as any other"),
    number!(fault.around_pages = 16, 1..=16, "pages",
        "Most evicted pages that one fault brings back. It starts at 1 and doubles while faults are in sequence"),
    number!(fault.zero_run_pages = 64, 1..=64, "pages",
        "Most pages never touched before that one fault fills with zeros"),
];

impl Default for Scheme {
    fn default() -> Scheme {
        let mut scheme = Scheme {
            name: "memfit".into(),
            summary: "our own, and the default".into(),
            classes: Classes::Anonymous,
            admission: Admission::without_numbers(),
            pool: PoolScheme::without_numbers(),
            reclaim: Reclaim::without_numbers(),
            replacement: ReplacementScheme::without_numbers(),
            sizing: Sizing::without_numbers(),
            routing: Routing::without_numbers(),
            swap_format: SwapFormatScheme::without_numbers(),
            codec: Codec::without_numbers(),
            fault: FaultScheme::without_numbers(),
        };
        for number in NUMBERS {
            (number.set)(&mut scheme, number.default);
        }
        scheme
    }
}
