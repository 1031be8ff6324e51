//! Memory that counts towards the budget and that memfit cannot evict, by kind.

use crate::maps::{is_head, Head};
use std::fmt;

/// Why memory cannot be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// mlock.
    Locked,
    /// Private memory that is not writable, where the stub does not open it for a MOVE.
    ReadOnly,
    /// Written pages of private file mappings.
    File,
    /// MAP_DROPPABLE.
    Droppable,
    /// tmpfs, memfd, System V, MAP_SHARED | MAP_ANONYMOUS.
    Shared,
    /// All private memory of a process without the stub.
    NotPaged,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kept::Locked => "locked",
            Kept::ReadOnly => "not writable",
            Kept::File => "written in private mappings of files",
            Kept::Droppable => "droppable",
            Kept::Shared => "shared",
            Kept::NotPaged => "not paged",
        })
    }
}

/// Bytes of each kind, largest first, from the text of /proc/PID/smaps. `closed`: the stub does not
/// open read-only mappings although they are registered.
pub fn kept(smaps: &str, closed: bool) -> Vec<(Kept, u64)> {
    let mut all: Vec<(Kept, u64)> = Vec::new();
    let (mut head, mut anonymous, mut resident) = ("", 0, 0);
    for line in smaps.lines() {
        if is_head(line) {
            head = line;
        } else if let Some(size) = line.strip_prefix("Rss:") {
            resident = bytes(size);
        } else if let Some(size) = line.strip_prefix("Anonymous:") {
            anonymous = bytes(size);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let Some(kind) = kind(head, flags, closed) else { continue };
            let size = if kind == Kept::Shared { resident } else { anonymous };
            match all.iter_mut().find(|(one, _)| *one == kind) {
                Some((_, sum)) => *sum += size,
                None => all.push((kind, size)),
            }
        }
    }
    all.retain(|&(_, size)| size > 0);
    all.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    all
}

/// Bytes of private memory, from the text of /proc/PID/smaps.
pub fn private(smaps: &str) -> u64 {
    smaps.lines().filter_map(|line| line.strip_prefix("Anonymous:")).map(bytes).sum()
}

fn bytes(size: &str) -> u64 {
    size.split_ascii_whitespace().next().and_then(|kibibytes| kibibytes.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn kind(head: &str, flags: &str, closed: bool) -> Option<Kept> {
    let has = |wanted: &str| flags.split_ascii_whitespace().any(|flag| flag == wanted);
    let Head { perms, inode, name, .. } = Head::of(head)?;
    if perms.ends_with('s') {
        // The stub's own is memfit's, not the program's.
        if name == "/memfd:memfit" {
            return None;
        }
        let of_memory = ["/memfd:", "/dev/zero", "/dev/shm/", "/SYSV"].iter().any(|start| name.starts_with(start));
        return of_memory.then_some(Kept::Shared);
    }
    match () {
        () if has("lo") => Some(Kept::Locked),
        () if has("dp") => Some(Kept::Droppable),
        () if inode != "0" => Some(Kept::File),
        // The stub opens a mapping that is registered for write protection ("uw"), if it is
        // readable.
        () if has("uw") && perms.starts_with('r') && !closed => None,
        () if !perms[1..].starts_with('w') && !perms.starts_with("---") => Some(Kept::ReadOnly),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_from_what_can_be_taken() {
        let mut smaps = String::new();
        let mut add = |head: &str, resident: u64, anonymous: u64, flags: &str| {
            smaps +=
                &format!("{head}\nSize: 99999 kB\nRss: {resident} kB\nAnonymous: {anonymous} kB\nVmFlags: {flags}\n");
        };
        add("10000-20000 rw-p 00000000 00:00 0 ", 4000, 4000, "rd wr mr mw me ac um");
        add("20000-30000 rw-p 00000000 00:00 0 [heap]", 12, 12, "rd wr mr mw me lo ac");
        add("30000-40000 r--p 00000000 00:00 0 ", 300, 300, "rd mr mw me ac um");
        add("40000-50000 r-xp 00000000 00:00 0 ", 20, 20, "rd ex mr mw me ac");
        add("50000-60000 rw-p 00000000 08:01 77 /usr/lib/x.so", 900, 40, "rd wr mr mw me ac");
        add("60000-70000 rw-s 00000000 00:01 12 /memfd:some (deleted)", 64, 0, "rd wr sh mr mw me ms");
        add("68000-70000 rw-s 00000000 00:01 13 /memfd:memfit (deleted)", 640, 0, "rd wr sh mr mw me ms");
        add("70000-80000 rw-s 00000000 08:01 12 /var/data", 5000, 0, "rd wr sh mr mw me ms");
        add("80000-90000 rw-p 00000000 00:00 0 ", 28, 28, "rd wr mr mw me wf dd dp");
        add("a0000-b0000 r-xp 00000000 00:00 0 ", 512, 512, "rd ex mr mw me ac um uw");
        add("90000-a0000 ---p 00000000 00:00 0 ", 4, 4, "mr mw me");
        let k = |kibibytes: u64| kibibytes << 10;
        let expected = [
            (Kept::ReadOnly, k(320)),
            (Kept::Shared, k(64)),
            (Kept::File, k(40)),
            (Kept::Droppable, k(28)),
            (Kept::Locked, k(12)),
        ];
        assert_eq!(kept(&smaps, false), expected);
        assert_eq!(kept(&smaps, true)[0], (Kept::ReadOnly, k(320 + 512)));
        assert_eq!(kept("", false), []);
        assert_eq!(private(&smaps), k(4000 + 12 + 300 + 20 + 40 + 28 + 512 + 4));
    }
}
