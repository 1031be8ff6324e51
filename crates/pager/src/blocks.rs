//! Writeback in blocks, for the schemes that use them: whole pages into their slots, or whole
//! buffers.

use crate::state::Shared;
use crate::swap::{Aligned, BlockWriter, Item};
use memfit_codec::{CodecId, Dictionaries, Worker};
use memfit_core::blocks::block_of;
use memfit_core::scheme::SwapFormat;
use memfit_core::{blocks, Compress, ObjectId, Stored, WriteBack, PAGE_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;

/// Buffers and contexts of the reclaim thread.
pub struct BlockOutput {
    worker: Worker,
    page: Aligned,
    /// Compressed bytes of one page.
    coded: Box<[u8]>,
    /// Objects that the core has chosen and the writer does not have yet.
    chosen: VecDeque<WriteBack>,
}

impl BlockOutput {
    /// Makes buffers and contexts.
    pub fn new(dictionaries: &Arc<Dictionaries>) -> BlockOutput {
        let page = Aligned::new(PAGE_BYTES as usize);
        let coded = vec![0; PAGE_BYTES as usize].into();
        BlockOutput { worker: Worker::with(dictionaries), page, coded, chosen: VecDeque::new() }
    }

    /// Begins to write what the core evicts from the pool; unless `pressed`, only what is due.
    /// Returns how many pages of files were dropped.
    pub fn write_back(&mut self, shared: &Shared, writer: &mut BlockWriter, pressed: bool) -> usize {
        let mut dropped = 0;
        self.go_on(shared, writer);
        if self.chosen.is_empty() && writer.ready() && writer.usable() {
            let mut victims = Vec::new();
            let mut state = shared.lock();
            dropped = state.core.pick_writeback(pressed, u32::MAX, &mut victims);
            shared.apply_effects(state);
            self.chosen.extend(victims);
            self.go_on(shared, writer);
        }
        dropped
    }

    /// Gives the writer as many of the chosen objects as it takes.
    pub fn go_on(&mut self, shared: &Shared, writer: &mut BlockWriter) {
        let batches = shared.scheme.swap_format.kind == SwapFormat::CompressedBatches;
        while let Some(first) = self.chosen.front().cloned().filter(|_| writer.ready()) {
            if batches {
                let block = first.to.map(block_of);
                let same = self.chosen.iter().take_while(|victim| victim.to.map(block_of) == block).count();
                let buffer: Vec<WriteBack> = self.chosen.drain(..same).collect();
                self.write_buffer(shared, writer, &buffer);
            } else {
                self.chosen.pop_front();
                if !self.write_page(shared, writer, &first) {
                    let mut state = shared.lock();
                    state.core.written(first.object, None);
                    shared.apply_effects(state);
                    shared.fatal("the compressed bytes of a page are damaged".into());
                }
            }
        }
        writer.flush();
    }

    /// Writes a page uncompressed (ezswap 5.17, tuduce05 rule 9). False if its bytes are damaged.
    fn write_page(&mut self, shared: &Shared, writer: &mut BlockWriter, victim: &WriteBack) -> bool {
        // While the object is being written its bytes stay.
        let (len, page) = (victim.runs.len() as usize, self.page.bytes());
        if victim.codec == 0 && len == page.len() {
            shared.read_pooled(&victim.runs, page);
        } else {
            let bytes = &mut self.coded[..len];
            shared.read_pooled(&victim.runs, bytes);
            if self.worker.decompress(CodecId(victim.codec), bytes, page).is_err() {
                return false;
            }
        }
        let extent = victim.to.expect("pages have slots");
        let stored = Stored { extent, len: PAGE_BYTES as u16, codec: 0 };
        writer.add(block_of(extent), self.page.bytes(), vec![Item { object: victim.object, stored, from: None }]);
        true
    }

    /// Writes a whole buffer of the pool, with all objects in it (cervera99, rule 8).
    fn write_buffer(&mut self, shared: &Shared, writer: &mut BlockWriter, objects: &[WriteBack]) {
        let Some(first) = objects.first() else { return };
        let item = |victim: &WriteBack| {
            let extent = victim.to.expect("buffers have blocks");
            let stored = Stored { extent, len: victim.runs.len() as u16, codec: victim.codec };
            Item { object: victim.object, stored, from: None }
        };
        let frame = u64::from(first.runs.slot().frame) * PAGE_BYTES;
        // The buffer is sealed, and while its objects are being written their bytes stay.
        shared.memory.copy_to(frame, self.page.bytes());
        writer.add(
            block_of(objects[0].to.expect("buffers have blocks")),
            self.page.bytes(),
            objects.iter().map(item).collect(),
        );
    }

    /// Begins to write staged pages into their slots. Those left in `items` must wait; those in
    /// `refused` stay in staging.
    pub fn write_raw(
        &mut self,
        shared: &Shared,
        writer: &mut BlockWriter,
        items: &mut Vec<Compress>,
        refused: &mut Vec<ObjectId>,
    ) {
        let mut done = 0;
        for item in items.iter() {
            if writer.usable() && !writer.ready() {
                break;
            }
            done += 1;
            let mut state = shared.lock();
            let (block, area) = (state.core.block_of(item.object), state.segments.get(&item.slot.area).cloned());
            drop(state);
            let (Some(block), Some(area), true) = (block, area, writer.usable()) else {
                refused.push(item.object);
                continue;
            };
            // The core keeps the slot until `written`.
            area.copy_page(crate::proc::slot_offset(item.slot.index), self.page.bytes());
            let stored = Stored { extent: blocks::extent(block, 0), len: PAGE_BYTES as u16, codec: 0 };
            writer.add(block, self.page.bytes(), vec![Item { object: item.object, stored, from: None }]);
        }
        items.drain(..done);
        writer.flush();
    }
}
