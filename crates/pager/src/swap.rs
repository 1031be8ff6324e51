//! The swap tier: an unlinked file in a disk-backed directory, written in segments of 256 KiB.
//!
//! Objects are packed into segments, each behind a header with its length and checksum; a segment is
//! used again when no object in it is left. Reads and writes go past the page cache where the file
//! system can (O_DIRECT), so that what was saved is not spent on caching it.

use memfit_codec::checksum;
use memfit_core::Extent;
use std::alloc::Layout;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

/// Bytes written at once.
pub const SEGMENT_BYTES: usize = 256 << 10;
/// Unit of an [`Extent`]: objects start at its multiples.
const UNIT: usize = 64;
/// Length (2 bytes), codec (1), zero (1), checksum (4), before the bytes of an object.
const HEADER: usize = 8;
/// What O_DIRECT wants offsets, lengths and buffers to be multiples of.
const ALIGN: usize = 4096;

/// Counts, bytes and calls.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct SwapCounters {
    pub read_bytes: AtomicU64,
    pub write_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub errors: AtomicU64,
    pub peak_bytes: AtomicU64,
}

/// The open swap file.
#[derive(Debug)]
pub struct SwapFile {
    file: File,
    space: Mutex<Space>,
    /// Counts since the start.
    pub counters: SwapCounters,
}

#[derive(Debug)]
struct Space {
    /// Live objects of each segment.
    live: Vec<u32>,
    free: Vec<u32>,
    max_segments: u32,
}

/// A page-aligned buffer.
pub struct Aligned {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory.
unsafe impl Send for Aligned {}

impl Aligned {
    /// Zeroed bytes.
    pub fn new(bytes: usize) -> Aligned {
        // SAFETY: the layout is not of size zero; null is caught.
        let base = unsafe { std::alloc::alloc_zeroed(Layout::from_size_align(bytes, ALIGN).expect("a valid layout")) };
        assert!(!base.is_null(), "no memory for an I/O buffer");
        Aligned { base, bytes }
    }
    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base, Layout::from_size_align(self.bytes, ALIGN).expect("a valid layout")) };
    }
}

impl SwapFile {
    /// An unlinked file, mode 0600, in a directory; or an existing file or device.
    pub fn open(path: &Path, max_bytes: u64) -> io::Result<SwapFile> {
        let (file, live) = if path.is_dir() {
            (unlinked(path)?, Vec::new())
        } else {
            // The first segment of a file that was there stays as it is: it may hold a signature.
            (existing(path)?, vec![u32::MAX])
        };
        let space = Space { live, free: Vec::new(), max_segments: (max_bytes / SEGMENT_BYTES as u64) as u32 };
        Ok(SwapFile { file, space: Mutex::new(space), counters: SwapCounters::default() })
    }

    /// A segment to write, or `None` when the file has its full size.
    pub fn begin(&self) -> Option<SegmentWriter<'_>> {
        let mut space = self.space.lock().unwrap();
        let number = match space.free.pop() {
            Some(number) => number,
            None if (space.live.len() as u32) < space.max_segments => {
                space.live.push(0);
                space.live.len() as u32 - 1
            }
            None => return None,
        };
        let bytes = space.live.len() as u64 * SEGMENT_BYTES as u64;
        self.counters.peak_bytes.fetch_max(bytes, Relaxed);
        Some(SegmentWriter { swap: self, number, used: 0, objects: 0 })
    }

    /// The object's bytes are no longer needed.
    pub fn free(&self, extent: Extent) {
        let number = extent.unit as usize * UNIT / SEGMENT_BYTES;
        let mut space = self.space.lock().unwrap();
        space.live[number] -= 1;
        if space.live[number] == 0 {
            space.free.push(number as u32);
        }
    }

    /// Reads an object of `len` bytes and verifies it. The answer lies in `buffer`, which must hold
    /// 12 KiB.
    pub fn read<'a>(&self, extent: Extent, len: usize, buffer: &'a mut Aligned) -> io::Result<&'a [u8]> {
        let at = extent.unit as u64 * UNIT as u64;
        let start = at / ALIGN as u64 * ALIGN as u64;
        let skip = (at - start) as usize;
        let span = (skip + HEADER + len).div_ceil(ALIGN) * ALIGN;
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(span as u64, Relaxed);
        let bytes = buffer.bytes();
        if let Err(error) = self.file.read_exact_at(&mut bytes[..span], start) {
            self.counters.errors.fetch_add(1, Relaxed);
            return Err(error);
        }
        let header = &bytes[skip..skip + HEADER];
        let stored = u16::from_le_bytes([header[0], header[1]]) as usize;
        let sum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let data = &bytes[skip + HEADER..skip + HEADER + len];
        if stored != len || sum != checksum(data) {
            self.counters.errors.fetch_add(1, Relaxed);
            let text = format!("swap file: an object of {len} bytes at offset {at} does not match its checksum");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(data)
    }

    /// Bytes of segments that hold objects.
    pub fn used_bytes(&self) -> u64 {
        let space = self.space.lock().unwrap();
        (space.live.len() - space.free.len()) as u64 * SEGMENT_BYTES as u64
    }
}

/// Packs objects into one segment.
pub struct SegmentWriter<'a> {
    swap: &'a SwapFile,
    number: u32,
    used: usize,
    objects: u32,
}

impl SegmentWriter<'_> {
    /// Where the object will be, or `None` when it does not fit.
    pub fn add(&mut self, bytes: &[u8], codec: u8, buffer: &mut Aligned) -> Option<Extent> {
        let end = self.used + HEADER + bytes.len();
        if end > SEGMENT_BYTES {
            return None;
        }
        let out = &mut buffer.bytes()[self.used..end];
        out[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        out[2..4].copy_from_slice(&[codec, 0]);
        out[4..8].copy_from_slice(&checksum(bytes).to_le_bytes());
        out[HEADER..].copy_from_slice(bytes);
        let unit = (self.number as usize * SEGMENT_BYTES + self.used) / UNIT;
        self.used = end.div_ceil(UNIT) * UNIT;
        self.objects += 1;
        Some(Extent { unit: unit as u32 })
    }

    /// Writes the segment. On an error nothing of it counts.
    pub fn finish(self, buffer: &mut Aligned) -> io::Result<()> {
        let span = self.used.div_ceil(ALIGN) * ALIGN;
        let at = self.number as u64 * SEGMENT_BYTES as u64;
        let result = if span == 0 { Ok(()) } else { self.swap.file.write_all_at(&buffer.bytes()[..span], at) };
        let counters = &self.swap.counters;
        let mut space = self.swap.space.lock().unwrap();
        match &result {
            Ok(()) if self.objects > 0 => {
                space.live[self.number as usize] = self.objects;
                counters.writes.fetch_add(1, Relaxed);
                counters.write_bytes.fetch_add(span as u64, Relaxed);
            }
            _ => space.free.push(self.number),
        }
        if result.is_err() {
            counters.errors.fetch_add(1, Relaxed);
        }
        result
    }
}

fn unlinked(directory: &Path) -> io::Result<File> {
    let open = |flags| {
        File::options().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | flags).open(directory)
    };
    match open(libc::O_DIRECT).or_else(|_| open(0)) {
        Ok(file) => Ok(file),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => named(directory),
        Err(error) => Err(error),
    }
}

/// For file systems without O_TMPFILE: made, then unlinked at once.
fn named(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".memfit-swap-{}", std::process::id()));
    let open =
        |flags| File::options().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags).open(&path);
    let file = open(libc::O_DIRECT).or_else(|_| open(0))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn existing(path: &Path) -> io::Result<File> {
    let open = |flags| File::options().read(true).write(true).custom_flags(flags).open(path);
    open(libc::O_DIRECT).or_else(|_| open(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_written_and_reuses_empty_segments() {
        let swap = SwapFile::open(&std::env::temp_dir(), 2 * SEGMENT_BYTES as u64).unwrap();
        let (mut out, mut back) = (Aligned::new(SEGMENT_BYTES), Aligned::new(3 * ALIGN));
        let mut segment = swap.begin().unwrap();
        let objects: Vec<Vec<u8>> = (1..60u8).map(|i| vec![i; 30 * usize::from(i)]).collect();
        let extents: Vec<Extent> = objects.iter().map(|o| segment.add(o, 1, &mut out).unwrap()).collect();
        segment.finish(&mut out).unwrap();
        for (object, &extent) in objects.iter().zip(&extents) {
            assert_eq!(swap.read(extent, object.len(), &mut back).unwrap(), object);
        }
        assert!(swap.read(extents[3], 7, &mut back).is_err(), "a wrong length is noticed");
        assert!(swap.begin().is_some_and(|s| s.finish(&mut out).is_ok()));
        for &extent in &extents {
            swap.free(extent);
        }
        assert_eq!(swap.used_bytes(), 0);
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let swap = SwapFile::open(&std::env::temp_dir(), SEGMENT_BYTES as u64).unwrap();
        let (mut out, mut back) = (Aligned::new(SEGMENT_BYTES), Aligned::new(3 * ALIGN));
        let mut segment = swap.begin().unwrap();
        let extent = segment.add(&[7; 1000], 1, &mut out).unwrap();
        segment.finish(&mut out).unwrap();
        out.bytes()[HEADER + 500] ^= 1;
        swap.file.write_all_at(&out.bytes()[..ALIGN], 0).unwrap();
        assert_eq!(swap.read(extent, 1000, &mut back).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
