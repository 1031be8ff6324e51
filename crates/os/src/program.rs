//! Why a program runs without libmemfit.so, which `memfit run` preloads.

use crate::procfs;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// It has no dynamic linker.
    Static,
    /// It is a 32-bit program, or one for another processor.
    OtherProcessor,
    /// Its dynamic linker is not that of glibc.
    OtherLibc,
    /// The dynamic linker ignores LD_PRELOAD in a program that gets rights by its file.
    Rights,
    /// The library is not in the LD_PRELOAD with which it was started.
    NotPreloaded,
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Without::Static => "static",
            Without::OtherProcessor => "32-bit",
            Without::OtherLibc => "not linked with glibc",
            Without::Rights => "setuid, setgid or with capabilities of its file",
            Without::NotPreloaded => "started without libmemfit.so in LD_PRELOAD",
        })
    }
}

/// Why the program of a process lacks the library of this file name. `None` if that does not show:
/// the process has ended, its files may not be read, or it lacks the library for another reason.
pub fn without(pid: i32, library: &str) -> Option<Without> {
    if let Some(without) = procfs::open_memory(pid, "exe").ok().and_then(|file| by_file(&file)) {
        return Some(without);
    }
    let secure = procfs::read_memory_bytes(pid, "auxv").map_or_else(|_| has_other_users(pid), |auxv| is_secure(&auxv));
    if secure {
        return Some(Without::Rights);
    }
    let environment = procfs::read_memory_bytes(pid, "environ").ok()?;
    (is_environment(&environment) && !preloads(&environment, library)).then_some(Without::NotPreloaded)
}

/// Device and inode of the file of a process's program.
#[must_use]
pub fn file(pid: i32) -> Option<(u64, u64)> {
    std::fs::metadata(format!("{}/exe", procfs::living(pid))).ok().map(|file| (file.dev(), file.ino()))
}

/// The value of an environment variable with which the program was started.
#[must_use]
pub fn variable(pid: i32, name: &str) -> Option<Vec<u8>> {
    let environment = procfs::read_memory_bytes(pid, "environ").ok()?;
    let mut entries = environment.split(|&byte| byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).map(<[u8]>::to_vec)
}

/// What the program's file shows.
fn by_file(file: &File) -> Option<Without> {
    const NATIVE: &[u8] = b"\x7fELF\x02\x01";
    const X86_64: u64 = 62;
    const INTERPRETER: u64 = 3;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    let of_head = |at, bytes| number(&head, at, bytes);
    if !head.starts_with(NATIVE) || of_head(18, 2) != X86_64 {
        return Some(Without::OtherProcessor);
    }
    let (first, bytes, count) = (of_head(32, 8), of_head(54, 2), of_head(56, 2));
    for i in 0..count {
        let mut part = [0; 56];
        file.read_exact_at(&mut part, first.checked_add(i * bytes)?).ok()?;
        if number(&part, 0, 4) == INTERPRETER {
            let mut path = vec![0; number(&part, 32, 8).min(4096) as usize];
            file.read_exact_at(&mut path, number(&part, 8, 8)).ok()?;
            let name = path.rsplit(|&byte| byte == b'/').next()?;
            return (!name.starts_with(b"ld-linux")).then_some(Without::OtherLibc);
        }
    }
    Some(Without::Static)
}

fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes[at..at + count].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Whether the kernel has told the dynamic linker to trust no variables, by the auxiliary vector.
fn is_secure(auxv: &[u8]) -> bool {
    const AT_SECURE: u64 = 23;
    auxv.chunks_exact(16).any(|pair| number(pair, 0, 8) == AT_SECURE && number(pair, 8, 8) != 0)
}

/// Whether the process has another effective or saved user than it really has. Everybody may ask.
fn has_other_users(pid: i32) -> bool {
    let status = procfs::read_memory(pid, "status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or("");
    let mut users = users.split_whitespace();
    let real = users.next();
    users.any(|user| Some(user) != real)
}

/// False for a program that shows a title there, or has made room for one.
fn is_environment(bytes: &[u8]) -> bool {
    let is_cleared = !bytes.is_empty() && bytes.iter().all(|&byte| byte == 0);
    !is_cleared && bytes.split(|&byte| byte == 0).all(|entry| entry.is_empty() || entry.contains(&b'='))
}

fn preloads(environment: &[u8], library: &str) -> bool {
    let mut values = environment.split(|&byte| byte == 0).filter_map(|entry| entry.strip_prefix(b"LD_PRELOAD="));
    let is_it = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next() == Some(library.as_bytes());
    values.any(|value| value.split(|&byte| byte == b':' || byte == b' ').any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file with this class, machine and interpreter.
    fn program(name: &str, class: u8, machine: u8, interpreter: Option<&str>) -> File {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        (bytes[18], bytes[32], bytes[54], bytes[56]) = (machine, 64, 56, 2);
        let mut parts = vec![0; 112];
        parts[0] = 1;
        if let Some(path) = interpreter {
            (parts[56], parts[56 + 8], parts[56 + 32]) = (3, 176, path.len() as u8);
        }
        bytes.extend(parts);
        bytes.extend(interpreter.unwrap_or("").bytes());
        let path = std::env::temp_dir().join(format!("memfit-program-{name}-{}", std::process::id()));
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn the_file_shows_what_links_it() {
        let of = |name, class, machine, interpreter| by_file(&program(name, class, machine, interpreter));
        assert_eq!(of("glibc", 2, 62, Some("/lib64/ld-linux-x86-64.so.2\0")), None);
        assert_eq!(of("musl", 2, 62, Some("/lib/ld-musl-x86_64.so.1\0")), Some(Without::OtherLibc));
        assert_eq!(of("static", 2, 62, None), Some(Without::Static));
        assert_eq!(of("small", 1, 3, Some("/lib/ld-linux.so.2\0")), Some(Without::OtherProcessor));
        assert_eq!(of("arm", 2, 183, None), Some(Without::OtherProcessor));
    }

    #[test]
    fn the_environment_shows_what_is_preloaded() {
        let has = |environment: &str| preloads(environment.as_bytes(), "libmemfit.so");
        assert!(has("A=1\0LD_PRELOAD=/usr/lib/libmemfit.so\0") && has("LD_PRELOAD=x.so:/a/libmemfit.so y.so\0"));
        assert!(!has("LD_PRELOAD=/usr/lib/other.so\0") && !has("XLD_PRELOAD=/libmemfit.so\0") && !has(""));
        assert!(!has("LD_PRELOAD=/usr/lib/libmemfit.so.old\0"));
        assert!(is_environment(b"A=1\0B=\0") && is_environment(b"") && !is_environment(b"postgres: writer\0\0\0"));
        assert!(!is_environment(&[0; 20]));
    }

    #[test]
    fn this_program_has_no_such_library() {
        let own = std::process::id() as i32;
        assert_eq!(without(own, "libnone.so"), Some(Without::NotPreloaded));
        assert!(!has_other_users(own));
        assert!(!is_secure(&procfs::read_memory_bytes(own, "auxv").unwrap()));
        let mut auxv = [0u8; 32];
        (auxv[0], auxv[8], auxv[16], auxv[24]) = (6, 1, 23, 1);
        assert!(is_secure(&auxv));
    }
}
