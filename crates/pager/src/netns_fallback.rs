//! The way to us out of other network namespaces, in which our abstract socket is unknown.
//!
//! A path is the same there. But a path is left behind by a sudden death, so the socket is made
//! only when a program says that it is about to enter such a namespace. Its directory is private to
//! the user, and its name is in the environment of the tree alone until it is there: nobody else
//! can have made it.

use memfit_os::seqpacket;
use memfit_wire::PLACE_SOCKET;
use std::fs::{self, DirBuilder};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The directory, and the socket once it is needed.
#[derive(Debug)]
pub struct NetnsFallback {
    dir: PathBuf,
    listener: Mutex<Option<OwnedFd>>,
}

impl NetnsFallback {
    /// With the name of the directory, in which nothing is made yet.
    pub fn new(dir: &str) -> NetnsFallback {
        NetnsFallback { dir: dir.into(), listener: Mutex::new(None) }
    }

    /// Makes the socket, if it is not there.
    pub fn open(&self) -> std::io::Result<()> {
        let mut listener = self.listener.lock().unwrap();
        if listener.is_none() {
            DirBuilder::new().mode(0o700).create(&self.dir)?;
            *listener = Some(seqpacket::listen_at(&socket(&self.dir))?);
        }
        Ok(())
    }

    /// The listening socket, or -1.
    pub fn as_raw_fd(&self) -> RawFd {
        self.listener.lock().unwrap().as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Removes it.
    pub fn close(&self) {
        if self.listener.lock().unwrap().is_some() {
            remove(&self.dir);
        }
    }
}

fn socket(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(PLACE_SOCKET);
    path.into()
}

/// Removes the directory, if it is there, also after the pager's death.
pub fn remove(dir: &Path) {
    let _ = fs::remove_file(socket(dir));
    let _ = fs::remove_dir(dir);
}
