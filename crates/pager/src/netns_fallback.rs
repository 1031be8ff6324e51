//! A socket for processes in other network namespaces, where the pager's abstract socket is
//! unknown.
//!
//! A path is valid there. But a sudden death leaves a path behind, so the pager makes the socket
//! only when a program says that it is about to enter such a namespace. The directory is private to
//! the user. Until it exists only the environment of the tree has its name. A program of the tree
//! can put something else there: then there is no socket, and nothing else is removed.

use crate::locks::{rank, Lock};
use memfit_os::seqpacket;
use memfit_wire::PLACE_SOCKET;
use std::fs::{self, DirBuilder, File};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory, and the socket once it is needed.
#[derive(Debug)]
pub struct NetnsFallback {
    dir: PathBuf,
    listener: Lock<Option<OwnedFd>, { rank::FALLBACK }>,
}

impl NetnsFallback {
    /// Keeps the name of the directory, and makes nothing yet.
    pub fn new(dir: &str) -> NetnsFallback {
        NetnsFallback { dir: dir.into(), listener: Lock::new(None) }
    }

    /// Makes the socket if it does not exist.
    pub fn open(&self) -> std::io::Result<()> {
        let mut listener = self.listener.lock();
        if listener.is_none() {
            DirBuilder::new().mode(0o700).create(&self.dir)?;
            let made = seqpacket::listen_at(&socket(&self.dir)).inspect_err(|_| remove(&self.dir));
            *listener = Some(made?);
        }
        Ok(())
    }

    /// The listening socket, or -1.
    pub fn as_raw_fd(&self) -> RawFd {
        self.listener.lock().as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Removes the socket and its directory.
    pub fn close(&self) {
        if self.listener.lock().is_some() {
            remove(&self.dir);
        }
    }
}

fn socket(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(PLACE_SOCKET);
    path.into()
}

/// Removes the directory if it exists; usable after the pager's death. A link of that name is not
/// followed.
pub fn remove(dir: &Path) {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let Ok(directory) = File::options().read(true).custom_flags(flags).open(dir) else { return };
    let _ = fs::remove_file(socket(Path::new(&format!("/proc/thread-self/fd/{}", directory.as_raw_fd()))));
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_names_stays() {
        let own = std::env::temp_dir().join(format!("memfit-netns-{}", std::process::id()));
        let (victim, place) = (own.join("victim"), own.join("place"));
        fs::create_dir_all(&victim).unwrap();
        fs::write(victim.join("s"), "a file").unwrap();
        std::os::unix::fs::symlink(&victim, &place).unwrap();
        remove(&place);
        assert!(victim.join("s").exists() && place.is_symlink());
        remove(&victim);
        assert!(!victim.exists());
        fs::remove_dir_all(own).unwrap();
    }
}
