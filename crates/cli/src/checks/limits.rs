//! What limits memfit on this machine or for this user without keeping it from running. The table
//! "Limits of the machine" of docs/limits.md names these checks.

use super::Check;
use crate::size_parsing::human;
use memfit_os::{probe, process};

/// The glibc on which it was measured what a fork child accesses before memfit's handler runs.
const GLIBC_MEASURED: &str = "2.36";

/// All of them.
pub fn all() -> Vec<Check> {
    let traces = probe::can_enable(probe::feature::EVENT_FORK);
    let mut checks = vec![
        real_time(probe::may_be_real_time()),
        address_space(process::address_space_limit()),
        kernel_swap(&probe::kernel_swap(), process::may_lock_memory()),
        executable(probe::may_open_executable()),
        file_pages(traces),
    ];
    if !traces {
        checks.push(glibc(process::libc_version().as_deref()));
    }
    checks
}

/// What is allowed, or else the detail of what is limited and its fix.
fn allowed((id, name): (&'static str, &'static str), may: bool, ok: &str, (limited, fix): (&str, &str)) -> Check {
    if may {
        Check::ok(id, name, ok)
    } else {
        Check::optional(id, name, limited, fix)
    }
}

fn real_time(may: bool) -> Check {
    let limited = (
        "it may not run before the programs: while they keep all processors busy, they can exceed the budget for some \
         milliseconds",
        "add to /etc/security/limits.conf: USER - rtprio 1",
    );
    allowed(("real_time", "priority of memfit"), may, "it may run before the programs", limited)
}

fn address_space(limit: Option<u64>) -> Check {
    let (id, name) = ("address_space", "address space");
    match limit {
        None => Check::ok(id, name, "no limit"),
        Some(bytes) => Check::optional(
            id,
            name,
            format!(
                "limit {}: memfit finds new memory of the programs later, and a small limit leaves no room for \
                 libmemfit.so",
                human(bytes)
            ),
            "ulimit -v unlimited (hard limits: /etc/security/limits.conf)",
        ),
    }
}

fn kernel_swap(active: &[String], may_lock: bool) -> Check {
    let (id, name) = ("kernel_swap", "swap of the kernel");
    if active.is_empty() {
        return Check::ok(id, name, "none is active");
    }
    let fix = match may_lock {
        true => "memfit run --lock-pool",
        false => "memfit run --lock-pool, after: ulimit -l unlimited (memlock in /etc/security/limits.conf)",
    };
    let detail = format!("{}: when the machine is short of memory, memfit's pool can go there", active.join(", "));
    Check::optional(id, name, detail, fix)
}

fn executable(may_open: bool) -> Check {
    let limited = (
        "a policy forbids memory that is writable and executable: memory that is read-only and executable is not paged",
        "none is needed: most executable memory is of files, and the kernel drops that by itself",
    );
    allowed(("executable", "executable memory"), may_open, "can be paged", limited)
}

fn file_pages(traces: bool) -> Check {
    let limited = (
        "to page them, --files and the schemes apa to ezswap need CAP_SYS_PTRACE",
        "do without, or run memfit as root",
    );
    allowed(("file_pages", "pages of files"), traces, "--files and the schemes apa to ezswap can page them", limited)
}

fn glibc(version: Option<&str>) -> Check {
    let (id, name) = ("glibc", "glibc");
    let detail = match version {
        Some(version) if version == GLIBC_MEASURED => return Check::ok(id, name, version),
        Some(version) => {
            format!("memfit's own: {version}; forks without CAP_SYS_PTRACE were tested with {GLIBC_MEASURED}")
        }
        None => {
            format!("memfit's own library is another; forks without CAP_SYS_PTRACE were tested with {GLIBC_MEASURED}")
        }
    };
    Check::optional(id, name, detail, "none is needed unless memfit kills a fork child and names this reason")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status;

    #[test]
    fn each_limit_is_named_where_there_is_one() {
        let swap = ["/dev/sda2".to_owned(), "/dev/zram0".to_owned()];
        let limited = [
            (real_time(false), "processors busy"),
            (address_space(Some(3 << 30)), "limit 3"),
            (kernel_swap(&swap, true), "/dev/sda2, /dev/zram0"),
            (executable(false), "is not paged"),
            (file_pages(false), "CAP_SYS_PTRACE"),
            (glibc(Some("2.41")), "2.41; forks"),
            (glibc(None), "is another"),
        ];
        for (check, says) in limited {
            assert_eq!(check.status, Status::Optional, "{check:?}");
            assert!(check.detail.contains(says), "{check:?}");
        }
        let unlimited = [
            real_time(true),
            address_space(None),
            kernel_swap(&[], false),
            executable(true),
            file_pages(true),
            glibc(Some(GLIBC_MEASURED)),
        ];
        assert!(unlimited.iter().all(|check| check.status == Status::Ok), "{unlimited:?}");
        assert!(kernel_swap(&swap, false).fix.unwrap().contains("ulimit -l"));
    }
}
