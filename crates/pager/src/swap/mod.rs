//! The swap tier: files or devices of one's own, written in segments of 256 KiB.
//!
//! Space is a log ([`memfit_core::swap_log`]). Each object lies behind its authentication tag, encrypted under a key that
//! only this pager has ([`cipher`]). Reads and writes go past the page cache where the file system can (O_DIRECT), so that
//! what was saved is not spent on caching it; and asynchronously ([`engine`]): a fault thread goes on serving others while
//! one waits for the device ([`reader`]), and reclaim goes on while segments are written ([`writer`]).

mod buffer;
mod cipher;
mod copies;
mod device;
mod engine;
mod faults;
mod output;
pub mod reader;
pub mod writer;

pub use copies::{Hash, Hasher};
pub use buffer::{Aligned, ALIGN};
pub use output::Output;
pub use reader::{Have, Reader};
pub use writer::{Room, Writer, Written};

use cipher::{Cipher, Label, TAG_BYTES};
use copies::Copies;
use memfit_core::swap_log::{byte_in_segment, stored_bytes, SegmentId, SwapLog, HEAD_BYTES, SEGMENT_BYTES};
use memfit_core::{Extent, ObjectId, Stored};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts since the start: calls, bytes, segments.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub read_bytes: AtomicU64,
    pub write_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub errors: AtomicU64,
    /// Nanoseconds in which at least one write was under way.
    pub write_ns: AtomicU64,
    pub peak_bytes: AtomicU64,
    /// Bytes of objects that came from the pool or from staging. The rest of `write_bytes` is padding and cleaning.
    pub object_bytes: AtomicU64,
    /// Bytes of objects that were written anew.
    pub cleaned_bytes: AtomicU64,
    /// What the device has not answered yet.
    pub under_way: Arc<engine::UnderWay>,
}

/// A file or device.
struct Place {
    file: File,
    /// Bytes that it may have.
    most: u64,
    /// Bytes that have space allocated.
    allocated: AtomicU64,
}

/// The open files and devices. No thread holds two of its locks; both are inside of the core's.
pub struct SwapTier {
    files: Vec<Place>,
    log: Mutex<SwapLog>,
    cipher: Cipher,
    copies: Mutex<Copies>,
    /// Makes the hashes of copies.
    hasher: Hasher,
    /// Counts since the start.
    pub counters: Counters,
}

impl SwapTier {
    /// Without a place to write to; for programs with so many pages in memory at most.
    ///
    /// # Errors
    /// When the kernel has no random bytes for a key.
    pub fn new(pages: usize) -> io::Result<SwapTier> {
        Ok(SwapTier {
            files: Vec::new(),
            log: Mutex::new(SwapLog::new()),
            cipher: Cipher::new()?,
            copies: Mutex::new(Copies::new(pages)),
            hasher: Hasher::new()?,
            counters: Counters::default(),
        })
    }

    /// Adds an unlinked file, mode 0600, in a directory, or an existing file or device. Used when those before it are full.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn add(&mut self, path: &Path, max_bytes: u64) -> io::Result<()> {
        let (file, bytes, reserved) = device::open(path, max_bytes)?;
        self.files.push(Place { file, most: bytes, allocated: AtomicU64::new(0) });
        // The first segment of a file that was there stays as it is: it may hold a signature.
        self.log().add_device(bytes, reserved);
        Ok(())
    }

    fn log(&self) -> MutexGuard<'_, SwapLog> {
        self.log.lock().unwrap()
    }

    /// The object's bytes are no longer needed there; kept as a copy if a fault has announced it.
    pub fn free(&self, extent: Extent, len: u16) {
        let freed = self.copies().freed(extent, len);
        freed.into_iter().for_each(|(extent, len)| self.release(extent, len));
    }

    fn release(&self, extent: Extent, len: u16) {
        self.log().release(extent, stored_bytes(u32::from(len)));
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap()
    }

    /// A page, as it is in the program now, is about to be freed here.
    pub fn leaves(&self, stored: Stored, page: &[u8]) {
        let hash = self.hasher.hash(page);
        self.copies().leaves(stored, hash);
    }

    /// It was not freed after all.
    pub fn stays(&self, extent: Extent) {
        self.copies().stays(extent);
    }

    /// Where these contents are still; they belong to this object then.
    pub fn copy_of(&self, page: &[u8], object: ObjectId) -> Option<Stored> {
        if !self.copies().any() {
            return None;
        }
        let hash = self.hasher.hash(page);
        let stored = self.copies().take(hash)?;
        self.log().adopt(stored.extent, object);
        Some(stored)
    }

    /// Gives up what is kept of pages that nobody has any more.
    pub fn forget_copies(&self) {
        self.drop_copies(None);
    }

    /// Gives up the copies in a segment, or all. Whether there were any.
    fn drop_copies(&self, segment: Option<SegmentId>) -> bool {
        let extents = self.copies().drop_all(segment);
        extents.iter().for_each(|&(extent, len)| self.release(extent, len));
        !extents.is_empty()
    }

    /// Whether a byte takes longer than this to be written, ns.
    pub fn is_slow(&self, ns: u64) -> bool {
        self.counters.write_ns.load(Relaxed) > self.counters.write_bytes.load(Relaxed) * ns
    }

    /// Bytes of segments in use.
    pub fn used_bytes(&self) -> u64 {
        self.log().usage().used_bytes
    }

    /// Bytes of objects.
    pub fn live_bytes(&self) -> u64 {
        self.log().usage().live_bytes
    }

    /// Bytes of the tables of the log.
    pub fn metadata_bytes(&self) -> u64 {
        let copies = self.copies().metadata_bytes();
        copies + self.log().metadata_bytes()
    }

    /// The device of a segment, and where on it the segment starts.
    fn place(&self, segment: SegmentId) -> (RawFd, u64) {
        let (device, offset) = self.log().place(segment);
        (self.files[device.0 as usize].file.as_raw_fd(), offset)
    }

    /// Which use of its segment an object belongs to. It must not be freed meanwhile.
    fn sequence_of(&self, extent: Extent) -> u64 {
        self.log().sequence(SegmentId::of(extent))
    }

    /// Decrypts an object out of `bytes`, which begin with its tag, into the start of `out`.
    fn open_object<'a>(&self, stored: Stored, sequence: u64, bytes: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
        let (tag, sealed) = bytes.split_at(TAG_BYTES);
        let out = &mut out[..usize::from(stored.len)];
        out.copy_from_slice(&sealed[..usize::from(stored.len)]);
        let label = Label { sequence, unit: stored.extent.unit, codec: stored.codec };
        let tag = tag.try_into().expect("a tag has its length");
        self.cipher.open(label, tag, out).then_some(out)
    }

    /// Encrypts an object into `out`, which becomes its tag, its bytes, zeros to the end of the unit.
    fn seal_object(&self, stored: Stored, sequence: u64, bytes: &[u8], out: &mut [u8]) {
        let label = Label { sequence, unit: stored.extent.unit, codec: stored.codec };
        let (head, rest) = out.split_at_mut(TAG_BYTES);
        let (body, padding) = rest.split_at_mut(bytes.len());
        body.copy_from_slice(bytes);
        padding.fill(0);
        head.copy_from_slice(&self.cipher.seal(label, body));
    }

    /// Bytes that could be taken still.
    pub fn free_bytes(&self) -> u64 {
        self.log().usage().free_bytes
    }

    /// A segment was opened. Says which bytes to allocate, so that no write makes the file longer: one that does excludes all
    /// reads of the file meanwhile (ext4, xfs).
    fn opened(&self, segment: SegmentId) -> Option<(RawFd, std::ops::Range<u64>)> {
        let bytes = self.used_bytes();
        self.counters.peak_bytes.fetch_max(bytes, Relaxed);
        let (device, offset) = self.log().place(segment);
        let Place { file, most, allocated } = &self.files[device.0 as usize];
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

/// Of an object in a segment: its first byte, and the one after its last, with tag and padding.
fn span(stored: Stored) -> (usize, usize) {
    let start = byte_in_segment(stored.extent) as usize;
    (start, start + stored_bytes(u32::from(stored.len)) as usize)
}

const _: () = assert!(TAG_BYTES == HEAD_BYTES as usize);
const SEGMENT: usize = SEGMENT_BYTES as usize;
