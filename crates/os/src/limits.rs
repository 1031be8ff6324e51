//! How much memory this process may use: RAM of the machine and memory limits of its control
//! groups.
//!
//! A limit applies to its group and all groups below it, so the smallest one on the way to the root
//! counts. Both layouts are supported, also together on hybrid systems:
//!
//! | | v1 | v2 |
//! |---|---|---|
//! | line of `/proc/self/cgroup` | `N:...memory...:/path` | `0::/path` |
//! | mount in `mountinfo` | type `cgroup`, super option `memory` | type `cgroup2` |
//! | files | `memory.limit_in_bytes`, none = a huge number | `memory.max` and `memory.high`, none = `max` |
//!
//! The count of waits for memory (PSI) is found by the same files.
//!
//! `memory.high` counts as a limit: above it the kernel throttles the tree, which is what a budget
//! shall prevent.

use crate::procfs::read_text;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// v1 writes "no limit" as the largest multiple of the page size in an i64. Values from here on
/// count as no limit.
const UNLIMITED_FROM_BYTES: u64 = 1 << 60;

/// A memory limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The limit, bytes.
    pub bytes: u64,
    /// The file it was read from.
    pub source: PathBuf,
}

/// RAM of the machine in bytes: `MemTotal` of `/proc/meminfo`, which in some containers shows their
/// share, or else what the kernel tells; a `/proc` mounted with `subset=pid` has no such file.
#[must_use]
pub fn total_ram_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    meminfo.and_then(|text| meminfo_bytes(&text, "MemTotal")).or_else(ram_of_the_kernel)
}

fn ram_of_the_kernel() -> Option<u64> {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writing.
    let told = unsafe { libc::sysinfo(&mut info) } == 0;
    told.then(|| info.totalram * u64::from(info.mem_unit))
}

/// Memory that programs can have without swapping, bytes: `MemAvailable` of `/proc/meminfo`.
#[must_use]
pub fn available_ram_bytes() -> Option<u64> {
    meminfo_bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// Where the kernel counts for how long tasks wait for memory (PSI, Linux 4.20 and later).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PressureSource {
    path: PathBuf,
    /// For a control group: what it uses, and its limit. `None`: the machine.
    group: Option<(PathBuf, u64)>,
}

/// A group has used nearly all of its limit when no more than one part in this many is left, and
/// the machine when no more of its RAM is available. A limit that is met keeps the use close to it.
const LEFT_PART: u64 = 10;

impl PressureSource {
    /// That of the machine.
    #[must_use]
    pub fn of_machine() -> PressureSource {
        PressureSource { path: "/proc/pressure/memory".into(), group: None }
    }

    /// For how long one task or more has waited for memory, from the beginning. `None` if the
    /// kernel does not count.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        parse_waited(&fs::read_to_string(&self.path).ok()?)
    }

    /// Whether little of the memory is left. What is in the page cache of a group counts as used.
    #[must_use]
    pub fn is_nearly_used(&self) -> bool {
        let (left, all) = match &self.group {
            Some((used, limit)) => {
                let used = fs::read_to_string(used).ok().and_then(|text| text.trim().parse().ok());
                (used.map(|used: u64| limit.saturating_sub(used)), Some(*limit))
            }
            None => (available_ram_bytes(), total_ram_bytes()),
        };
        left.zip(all).is_some_and(|(left, all)| left <= all / LEFT_PART)
    }

    /// The file with the count.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For messages.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match self.group {
            Some(_) => "in the control group",
            None => "on the machine",
        }
    }
}

/// Where the kernel counts waits for the memory that this process may use: of the control group
/// with the smallest limit, if that is counted, and of the machine.
pub fn pressure_sources() -> impl Iterator<Item = PressureSource> {
    let cgroup = read_text("/proc/self/cgroup").unwrap_or_default();
    let mountinfo = read_text("/proc/self/mountinfo").unwrap_or_default();
    let limit = smallest_limit(&cgroup, &mountinfo, |path| fs::read_to_string(path).ok());
    let of_group = limit.and_then(|limit| group_source(&cgroup, &mountinfo, limit));
    of_group.into_iter().chain([PressureSource::of_machine()]).filter(|source| source.waited().is_some())
}

/// On a hybrid system the limit is in a hierarchy of version 1, and the count in that of version 2:
/// there it is that of this process's own group.
fn group_source(cgroup: &str, mountinfo: &str, limit: CgroupLimit) -> Option<PressureSource> {
    let limited = limit.source.parent()?;
    let own = || directories_up(cgroup, mountinfo, Version::V2).into_iter().next();
    let (counted, used) = match limit.source.ends_with("memory.limit_in_bytes") {
        true => (own()?, "memory.usage_in_bytes"),
        false => (limited.to_owned(), "memory.current"),
    };
    Some(PressureSource { path: counted.join("memory.pressure"), group: Some((limited.join(used), limit.bytes)) })
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`; the total is in microseconds.
fn parse_waited(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// One entry of `/proc/meminfo`, in bytes.
#[must_use]
pub fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => value.checked_mul(1024),
        _ => Some(value),
    }
}

/// The smallest memory limit of the control groups this process is in; `None` if there is none.
#[must_use]
pub fn cgroup_limit() -> Option<CgroupLimit> {
    let cgroup = read_text("/proc/self/cgroup").ok()?;
    let mountinfo = read_text("/proc/self/mountinfo").ok()?;
    smallest_limit(&cgroup, &mountinfo, |path| fs::read_to_string(path).ok())
}

/// The same from the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`, with `read` for
/// the limit files.
#[must_use]
pub fn smallest_limit(cgroup: &str, mountinfo: &str, read: impl Fn(&Path) -> Option<String>) -> Option<CgroupLimit> {
    let mut best: Option<CgroupLimit> = None;
    for version in [Version::V1, Version::V2] {
        for directory in directories_up(cgroup, mountinfo, version) {
            for name in version.limit_files() {
                let source = directory.join(name);
                let Some(bytes) = read(&source).as_deref().and_then(parse_limit) else { continue };
                if best.as_ref().is_none_or(|limit| bytes < limit.bytes) {
                    best = Some(CgroupLimit { bytes, source });
                }
            }
        }
    }
    best
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    fn limit_files(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["memory.limit_in_bytes"],
            Self::V2 => &["memory.max", "memory.high"],
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct CgroupMount {
    version: Version,
    /// The group of the hierarchy that is mounted.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

/// A line of `mountinfo`, if it mounts a hierarchy that can have a memory controller.
///
/// `36 35 98:0 /root /point options optional... - type source super,options`
fn parse_mount(line: &str) -> Option<CgroupMount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (unescape(before.next()?), unescape(before.next()?));
    let mut after = after.split(' ');
    let version = match after.next()? {
        "cgroup2" => Version::V2,
        "cgroup" if after.nth(1)?.split(',').any(|option| option == "memory") => Version::V1,
        _ => return None,
    };
    Some(CgroupMount { version, root, point })
}

/// Undoes the octal escapes (`\040` and so on) of paths in `mountinfo`.
fn unescape(text: &str) -> PathBuf {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                plain.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain.into()
}

/// The group of this process in the hierarchy with the memory controller.
fn group_path(cgroup: &str, version: Version) -> Option<PathBuf> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
            Version::V2 => id == "0" && controllers.is_empty(),
        };
        fits.then(|| PathBuf::from(path))
    })
}

/// The directories from the group of the process up to the mount point, the group's first; one list
/// after the other if the hierarchy is mounted several times.
///
/// A mount may show only a part of the hierarchy (containers). Then the path is relative to the
/// root of the mount. A group outside of that root (another namespace, `/../..`) is not visible
/// there. If no mount shows it, the mount point itself is the nearest visible group.
fn directories_up(cgroup: &str, mountinfo: &str, version: Version) -> Vec<PathBuf> {
    let Some(group) = group_path(cgroup, version) else { return Vec::new() };
    let mounts = mountinfo.lines().filter_map(parse_mount).filter(|mount| mount.version == version);
    let mounts: Vec<CgroupMount> = mounts.collect();
    let mut shown: Vec<_> = mounts.iter().filter_map(|mount| Some((mount, below(mount, &group)?))).collect();
    if shown.is_empty() {
        shown = mounts.iter().map(|mount| (mount, Path::new(""))).collect();
    }
    shown.iter().flat_map(|(mount, below)| below.ancestors().map(|part| mount.point.join(part))).collect()
}

/// Path of a group from the root of a mount; `None` if the mount does not show the group.
fn below<'a>(mount: &CgroupMount, group: &'a Path) -> Option<&'a Path> {
    let below = group.strip_prefix(&mount.root).ok()?;
    below.components().all(|part| matches!(part, Component::Normal(_))).then_some(below)
}

/// A limit file's contents in bytes; `None` is no limit.
fn parse_limit(text: &str) -> Option<u64> {
    let bytes: u64 = text.trim().parse().ok()?;
    (bytes < UNLIMITED_FROM_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const V1_CGROUP: &str = "9:name=systemd:/\n4:memory:/pods/one two\n1:cpu:/\n0::/\n";
    const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V2_CGROUP: &str = "0::/user.slice/user-1000.slice/app.scope\n";
    const V2_MOUNTS: &str =
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

    fn limit(cgroup: &str, mounts: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        let files: HashMap<&Path, &str> = files.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
        smallest_limit(cgroup, mounts, |path| files.get(path).map(|text| (*text).to_owned()))
            .map(|limit| (limit.bytes, limit.source.display().to_string()))
    }

    #[test]
    fn waits_are_counted_where_the_limit_is() {
        let source = |cgroup: &str, mounts: &str, file: &str| {
            let found = group_source(cgroup, mounts, CgroupLimit { bytes: 5, source: file.into() })?;
            Some((found.path.display().to_string(), found.group?.0.display().to_string()))
        };
        let slice = "/sys/fs/cgroup/user.slice";
        assert_eq!(
            source(V2_CGROUP, V2_MOUNTS, &format!("{slice}/memory.high")),
            Some((format!("{slice}/memory.pressure"), format!("{slice}/memory.current")))
        );
        let pods = "/sys/fs/cgroup/memory/pods";
        assert_eq!(
            source(V1_CGROUP, V1_MOUNTS, &format!("{pods}/memory.limit_in_bytes")),
            Some(("/sys/fs/cgroup/unified/memory.pressure".into(), format!("{pods}/memory.usage_in_bytes")))
        );
        let only_v1 = V1_MOUNTS.lines().take(3).collect::<Vec<_>>().join("\n");
        assert_eq!(source(V1_CGROUP, &only_v1, &format!("{pods}/memory.limit_in_bytes")), None);
    }

    #[test]
    fn a_group_is_nearly_used_within_a_tenth_of_its_limit() {
        let file = std::env::temp_dir().join(format!("memfit-limits-{}", std::process::id()));
        let source = PressureSource { path: PathBuf::new(), group: Some((file.clone(), 1000)) };
        let nearly = |used: &str| {
            fs::write(&file, used).unwrap();
            source.is_nearly_used()
        };
        assert_eq!([nearly("899\n"), nearly("900\n"), nearly("1001\n"), nearly("")], [false, true, true, false]);
        fs::remove_file(&file).unwrap();
        assert!(!source.is_nearly_used());
    }

    #[test]
    fn waits_are_read_in_microseconds() {
        let text = "some avg10=4.07 avg60=31.68 avg300=37.87 total=830524085\nfull avg10=0.00 total=5\n";
        assert_eq!(parse_waited(text), Some(Duration::from_micros(830_524_085)));
        assert_eq!(parse_waited("full avg10=0.00 total=5\n"), None);
        assert_eq!(parse_waited(""), None);
    }

    #[test]
    fn v1_takes_the_smallest_on_the_way_up() {
        let inner = "/sys/fs/cgroup/memory/pods/one two/memory.limit_in_bytes";
        let outer = "/sys/fs/cgroup/memory/pods/memory.limit_in_bytes";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let none = "9223372036854771712\n";
        assert_eq!(limit(V1_CGROUP, V1_MOUNTS, &[(inner, none), (outer, none), (root, none)]), None);
        let found = limit(V1_CGROUP, V1_MOUNTS, &[(inner, "4096000\n"), (outer, "1048576\n"), (root, none)]);
        assert_eq!(found, Some((1048576, outer.to_owned())));
    }

    #[test]
    fn v2_takes_the_smallest_of_max_and_high() {
        let scope = "/sys/fs/cgroup/user.slice/user-1000.slice/app.scope/memory.max";
        let slice = "/sys/fs/cgroup/user.slice/user-1000.slice/memory.high";
        assert_eq!(limit(V2_CGROUP, V2_MOUNTS, &[(scope, "max\n"), (slice, "max\n")]), None);
        assert_eq!(
            limit(V2_CGROUP, V2_MOUNTS, &[(scope, "2147483648\n"), (slice, "1073741824\n")]),
            Some((1 << 30, slice.to_owned()))
        );
        assert_eq!(
            limit(V2_CGROUP, V2_MOUNTS, &[(scope, "536870912\n"), (slice, "max\n")]),
            Some((512 << 20, scope.to_owned()))
        );
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "40 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let file = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        for cgroup in ["5:memory:/docker/abc\n", "5:memory:/\n", "5:memory:/../other\n"] {
            assert_eq!(limit(cgroup, mounts, &[(file, "1000000\n")]), Some((1_000_000, file.to_owned())), "{cgroup}");
        }
        let inner = "/sys/fs/cgroup/memory/job/memory.limit_in_bytes";
        assert_eq!(
            limit("5:memory:/docker/abc/job\n", mounts, &[(file, "1000000\n"), (inner, "5000\n")]),
            Some((5000, inner.to_owned()))
        );
    }

    #[test]
    fn a_mount_of_another_group_does_not_limit_this_one() {
        let other = "40 23 0:26 /docker/abc /mnt/x rw - cgroup2 cgroup2 rw\n";
        let file = "/mnt/x/memory.max";
        let both = format!("{V2_MOUNTS}{other}");
        assert_eq!(limit(V2_CGROUP, &both, &[(file, "5000000\n")]), None);
        assert_eq!(limit(V2_CGROUP, other, &[(file, "5000000\n")]), Some((5_000_000, file.to_owned())));
        assert_eq!(limit("0::/docker/abc\n", &both, &[(file, "5000000\n")]), Some((5_000_000, file.to_owned())));
    }

    #[test]
    fn never_leaves_the_mount_point() {
        let seen = std::cell::RefCell::new(Vec::new());
        let _ = smallest_limit("0::/../../x\n", V2_MOUNTS, |path| {
            seen.borrow_mut().push(path.to_owned());
            None
        });
        let allowed = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high"].map(PathBuf::from);
        assert_eq!(*seen.borrow(), allowed);
    }

    #[test]
    fn garbage_is_no_limit() {
        assert_eq!(limit("", "", &[]), None);
        assert_eq!(limit("::::\n0::", "x - y\n - \n1 2 3 4 5 - cgroup\n", &[]), None);
        assert_eq!(parse_limit("-1\n"), None);
        assert_eq!(parse_limit("max"), None);
        assert_eq!(parse_limit(" 123 \n"), Some(123));
    }

    #[test]
    fn escapes_in_mount_paths() {
        assert_eq!(unescape("/a\\040b\\134c"), PathBuf::from("/a b\\c"));
        assert_eq!(unescape("/a\\9"), PathBuf::from("/a\\9"));
    }

    #[test]
    fn meminfo_entries() {
        let text = "MemTotal:       1024 kB\nMemTotalX:  1 kB\nHugePages_Total:       3\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(1 << 20));
        assert_eq!(meminfo_bytes(text, "HugePages_Total"), Some(3));
        assert_eq!(meminfo_bytes(text, "SwapTotal"), None);
        assert!(total_ram_bytes().unwrap() > 1 << 20);
        assert!(ram_of_the_kernel().unwrap() > 1 << 20);
    }
}
