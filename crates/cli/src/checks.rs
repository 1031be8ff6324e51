//! What memfit requires of a machine and what it recommends, each with the command that repairs it.

mod limits;

use crate::errors::{describe, RAISE_LIMIT};
use crate::preload;
use crate::size_parsing::human;
use memfit_os::probe::{self, feature, MoveFailed, UffdAccess, UffdDenied};
use memfit_os::{capability, inject, limits as sizes, process};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The oldest kernel with UFFDIO_MOVE.
const KERNEL_MIN: (u32, u32) = (6, 8);
/// The oldest kernel with every feature that memfit uses, and what older kernels lack.
const KERNEL_GOOD: (u32, u32) = (6, 12);
const OLDER_LACK: [((u32, u32), &str); 3] = [
    ((6, 9), "programs cannot enter another user namespace (unshare, setns)"),
    ((6, 11), "memory that programs have made read-only is not paged"),
    ((6, 12), "the pager wakes later while programs keep all processors busy"),
];
/// A hard limit of descriptors with which no tree was seen to run out.
const DESCRIPTORS_GOOD: u64 = 4096;
/// Free bytes below which the automatic swap tier is too small to help.
const SWAP_FREE_GOOD: u64 = 1 << 30;

const NO_DESCRIPTOR: &str = "no descriptor left";
const SETCAP_IS_OF_NO_USE: &str =
    "; a capability of memfit's file (setcap) does not help, since the programs do not have it";

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// `memfit run` cannot work without it.
    Missing,
    /// `memfit run` works without it, but not as well.
    Optional,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name for scripts.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Its result.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What repairs it.
    pub fix: Option<String>,
}

impl Check {
    fn ok(id: &'static str, name: &'static str, detail: impl Into<String>) -> Self {
        Self { id, name, status: Status::Ok, detail: detail.into(), fix: None }
    }

    fn missing(id: &'static str, name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { id, name, status: Status::Missing, detail: detail.into(), fix: Some(fix.into()) }
    }

    fn optional(id: &'static str, name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Optional, ..Self::missing(id, name, detail, fix) }
    }
}

/// What the kernel must offer for `memfit run`; cheap enough for each start.
#[must_use]
pub fn kernel() -> Vec<Check> {
    let mut checks = vec![kernel_version(), proc_is_ours()];
    match probe::open_userfaultfd() {
        Err(denied) => checks.push(userfaultfd_denied(denied)),
        Ok((uffd, access)) => {
            checks.push(Check::ok("userfaultfd", "userfaultfd", access_text(access)));
            let known = probe::handshake(&uffd, 0).unwrap_or(0);
            checks.push(required_features(known));
            if known & feature::MOVE != 0 {
                checks.push(real_move());
            }
        }
    }
    checks
}

/// All checks, for `memfit doctor`.
#[must_use]
pub fn all() -> Vec<Check> {
    let mut checks = kernel();
    checks.push(stub());
    if let Ok(known) = probe::known_features() {
        checks.push(event_fork(known));
    }
    checks.extend([pagemap_scan(), swap_directory(), descriptors(), ptrace_scope(), huge_pages()]);
    checks.extend(limits::all());
    checks.extend([memory(), Check::ok("cores", "processors", cores_text(probe::usable_cores()))]);
    checks
}

fn kernel_version() -> Check {
    let (id, name) = ("kernel", "Linux kernel");
    let (release, version) = probe::kernel_version();
    let (major, minor) = KERNEL_MIN;
    if version < KERNEL_MIN {
        return Check::missing(id, name, format!("{release} is too old"), kernel_fix());
    }
    match lacking_before(version) {
        lacking if lacking.is_empty() => Check::ok(id, name, format!("{release} ({major}.{minor} or later is needed)")),
        lacking => Check::optional(id, name, format!("{release}: {lacking}"), kernel_fix_to(KERNEL_GOOD)),
    }
}

/// Process ids in `/proc` mean something only in the PID namespace that it was mounted for.
fn proc_is_ours() -> Check {
    let (id, name) = ("proc", "/proc");
    let fix = |what: &str| format!("{what}: mount -t proc proc /proc, or unshare --mount-proc");
    match fs::read_link("/proc/self") {
        Ok(own) if own == Path::new(&std::process::id().to_string()) => Check::ok(id, name, "shows this PID namespace"),
        Err(error) if !fs::exists("/proc/version").unwrap_or(false) => {
            Check::missing(id, name, describe(&error), fix("mount it"))
        }
        // This process has no name there, or another one.
        Ok(_) | Err(_) => {
            let other = "shows the processes of another PID namespace";
            Check::missing(id, name, other, fix("mount that of this namespace"))
        }
    }
}

/// What a kernel of that version lacks and a later one has.
fn lacking_before(version: (u32, u32)) -> String {
    let lacking: Vec<_> = OLDER_LACK.iter().filter(|(since, _)| version < *since).map(|(_, what)| *what).collect();
    lacking.join("; ")
}

/// The command that installs a new enough kernel on this distribution.
fn kernel_fix() -> String {
    kernel_fix_to(KERNEL_MIN)
}

fn kernel_fix_to((major, minor): (u32, u32)) -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let command = kernel_command(&text);
    let command = command.map_or_else(|| "install it".to_owned(), |command| format!("install it: {command}"));
    format!("boot Linux {major}.{minor} or later; {command}")
}

fn kernel_command(os_release: &str) -> Option<String> {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"'))
    };
    match field("ID")? {
        "ubuntu" => Some(format!("sudo apt install linux-generic-hwe-{}", field("VERSION_ID")?)),
        "debian" => Some(format!("sudo apt install -t {}-backports linux-image-amd64", field("VERSION_CODENAME")?)),
        "fedora" => Some("sudo dnf upgrade kernel".into()),
        "arch" => Some("sudo pacman -Syu linux".into()),
        _ => None,
    }
}

fn access_text(access: UffdAccess) -> &'static str {
    match access {
        UffdAccess::Capability => "allowed by CAP_SYS_PTRACE (root has it)",
        UffdAccess::Sysctl => "allowed by vm.unprivileged_userfaultfd=1",
        UffdAccess::Device => "allowed by access to /dev/userfaultfd",
    }
}

fn userfaultfd_denied(denied: UffdDenied) -> Check {
    let (detail, fix): (String, &str) = match denied {
        UffdDenied::NotBuilt => (
            "the kernel was built without it".into(),
            "boot a kernel with CONFIG_USERFAULTFD=y (the kernels of all large distributions have it)",
        ),
        UffdDenied::NoPermission => (
            format!("this user may not use it{}", if capability::gave_up() { SETCAP_IS_OF_NO_USE } else { "" }),
            "sudo sysctl -w vm.unprivileged_userfaultfd=1, or for this user alone: sudo setfacl -m u:$USER:rw \
             /dev/userfaultfd",
        ),
        UffdDenied::Filtered => (
            "a system call filter forbids it (a container?), and /dev/userfaultfd is not open to this user".into(),
            "start the container with --device /dev/userfaultfd (before that, for a user other than root, outside of it: \
             sudo chmod 666 /dev/userfaultfd)",
        ),
        UffdDenied::Other(errno) if is_want_of_descriptors(errno) => (NO_DESCRIPTOR.into(), RAISE_LIMIT),
        UffdDenied::Other(errno) => (
            format!("the kernel refused: {}", describe(&std::io::Error::from_raw_os_error(errno))),
            "see the kernel log (dmesg)",
        ),
    };
    Check::missing("userfaultfd", "userfaultfd", detail, fix)
}

fn required_features(known: u64) -> Check {
    let (id, name) = ("features", "userfaultfd features");
    let list = |wanted: fn(u64, u64) -> bool| {
        let names = feature::REQUIRED.iter().filter(|(_, bit)| wanted(known, *bit)).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let lacking = list(|known, bit| known & bit == 0);
    if lacking.is_empty() {
        return Check::ok(id, name, list(|_, _| true));
    }
    Check::missing(id, name, format!("the kernel lacks {lacking}"), kernel_fix())
}

fn real_move() -> Check {
    match probe::try_move() {
        Ok(()) => Check::ok("move", "moving a page", "tried, works"),
        Err(failed) => move_failed(&failed),
    }
}

fn move_failed(failed: &MoveFailed) -> Check {
    let (id, name) = ("move", "moving a page");
    let fix = match failed.errno() {
        Some(errno) if is_want_of_descriptors(errno) => return Check::missing(id, name, NO_DESCRIPTOR, RAISE_LIMIT),
        None | Some(libc::EINVAL | libc::ENOTTY | libc::EOPNOTSUPP) => kernel_fix(),
        Some(_) => "see the kernel log (dmesg)".into(),
    };
    Check::missing(id, name, format!("tried, failed: {failed}"), fix)
}

fn is_want_of_descriptors(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE)
}

fn stub() -> Check {
    let (id, name) = ("stub", preload::FILE_NAME);
    match preload::find_stub() {
        Ok(path) => Check::ok(id, name, path.display().to_string()),
        Err(failure) => {
            let (detail, fix) = failure.message.split_once("; ").unwrap_or((&failure.message, "reinstall memfit"));
            Check::missing(id, name, detail, fix)
        }
    }
}

fn event_fork(known: u64) -> Check {
    let (id, name) = ("event_fork", "fork events");
    if known & feature::EVENT_FORK == 0 {
        return Check::missing(id, name, "the kernel lacks EVENT_FORK", kernel_fix());
    }
    if probe::can_enable(feature::EVENT_FORK) {
        return Check::ok(id, name, "allowed");
    }
    let detail =
        "need CAP_SYS_PTRACE; without them programs are asked to tell of their forks: fork() works, a bare clone of a \
                  paged program ends with a crash";
    let fix = "none is needed; where memfit and the programs have the right (root has it), bare clones work, too";
    Check::optional(id, name, detail, fix)
}

fn pagemap_scan() -> Check {
    let (id, name) = ("pagemap_scan", "PAGEMAP_SCAN");
    if probe::can_scan_pagemap() {
        return Check::ok(id, name, "tried, works");
    }
    Check::missing(id, name, "not available", "boot Linux 6.7 or later")
}

fn swap_directory() -> Check {
    let (id, name) = ("swap", "swap directory");
    let advice = "make room on a disk, or name a directory on another: memfit run --swap DIR";
    let Some(directory) = probe::default_swap_directory() else {
        let detail = "no writable directory on a disk was found: RAM alone must do";
        return Check::optional(id, name, detail, advice);
    };
    match probe::file_system(&directory) {
        Ok(system) => {
            let detail = format!("{} ({}, {} free)", directory.display(), system.name, human(system.free_bytes));
            if system.free_bytes < SWAP_FREE_GOOD {
                return Check::optional(id, name, detail, advice);
            }
            Check::ok(id, name, detail)
        }
        Err(error) => Check::optional(id, name, format!("{}: {}", directory.display(), describe(&error)), advice),
    }
}

fn descriptors() -> Check {
    let (id, name) = ("descriptors", "open descriptors");
    let Ok((soft, hard)) = process::descriptor_limit() else {
        return Check::ok(id, name, "unknown limit");
    };
    let detail = format!("limit {soft}, can be raised to {hard}");
    if hard >= DESCRIPTORS_GOOD {
        return Check::ok(id, name, detail);
    }
    let fix = format!("as root: ulimit -Hn {DESCRIPTORS_GOOD} (or raise nofile in /etc/security/limits.conf)");
    Check::optional(id, name, format!("{detail}; a tree of many processes needs more"), fix)
}

fn ptrace_scope() -> Check {
    let (id, name) = ("yama", "Yama ptrace_scope");
    match probe::yama_ptrace_scope() {
        None => Check::ok(id, name, "the kernel has no Yama"),
        Some(1) if !inject::is_allowed() => {
            Check::ok(id, name, "1: each program gets memfit's thread at its start, also if it is never paged")
        }
        Some(scope) if scope <= 1 || capability::has(capability::CAP_SYS_PTRACE) && scope == 2 => {
            Check::ok(id, name, scope.to_string())
        }
        Some(scope) => {
            let detail = format!("{scope}: the pager may not read the memory of programs, so it knows less about them");
            Check::optional(id, name, detail, "sudo sysctl -w kernel.yama.ptrace_scope=1")
        }
    }
}

fn huge_pages() -> Check {
    let (id, name) = ("thp", "huge pages");
    match probe::transparent_huge_pages().as_deref() {
        None => Check::ok(id, name, "the kernel has none"),
        Some("always") => Check::optional(
            id,
            name,
            "always: programs take more memory than they touch, and splitting costs time",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(mode) => Check::ok(id, name, mode),
    }
}

fn memory() -> Check {
    let ram = sizes::total_ram_bytes().map_or_else(|| "unknown".to_owned(), human);
    let limit = match sizes::cgroup_limit() {
        None => "no limit by a control group".to_owned(),
        Some(limit) => format!("control group limit {} ({})", human(limit.bytes), limit.source.display()),
    };
    Check::ok("memory", "memory", format!("{ram} of RAM, {limit}"))
}

fn cores_text(cores: usize) -> String {
    match cores {
        1 => "1; the pager works beside the program, 2 are better".to_owned(),
        _ => cores.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_that_is_not_ok_says_what_to_do() {
        let checks = all();
        assert!(checks.iter().all(|check| (check.status == Status::Ok) == check.fix.is_none()), "{checks:?}");
        let mut ids: Vec<_> = checks.iter().map(|check| check.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), checks.len());
    }

    #[test]
    fn every_denial_has_a_repair() {
        let denials =
            [UffdDenied::NotBuilt, UffdDenied::NoPermission, UffdDenied::Filtered, UffdDenied::Other(libc::EMFILE)];
        for denied in denials {
            let check = userfaultfd_denied(denied);
            assert_eq!(check.status, Status::Missing);
            assert!(check.fix.is_some_and(|fix| !fix.is_empty()));
        }
    }

    #[test]
    fn a_newer_kernel_is_advised_only_where_this_one_lacks_the_feature() {
        let failed = |errno| move_failed(&MoveFailed::Step("mmap", std::io::Error::from_raw_os_error(errno)));
        let advice = |check: &Check| check.fix.clone().unwrap_or_default();
        let other = move_failed(&MoveFailed::Denied(UffdDenied::Other(libc::EMFILE)));
        for check in [other, failed(libc::ENFILE), userfaultfd_denied(UffdDenied::Other(libc::EMFILE))] {
            assert_eq!(check.detail, "no descriptor left");
            assert!(advice(&check).contains("ulimit -n"), "{check:?}");
        }
        let full = failed(libc::ENOMEM);
        assert_eq!(full.detail, "tried, failed: mmap: Cannot allocate memory");
        assert!(!advice(&full).contains("boot Linux"), "{full:?}");
        assert!(advice(&failed(libc::EINVAL)).contains("boot Linux"));
    }

    #[test]
    fn what_older_kernels_lack_is_named() {
        assert_eq!(lacking_before((6, 8)).split("; ").count(), 3);
        assert!(lacking_before((6, 11)).contains("busy"));
        assert_eq!(lacking_before(KERNEL_GOOD), "");
        assert_eq!(OLDER_LACK.iter().map(|(since, _)| *since).max(), Some(KERNEL_GOOD));
    }

    #[test]
    fn missing_features_are_named() {
        let check = required_features(feature::EVENT_REMAP | feature::THREAD_ID | feature::EVENT_REMOVE);
        assert_eq!(check.status, Status::Missing);
        assert_eq!(check.detail, "the kernel lacks MOVE, EVENT_UNMAP");
        assert_eq!(required_features(u64::MAX).status, Status::Ok);
    }

    #[test]
    fn the_kernel_command_fits_the_distribution() {
        let command = |text: &str| kernel_command(text);
        assert_eq!(
            command("NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"22.04\"\n").as_deref(),
            Some("sudo apt install linux-generic-hwe-22.04")
        );
        assert_eq!(
            command("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(),
            Some("sudo apt install -t bookworm-backports linux-image-amd64")
        );
        assert_eq!(command("ID=plan9\n"), None);
        assert_eq!(command(""), None);
    }
}
