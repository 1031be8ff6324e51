//! Finding libmemfit.so, the stub, and the environment that loads it into the command.

use crate::errors::{describe, Failure};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File name of the stub.
pub const FILE_NAME: &str = "libmemfit.so";
/// Overrides the path of the stub.
pub const STUB_VARIABLE: &str = "MEMFIT_STUB";
/// Tells the stub where its pager listens (abstract socket name without the NUL).
pub const SOCKET_VARIABLE: &str = "MEMFIT_SOCKET";
/// Tells the stub where its pager listens for programs in other network namespaces (a directory,
/// which the pager makes only when it needs it).
pub const FALLBACK_VARIABLE: &str = "MEMFIT_PLACE";
/// Tells the stub that the scheme evicts clean pages of files.
pub const FILES_VARIABLE: &str = "MEMFIT_FILES";
/// Tells the stub to start its thread at once.
pub const THREAD_VARIABLE: &str = "MEMFIT_THREAD";
/// Tells the command which launcher it runs under.
pub const PID_VARIABLE: &str = "MEMFIT_PID";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The absolute path of the stub: `$MEMFIT_STUB`, else beside this program, else `../lib/memfit`
/// from there.
///
/// # Errors
/// When none of these can be read, or the dynamic loader cannot take its path.
pub fn find_stub() -> Result<PathBuf, Failure> {
    let places = match env::var_os(STUB_VARIABLE) {
        Some(path) => vec![PathBuf::from(path)],
        None => installed_places()?,
    };
    let found = places.iter().find(|place| place.is_file()).ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        Failure::here(format!(
            "{FILE_NAME}, the part that is loaded into programs, is not at {}; reinstall memfit, or set {STUB_VARIABLE} \
             to its path",
            places.join(" or ")
        ))
    })?;
    check_stub(found)
}

/// Name of a stub as `/proc/PID/maps` shows it at the end of its path.
#[must_use]
pub fn file_name(stub: &Path) -> String {
    stub.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn installed_places() -> Result<Vec<PathBuf>, Failure> {
    let program = env::current_exe().map_err(|error| {
        let why = format!("the place of {FILE_NAME} is not known: {}", describe(&error));
        Failure::here(format!("{why}; mount /proc, or set {STUB_VARIABLE} to its path"))
    })?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let prefix = beside.parent().unwrap_or(Path::new("/"));
    Ok(vec![beside.join(FILE_NAME), prefix.join("lib/memfit").join(FILE_NAME)])
}

fn check_stub(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let unreadable = |error| Failure::here(format!("{FILE_NAME} cannot be read at {shown}: {}", describe(&error)));
    let absolute = path.canonicalize().map_err(unreadable)?;
    File::open(&absolute).map_err(unreadable)?;
    // The loader splits LD_PRELOAD at these and has no way to quote them.
    if absolute.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        return Err(Failure::here(format!(
            "{FILE_NAME} lies at {}, a path with a blank or a colon, which the dynamic loader cannot take; move it, or \
             set {STUB_VARIABLE} to a copy elsewhere",
            absolute.display()
        )));
    }
    Ok(absolute)
}

/// The environment of the command: ours, with the stub first in LD_PRELOAD and the given variables.
#[must_use]
pub fn environment(stub: &Path, set: &[(&str, OsString)]) -> Vec<(OsString, OsString)> {
    let is_set = |name: &OsStr| name == PRELOAD_VARIABLE || set.iter().any(|(other, _)| name == *other);
    let mut all: Vec<_> = env::vars_os().filter(|(name, _)| !is_set(name)).collect();
    all.push((PRELOAD_VARIABLE.into(), preload_value(stub, env::var_os(PRELOAD_VARIABLE))));
    all.extend(set.iter().map(|(name, value)| ((*name).into(), value.clone())));
    all
}

/// The stub, then what was already preloaded. The stub is never listed twice.
fn preload_value(stub: &Path, existing: Option<OsString>) -> OsString {
    let existing = existing.unwrap_or_default();
    let others = existing
        .as_bytes()
        .split(|byte| byte.is_ascii_whitespace() || *byte == b':')
        .filter(|entry| !entry.is_empty() && *entry != stub.as_os_str().as_bytes());
    let mut value = stub.as_os_str().to_owned();
    for other in others {
        value.push(":");
        value.push(OsStr::from_bytes(other));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_comes_first_and_once() {
        let value = |existing: Option<&str>| preload_value(Path::new("/l/libmemfit.so"), existing.map(Into::into));
        assert_eq!(value(None), "/l/libmemfit.so");
        assert_eq!(value(Some("")), "/l/libmemfit.so");
        assert_eq!(value(Some("/a.so /b.so:/c.so")), "/l/libmemfit.so:/a.so:/b.so:/c.so");
        assert_eq!(value(Some("/a.so:/l/libmemfit.so")), "/l/libmemfit.so:/a.so");
    }

    #[test]
    fn variables_are_set_once() {
        let all = environment(Path::new("/l.so"), &[("PATH", "x".into()), ("NEW", "y".into())]);
        let values = |name: &str| all.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect::<Vec<_>>();
        assert_eq!(values("PATH"), ["x"]);
        assert_eq!(values("NEW"), ["y"]);
        assert_eq!(values("LD_PRELOAD").len(), 1);
    }

    #[test]
    fn a_path_that_the_loader_splits_is_refused() {
        let directory = env::temp_dir().join(format!("memfit preload {}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let stub = directory.join(FILE_NAME);
        std::fs::write(&stub, "").unwrap();
        let error = check_stub(&stub).unwrap_err();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(error.message.contains("blank or a colon"), "{error}");
        assert!(check_stub(&stub).unwrap_err().message.contains("No such file"));
    }
}
