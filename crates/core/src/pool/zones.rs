//! Zones of blocks in the manner of Tuduce and Gross, "Adaptive Main Memory Compression", USENIX
//! 2005.
//!
//! The compressed area is a chain of equal zones, each of contiguous frames cut into equal blocks.
//! A page of `len` bytes takes `ceil(len / block_bytes)` blocks and one comp-page entry, all in one
//! zone: the first of the chain that has them. The pool adds a zone at the end of the chain when
//! the limit has room for a whole one, and frees zones as a whole, so that the area can follow the
//! demand in cheap, coarse steps (see `zone_sizing`).
//!
//! ```text
//! chain    zone 0  ->  zone 1  ->  zone 4         a zone is `zone_frames` frames of the frame area
//! zone 1   | block | block | block | ...          bitmap of free blocks, with an index of free runs
//!          | entry | entry | ...                  handle of each page in it, `entries_per_frame * zone_frames` of them
//! ```
//!
//! Costs: the unused part of each page's last block; free blocks of a zone whose entries have run
//! out, if pages compress better than `entries_per_frame`; and the tables.
//!
//! **Differences from the paper.**
//!
//! * In the paper each block of a page links to the next, anywhere in the zone. Here the blocks are
//!   contiguous, because readers take the bytes of a page as one run without asking the pool. So a
//!   page can find enough free blocks but no run of them. Then it goes to the next zone that has a
//!   run, or to a new zone, or is refused. After the last two, [`Pool::compact`] moves pages of the
//!   zone with most free blocks together until it has the run. Measured with pages of 600 to 3200
//!   bytes, replaced at random (`how_often_runs_are_too_short`): with a tenth of the blocks free
//!   hardly any page is refused, but with several zones most pages pass the first ones, whose free
//!   blocks are scattered. Zones that are to be completely full reach 93 to 95 %, with compaction
//!   94 to 96 %.
//! * A zone that has become empty is freed at once, even if the limit allows it, like frames in
//!   every pool here; the next one is new, at the end of the chain. Free room depends on the limit,
//!   not on the zones in use.
//! * As in the paper, the zone with the fewest used blocks (the later of equal ones) is deleted,
//!   but not in one step. From [`Pool::set_limit`] on it is *condemned*: it takes no page, and
//!   [`Pool::compact`] moves its pages to the others by first fit, as many as it may. If no page
//!   leaves to make room, the zone stays; it is pardoned when the limit rises.
//! * If the limit or the area is smaller than a zone when the pool is made, zones are smaller; see
//!   [`zone_size`].
//! * A zone has no more entries than blocks, and at most 524,288.
//! * There is no hash table and no LRU list: objects are found by number, and the policy keeps
//!   their order. Handles stay the same when pages move, so that order does too.
//!
//! Metadata: 8 bytes per zpage (handle), and per zone 4 per entry, up to 5/16 per block and about
//! 100. With 4 MiB in blocks of 128 bytes and 4 entries per frame that is 0.6 %, with a zpage in
//! every entry 1.4 %; in the paper 8.6 %.

mod blocks;
mod chain;
mod zone;

use super::handles::{HandleTable, Place, CLASSES_MAX, SLOTS_MAX};
use super::span::SpanAlloc;
use super::{
    shrink_loose, table_bytes, Handle, Leaving, Move, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Slot,
    Span, FRAME_BYTES, LEN_MAX,
};
use alloc::{boxed::Box, vec::Vec};
use blocks::BLOCK_BYTES_MIN;
use chain::Chain;
use core::cmp::Reverse;
use zone::Zone;

/// Entry of this pool in [`super::POOLS`].
pub(super) const ENTRY: PoolEntry = PoolEntry {
    name: "zones",
    help: "zones of small blocks, first fit; grows and shrinks by whole zones",
    leaving: Leaving::Zpages,
    tidies: false,
    compacts: false,
    make: |params| Box::new(Zones::new(params)),
};

/// Most entries of a zone: what class and slot number of a handle's place can encode together.
const ENTRIES_MAX: u32 = CLASSES_MAX as u32 * SLOTS_MAX;

/// Frames and entries of a zone in a pool with these parameters. Frames: `params.zone_frames`, but
/// at most the area, and at most the first limit unless that is 0. Whatever controls the limit must
/// use the same zones.
pub fn zone_size(params: &PoolParams) -> (u32, u32) {
    let limit = if params.limit_frames == 0 { u32::MAX } else { params.limit_frames };
    let frames = params.zone_frames.min(params.area_frames).min(limit).max(1);
    let blocks = frames.saturating_mul(FRAME_BYTES / params.block_bytes);
    (frames, frames.saturating_mul(params.entries_per_frame).clamp(1, blocks.min(ENTRIES_MAX)))
}

/// Place of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Home {
    zone: u32,
    entry: u32,
    /// First block, within the zone.
    first: u32,
    len: u32,
}

/// The pool.
struct Zones {
    handles: HandleTable,
    /// Zone `z` has the frames from `z * zone_frames` on.
    zones: Vec<Option<Box<Zone>>>,
    /// Zone numbers in use.
    numbers: SpanAlloc,
    chain: Chain,
    zone_frames: u32,
    block_bytes: u32,
    /// Entries of a zone.
    entries: u32,
    area: u32,
    limit: u32,
    condemned: u32,
    stored_bytes: u64,
    used_blocks: u64,
    /// Blocks of the largest page, since the last compaction, that found enough free blocks but no
    /// zone with a run of them; 0 if none.
    wanted: u32,
    /// Pages that went to a later or a new zone although an earlier one had enough blocks.
    passed_by: u64,
    /// Pages that were refused although a zone had enough blocks.
    refused: u64,
}

impl Zones {
    fn new(params: &PoolParams) -> Self {
        let block_bytes = params.block_bytes;
        let in_range = (BLOCK_BYTES_MIN..=FRAME_BYTES).contains(&block_bytes);
        assert!(in_range && block_bytes.is_power_of_two(), "blocks of {block_bytes} bytes are not supported");
        let (zone_frames, entries) = zone_size(params);
        assert!(zone_frames <= 1 << 20, "zones of {zone_frames} frames are not supported");
        let blocks = zone_frames * (FRAME_BYTES / block_bytes);
        // Block numbers over the whole area must fit into 32 bits.
        let zones = (params.area_frames / zone_frames).min(u32::MAX / blocks);
        Zones {
            handles: HandleTable::new(),
            zones: Vec::new(),
            numbers: SpanAlloc::new(zones, 1),
            chain: Chain::default(),
            zone_frames,
            block_bytes,
            entries,
            area: params.area_frames,
            limit: params.limit_frames,
            condemned: 0,
            stored_bytes: 0,
            used_blocks: 0,
            wanted: 0,
            passed_by: 0,
            refused: 0,
        }
    }

    /// Blocks per frame; divides the frame's bytes.
    fn blocks_per_frame(&self) -> u32 {
        FRAME_BYTES / self.block_bytes
    }

    fn blocks_per_zone(&self) -> u32 {
        self.zone_frames * self.blocks_per_frame()
    }

    /// Blocks that a page of `len` bytes takes.
    fn blocks_of(&self, len: u32) -> u32 {
        len.div_ceil(self.block_bytes)
    }

    fn zone(&self, zone: u32) -> &Zone {
        self.zones[zone as usize].as_ref().expect("the zone is in use")
    }

    fn zone_mut(&mut self, zone: u32) -> &mut Zone {
        self.zones[zone as usize].as_mut().expect("the zone is in use")
    }

    /// A page's place as an entry of the handle table: the block counted over the area, and the
    /// entry in two parts.
    fn pack(&self, home: Home) -> Place {
        let block = home.zone * self.blocks_per_zone() + home.first;
        let (class, slot) = ((home.entry / SLOTS_MAX) as u8, (home.entry % SLOTS_MAX) as u16);
        Place { class, slot, len: home.len as u16, zspage: block }
    }

    fn unpack(&self, place: Place) -> Home {
        let (zone, first) = (place.zspage / self.blocks_per_zone(), place.zspage % self.blocks_per_zone());
        let entry = u32::from(place.class) * SLOTS_MAX + u32::from(place.slot);
        Home { zone, entry, first, len: u32::from(place.len) }
    }

    fn slot_of(&self, home: Home) -> Slot {
        let frame = home.zone * self.zone_frames + home.first / self.blocks_per_frame();
        Slot { frame, offset: (home.first % self.blocks_per_frame() * self.block_bytes) as u16 }
    }

    fn span_of(&self, zone: u32) -> Span {
        Span { first: zone * self.zone_frames, frames: self.zone_frames }
    }

    /// Updates the room of a zone in the chain.
    fn refresh(&mut self, zone: u32) {
        let room = self.zone(zone).room();
        self.chain.set(zone, room);
    }

    /// First zone with a run of `blocks` blocks, and whether an earlier zone has the blocks but no
    /// run. If no zone has a run, records what compaction must make.
    fn first_fit(&mut self, blocks: u32) -> (Option<u32>, bool) {
        let (by_count, by_run) = (self.chain.first_by_count(blocks), self.chain.first_by_run(blocks));
        let passes_by = by_count != by_run;
        if passes_by && by_run.is_none() {
            self.wanted = self.wanted.max(blocks);
        }
        (by_run, passes_by)
    }

    /// Adds a zone at the end of the chain, if the limit has room for a whole one.
    fn grow(&mut self) -> Result<(u32, Span), PoolFull> {
        let (frames_used, frames_needed) = (self.frames(), self.zone_frames);
        if frames_used.saturating_add(frames_needed) > self.limit {
            return Err(PoolFull { frames_used, frames_needed, frames_max: self.limit });
        }
        let number = self.numbers.alloc(1).ok_or(PoolFull { frames_used, frames_needed, frames_max: self.area })?;
        let zone = number.first;
        if self.zones.len() <= zone as usize {
            self.zones.resize_with(zone as usize + 1, || None);
        }
        self.zones[zone as usize] = Some(Box::new(Zone::new(self.blocks_per_zone(), self.entries)));
        self.chain.push(zone);
        self.refresh(zone);
        Ok((zone, self.span_of(zone)))
    }

    /// Frees an empty zone.
    fn release(&mut self, zone: u32) -> Span {
        let gone = self.zones[zone as usize].take().expect("the zone is in use");
        self.condemned -= u32::from(gone.condemned);
        self.chain.remove(zone);
        self.numbers.free(Span { first: zone, frames: 1 });
        while self.zones.last().is_some_and(|zone| zone.is_none()) {
            self.zones.pop();
        }
        shrink_loose(&mut self.zones);
        self.balance();
        self.span_of(zone)
    }

    fn frames(&self) -> u32 {
        self.chain.live() * self.zone_frames
    }

    /// Heap bytes of all tables except those of the zones.
    fn shared_bytes(&self) -> u64 {
        let own = size_of::<Self>() as u64 + table_bytes(&self.zones);
        own + self.handles.metadata_bytes() + self.chain.metadata_bytes() + self.numbers.metadata_bytes()
    }

    /// Condemns zones beyond the limit: those with the fewest used blocks first, of equal ones the
    /// later; or pardons in the opposite order. O(zones) if there is anything to do.
    fn balance(&mut self) {
        let excess = self.chain.live().saturating_sub(self.limit / self.zone_frames);
        let condemn = excess > self.condemned;
        let count = excess.abs_diff(self.condemned) as usize;
        if count == 0 {
            return;
        }
        let candidates = self.chain.iter().filter(|zone| self.zone(*zone).condemned != condemn);
        let mut order: Vec<(u32, Reverse<usize>, u32)> = candidates
            .enumerate()
            .map(|(position, zone)| (self.zone(zone).blocks.used(), Reverse(position), zone))
            .collect();
        order.sort_unstable();
        if !condemn {
            order.reverse();
        }
        for (.., zone) in order.into_iter().take(count) {
            self.zone_mut(zone).condemned = condemn;
            self.refresh(zone);
        }
        self.condemned = excess;
    }

    /// Puts a page into a zone that has a run for it.
    fn place_in(&mut self, zone: u32, len: u32) -> Home {
        let blocks = self.blocks_of(len);
        let (entry, first) = self.zone_mut(zone).take(blocks);
        self.refresh(zone);
        Home { zone, entry, first, len }
    }

    /// Moves pages out of a condemned zone, by first fit, until `out` has `end` moves. Returns the
    /// zone's frames if it is empty then.
    fn relocate(
        &mut self,
        zone: u32,
        end: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
    ) -> Option<Span> {
        // Room only shrinks meanwhile: a page as large as one that did not fit does not fit either.
        let mut too_large = u32::MAX;
        for entry in 0..self.entries {
            if out.len() >= end || too_large == 1 {
                break;
            }
            let Some(handle) = self.zone(zone).owner(entry) else { continue };
            let home = self.unpack(self.handles.get(handle));
            let blocks = self.blocks_of(home.len);
            if blocks >= too_large || !movable(handle) {
                continue;
            }
            let (Some(target), _) = self.first_fit(blocks) else {
                too_large = blocks;
                continue;
            };
            let to = self.place_in(target, home.len);
            self.zone_mut(target).set_owner(to.entry, handle);
            self.zone_mut(zone).put(entry, home.first, blocks);
            self.handles.set(handle, self.pack(to));
            out.push(Move { handle, from: self.slot_of(home), to: self.slot_of(to), len: home.len });
        }
        (self.zone(zone).pages() == 0).then(|| self.release(zone))
    }

    /// Moves the last pages of a zone to lower places in it, until there is a run of `wanted`
    /// blocks. Returns whether there is one.
    fn tidy_zone(
        &mut self,
        zone: u32,
        wanted: u32,
        end: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
    ) -> bool {
        let mut pages: Vec<(Home, Handle)> =
            self.zone(zone).owners().map(|handle| (self.unpack(self.handles.get(handle)), handle)).collect();
        pages.sort_unstable_by_key(|(home, _)| Reverse(home.first));
        for (home, handle) in pages {
            let (map, blocks) = (&self.zone(zone).blocks, self.blocks_of(home.len));
            if out.len() >= end || map.longest() >= wanted {
                break;
            }
            let Some(first) = map.lowest(blocks).filter(|first| *first < home.first && movable(handle)) else {
                continue;
            };
            let map = &mut self.zone_mut(zone).blocks;
            map.put(home.first, blocks);
            map.take(first, blocks);
            let to = Home { first, ..home };
            self.handles.set(handle, self.pack(to));
            out.push(Move { handle, from: self.slot_of(home), to: self.slot_of(to), len: home.len });
        }
        self.refresh(zone);
        self.zone(zone).blocks.longest() >= wanted
    }

    /// Makes the run that was wanted since the last compaction, unless there is one now, in the
    /// zone with most free blocks. Returns whether it succeeded.
    fn tidy(&mut self, end: usize, movable: &dyn Fn(Handle) -> bool, out: &mut Vec<Move>) -> bool {
        let wanted = core::mem::take(&mut self.wanted);
        if wanted == 0 || self.chain.first_by_run(wanted).is_some() {
            return false;
        }
        let Some(zone) = self.chain.emptiest().filter(|zone| self.zone(*zone).blocks.free() >= wanted) else {
            return false;
        };
        let done = self.tidy_zone(zone, wanted, end, movable, out);
        if !done && out.len() >= end {
            // The next call continues.
            self.wanted = wanted;
        }
        done
    }
}

impl Pool for Zones {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        assert!((1..=LEN_MAX).contains(&len), "an object of {len} bytes");
        let blocks = self.blocks_of(len);
        let (fit, passed_by) = self.first_fit(blocks);
        let (zone, grew) = match fit.map_or_else(|| self.grow(), |zone| Ok((zone, Span::EMPTY))) {
            Ok(found) => found,
            Err(full) => {
                self.refused += u64::from(passed_by);
                return Err(full);
            }
        };
        self.passed_by += u64::from(passed_by);
        let home = self.place_in(zone, len);
        let handle = self.handles.insert(self.pack(home));
        self.zone_mut(zone).set_owner(home.entry, handle);
        self.stored_bytes += u64::from(len);
        self.used_blocks += u64::from(blocks);
        Ok(Placed { handle, slot: self.slot_of(home), grew })
    }

    fn slot(&self, handle: Handle) -> (Slot, u32) {
        let home = self.unpack(self.handles.get(handle));
        (self.slot_of(home), home.len)
    }

    fn remove(&mut self, handle: Handle) -> Span {
        let place = self.handles.remove(handle);
        let home = self.unpack(place);
        let blocks = self.blocks_of(home.len);
        self.stored_bytes -= u64::from(home.len);
        self.used_blocks -= u64::from(blocks);
        let zone = self.zone_mut(home.zone);
        assert_eq!(zone.owner(home.entry), Some(handle), "the entry belongs to the handle");
        zone.put(home.entry, home.first, blocks);
        if zone.pages() == 0 {
            return self.release(home.zone);
        }
        self.refresh(home.zone);
        Span::EMPTY
    }

    /// As many zones as fit into the frames. Zones beyond that are condemned: see the module's
    /// documentation.
    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
        self.balance();
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage {
            zpages: u64::from(self.handles.live()),
            stored_bytes: self.stored_bytes,
            used_bytes: self.used_blocks * u64::from(self.block_bytes),
            frames: self.frames(),
        }
    }

    fn metadata_bytes(&self) -> u64 {
        // All zones have tables of the same size.
        let of_a_zone = self.chain.iter().next().map_or(0, |zone| self.zone(zone).metadata_bytes());
        self.shared_bytes() + u64::from(self.chain.live()) * of_a_zone
    }

    /// Empties condemned zones, those with the fewest used blocks first. Makes a run if pages found
    /// enough blocks but no run, and tries again if that helped. O(pages of these zones) per round.
    fn compact(
        &mut self,
        max_moves: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
        freed: &mut Vec<Span>,
    ) {
        let end = out.len().saturating_add(max_moves);
        loop {
            if self.condemned > 0 {
                let condemned = self.chain.iter().filter(|zone| self.zone(*zone).condemned);
                let mut order: Vec<(u32, u32)> = condemned.map(|zone| (self.zone(zone).blocks.used(), zone)).collect();
                order.sort_by_key(|(used, _)| *used);
                freed.extend(order.into_iter().filter_map(|(_, zone)| self.relocate(zone, end, movable, out)));
            }
            if !self.tidy(end, movable, out) || self.condemned == 0 {
                break;
            }
        }
        self.handles.trim();
    }

    fn check(&self) {
        self.handles.check();
        self.numbers.check();
        self.chain.check(|zone| self.zone(zone).room());
        let in_use: Vec<u32> = (0..self.zones.len() as u32).filter(|z| self.zones[*z as usize].is_some()).collect();
        assert_eq!(in_use.len() as u32, self.chain.live());
        assert_eq!(self.numbers.used(), self.chain.live());
        let (mut pages, mut used, mut tables) = (0, 0, 0);
        for &zone in &in_use {
            assert!(self.numbers.is_used(zone));
            let zone = self.zone(zone);
            zone.check();
            assert!(zone.pages() > 0, "an empty zone is given back");
            tables += zone.metadata_bytes();
            pages += zone.pages();
            used += u64::from(zone.blocks.used());
        }
        assert_eq!((pages, used), (self.handles.live(), self.used_blocks));
        assert_eq!(self.metadata_bytes(), self.shared_bytes() + tables);
        let allowed = self.limit / self.zone_frames;
        let condemned = in_use.iter().filter(|zone| self.zone(**zone).condemned).count() as u32;
        assert_eq!((condemned, condemned), (self.condemned, self.chain.live().saturating_sub(allowed)));
        let (mut stored_bytes, mut blocks_of_pages) = (0, 0);
        for (handle, place) in self.handles.iter() {
            let home = self.unpack(place);
            let (zone, blocks) = (self.zone(home.zone), self.blocks_of(home.len));
            assert_eq!(zone.owner(home.entry), Some(handle), "entry of {home:?}");
            assert!(zone.blocks.all_used(home.first, blocks), "blocks of {home:?}");
            stored_bytes += u64::from(home.len);
            blocks_of_pages += u64::from(blocks);
        }
        // All blocks of pages are in use, and no more blocks are in use than pages have. So no
        // block belongs to two pages.
        assert_eq!((stored_bytes, blocks_of_pages), (self.stored_bytes, self.used_blocks));
    }
}

#[cfg(test)]
mod tests;
