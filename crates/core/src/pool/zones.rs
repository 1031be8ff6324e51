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
//! zone 1   | block | block | block | ...          each links to the next of its page, or to the next free one
//!          | entry | entry | ...                  handle of each page in it, `entries_per_frame * zone_frames` of them
//! ```
//!
//! The blocks of a page can be anywhere in its zone, so each free block is of use. Blocks that
//! follow each other in memory are one run to whoever reads the page.
//!
//! Costs: the unused part of each page's last block; free blocks of a zone whose entries have run
//! out, if pages compress better than `entries_per_frame`; and the tables.
//!
//! **Differences from the paper.**
//!
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
//! Metadata: 8 bytes per zpage (handle), and per zone 4 per entry, 4 per block and about 100. With
//! 4 MiB in blocks of 128 bytes and 4 entries per frame that is 3.5 %, with a zpage in every entry
//! 4.3 %; in the paper 8.6 %.

mod chain;
mod zone;

use super::handles::{HandleTable, Place, CLASSES_MAX, SLOTS_MAX};
use super::span::SpanAlloc;
use super::{
    shrink_loose, table_bytes, Handle, Leaving, Move, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Runs,
    Slot, Span, FRAME_BYTES, LEN_MAX,
};
use alloc::{boxed::Box, vec::Vec};
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

/// Smallest block, bytes.
const BLOCK_BYTES_MIN: u32 = 32;
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

    fn runs_of(&self, home: Home) -> Runs {
        let slot = |block: u32| {
            let frame = home.zone * self.zone_frames + block / self.blocks_per_frame();
            Slot { frame, offset: (block % self.blocks_per_frame() * self.block_bytes) as u16 }
        };
        let mut left = home.len;
        let mut next = |block: u32| {
            let len = left.min(self.block_bytes);
            left -= len;
            (slot(block), len)
        };
        let mut blocks = self.zone(home.zone).blocks(home.first);
        let (first, len) = next(blocks.next().expect("a page has a block"));
        let mut runs = Runs::one(first, len);
        blocks.map(next).for_each(|(slot, len)| runs.push(slot, len));
        runs
    }

    fn span_of(&self, zone: u32) -> Span {
        Span { first: zone * self.zone_frames, frames: self.zone_frames }
    }

    /// Updates the room of a zone in the chain.
    fn refresh(&mut self, zone: u32) {
        let room = self.zone(zone).room();
        self.chain.set(zone, room);
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
        let mut order: Vec<(u32, Reverse<usize>, u32)> =
            candidates.enumerate().map(|(position, zone)| (self.zone(zone).used(), Reverse(position), zone)).collect();
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

    /// Puts a page into a zone that has room for it.
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
            let Some(target) = self.chain.first_fit(blocks) else {
                too_large = blocks;
                continue;
            };
            let to = self.place_in(target, home.len);
            out.push(Move { handle, from: self.runs_of(home), to: self.runs_of(to) });
            self.zone_mut(target).set_owner(to.entry, handle);
            self.zone_mut(zone).put(entry, home.first);
            self.handles.set(handle, self.pack(to));
        }
        (self.zone(zone).pages() == 0).then(|| self.release(zone))
    }
}

impl Pool for Zones {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        assert!((1..=LEN_MAX).contains(&len), "an object of {len} bytes");
        let blocks = self.blocks_of(len);
        let (zone, grew) = match self.chain.first_fit(blocks) {
            Some(zone) => (zone, Span::EMPTY),
            None => self.grow()?,
        };
        let home = self.place_in(zone, len);
        let handle = self.handles.insert(self.pack(home));
        self.zone_mut(zone).set_owner(home.entry, handle);
        self.stored_bytes += u64::from(len);
        self.used_blocks += u64::from(blocks);
        Ok(Placed { handle, runs: self.runs_of(home), grew })
    }

    fn runs(&self, handle: Handle) -> Runs {
        self.runs_of(self.unpack(self.handles.get(handle)))
    }

    fn len(&self, handle: Handle) -> u32 {
        u32::from(self.handles.get(handle).len)
    }

    fn remove(&mut self, handle: Handle) -> Span {
        let place = self.handles.remove(handle);
        let home = self.unpack(place);
        let blocks = self.blocks_of(home.len);
        self.stored_bytes -= u64::from(home.len);
        self.used_blocks -= u64::from(blocks);
        let zone = self.zone_mut(home.zone);
        assert_eq!(zone.owner(home.entry), Some(handle), "the entry belongs to the handle");
        zone.put(home.entry, home.first);
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

    /// Empties condemned zones, those with the fewest used blocks first. O(pages of these zones).
    fn compact(
        &mut self,
        max_moves: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
        freed: &mut Vec<Span>,
    ) {
        let end = out.len().saturating_add(max_moves);
        if self.condemned > 0 {
            let condemned = self.chain.iter().filter(|zone| self.zone(*zone).condemned);
            let mut order: Vec<(u32, u32)> = condemned.map(|zone| (self.zone(zone).used(), zone)).collect();
            order.sort_by_key(|(used, _)| *used);
            freed.extend(order.into_iter().filter_map(|(_, zone)| self.relocate(zone, end, movable, out)));
        }
    }

    fn trim(&mut self) {
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
        for &number in &in_use {
            assert!(self.numbers.is_used(number));
            let zone = self.zone(number);
            let homes = self.handles.iter().map(|(_, place)| self.unpack(place));
            zone.check(homes.filter(|home| home.zone == number).map(|home| home.first));
            assert!(zone.pages() > 0, "an empty zone is given back");
            tables += zone.metadata_bytes();
            pages += zone.pages();
            used += u64::from(zone.used());
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
            assert_eq!(zone.blocks(home.first).count() as u32, blocks, "blocks of {home:?}");
            stored_bytes += u64::from(home.len);
            blocks_of_pages += u64::from(blocks);
        }
        assert_eq!((stored_bytes, blocks_of_pages), (self.stored_bytes, self.used_blocks));
    }
}

#[cfg(test)]
mod tests;
