//! Writing pages to the swap tier in blocks, for the schemes that do: whole pages into their slots, or whole buffers.

use crate::state::Shared;
use crate::swap::{Aligned, BlockWriter, Item};
use memfit_codec::{CodecId, Dictionaries, Worker};
use memfit_core::blocks::block_of;
use memfit_core::scheme::SwapFormat;
use memfit_core::{blocks, Compress, ObjectId, Stored, WriteBack, PAGE_BYTES};
use std::sync::Arc;

/// Buffers and contexts of the reclaim thread.
pub struct BlockOutput {
    worker: Worker,
    page: Aligned,
}

impl BlockOutput {
    /// With its buffers and contexts.
    pub fn new(dictionaries: &Arc<Dictionaries>) -> BlockOutput {
        BlockOutput { worker: Worker::with(dictionaries), page: Aligned::new(PAGE_BYTES as usize) }
    }

    /// Begins to write what the core gives up of the pool.
    pub fn write_back(&mut self, shared: &Shared, writer: &mut BlockWriter) {
        if !writer.ready() {
            return;
        }
        let mut victims = Vec::new();
        let mut state = shared.lock();
        state.core.pick_writeback(u32::MAX, &mut victims);
        shared.settle(state);
        let mut failed = Vec::new();
        match shared.scheme.swap_format.kind {
            SwapFormat::CompressedBatches => {
                for buffer in victims.chunk_by(|a, b| a.to.map(block_of) == b.to.map(block_of)) {
                    write_buffer(shared, writer, buffer);
                }
            }
            _ => {
                for victim in &victims {
                    if !self.write_page(shared, writer, victim) {
                        failed.push(victim.object);
                    }
                }
            }
        }
        writer.flush();
        if !failed.is_empty() {
            let mut state = shared.lock();
            failed.iter().for_each(|&object| state.core.written(object, None));
            shared.settle(state);
            shared.fatal("the compressed bytes of a page are damaged".into());
        }
    }

    /// A page as it was in the program (ezswap 5.17, tuduce05 rule 9). False if its bytes are damaged.
    fn write_page(&mut self, shared: &Shared, writer: &mut BlockWriter, victim: &WriteBack) -> bool {
        // SAFETY: while the object is being written its bytes stay.
        let bytes = unsafe { shared.memory.read(victim.slot.byte(), victim.len as usize) };
        let page = self.page.bytes();
        if victim.codec == 0 && bytes.len() == page.len() {
            page.copy_from_slice(bytes);
        } else if self.worker.decompress(CodecId(victim.codec), bytes, page).is_err() {
            return false;
        }
        let extent = victim.to.expect("pages have slots");
        let stored = Stored { extent, len: PAGE_BYTES as u16, codec: 0 };
        writer.add(block_of(extent), self.page.bytes(), vec![Item { object: victim.object, stored, from: None }]);
        true
    }

    /// Begins to write pages from staging into their slots. What is left in `items` must wait; `refused` stays in staging.
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
            // SAFETY: the core keeps the slot until `written`.
            let bytes = unsafe { area.page(crate::proc::slot_offset(item.slot.index)) };
            let stored = Stored { extent: blocks::extent(block, 0), len: PAGE_BYTES as u16, codec: 0 };
            writer.add(block, bytes, vec![Item { object: item.object, stored, from: None }]);
        }
        items.drain(..done);
        writer.flush();
    }
}

/// A whole buffer of the pool, for all that is in it (cervera99, rule 8).
fn write_buffer(shared: &Shared, writer: &mut BlockWriter, objects: &[WriteBack]) {
    let Some(first) = objects.first() else { return };
    let item = |victim: &WriteBack| {
        let extent = victim.to.expect("buffers have blocks");
        let stored = Stored { extent, len: victim.len as u16, codec: victim.codec };
        Item { object: victim.object, stored, from: None }
    };
    let frame = u64::from(first.slot.frame) * PAGE_BYTES;
    // SAFETY: the buffer is sealed, and while its objects are being written their bytes stay.
    let bytes = unsafe { shared.memory.read(frame, PAGE_BYTES as usize) };
    writer.add(block_of(objects[0].to.expect("buffers have blocks")), bytes, objects.iter().map(item).collect());
}
