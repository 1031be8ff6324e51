//! The swap tier: files or devices of memfit's own, in segments of 256 KiB.
//!
//! The space is a log ([`memfit_core::swap_log`]), written segment after segment, with each object
//! behind its authentication tag; or fixed blocks of 4 KiB whose numbers the core chooses, with
//! their tags in memory ([`blocks`]). All is encrypted with a key that only this pager has
//! ([`cipher`]). Reads and writes bypass the page cache where the file system can (O_DIRECT): the
//! cache would take the memory that was saved. They are asynchronous ([`engine`]): a fault thread
//! serves other faults while one waits for the device ([`reader`]), and reclaim goes on during
//! writes ([`writer`], [`block_writer`]).

mod allowance;
pub mod block_writer;
mod blocks;
mod cipher;
mod copies;
mod device;
mod engine;
mod fault_injection;
mod output;
pub mod reader;
pub mod writer;

pub use allowance::Allowance;
pub use block_writer::BlockWriter;
pub use copies::{Hash, Hasher};
pub use engine::{Engine, Progress, Transfer};
pub use memfit_os::memory::Aligned;
pub use output::Output;
pub use reader::{Have, Reader};
pub use writer::{Item, Room, Writer, Written};

use crate::locks::{rank, Held, Lock};
use blocks::{Blocks, BLOCK, IN_SEGMENT};
use cipher::{Cipher, Label, TAG_BYTES};
use copies::Copies;
use memfit_codec::page_write_ns;
use memfit_core::blocks::{block_of, BLOCKS_MAX, BLOCK_BYTES};
use memfit_core::scheme::SwapFormat;
use memfit_core::swap_log::{
    byte_in_segment, stored_bytes, SegmentId, SwapLog, HEAD_BYTES, SEGMENTS_MAX, SEGMENT_BYTES,
};
use memfit_core::{Extent, ObjectId, Stored};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// Counts since the start: calls, bytes, segments.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub read_bytes: AtomicU64,
    pub write_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub errors: AtomicU64,
    /// Of late: nanoseconds in which at least one write was under way, and the bytes written then.
    pub write_ns: AtomicU64,
    pub timed_bytes: AtomicU64,
    pub peak_bytes: AtomicU64,
    /// Bytes of objects that came from the pool or from staging. The rest of `write_bytes` is
    /// padding and cleaning.
    pub object_bytes: AtomicU64,
    /// Bytes of objects that were written anew.
    pub cleaned_bytes: AtomicU64,
    /// How often nothing more could be written for a while ([`Allowance`]).
    pub held_back: AtomicU64,
    /// Requests that the device has not answered yet.
    pub under_way: Arc<engine::UnderWay>,
}

/// The time that writes take is judged by so many bytes, or twice as many.
const TIMED_BYTES: u64 = 256 << 20;

impl Counters {
    /// So many bytes were written while the device was busy for so long. Called by the one writer.
    fn wrote(&self, bytes: u64, busy: Duration) {
        self.timed_bytes.fetch_add(bytes, Relaxed);
        self.write_ns.fetch_add(busy.as_nanos() as u64, Relaxed);
        // A device that was slow can be fast again.
        if self.timed_bytes.load(Relaxed) >= 2 * TIMED_BYTES {
            [&self.timed_bytes, &self.write_ns].iter().for_each(|count| count.store(count.load(Relaxed) / 2, Relaxed));
        }
    }
}

/// Alignment of offsets, lengths and buffers that O_DIRECT needs, bytes.
pub const ALIGN: usize = 4096;

/// How the space is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A log of segments: see [`Writer`].
    Log,
    /// Blocks of 4 KiB that the core hands out: see [`BlockWriter`].
    Blocks,
}

impl Layout {
    /// The layout of a swap format.
    pub fn of(format: SwapFormat) -> Layout {
        match format {
            SwapFormat::CompressedExtents => Layout::Log,
            SwapFormat::RawSlots | SwapFormat::CompressedBatches => Layout::Blocks,
        }
    }

    /// Bytes of all places together that an [`Extent`] can address.
    pub fn most_bytes(self) -> u64 {
        match self {
            Layout::Log => u64::from(SEGMENTS_MAX) * u64::from(SEGMENT_BYTES),
            Layout::Blocks => u64::from(BLOCKS_MAX) * u64::from(BLOCK_BYTES),
        }
    }
}

/// A file or device of the tier.
struct Place {
    /// As the user names it.
    path: PathBuf,
    file: File,
    /// Bytes that it may use.
    most: u64,
    /// Bytes that have space allocated.
    allocated: AtomicU64,
}

/// The open files and devices. No thread holds two of the locks; the core lock comes before them.
pub struct SwapTier {
    files: Vec<Place>,
    /// Has no devices in the layout of blocks, so that it takes nothing.
    log: Lock<SwapLog, { rank::SWAP_LOG }>,
    /// `None` in the layout of a log.
    blocks: Option<Blocks>,
    cipher: Cipher,
    copies: Lock<Copies, { rank::SWAP_COPIES }>,
    /// Makes the hashes of copies.
    hasher: Hasher,
    /// Readers that hold memory: they share a limit.
    readers: AtomicUsize,
    /// Counts since the start.
    pub counters: Counters,
}

impl SwapTier {
    /// A tier without files. `pages`: most pages that the programs have in memory.
    ///
    /// # Errors
    /// When the kernel has no random bytes for a key.
    pub fn new(pages: usize, layout: Layout) -> io::Result<SwapTier> {
        Ok(SwapTier {
            files: Vec::new(),
            log: Lock::new(SwapLog::new()),
            blocks: (layout == Layout::Blocks).then(Blocks::default),
            cipher: Cipher::new()?,
            copies: Lock::new(Copies::new(pages)),
            hasher: Hasher::new()?,
            readers: AtomicUsize::new(0),
            counters: Counters::default(),
        })
    }

    /// Adds an unlinked file, mode 0600, if `path` is a directory, else an existing file or device.
    /// The tier uses it when the places before it are full.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn add(&mut self, path: &Path, max_bytes: u64) -> io::Result<()> {
        let (file, bytes, reserved) = device::open(path, max_bytes)?;
        self.files.push(Place { path: path.into(), file, most: bytes, allocated: AtomicU64::new(0) });
        // The first segment of an existing file stays as it is: it may hold a signature.
        match &mut self.blocks {
            Some(blocks) => blocks.add_device(bytes, reserved),
            None => {
                self.log().add_device(bytes, reserved);
            }
        }
        Ok(())
    }

    /// Whether the layout is a log.
    pub fn is_log(&self) -> bool {
        self.blocks.is_none()
    }

    /// The file, device or directory with this number, as the user names it.
    pub fn path(&self, device: usize) -> &Path {
        &self.files[device].path
    }

    /// How many files, devices and directories the tier has. They are filled in this order.
    pub fn places(&self) -> usize {
        self.files.len()
    }

    fn log(&self) -> Held<'_, SwapLog> {
        self.log.lock()
    }

    /// An object no longer needs its bytes there. They stay as a clean copy if a fault has
    /// announced it ([`SwapTier::leaves`]). In the layout of blocks only the core knows which ones
    /// are free.
    pub fn free(&self, extent: Extent, len: u16) {
        if self.blocks.is_some() {
            return;
        }
        let freed = self.copies().freed(extent, len);
        freed.into_iter().for_each(|(extent, len)| self.release(extent, len));
    }

    fn release(&self, extent: Extent, len: u16) {
        self.log().release(extent, stored_bytes(u32::from(len)));
    }

    fn copies(&self) -> Held<'_, Copies> {
        self.copies.lock()
    }

    /// Announces that an object is about to be freed; its page has these contents in the program
    /// now. In the layout of blocks the core may keep its raw slot ([`SwapTier::slot_has`]).
    pub fn leaves(&self, stored: Stored, page: &[u8]) {
        let hash = self.hasher.hash(page);
        match &self.blocks {
            Some(blocks) => blocks.was_read(block_of(stored.extent), hash),
            None => self.copies().leaves(stored, hash),
        }
    }

    /// Whether a raw slot has these contents, and was read since it was last written.
    pub fn slot_has(&self, slot: Extent, page: &[u8]) -> bool {
        let known = self.blocks.as_ref().and_then(|blocks| blocks.last_read(block_of(slot)));
        known.is_some_and(|hash| hash == self.hasher.hash(page))
    }

    /// Takes [`SwapTier::leaves`] back: the object was not freed.
    pub fn stays(&self, extent: Extent) {
        self.copies().stays(extent);
    }

    /// Where in the log these contents still are, as a clean copy. The copy becomes the bytes of
    /// `object`.
    pub fn copy_of(&self, page: &[u8], object: ObjectId) -> Option<Stored> {
        if !self.copies().any() {
            return None;
        }
        let hash = self.hasher.hash(page);
        let stored = self.copies().take(hash)?;
        self.log().adopt(stored.extent, object);
        Some(stored)
    }

    /// Drops all clean copies.
    pub fn forget_copies(&self) {
        self.drop_copies(None);
    }

    /// Drops the clean copies in a segment, or all. Whether there were any.
    fn drop_copies(&self, segment: Option<SegmentId>) -> bool {
        let extents = self.copies().drop_all(segment);
        extents.iter().for_each(|&(extent, len)| self.release(extent, len));
        !extents.is_empty()
    }

    /// Whether writes take longer than this, ns per byte.
    pub fn is_slow(&self, ns: u64) -> bool {
        self.counters.write_ns.load(Relaxed) > self.counters.timed_bytes.load(Relaxed) * ns
    }

    /// Time to write a page, ns; 0 before the first write.
    pub fn page_write_ns(&self) -> u64 {
        page_write_ns(self.counters.write_ns.load(Relaxed), self.counters.timed_bytes.load(Relaxed))
    }

    /// The blocks that can be written now, in the order in which the devices are to be used: fewer
    /// when a device was found full or broken. None in a log.
    pub fn blocks(&self) -> Vec<Range<u32>> {
        self.blocks.as_ref().map_or_else(Vec::new, Blocks::usable)
    }

    /// Notes how many blocks hold objects and how many can be had, as the core counts.
    pub fn set_blocks_in_use(&self, blocks: u64, free: u64) {
        if let Some(all) = &self.blocks {
            all.set_in_use(blocks, free);
            self.counters.peak_bytes.fetch_max(blocks * BLOCK as u64, Relaxed);
        }
    }

    /// Bytes of segments or blocks in use.
    pub fn used_bytes(&self) -> u64 {
        match &self.blocks {
            Some(blocks) => blocks.in_use() * BLOCK as u64,
            None => self.log().usage().used_bytes,
        }
    }

    /// Bytes of objects; a block counts as a whole.
    pub fn live_bytes(&self) -> u64 {
        match &self.blocks {
            Some(blocks) => blocks.in_use() * BLOCK as u64,
            None => self.log().usage().live_bytes,
        }
    }

    /// Bytes of the tables of the log or the blocks, and of the clean copies.
    pub fn metadata_bytes(&self) -> u64 {
        let copies = self.copies().metadata_bytes();
        copies + self.blocks.as_ref().map_or_else(|| self.log().metadata_bytes(), Blocks::metadata_bytes)
    }

    /// The device of a segment, and the byte on it where the segment starts.
    fn device_of(&self, segment: SegmentId) -> (&Place, u64) {
        let (device, offset) = match &self.blocks {
            Some(blocks) => blocks.place(segment),
            None => {
                let (device, offset) = self.log().place(segment);
                (device.0 as usize, offset)
            }
        };
        (&self.files[device], offset)
    }

    /// The same, with the device as a descriptor.
    fn place(&self, segment: SegmentId) -> (RawFd, u64) {
        let (place, offset) = self.device_of(segment);
        (place.file.as_raw_fd(), offset)
    }

    /// The bytes to read for an object: its own with its tag, or its whole block.
    fn locate(&self, stored: Stored) -> (SegmentId, Range<usize>) {
        if self.blocks.is_none() {
            let (start, end) = span(stored);
            return (SegmentId::of(stored.extent), start..end);
        }
        let block = block_of(stored.extent);
        let start = (block % IN_SEGMENT) as usize * BLOCK;
        (SegmentId(block / IN_SEGMENT), start..start + BLOCK)
    }

    /// Number of the write that put an object where it is: of its block, or of the use of its
    /// segment. Bytes read at an earlier [`SwapTier::time`] are not the object's. The object must
    /// not be freed meanwhile.
    fn number_of(&self, extent: Extent) -> u64 {
        match &self.blocks {
            Some(blocks) => blocks.number(block_of(extent)),
            None => self.sequence_of(extent),
        }
    }

    /// The time of a read of these bytes that begins now. There must be an object in them.
    fn time(&self, segment: SegmentId, bytes: Range<usize>) -> u64 {
        match &self.blocks {
            Some(blocks) => blocks.time(segment, bytes),
            None => self.log().sequence(segment),
        }
    }

    /// Decrypts an object, or its whole block, into `out`, a page long. Returns where the object is
    /// there. `bytes` are those at the object's place, read at `time`.
    fn open_read(&self, stored: Stored, time: u64, bytes: &[u8], out: &mut [u8]) -> Option<Range<usize>> {
        match &self.blocks {
            Some(blocks) => blocks.open(&self.cipher, stored, bytes, out),
            None => self.open_object(stored, time, bytes, out).map(|object| 0..object.len()),
        }
    }

    /// Number of the use of its log segment that an object belongs to. The object must not be freed
    /// meanwhile.
    fn sequence_of(&self, extent: Extent) -> u64 {
        self.log().sequence(SegmentId::of(extent))
    }

    /// Decrypts an object of the log into the start of `out`. `bytes` begin with its tag.
    fn open_object<'a>(&self, stored: Stored, sequence: u64, bytes: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
        let (tag, sealed) = bytes.split_at(TAG_BYTES);
        let out = &mut out[..usize::from(stored.len)];
        out.copy_from_slice(&sealed[..usize::from(stored.len)]);
        let label = Label { sequence, unit: stored.extent.unit, codec: stored.codec };
        let tag = tag.try_into().expect("a tag has its length");
        self.cipher.open(label, tag, out).then_some(out)
    }

    /// Encrypts an object of the log into `out`: its tag, its bytes, zeros to the end of the unit.
    fn seal_object(&self, stored: Stored, sequence: u64, bytes: &[u8], out: &mut [u8]) {
        let label = Label { sequence, unit: stored.extent.unit, codec: stored.codec };
        let (head, rest) = out.split_at_mut(TAG_BYTES);
        let (body, padding) = rest.split_at_mut(bytes.len());
        body.copy_from_slice(bytes);
        padding.fill(0);
        head.copy_from_slice(&self.cipher.seal(label, body));
    }

    /// Bytes that the tier can still take.
    pub fn free_bytes(&self) -> u64 {
        match &self.blocks {
            Some(blocks) => blocks.free() * BLOCK as u64,
            None => self.log().usage().free_bytes,
        }
    }

    /// A segment of the log was opened: returns the bytes to allocate.
    fn opened(&self, segment: SegmentId) -> Option<(RawFd, Range<u64>)> {
        let bytes = self.used_bytes();
        self.counters.peak_bytes.fetch_max(bytes, Relaxed);
        self.to_allocate(segment)
    }

    /// Bytes to allocate before a segment is written, so that no write extends the file: such a
    /// write excludes all reads of the file meanwhile (ext4, xfs).
    fn to_allocate(&self, segment: SegmentId) -> Option<(RawFd, Range<u64>)> {
        let (Place { file, most, allocated, .. }, offset) = self.device_of(segment);
        let (have, end) = (allocated.load(Relaxed), offset + SEGMENT as u64);
        let to = (end + ALLOCATE_BYTES).min(*most);
        if end + ALLOCATE_BYTES / 2 <= have || to <= have {
            return None;
        }
        allocated.store(to, Relaxed);
        Some((file.as_raw_fd(), have.max(offset)..to))
    }
}

/// Space that is allocated at once, bytes.
const ALLOCATE_BYTES: u64 = 64 << 20;

/// First byte of an object in its segment, and the one after its last, with tag and padding.
fn span(stored: Stored) -> (usize, usize) {
    let start = byte_in_segment(stored.extent) as usize;
    (start, start + stored_bytes(u32::from(stored.len)) as usize)
}

const _: () = assert!(TAG_BYTES == HEAD_BYTES as usize);
const SEGMENT: usize = SEGMENT_BYTES as usize;
