//! What the launcher tells the pager, and the messages between the two.

use crate::timeline::Course;
use memfit_codec::CodecEntry;
use memfit_core::scheme::Scheme;
use memfit_stats::Stats;
use memfit_wire::START_PREFIX;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

/// Name of the start socket of the pager with this name.
pub fn start_socket_name(socket_name: &str) -> String {
    format!("{START_PREFIX}{socket_name}")
}

/// Where pages go that do not fit into RAM even compressed.
#[derive(Debug, Clone)]
pub enum SwapChoice {
    /// An unlinked file in a disk-backed directory that the pager chooses.
    Auto,
    /// No swap tier: nothing is ever written to a disk.
    None,
    /// Directories (the pager makes an unlinked file in each), files or devices. Each is used when
    /// those before it are full.
    Paths(Vec<PathBuf>),
}

/// What is done when the programs do not fit: neither the pool nor the swap tier takes a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// The run ends.
    Fail,
    /// It goes on over the budget, and takes what it can.
    Reclaim,
    /// The largest process in the background is stopped until there is room.
    Stop,
    /// The largest process in the background is killed.
    Kill,
}

/// Which processes are in the background without being told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Automatic {
    /// Those that are not in the foreground of their terminal.
    pub jobs: bool,
    /// Those that have not used the CPU for so long.
    pub idle: Option<Duration>,
}

/// What a process of the tree shall do; `memfit bg` and `memfit fg` send it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Order {
    /// The process.
    pub pid: i32,
    /// What it shall do.
    pub what: What,
}

/// What a process of the tree shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Go to the background, and leave memory as a whole at once.
    Leave,
    /// Go to the background: leave as a whole when memory is short.
    LeaveWhenShort,
    /// Go to the foreground: come back.
    ComeBack,
    /// Nothing: only its standing is asked for.
    Tell,
}

/// The answer to an [`Order`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// How the process stands now.
    pub standing: Standing,
    /// Its name.
    pub comm: String,
    /// Its memory now, bytes.
    pub resident_bytes: u64,
}

/// How a process stands that may have been told to leave memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is")]
pub enum Standing {
    /// No process of this tree has that pid, or none with a stub.
    #[default]
    Unknown,
    /// It cannot be paged.
    NotPaged,
    /// It is in the foreground.
    Foreground,
    /// It leaves when memory is short.
    Waits,
    /// It leaves; so many pages have left. `queued`: others leave first.
    #[allow(missing_docs)]
    Leaving {
        pages: u64,
        #[serde(default)]
        queued: bool,
    },
    /// So many pages have left, in so long. `gave_up`: the others did not move.
    #[allow(missing_docs)]
    Left { pages: u64, ms: u64, gave_up: bool },
    /// It comes back; so many pages have.
    #[allow(missing_docs)]
    Returning { pages: u64 },
    /// So many pages have come back in so long. `left_out`: they found no room. `on_trial`: they
    /// stay outside until they are touched.
    #[allow(missing_docs)]
    Returned { pages: u64, left_out: u64, on_trial: u64, ms: u64 },
}

/// Everything the pager needs to start.
#[derive(Debug)]
pub struct Config {
    /// Budget of the whole tree, bytes.
    pub budget_bytes: u64,
    /// The scheme of the run.
    pub scheme: Scheme,
    /// The swap tier.
    pub swap: SwapChoice,
    /// Largest size of each place of the swap tier, bytes.
    pub swap_size: Option<u64>,
    /// Most bytes that may be written to it in 24 hours.
    pub swap_writes: Option<u64>,
    /// Whether to lock pool and staging, so that the kernel does not swap them.
    pub lock_pool: bool,
    /// Bytes of writes that the swap device is rated for, for statistics.
    pub endurance: Option<u64>,
    /// The file to which the run is recorded; owned by the pager from now on.
    pub record: Option<RawFd>,
    /// Set to record touches of sampled pages: percent of the time that their faults may take.
    pub record_access: Option<u32>,
    /// Codecs with which page contents are recorded. If empty, only the contents of sampled pages
    /// are recorded, with the codecs of the scheme.
    pub record_contents: Vec<&'static CodecEntry>,
    /// Whether the launcher gets a [`FromPager::Course`] before the statistics.
    pub timeline: bool,
    /// What is done when the programs do not fit.
    pub on_full: OnFull,
    /// Names of processes that are never stopped or killed for that.
    pub protect: Vec<String>,
    /// Length of a turn of load control, ms; 0: none.
    pub turn_ms: u64,
    /// Which processes are in the background without being told.
    pub automatic: Automatic,
    /// File name of the stub.
    pub stub: String,
    /// Its absolute path.
    pub stub_path: PathBuf,
    /// The command, for statistics.
    pub command: Vec<String>,
    /// Name of the abstract unix socket, without the leading NUL.
    pub socket_name: String,
    /// Directory for a socket that other network namespaces can reach; it does not exist yet.
    pub fallback_dir: String,
    /// The listening SOCK_SEQPACKET socket.
    pub listener: RawFd,
    /// The start socket, which listens as well.
    pub start_listener: RawFd,
    /// The pager's end of the SOCK_SEQPACKET pair to the launcher.
    pub to_launcher: RawFd,
    /// Whether to print more messages.
    pub verbose: bool,
    /// Pid of the launcher.
    pub launcher_pid: i32,
}

/// Pager to launcher, one JSON object a packet; a large one is in a memfd that comes with a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromPager {
    /// The pager can serve; the command may start.
    Ready,
    /// The pager cannot start.
    Failed {
        /// What was wrong, and what to do.
        message: String,
        /// Exit status for the launcher.
        code: i32,
    },
    /// One line for the terminal.
    Warning {
        /// The text without prefix and newline.
        text: String,
    },
    /// The tree must be killed, and why.
    Fatal {
        /// The text without prefix and newline.
        text: String,
    },
    /// The run over time, if requested; just before the statistics.
    Course(Box<Course>),
    /// Nobody needs the pager any more, and it ends.
    Done,
    /// Final statistics.
    Stats {
        /// All of them.
        stats: Box<Stats>,
        /// One line for the terminal.
        summary: String,
    },
    /// Answer to [`ToPager::TreeEnded`]: processes outside of the tree are paged, and the pager
    /// serves them to their end. If there are none, the pager ends without this answer.
    Serves,
}

/// Launcher to pager, one JSON object a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToPager {
    /// The command was started.
    Started {
        /// Its pid.
        pid: i32,
    },
    /// The command ended.
    CommandExited {
        /// Its pid.
        pid: i32,
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal number, if it was killed.
        signal: Option<i32>,
        /// Whether the launcher waits for [`FromPager::Stats`].
        wait_for_stats: bool,
    },
    /// The command and all that it started have ended. Other processes may have inherited its
    /// environment.
    TreeEnded,
}
