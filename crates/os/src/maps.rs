//! Mappings of another process, and which of their pages are present.

use crate::procfs::{self, Program};
use memfit_wire::pagemap::{
    Region, Scan, PAGEMAP_SCAN, PAGE_IS_ACCESSED, PAGE_IS_GUARD, PAGE_IS_PFNZERO, PAGE_IS_PRESENT, PAGE_IS_SWAPPED,
};
use memfit_wire::PAGE_BYTES;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// A mapping that the pager may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The main thread's stack.
    pub stack: bool,
    /// The heap that grows by brk.
    pub heap: bool,
    /// Its access, as PROT_* bits.
    pub access: u8,
    /// Without access (PROT_NONE): address space that the program has reserved, parts of which
    /// mprotect will open.
    pub reserved: bool,
}

impl Mapping {
    /// Whether the program can write to it.
    pub fn writable(&self) -> bool {
        self.access & 2 != 0
    }

    /// Whether the program can read it and not write to it.
    pub fn read_only(&self) -> bool {
        self.access & 3 == 1
    }
}

/// The private anonymous mappings that are writable, reserved or readable, in address order. `maps`
/// is the text of /proc/PID/maps.
///
/// Left out: file mappings (few of their pages are written), shared mappings, special mappings in
/// brackets except for the heap, the stack and named anonymous memory, and execute-only ranges.
pub fn evictable(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(parse).collect()
}

/// Whether the text of /proc/PID/maps has a file with this name, which may have been removed since.
pub fn has_file(maps: &str, name: &str) -> bool {
    let mut paths = maps.lines().map(|line| line.strip_suffix(" (deleted)").unwrap_or(line));
    paths.any(|path| path.rsplit_once('/').is_some_and(|(_, file)| file == name))
}

/// All anonymous private mappings, whatever their access, from the text of /proc/PID/maps or smaps.
pub fn private_anonymous(maps: &str) -> Vec<(u64, u64)> {
    let of = |line: &str| {
        let head = Head::of(line)?;
        (head.perms.ends_with('p') && head.inode == "0" && anonymous(head.name)).then(|| parse_range(head.range))?
    };
    maps.lines().filter_map(of).collect()
}

/// Whether a mapping with this name and without a file is plain memory, not a mapping of the
/// kernel.
fn anonymous(name: &str) -> bool {
    name.is_empty() || name == "[heap]" || name.starts_with("[anon:") || name == "[stack]"
}

/// Whether the kernel answers PROCMAP_QUERY (Linux 6.11), which tells the mapping of an address.
/// Tried once.
pub fn can_ask() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let here = 0u8;
        File::open("/proc/self/maps").is_ok_and(|maps| ask(&maps, &raw const here as u64).is_ok())
    })
}

/// Start and end of the mapping with an address.
fn ask(maps: &File, address: u64) -> io::Result<(u64, u64)> {
    // struct procmap_query: size, flags, address; then the answer: start, end and more.
    const WORDS: usize = 13;
    const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
    let mut query = [0u64; WORDS];
    (query[0], query[2]) = (size_of_val(&query) as u64, address);
    // SAFETY: a valid procmap_query.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, query.as_mut_ptr()) } {
        0 => Ok((query[3], query[4])),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Two hexadecimal addresses with a hyphen between.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (start, end) = text.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Fields of a mapping's line in /proc/PID/maps; in smaps more lines follow it.
pub(crate) struct Head<'a> {
    pub range: &'a str,
    pub perms: &'a str,
    pub inode: &'a str,
    /// Empty if there is none.
    pub name: &'a str,
}

impl Head<'_> {
    pub fn of(line: &str) -> Option<Head<'_>> {
        let mut fields = line.split_ascii_whitespace();
        let (range, perms, inode) = (fields.next()?, fields.next()?, fields.nth(2)?);
        Some(Head { range, perms, inode, name: fields.next().unwrap_or("") })
    }
}

/// Whether a line of /proc/PID/smaps begins a mapping, and is not one of its figures.
pub(crate) fn is_head(line: &str) -> bool {
    !line.as_bytes().first().is_some_and(u8::is_ascii_uppercase)
}

fn parse(line: &str) -> Option<Mapping> {
    let Head { range, perms, inode, name } = Head::of(line)?;
    let reserved = perms.starts_with("---");
    if !(perms.starts_with('r') || perms[1..].starts_with('w') || reserved)
        || !perms.ends_with('p')
        || inode != "0"
        || !anonymous(name)
    {
        return None;
    }
    let (start, end) = parse_range(range)?;
    let access = access_of(perms);
    Some(Mapping { start, end, stack: name == "[stack]", heap: name == "[heap]", access, reserved })
}

/// The mappings that meet a range, each with its access (PROT_*), from the text of /proc/PID/maps.
pub fn within(maps: &str, start: u64, end: u64) -> Vec<(u64, u64, u8)> {
    let of = |line: &str| {
        let Head { range, perms, .. } = Head::of(line)?;
        let (first, last) = parse_range(range)?;
        (first < end && last > start).then(|| (first.max(start), last.min(end), access_of(perms)))
    };
    maps.lines().filter_map(of).collect()
}

/// The file of a mapping that has a whole range, and the byte of it at the range's start, from the
/// text of /proc/PID/maps. `None` if there is no such mapping.
pub fn file_at(maps: &str, start: u64, end: u64) -> Option<FileAt> {
    let of = |line: &str| {
        let (first, last) = parse_range(line.split(' ').next()?)?;
        let mut fields = line.split_ascii_whitespace().skip(2);
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let device = libc::makedev(number(major)?, number(minor)?);
        let inode = fields.next()?.parse().ok()?;
        (first <= start && end <= last).then(|| FileAt { device, inode, offset: offset + start - first })
    };
    maps.lines().find_map(of)
}

/// See [`file_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAt {
    /// Device number, as stat gives it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Byte of the file.
    pub offset: u64,
}

fn access_of(perms: &str) -> u8 {
    let letters = perms.bytes().zip([(b'r', 1), (b'w', 2), (b'x', 4)]);
    letters.map(|(has, (letter, bit))| if has == letter { bit } else { 0 }).sum()
}

/// The executable file mappings, from the text of /proc/PID/maps.
pub fn code(maps: &str) -> Vec<(u64, u64)> {
    let of = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        parse_range(range).filter(|_| rest.starts_with("r-x") && rest.contains('/'))
    };
    maps.lines().filter_map(of).collect()
}

/// Ranges that a fork child does not inherit unchanged (MADV_DONTFORK, MADV_WIPEONFORK), from the
/// text of /proc/PID/smaps.
pub fn not_inherited(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["dc", "wf"])
}

/// Ranges that no fork child inherits (MADV_DONTFORK), from the text of /proc/PID/smaps.
pub fn not_in_children(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["dc"])
}

/// Ranges that must not have huge pages (MADV_NOHUGEPAGE), from the text of /proc/PID/smaps.
pub fn without_huge_pages(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["nh"])
}

/// Ranges that are empty in a fork child (MADV_WIPEONFORK), from the text of /proc/PID/smaps.
pub fn wiped_in_children(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["wf"])
}

/// Zero-initialised variables of glibc and its loader: the anonymous mappings directly behind the
/// writable mappings of their files, from the text of /proc/PID/maps.
pub fn data_of_libc(maps: &str) -> Vec<(u64, u64)> {
    let (mut out, mut libc_end) = (Vec::new(), 0);
    for line in maps.lines() {
        let Some((start, end)) = line.split(' ').next().and_then(parse_range) else { continue };
        let name = line.rsplit('/').next().unwrap_or("");
        if line.contains('/')
            && ["libc.so", "libc-", "ld-linux", "ld-", "libpthread"].iter().any(|l| name.starts_with(l))
        {
            libc_end = end;
        } else if start == libc_end && parse(line).is_some_and(|m| m.writable()) {
            out.push((start, end));
        }
    }
    out
}

/// Upper ends of writable anonymous mappings behind one without access. glibc puts the descriptors
/// of threads there, also those of ended threads whose stacks it keeps. The argument is the result
/// of [`evictable`].
pub fn ends_of_stacks(mappings: &[Mapping]) -> Vec<u64> {
    let (mut out, mut guard_end) = (Vec::new(), 0);
    for mapping in mappings {
        if mapping.reserved {
            guard_end = mapping.end;
        } else if mapping.start == guard_end && mapping.writable() {
            out.push(mapping.end);
        }
    }
    out
}

/// Ranges registered with a userfaultfd for missing pages, from the text of /proc/PID/smaps.
pub fn registered(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["um"])
}

/// Mappings with pages that the kernel may drop (MADV_FREE), from the text of /proc/PID/smaps.
pub fn lazily_freed(smaps: &str) -> Vec<(u64, u64)> {
    with_line(smaps, "LazyFree:", |size| !size.trim_start().starts_with("0 "))
}

/// MAP_DROPPABLE mappings: the kernel may drop their pages at any time, without an event. From the
/// text of /proc/PID/smaps.
pub fn droppable(smaps: &str) -> Vec<(u64, u64)> {
    with_flag(smaps, &["dp"])
}

/// All mappings in the text of /proc/PID/smaps.
pub fn in_smaps(smaps: &str) -> Vec<(u64, u64)> {
    with_line(smaps, "VmFlags:", |_| true)
}

fn with_flag(smaps: &str, wanted: &[&str]) -> Vec<(u64, u64)> {
    with_line(smaps, "VmFlags:", |flags| flags.split_ascii_whitespace().any(|f| wanted.contains(&f)))
}

/// Mappings for whose line `key` the closure holds.
fn with_line(smaps: &str, key: &str, holds: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
    let (mut out, mut current) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(value) = line.strip_prefix(key) {
            if holds(value) {
                out.extend(current);
            }
        } else if is_head(line) {
            current = line.split(' ').next().and_then(parse_range);
        }
    }
    out
}

/// /proc/PID/maps, kept open.
#[derive(Debug)]
pub struct Maps {
    pid: i32,
    /// The program whose mappings it shows.
    program: Option<Program>,
    file: File,
    text: String,
}

impl Maps {
    /// Opens the file of a process.
    pub fn open(pid: i32) -> io::Result<Maps> {
        let program = procfs::program(pid);
        Ok(Maps { pid, program, file: procfs::open_memory(pid, "maps")?, text: String::new() })
    }

    /// Reads the current text.
    pub fn read(&mut self) -> io::Result<&str> {
        if self.try_to().is_err() {
            // The thread whose file it is may have ended, and others live. If the process has
            // called exec or ended, its pid is another program's.
            let file = procfs::open_memory(self.pid, "maps")?;
            if self.program.is_none() || procfs::program(self.pid) != self.program {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            self.file = file;
            self.try_to()?;
        }
        Ok(&self.text)
    }

    /// Start and end of the mapping with an address; `None` if there is none.
    ///
    /// # Errors
    /// As the kernel gives them: `ESRCH` when the memory is gone.
    pub fn mapping_at(&mut self, address: u64) -> io::Result<Option<(u64, u64)>> {
        if can_ask() {
            return match ask(&self.file, address) {
                Ok(found) => Ok(Some(found)),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
                Err(error) => Err(error),
            };
        }
        self.try_to()?;
        let ranges = self.text.lines().filter_map(|line| parse_range(line.split(' ').next()?));
        Ok(ranges.into_iter().find(|(start, end)| (*start..*end).contains(&address)))
    }

    fn try_to(&mut self) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.clear();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut bytes)?;
        self.text = procfs::text_of(bytes);
        Ok(())
    }
}

impl AsFd for Maps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How the kernel handles MADV_GUARD_INSTALL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guards {
    /// The kernel does not have it.
    Absent,
    /// Linux 6.13 and 6.14: PAGEMAP_SCAN reports a guard page as a swapped one.
    AsSwapped,
    /// PAGEMAP_SCAN reports it as PAGE_IS_GUARD, and as swapped.
    Reported,
}

/// Found out with a guard page of this process.
fn guards() -> Guards {
    static FOUND: OnceLock<Guards> = OnceLock::new();
    *FOUND.get_or_init(|| {
        const GUARD_INSTALL: libc::c_int = 102;
        // SAFETY: a new mapping, which nothing else uses, and which is unmapped again.
        unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, prot, flags, -1, 0);
            if page == libc::MAP_FAILED {
                return Guards::Absent;
            }
            let installed = libc::madvise(page, PAGE_BYTES, GUARD_INSTALL) == 0;
            let wanted = Wanted { any: PAGE_IS_GUARD, none: 0, say: 0, pages: 1 };
            let mut reported = false;
            if let Ok(pagemap) = Pagemap::open(std::process::id() as i32) {
                let _ =
                    pagemap.scan(page as u64, (page as usize + PAGE_BYTES) as u64, wanted, |_, _, _| reported = true);
            }
            libc::munmap(page, PAGE_BYTES);
            match (installed, reported) {
                (false, _) => Guards::Absent,
                (true, false) => Guards::AsSwapped,
                (true, true) => Guards::Reported,
            }
        }
    })
}

/// Arguments of a scan: PAGE_IS_* bits.
#[derive(Clone, Copy)]
struct Wanted {
    /// Pages with at least one of these.
    any: u64,
    /// And with none of these.
    none: u64,
    /// What to report of each page.
    say: u64,
    /// Largest number of pages; 0: all.
    pages: u64,
}

/// Whether other processes have a page of a process, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharers {
    /// The page is not in memory.
    Absent,
    /// No other process has it.
    None,
    /// Another one has it.
    Many,
}

/// /proc/PID/pagemap, kept open.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Opens the file of a process.
    ///
    /// # Errors
    /// As [`procfs::open_memory`]; `ESRCH` when the process has given its memory back.
    pub fn open(pid: i32) -> io::Result<Pagemap> {
        Pagemap::of(procfs::open_memory(pid, "pagemap")?)
    }

    /// Before Linux 6.16 the file of a process without memory can be opened, and PAGEMAP_SCAN on it
    /// is a NULL dereference in the kernel. A read gives no byte then, and an entry of eight bytes
    /// for any page otherwise.
    fn of(file: File) -> io::Result<Pagemap> {
        match file.read_at(&mut [0; 8], 0)? {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(Pagemap { file }),
        }
    }

    /// Calls `found` with every maximal range of pages between two addresses that are present or in
    /// the kernel's swap. The last argument is true for the kernel's zero page, mapped for reading.
    /// Guard pages (MADV_GUARD_INSTALL) are left out where the kernel distinguishes them from
    /// swapped ones.
    pub fn present(&self, start: u64, end: u64, mut found: impl FnMut(u64, u64, bool)) -> io::Result<()> {
        let any = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
        let none = if guards() == Guards::Reported { PAGE_IS_GUARD } else { 0 };
        let wanted = Wanted { any, none, say: PAGE_IS_PFNZERO, pages: 0 };
        self.scan(start, end, wanted, |s, e, is| found(s, e, is & PAGE_IS_PFNZERO != 0))
    }

    /// The first guard page between two addresses. Linux 6.13 and 6.14 report a page in the
    /// kernel's swap in the same way.
    ///
    /// # Errors
    /// As the ioctl gives them.
    pub fn first_guard(&self, start: u64, end: u64) -> io::Result<Option<u64>> {
        let any = match guards() {
            Guards::Absent => return Ok(None),
            Guards::AsSwapped => PAGE_IS_SWAPPED,
            Guards::Reported => PAGE_IS_GUARD,
        };
        let mut first = None;
        self.scan(start, end, Wanted { any, none: 0, say: 0, pages: 1 }, |s, _, _| first = first.or(Some(s)))?;
        Ok(first)
    }

    fn scan(&self, start: u64, end: u64, wanted: Wanted, mut found: impl FnMut(u64, u64, u64)) -> io::Result<()> {
        let mut regions = [Region::default(); 128];
        let mut at = start;
        while at < end {
            let mut arg = Scan {
                size: size_of::<Scan>() as u64,
                start: at,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: regions.len() as u64,
                max_pages: wanted.pages,
                category_inverted: wanted.none,
                category_mask: wanted.none,
                category_anyof_mask: wanted.any,
                return_mask: wanted.say,
                ..Scan::default()
            };
            // SAFETY: the argument is a valid pm_scan_arg; the kernel writes at most vec_len
            // regions.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as libc::c_ulong, &raw mut arg) };
            if count < 0 {
                return Err(io::Error::last_os_error());
            }
            for region in &regions[..(count as usize).min(regions.len())] {
                found(region.start, region.end, region.categories);
            }
            if arg.walk_end <= at || wanted.pages != 0 && count > 0 {
                break;
            }
            at = arg.walk_end;
        }
        Ok(())
    }

    /// Calls `found` with every maximal range of pages between two addresses that were accessed
    /// since [`crate::uffd::Uffd::watch_accesses`], or have come since.
    ///
    /// # Errors
    /// As the ioctl gives them: `EINVAL` before Linux 7.3.
    pub fn accessed(&self, start: u64, end: u64, mut found: impl FnMut(u64, u64)) -> io::Result<()> {
        // The kernel says it of pages in its swap, too.
        let wanted = Wanted { any: PAGE_IS_ACCESSED, none: PAGE_IS_SWAPPED, say: 0, pages: 0 };
        self.scan(start, end, wanted, |from, to, _| found(from, to))
    }

    /// Who has each of these pages, from `start` on.
    ///
    /// # Errors
    /// As the read gives them.
    pub fn sharers(&self, start: u64, pages: usize) -> io::Result<Vec<Sharers>> {
        const PRESENT: u64 = 1 << 63;
        const EXCLUSIVE: u64 = 1 << 56;
        let mut entries = vec![0; pages * 8];
        self.file.read_exact_at(&mut entries, start / PAGE_BYTES as u64 * 8)?;
        let of = |entry: &[u8]| match u64::from_ne_bytes(entry.try_into().expect("eight bytes")) {
            entry if entry & PRESENT == 0 => Sharers::Absent,
            entry if entry & EXCLUSIVE == 0 => Sharers::Many,
            _ => Sharers::None,
        };
        Ok(entries.chunks_exact(8).map(of).collect())
    }

    /// Whether a range has a page that takes memory, other than the kernel's zero page.
    pub fn holds_memory(&self, start: u64, end: u64) -> io::Result<bool> {
        let (any, mut found) = (PAGE_IS_PRESENT | PAGE_IS_SWAPPED, false);
        let wanted = Wanted { any, none: PAGE_IS_PFNZERO, say: 0, pages: 1 };
        self.scan(start, end, wanted, |_, _, _| found = true)?;
        Ok(found)
    }

    /// Whether the page at an address is present.
    pub fn is_present(&self, address: u64) -> io::Result<bool> {
        let mut seen = false;
        let page = address & !(PAGE_BYTES as u64 - 1);
        self.present(page, page + PAGE_BYTES as u64, |_, _, _| seen = true)?;
        Ok(seen)
    }
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_mapping() {
        let maps = "7f00-7f04 r--s 00000000 00:01 57190 /memfd:memfit:a file (deleted)\n\
                    1000-9000 ---s 00003000 fe:10 12 /data\n9000-a000 rw-p 00000000 00:00 0 \n";
        let at = |start, end| file_at(maps, start, end).map(|at| (at.device, at.inode, at.offset));
        assert_eq!(at(0x1000, 0x9000), Some((libc::makedev(0xfe, 0x10), 12, 0x3000)));
        assert_eq!(at(0x2000, 0x3000), Some((libc::makedev(0xfe, 0x10), 12, 0x4000)));
        assert_eq!(at(0x9000, 0xa000), Some((0, 0, 0)), "no file has inode 0");
        assert_eq!([at(0x8000, 0xa000), at(0xb000, 0xc000)], [None; 2]);
    }

    #[test]
    fn memory_that_is_gone_is_not_scanned() {
        // A read of it gives no byte, as one of the file of a process without memory.
        let gone = Pagemap::of(File::open("/dev/null").unwrap()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while procfs::task_state(pid, pid) != Some('Z') {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let opened = Pagemap::open(pid);
        child.wait().unwrap();
        assert!(opened.is_err(), "{opened:?}");
        assert!(Pagemap::open(std::process::id() as i32).is_ok());
    }

    #[test]
    fn finds_code_of_files() {
        let maps = "\
55d0c0a00000-55d0c0a21000 r-xp 00000000 fe:00 77                         /usr/bin/a b
7f0000000000-7f0000100000 r-xp 00000000 00:00 0 
7f0000400000-7f0000500000 rw-p 00001000 fe:00 77                         /usr/lib/libc.so.6
7ffc00104000-7ffc00106000 r-xp 00000000 00:00 0                          [vdso]
";
        assert_eq!(code(maps), [(0x55d0_c0a0_0000, 0x55d0_c0a2_1000)]);
    }

    #[test]
    fn picks_anonymous_private_mappings_that_are_writable_reserved_or_read() {
        let maps = "\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 
7f0000100000-7f0000200000 ---p 00000000 00:00 0 
7f0000200000-7f0000270000 r--p 00000000 00:00 0 
7f0000270000-7f0000278000 r-xp 00000000 00:00 0 
7f0000278000-7f0000280000 --xp 00000000 00:00 0 
7f0000280000-7f0000281000 rw-p 00001000 fe:00 78                         /opt/libmemfit.so
7f0000281000-7f0000290000 rw-p 00000000 00:00 0 
7f0000300000-7f0000400000 rw-s 00000000 00:01 7                          /memfd:x (deleted)
7f0000400000-7f0000500000 rw-p 00001000 fe:00 77                         /usr/lib/libc.so.6
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00100000-7ffc00104000 r--p 00000000 00:00 0                          [vvar]
";
        let found = evictable(maps);
        let got: Vec<_> = found.iter().map(|m| (m.start, m.stack, m.reserved, m.read_only())).collect();
        let want = [
            (0x55d0_c0a0_0000, false, false, false),
            (0x7f00_0000_0000, false, false, false),
            (0x7f00_0010_0000, false, true, false),
            (0x7f00_0020_0000, false, false, true),
            (0x7f00_0027_0000, false, false, true),
            (0x7f00_0028_1000, false, false, false),
            (0x7ffc_0000_0000, true, false, false),
        ];
        assert_eq!(got, want);
        assert!(has_file(maps, "libmemfit.so") && has_file(maps, "memfd:x") && !has_file(maps, "memfit.so"));
    }

    #[test]
    fn finds_all_private_anonymous_mappings() {
        let smaps = "7f00-7f10 r--p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me ac \n\
                     8f00-8f10 rw-s 00000000 00:01 7 /dev/zero (deleted)\n9f00-9f20 rw-p 00000000 fe:00 7 /a\n\
                     af00-af20 r--p 00000000 00:00 0 [vvar]\nbf00-bf20 rw-p 00000000 00:00 0 [heap]\n";
        assert_eq!(private_anonymous(smaps), [(0x7f00, 0x7f10), (0xbf00, 0xbf20)]);
    }

    #[test]
    fn finds_what_glibc_uses_in_a_fork_child() {
        let maps = "\
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
7f0000900000-7f0000902000 rw-p 001d0000 fe:00 77                         /usr/lib/x86_64-linux-gnu/libc.so.6
7f0000902000-7f000090f000 rw-p 00000000 00:00 0 
7f0000a00000-7f0000a02000 rw-p 001d0000 fe:00 78                         /usr/lib/libcrypt.so.1
7f0000a02000-7f0000a0f000 rw-p 00000000 00:00 0 
";
        assert_eq!(data_of_libc(maps), [(0x7f00_0090_2000, 0x7f00_0090_f000)]);
        assert_eq!(ends_of_stacks(&evictable(maps)), [0x7f00_0080_1000]);
    }

    #[test]
    fn finds_ranges_that_a_child_does_not_inherit() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr wf \n\
                     8f00-8f10 rw-p 00000000 00:00 0 \nRss: 4 kB\nVmFlags: rd wr mr \n\
                     9f00-9f20 rw-p 00000000 00:00 0 \nVmFlags: rd dc \n";
        assert_eq!(not_inherited(smaps), [(0x7f00, 0x7f10), (0x9f00, 0x9f20)]);
    }

    #[test]
    fn finds_mappings_with_lazily_freed_pages() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0 \nLazyFree:              0 kB\nVmFlags: rd wr \n\
                     8f00-8f10 rw-p 00000000 00:00 0 \nLazyFree:            128 kB\nVmFlags: rd wr \n";
        assert_eq!(lazily_freed(smaps), [(0x8f00, 0x8f10)]);
    }

    #[test]
    fn finds_droppable_mappings() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0 \nVmFlags: rd wr wf dd sd \n\
                     8f00-8f10 rw-p 00000000 00:00 0 \nVmFlags: rd wr wf dd dp \n";
        assert_eq!(droppable(smaps), [(0x8f00, 0x8f10)]);
        assert_eq!(in_smaps(smaps), [(0x7f00, 0x7f10), (0x8f00, 0x8f10)]);
    }

    #[test]
    fn a_touched_page_is_present_and_an_untouched_one_is_not() {
        let area = vec![0u8; 64 * 4096];
        let base = (area.as_ptr() as u64 + 4095) & !4095;
        // SAFETY: inside the vector; volatile so that the write happens.
        unsafe { std::ptr::write_volatile((base + 3 * 4096) as *mut u8, 1) };
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        assert!(pagemap.is_present(base + 3 * 4096).unwrap());
        let mut pages = 0;
        pagemap.present(base, base + 60 * 4096, |start, end, _| pages += (end - start) / 4096).unwrap();
        assert!((1..60).contains(&pages), "{pages} pages present");
    }

    #[test]
    fn a_guard_page_is_found_and_not_present() {
        let (pages, page) = (16, 4096usize);
        // SAFETY: a new mapping, which nothing else uses, and which is unmapped again.
        unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(std::ptr::null_mut(), pages * page, prot, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            std::ptr::write_bytes(base.cast::<u8>(), 1, 8 * page);
            let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
            let (start, end) = (base as u64, base as u64 + (pages * page) as u64);
            assert_eq!(pagemap.first_guard(start, end).unwrap(), None);
            if guards() == Guards::Reported {
                assert_eq!(libc::madvise(base.byte_add(4 * page), 2 * page, 102), 0);
                assert_eq!(pagemap.first_guard(start, end).unwrap(), Some(start + 4 * 4096));
                assert_eq!(pagemap.first_guard(start + 5 * 4096, end).unwrap(), Some(start + 5 * 4096));
                assert_eq!(pagemap.first_guard(start + 6 * 4096, end).unwrap(), None);
                let mut present = Vec::new();
                pagemap.present(start, end, |s, e, _| present.push((s, e))).unwrap();
                assert_eq!(present, [(start, start + 4 * 4096), (start + 6 * 4096, start + 8 * 4096)]);
            }
            libc::munmap(base, pages * page);
        }
    }
}
