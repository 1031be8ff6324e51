//! What became of pages by where they were in the programs, for the report: heap, stack, files or
//! other memory of a process, in equal parts of its address space.
//!
//! Where a page was is noted for its staging slot when it is taken, and read when it was
//! compressed. A part is 1 MiB at first; when there are 1024 rows, parts double in size until half
//! of them are left. So all takes about 300 KiB at most, and 4 bytes for each staging slot.

use crate::locks::{rank, Lock};
use crate::proc::Proc;
use memfit_core::{AreaId, Coded, Page, ProcId, StagingSlot, Victim, PAGE_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Most regions that are told apart in the end.
pub const REGIONS_MAX: usize = 40;
/// Most rows while the run goes on.
const ROWS_MAX: usize = 1024;
/// log2 of the bytes of a part at first, and when a part is all of the address space.
const PART_BITS: u32 = 20;
const ALL_BITS: u32 = 63;
/// The row of what has no other.
const OTHERS: u32 = 0;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Use {
    /// What brk gives.
    Heap,
    /// Of the first thread, or of another one.
    Stack,
    /// A private mapping of a file.
    File,
    /// All other private memory.
    Anonymous,
    /// Of several processes and uses: what has no row of its own.
    Others,
}

/// A range of addresses and its use.
pub type Mapped = (u64, u64, Use);

/// A region at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Number of its process; 0 for the others.
    pub pid: i32,
    /// The name of that.
    pub comm: String,
    /// What it was used for.
    pub used: Use,
    /// The lowest page that was taken.
    pub start: u64,
    /// One past the highest one.
    pub end: u64,
    /// Pages that were compressed and their bytes afterwards, by the codec's name.
    pub codecs: BTreeMap<String, (u64, u64)>,
    /// Pages that no codec made small enough, also those that were not tried as those around them
    /// did not become smaller.
    pub incompressible: u64,
    /// Pages that repeat one word.
    pub filled: u64,
}

impl Region {
    /// Pages and their bytes afterwards, of all codecs.
    #[must_use]
    pub fn compressed(&self) -> (u64, u64) {
        self.codecs.values().fold((0, 0), |(pages, bytes), row| (pages + row.0, bytes + row.1))
    }
}

/// Stands for the processes that map a file shared.
const PAGE_CACHE: &str = "page cache";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    pid: i32,
    comm: String,
    used: Use,
    part: u64,
}

#[derive(Debug, Clone, Default)]
struct Row {
    start: u64,
    end: u64,
    /// By codec number: pages and bytes.
    codecs: Vec<(u8, u64, u64)>,
    incompressible: u64,
    filled: u64,
}

impl Row {
    fn add(&mut self, codec: u8, pages: u64, bytes: u64) {
        match self.codecs.iter_mut().find(|known| known.0 == codec) {
            Some(known) => (known.1, known.2) = (known.1 + pages, known.2 + bytes),
            None => self.codecs.push((codec, pages, bytes)),
        }
    }

    fn cover(&mut self, start: u64, end: u64) {
        (self.start, self.end) = if self.end == 0 { (start, end) } else { (self.start.min(start), self.end.max(end)) };
    }

    fn join(&mut self, other: &Row) {
        self.cover(other.start, other.end);
        other.codecs.iter().for_each(|&(codec, pages, bytes)| self.add(codec, pages, bytes));
        self.incompressible += other.incompressible;
        self.filled += other.filled;
    }

    fn pages(&self) -> u64 {
        self.codecs.iter().map(|codec| codec.1).sum::<u64>() + self.incompressible + self.filled
    }
}

/// Rows in one granularity.
#[derive(Debug, Clone)]
struct Rows {
    part_bits: u32,
    numbers: HashMap<Key, u32>,
    rows: Vec<Row>,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { part_bits: PART_BITS, numbers: HashMap::new(), rows: vec![Row::default()] }
    }
}

impl Rows {
    /// Parts of twice the size; the new number of each row.
    fn coarser(&mut self) -> Vec<u32> {
        let mut moved = vec![OTHERS; self.rows.len()];
        let mut coarse =
            Rows { part_bits: self.part_bits + 1, rows: vec![self.rows[OTHERS as usize].clone()], ..Rows::default() };
        for (key, number) in self.numbers.drain() {
            let to = coarse.number(Key { part: key.part >> 1, ..key });
            coarse.rows[to as usize].join(&self.rows[number as usize]);
            moved[number as usize] = to;
        }
        *self = coarse;
        moved
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX
    }

    fn number(&mut self, key: Key) -> u32 {
        let next = self.rows.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.rows.push(Row::default());
        }
        number
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// Heaps and stacks as last seen, in the order of addresses.
    known: HashMap<ProcId, Vec<Mapped>>,
    /// The row of the page in each staging slot.
    slots: HashMap<AreaId, Vec<u32>>,
    rows: Rows,
}

impl Inner {
    /// A page of a process, of that number and name, is in a slot.
    fn note(&mut self, proc: ProcId, (pid, comm): (i32, &str), slot: StagingSlot, at: u64, file: bool) {
        let used = if file { Use::File } else { self.use_of(proc, at) };
        let mut key = Key { pid, comm: comm.to_owned(), used, part: at >> self.rows.part_bits };
        if self.rows.is_full() && !self.rows.numbers.contains_key(&key) {
            self.make_room();
            key.part = at >> self.rows.part_bits;
        }
        let row = if self.rows.is_full() { self.rows.numbers.get(&key).copied() } else { Some(self.rows.number(key)) };
        if let Some(row) = row {
            self.rows.rows[row as usize].cover(at, at + PAGE_BYTES);
        }
        let slots = self.slots.entry(slot.area).or_default();
        if slots.len() <= slot.index as usize {
            slots.resize(slot.index as usize + 1, OTHERS);
        }
        slots[slot.index as usize] = row.unwrap_or(OTHERS);
    }

    fn use_of(&self, proc: ProcId, at: u64) -> Use {
        let known = self.known.get(&proc).map_or(&[][..], Vec::as_slice);
        let next = known.get(known.partition_point(|mapped| mapped.1 <= at));
        next.filter(|mapped| mapped.0 <= at).map_or(Use::Anonymous, |mapped| mapped.2)
    }

    fn make_room(&mut self) {
        while self.rows.rows.len() > ROWS_MAX / 2 && self.rows.part_bits < ALL_BITS {
            let moved = self.rows.coarser();
            self.slots.values_mut().flatten().for_each(|row| *row = moved[*row as usize]);
        }
    }

    fn became(&mut self, slot: StagingSlot, coded: &Coded) {
        let number = self.slots.get(&slot.area).and_then(|slots| slots.get(slot.index as usize)).copied();
        let row = &mut self.rows.rows[number.unwrap_or(OTHERS) as usize];
        match *coded {
            Coded::Word(_) => row.filled += 1,
            Coded::Bytes { codec, len } => row.add(codec, 1, len.into()),
            Coded::Incompressible => row.incompressible += 1,
            Coded::Stored(_) => {}
        }
    }
}

/// Counts by region.
#[derive(Debug, Default)]
pub struct Regions(Lock<Inner, { rank::REGIONS_SEEN }>);

impl Regions {
    /// Heaps and stacks of a process as they are now, in the order of addresses.
    pub fn mapped(&self, proc: ProcId, known: Vec<Mapped>) {
        self.0.lock().known.insert(proc, known);
    }

    /// Pages of a process are in staging slots now; the core is told afterwards.
    pub fn took(&self, proc: &Proc, victim: &Victim, moved: u64) {
        if moved == 0 {
            return;
        }
        let files: Vec<bool> = {
            let files = proc.files.lock();
            (0..victim.slots.len() as u64).map(|i| files.at(Page(victim.first.0 + i)).is_some()).collect()
        };
        let (pid, comm) = (proc.pid().unwrap_or(0), proc.comm.lock().clone());
        let mut inner = self.0.lock();
        for (i, &slot) in victim.slots.iter().enumerate().filter(|(i, _)| moved >> i & 1 == 1) {
            let at = victim.first.address() + i as u64 * PAGE_BYTES;
            inner.note(proc.id, (pid, &comm), StagingSlot { area: proc.area, index: slot }, at, files[i]);
        }
    }

    /// The same for pages of the page cache.
    pub fn took_cached(&self, id: ProcId, area: AreaId, victim: &Victim) {
        let mut inner = self.0.lock();
        for (i, &index) in victim.slots.iter().enumerate() {
            let at = victim.first.address() + i as u64 * PAGE_BYTES;
            inner.note(id, (0, PAGE_CACHE), StagingSlot { area, index }, at, true);
        }
    }

    /// What a codec made of the page in a slot. The core knows it, and its lock is held: nobody has
    /// the slot again.
    pub fn became(&self, slot: StagingSlot, coded: &Coded) {
        self.0.lock().became(slot, coded);
    }

    /// The [`REGIONS_MAX`] largest regions at most, in as small parts as that allows; all others as
    /// the last one.
    pub fn largest(&self) -> Vec<Region> {
        let mut rows = self.0.lock().rows.clone();
        rows.numbers.retain(|_, number| rows.rows[*number as usize].pages() > 0);
        while rows.numbers.len() > REGIONS_MAX && rows.part_bits < ALL_BITS {
            rows.coarser();
        }
        let Rows { numbers, rows, .. } = rows;
        let mut all: Vec<(Key, &Row)> =
            numbers.into_iter().map(|(key, number)| (key, &rows[number as usize])).collect();
        all.sort_by(|a, b| (b.1.pages(), &a.0).cmp(&(a.1.pages(), &b.0)));
        let mut others = rows[OTHERS as usize].clone();
        let room = if all.len() > REGIONS_MAX || others.pages() > 0 { REGIONS_MAX - 1 } else { REGIONS_MAX };
        all.iter().skip(room).for_each(|(_, row)| others.join(row));
        all.truncate(room);
        let mut regions: Vec<Region> =
            all.into_iter().map(|(key, row)| region(key.pid, key.comm, key.used, row)).collect();
        if others.pages() > 0 {
            let row = Row { start: 0, end: 0, ..others };
            regions.push(region(0, String::new(), Use::Others, &row));
        }
        regions
    }
}

fn region(pid: i32, comm: String, used: Use, row: &Row) -> Region {
    let mut codecs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for &(codec, pages, bytes) in &row.codecs {
        // The numbers of trained dictionaries share a name.
        let name = memfit_codec::CodecId(codec).name().unwrap_or("unknown");
        let sum = codecs.entry(name.to_owned()).or_default();
        *sum = (sum.0 + pages, sum.1 + bytes);
    }
    let Row { start, end, incompressible, filled, .. } = *row;
    Region { pid, comm, used, start, end, codecs, incompressible, filled }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: AreaId = AreaId(3);
    const PROC: ProcId = ProcId(7);
    const MIB: u64 = 1 << 20;
    const LZ4: Coded = Coded::Bytes { codec: memfit_codec::CodecId::LZ4.0, len: 1000 };

    fn page(inner: &mut Inner, of: (i32, &str), at: u64, coded: &Coded) {
        let slot = StagingSlot { area: AREA, index: (at / PAGE_BYTES % 97) as u32 };
        inner.note(PROC, of, slot, at, false);
        inner.became(slot, coded);
    }

    #[test]
    fn pages_count_where_they_were() {
        let regions = Regions::default();
        regions.mapped(PROC, vec![(4 * MIB, 6 * MIB, Use::Heap), (900 * MIB, 901 * MIB, Use::Stack)]);
        {
            let mut inner = regions.0.lock();
            for at in [4 * MIB, 4 * MIB + 8192, 5 * MIB] {
                page(&mut inner, (10, "sort"), at, &LZ4);
            }
            page(&mut inner, (10, "sort"), 4 * MIB, &Coded::Word(0));
            page(&mut inner, (10, "sort"), 6 * MIB, &Coded::Incompressible);
            page(&mut inner, (10, "sort"), 900 * MIB + 4096, &LZ4);
            page(&mut inner, (11, "sort"), 4 * MIB, &LZ4);
            inner.note(PROC, (10, "sort"), StagingSlot { area: AREA, index: 5 }, 7 * MIB, true);
            inner.became(StagingSlot { area: AREA, index: 5 }, &LZ4);
            // Of an area that nobody has noted.
            inner.became(StagingSlot { area: AreaId(9), index: 0 }, &LZ4);
        }
        let all = regions.largest();
        let seen: Vec<_> =
            all.iter().map(|r| (r.pid, r.used, r.start, r.end, r.compressed(), r.incompressible, r.filled)).collect();
        assert_eq!(
            seen,
            [
                (10, Use::Heap, 4 * MIB, 4 * MIB + 12288, (2, 2000), 0, 1),
                (10, Use::Heap, 5 * MIB, 5 * MIB + 4096, (1, 1000), 0, 0),
                (10, Use::Stack, 900 * MIB + 4096, 900 * MIB + 8192, (1, 1000), 0, 0),
                (10, Use::File, 7 * MIB, 7 * MIB + 4096, (1, 1000), 0, 0),
                (10, Use::Anonymous, 6 * MIB, 6 * MIB + 4096, (0, 0), 1, 0),
                (11, Use::Heap, 4 * MIB, 4 * MIB + 4096, (1, 1000), 0, 0),
                (0, Use::Others, 0, 0, (1, 1000), 0, 0),
            ]
        );
        assert_eq!(all[0].codecs.keys().collect::<Vec<_>>(), ["lz4"]);
    }

    #[test]
    fn rows_are_bounded_and_none_is_lost() {
        let regions = Regions::default();
        for (pids, mib) in [(1, 5000), (700, 3), (3000, 1)] {
            let mut inner = regions.0.lock();
            *inner = Inner::default();
            for pid in 0..pids {
                for at in 0..mib {
                    page(&mut inner, (pid, "cc1"), at * MIB, &LZ4);
                    assert!(inner.rows.rows.len() <= ROWS_MAX);
                }
            }
            drop(inner);
            let all = regions.largest();
            assert!(all.len() <= REGIONS_MAX, "{}", all.len());
            assert_eq!(all.iter().map(|region| region.compressed().0).sum::<u64>(), pids as u64 * mib);
            if pids == 1 {
                assert!(all.len() > REGIONS_MAX / 2 - 1, "{}", all.len());
                assert!(all
                    .iter()
                    .all(|region| region.used == Use::Anonymous && region.end - region.start <= 256 * MIB));
            }
        }
    }

    #[test]
    fn a_slot_that_is_in_use_while_parts_grow_counts_there() {
        let mut inner = Inner::default();
        let slot = StagingSlot { area: AREA, index: 1000 };
        inner.note(PROC, (1, "x"), slot, 0, false);
        for at in 1..2 * ROWS_MAX as u64 {
            page(&mut inner, (1, "x"), at * MIB, &Coded::Word(0));
        }
        assert!(inner.rows.part_bits > PART_BITS);
        inner.became(slot, &LZ4);
        let row = inner.rows.numbers[&Key { pid: 1, comm: "x".into(), used: Use::Anonymous, part: 0 }];
        assert_eq!(inner.rows.rows[row as usize].codecs.len(), 1);
    }
}
