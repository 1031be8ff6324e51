//! The running trees of this user, and the statistics that their pagers report.
//!
//! A tree is found by the abstract socket of its pager, `memfit-<uid>-<pid of the
//! launcher>-<random>`. The client sends one packet, `{"stat":1}`, and the pager answers with one:
//! the keys of `--stats` that are known while it runs, and `now` (like `peak`, at this moment).
//! `{"stat":1,"brief":true}` leaves out what costs the pager time in proportion to the size of the
//! tree: `now.pages`, and the processes that have ended. If an answer would not fit into a packet,
//! `processes` has the largest running ones, and `processes_left_out` says how many others run;
//! `command` has the beginning of a long command line, and `warnings` the last ones.
//!
//! With `"order"` in the packet ([`Order`]) the pager tells a process of the tree what to do, and
//! answers with [`Told`].

use crate::errors::Failure;
use memfit_os::{process, procfs, seqpacket};
use memfit_pager::config::{Order, Told};
use memfit_stats::Stats;
use serde::de::DeserializeOwned;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long a pager may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to a pager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Everything.
    All,
    /// Only what costs the pager little: for clients that ask repeatedly.
    Brief,
}

impl Question {
    fn packet(self) -> &'static [u8] {
        match self {
            Self::All => br#"{"stat":1}"#,
            Self::Brief => br#"{"stat":1,"brief":true}"#,
        }
    }
}

/// A tree that was running when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    socket_name: String,
    inode: u64,
}

#[cfg(test)]
impl Tree {
    /// A tree that is not running.
    pub fn of_launcher(pid: u32) -> Self {
        Tree { socket_name: format!("memfit-0-{pid}-0"), inode: 0 }
    }
}

/// All trees of this user, in the order of their names.
///
/// # Errors
/// When the sockets cannot be listed.
pub fn running() -> Result<Vec<Tree>, Failure> {
    let sockets = procfs::read_text("/proc/self/net/unix")
        .map_err(|error| Failure::system("read the list of sockets, /proc/self/net/unix", &error))?;
    Ok(listed(&sockets, process::effective_uid()))
}

impl Tree {
    /// Process number of the launcher, which names the tree.
    #[must_use]
    pub fn pid(&self) -> &str {
        self.socket_name.split('-').nth(2).unwrap_or("?")
    }

    /// Sends a request; the answer will come on the returned socket. `None` when the tree has
    /// ended, or another user owns the socket.
    ///
    /// # Errors
    /// As the system calls give them.
    pub fn ask(&self, question: Question) -> io::Result<Option<OwnedFd>> {
        self.send(question.packet())
    }

    fn send(&self, packet: &[u8]) -> io::Result<Option<OwnedFd>> {
        let socket = match seqpacket::connect_abstract(&self.socket_name) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_ours() => return Ok(None),
            other => other?,
        };
        // Any user can bind such a name: only answers of our own user count.
        if seqpacket::peer(socket.as_fd())?.0 != process::effective_uid() {
            return Ok(None);
        }
        match seqpacket::send(socket.as_fd(), packet, None) {
            Err(error) if ended(&error) => Ok(None),
            other => other.map(|()| Some(socket)),
        }
    }

    /// Whether a launcher of our user has the socket. Any user can bind such a name, and a listener
    /// with a full queue tells nobody whose it is.
    fn is_ours(&self) -> bool {
        let Ok(pid) = self.pid().parse() else { return false };
        let socket = format!("socket:[{}]", self.inode);
        let is_socket = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == &*socket);
        procfs::user(pid) == Some(process::effective_uid())
            && fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|all| all.flatten().any(is_socket))
    }

    /// Asks, and waits for the answer for [`ANSWER_TIMEOUT`] at most; `None` as for [`Tree::ask`].
    /// The answer are [`Stats`], or any JSON for those who only pass it on.
    ///
    /// # Errors
    /// As the system calls give them.
    pub fn ask_and_wait<T: DeserializeOwned>(&self, question: Question) -> io::Result<Option<T>> {
        wait_for_answer(self.ask(question)?)
    }

    /// Tells a process of the tree what to do; the answer says how it stands. `None` as for
    /// [`Tree::ask`].
    ///
    /// # Errors
    /// As the system calls give them, and when the pager knows no orders.
    pub fn order(&self, order: Order) -> io::Result<Option<Told>> {
        let packet = serde_json::json!({ "stat": 1, "brief": true, "order": order });
        wait_for_answer(self.send(packet.to_string().as_bytes())?)
    }
}

fn wait_for_answer<T: DeserializeOwned>(socket: Option<OwnedFd>) -> io::Result<Option<T>> {
    let Some(socket) = socket else { return Ok(None) };
    match seqpacket::receive_within(socket.as_fd(), ANSWER_TIMEOUT) {
        Err(error) if ended(&error) => Ok(None),
        other => answer(other?),
    }
}

/// Reads the answer once the socket is readable; `None` if the tree has ended instead.
///
/// # Errors
/// As `recvmsg` gives them, and when it cannot be read.
pub fn receive(socket: &OwnedFd) -> io::Result<Option<Stats>> {
    match seqpacket::receive(socket.as_fd()) {
        Err(error) if ended(&error) => Ok(None),
        other => answer(other?),
    }
}

fn answer<T: DeserializeOwned>(packet: Option<seqpacket::Packet>) -> io::Result<Option<T>> {
    let parsed = |packet: seqpacket::Packet| match serde_json::from_slice(&packet.bytes) {
        // A pager without free descriptors answers with a word instead of JSON.
        Err(_) if !packet.bytes.starts_with(b"{") => {
            Err(io::Error::other("it has no descriptor left: raise ulimit -n"))
        }
        other => Ok(other?),
    };
    packet.map(parsed).transpose()
}

/// The pager ended before it read our request.
fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Listening pagers of `uid` in `/proc/self/net/unix`, sorted, each name once.
fn listed(table: &str, uid: u32) -> Vec<Tree> {
    let prefix = format!("@memfit-{uid}-");
    // Num RefCount Protocol Flags Type St Inode Path; the flag is that of a listener, type 5 is
    // SOCK_SEQPACKET.
    let tree = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (flags, kind) = (fields.nth(3)?, fields.next()?);
        let (inode, path) = (fields.nth(1)?.parse().ok()?, fields.next()?);
        let is_one = flags == "00010000" && kind == "0005" && path.starts_with(&prefix);
        is_one.then(|| Tree { socket_name: path[1..].to_owned(), inode })
    };
    let mut trees: Vec<Tree> = table.lines().filter_map(tree).collect();
    trees.sort_unstable();
    trees.dedup_by(|one, other| one.socket_name == other.socket_name);
    trees
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn finds_only_listening_pagers_of_the_user() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 101 @memfit-7-42-ab
0000000000000000: 00000003 00000000 00000000 0005 03 102 @memfit-7-42-ab
0000000000000000: 00000002 00000000 00010000 0005 01 103 @memfit-70-43-cd
0000000000000000: 00000002 00000000 00010000 0001 01 104 @memfit-7-44-ef
0000000000000000: 00000002 00000000 00010000 0001 01 105 /run/memfit-7-1
0000000000000000: 00000002 00000000 00010000 0005 01 106 @memfit-7-41-00
0000000000000000: 00000003 00000000 00000000 0001 03 107
";
        let tree = |name: &str, inode| Tree { socket_name: name.into(), inode };
        assert_eq!(listed(table, 7), [tree("memfit-7-41-00", 106), tree("memfit-7-42-ab", 101)]);
        assert!(listed("", 7).is_empty());
        assert_eq!(listed(table, 7)[0].pid(), "41");
    }

    #[test]
    fn a_full_queue_is_only_told_of_a_socket_of_the_launcher() {
        let uid = process::effective_uid();
        let full = |launcher: u32| {
            let name = format!("memfit-{uid}-{launcher}-full");
            let listener = seqpacket::listen_abstract(&name).unwrap();
            seqpacket::set_backlog(listener.as_raw_fd(), 0);
            let waits = seqpacket::connect_abstract(&name).unwrap();
            let tree = running().unwrap().into_iter().find(|tree| tree.socket_name == name).unwrap();
            let asked = tree.ask(Question::Brief).map_err(|error| error.kind());
            drop((listener, waits));
            asked.map(|socket| socket.is_some())
        };
        assert_eq!(full(std::process::id()), Err(io::ErrorKind::WouldBlock));
        // No process has this number, or one without this socket.
        assert_eq!(full(1 << 30), Ok(false));
        assert_eq!(full(std::os::unix::process::parent_id()), Ok(false));
    }

    #[test]
    fn a_name_that_nobody_has_is_a_tree_that_ended() {
        let tree = Tree { socket_name: format!("memfit-0-{}-none", std::process::id()), inode: 0 };
        assert!(tree.ask(Question::Brief).unwrap().is_none());
        assert!(tree.ask_and_wait::<Stats>(Question::All).unwrap().is_none());
    }
}
