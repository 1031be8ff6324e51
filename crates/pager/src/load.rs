//! Programs whose dynamic linker does not load libmemfit.so: static ones, those of another libc
//! than glibc, those with rights of their file, and those started with another LD_PRELOAD. The
//! pager loads the library into them when they are to be paged.
//!
//! A thread of the program maps the library and makes the stub thread, by system calls that a
//! thread of the pager has it make (`memfit_os::inject`). The stub thread says hello as any other.
//!
//! Nothing is interposed in such a program. So its forks must be reported by the kernel, and the
//! stub takes no read-only memory.

use crate::attach::attach;
use crate::clients::{Client, ATTACHING, IDLE};
use crate::control::Desk;
use crate::locks::{rank, Lock};
use crate::newcomers::open_netns_fallback;
use crate::wake::{threads_to_stop, HELD_AT_MOST};
use memfit_os::image::Image;
use memfit_os::inject::{self, Asked, Failure, Load};
use memfit_os::procfs::{self, ThreadStatus};
use memfit_os::program::{self, Without};
use memfit_os::{describe, sched};
use memfit_wire::{Loaded, SOCKET_VARIABLE};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time between two attempts: after the first one; at most.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_MAX: Duration = Duration::from_millis(250);
/// A new stub thread says hello within this time, in which the process is not stopped, or the user
/// is told that it has not.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);
/// Name of a stub thread.
const STUB_NAME: &str = "memfit-stub";
/// Attempts in which the same thing may be in the way before the user is told: a tracer may just
/// let go, or the program close a file. They take half a second. The pager goes on trying.
const OBSTACLES: u32 = 8;

/// The library, with device and inode of its file.
type Found = (Arc<Image>, (u64, u64));

/// The library, once it was read.
#[derive(Debug, Default)]
pub struct Library(OnceLock<Result<Found, String>>);

impl Library {
    fn image(&self, desk: &Desk) -> Result<Found, String> {
        let read = || {
            let mut file = File::open(&desk.config.stub_path)?;
            let (mut bytes, facts) = (Vec::new(), file.metadata()?);
            file.read_to_end(&mut bytes)?;
            Ok((Arc::new(Image::of(&bytes)?), (facts.dev(), facts.ino())))
        };
        self.0.get_or_init(|| read().map_err(|error: io::Error| describe(&error))).clone()
    }
}

/// Whether programs without the library can get it in this run.
pub fn is_possible(desk: &Desk) -> bool {
    static MAY_TRACE: OnceLock<bool> = OnceLock::new();
    desk.fork_events && *MAY_TRACE.get_or_init(inject::is_allowed)
}

/// Whether a program is one that gets it.
pub fn suits(pid: i32, desk: &Desk) -> bool {
    is_possible(desk) && lacks_it(pid, desk) && filters(pid, pid) == Some(0)
}

/// Whether a program runs without the library, could have it, and belongs to this run and not to
/// one inside of it.
fn lacks_it(pid: i32, desk: &Desk) -> bool {
    let without = program::without(pid, &desk.shared.stub);
    let socket = || program::variable(pid, SOCKET_VARIABLE);
    // A run inside of this one can have loaded it, and has processes of its own.
    let has_stub = || procfs::tasks(pid).into_iter().any(|tid| procfs::comm(tid).as_deref() == Some(STUB_NAME));
    !is_memfit(pid)
        && !has_stub()
        && without.is_some_and(|without| without != Without::OtherProcessor)
        && socket().is_none_or(|name| name == desk.config.socket_name.as_bytes())
}

/// Whether a process is one of memfit itself, such as the pager of a run inside of this one.
pub fn is_memfit(pid: i32) -> bool {
    program::file(pid) == program::file(std::process::id() as i32)
}

fn filters(pid: i32, tid: i32) -> Option<u64> {
    ThreadStatus::of(pid, tid).and_then(|status| status.filters())
}

/// What the pager has tried with one process.
#[derive(Debug)]
pub struct Attempts {
    /// A thread is at it, or it was done.
    busy: AtomicBool,
    /// When to try again, and how long to wait after that; how many obstacles it has met.
    next: Lock<(Instant, Duration, u32), { rank::WAKE_NEXT }>,
    /// Why it cannot be done.
    failed: OnceLock<String>,
    /// It is not tried again.
    over: AtomicBool,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            busy: false.into(),
            next: Lock::new((Instant::now(), AGAIN, 0)),
            failed: OnceLock::new(),
            over: false.into(),
        }
    }
}

impl Attempts {
    /// Why the process cannot get the library.
    pub fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Whether it is not tried again.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn end(&self, hindrance: Hindrance) {
        let obstacle = match hindrance {
            Hindrance::NotNow => None,
            Hindrance::Obstacle(what) => Some(what),
            Hindrance::Failed(why) => {
                let _ = self.failed.set(why);
                return self.over.store(true, Relaxed);
            }
        };
        let mut next = self.next.lock();
        let (_, pause, obstacles) = *next;
        let obstacles = obstacles + u32::from(obstacle.is_some());
        *next = (Instant::now() + pause, (pause * 2).min(AGAIN_MAX), obstacles);
        drop(next);
        obstacle.filter(|_| obstacles >= OBSTACLES).into_iter().for_each(|what| _ = self.failed.set(what));
        self.busy.store(false, Release);
    }
}

/// Has a process load the library, if an attempt is due.
pub fn begin(desk: &Arc<Desk>, pid: i32, attempts: &Arc<Attempts>) {
    let is_due = !attempts.is_over() && Instant::now() >= attempts.next.lock().0;
    if !is_due || attempts.busy.swap(true, AcqRel) {
        return;
    }
    let (loader, its) = (Arc::clone(desk), Arc::clone(attempts));
    let body = move || {
        sched::end_real_time();
        if let Err(hindrance) = load(&loader, pid) {
            its.end(hindrance);
        }
        // Else it says hello, and is a client.
    };
    if desk.wakers.run(body).is_err() {
        attempts.end(Hindrance::NotNow);
    }
}

/// Why a process has not got the library.
enum Hindrance {
    NotNow,
    /// What can pass.
    Obstacle(String),
    Failed(String),
}

fn load(desk: &Arc<Desk>, pid: i32) -> Result<(), Hindrance> {
    let start_stack = procfs::start_stack(pid).ok_or(Hindrance::NotNow)?;
    let file = program::file(pid).ok_or(Hindrance::NotNow)?;
    // It may run another program by now.
    if !lacks_it(pid, desk) {
        return Err(Hindrance::NotNow);
    }
    if filters(pid, pid).is_some_and(|filters| filters > 0) {
        return Err(Hindrance::Failed("it has a system call filter".into()));
    }
    let failed = |what: &str, why: &str| Hindrance::Failed(format!("{what}: {why}"));
    let (image, library) = desk.library.image(desk).map_err(|why| failed("libmemfit.so cannot be read", &why))?;
    let config = &desk.config;
    let loaded = Loaded::new(&config.socket_name, &config.fallback_dir);
    let path = CString::new(config.stub_path.as_os_str().as_bytes());
    let (Some(loaded), Ok(path)) = (loaded, path) else {
        return Err(Hindrance::Failed("its names are too long".into()));
    };
    let elsewhere = is_in_other_network(pid);
    if elsewhere {
        open_netns_fallback(desk);
    }
    for tid in threads_to_stop(pid, false) {
        if filters(pid, tid) != Some(0) {
            continue;
        }
        let load = Load { image: Arc::clone(&image), path: path.clone(), library, loaded, start_stack, file };
        let (loader, begun) = (Arc::clone(desk), Instant::now());
        let held = move || is_held(&loader, pid, begun);
        match Asked::to_stop(&desk.wakers, (pid, tid)).and_then(|asked| asked.load(load, held)) {
            Ok(()) => return await_hello(desk, pid, start_stack, elsewhere),
            Err(Failure::NotNow | Failure::Other) => {}
            Err(Failure::Refused) => {
                return Err(Hindrance::Obstacle("another process traces it, or the pager may not".into()));
            }
            Err(Failure::Call(error)) => {
                let why = format!("libmemfit.so cannot be loaded into it: {}", describe(&error));
                let passes =
                    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::EINTR));
                return Err(if passes { Hindrance::Obstacle(why) } else { Hindrance::Failed(why) });
            }
        }
    }
    Err(Hindrance::NotNow)
}

/// Whether a process does not see the pager's abstract socket.
pub fn is_in_other_network(pid: i32) -> bool {
    procfs::network(pid) != procfs::network(std::process::id() as i32)
}

/// The stub thread runs. It says hello, unless the process ends.
fn await_hello(desk: &Desk, pid: i32, start_stack: u64, elsewhere: bool) -> Result<(), Hindrance> {
    let mut begun = Instant::now();
    while client(desk, pid).is_none() && procfs::start_stack(pid) == Some(start_stack) {
        if matches!(procfs::task_state(pid, pid), Some('T' | 't')) {
            begun = Instant::now();
        }
        if begun.elapsed() > HELLO_WITHIN {
            let place = if elsewhere { ": it is in another network namespace" } else { "" };
            return Err(Hindrance::Failed(format!("its stub cannot reach the pager{place}")));
        }
        std::thread::sleep(POLL);
    }
    // It may have executed another program.
    client(desk, pid).map(|_| ()).ok_or(Hindrance::NotNow)
}

fn client(desk: &Desk, pid: i32) -> Option<Arc<Client>> {
    let of_it = |client: &&Arc<Client>| client.pid == pid && !client.gone.load(Relaxed);
    desk.clients.lock().iter().rfind(of_it).cloned()
}

/// Whether the threads of the process stay stopped: until it is paged. The first call after the
/// hello attaches it.
fn is_held(desk: &Desk, pid: i32, begun: Instant) -> bool {
    if begun.elapsed() > HELD_AT_MOST {
        return false;
    }
    let client = client(desk, pid);
    match client.as_ref().map(|client| client.stage.load(Relaxed)) {
        Some(IDLE) => {
            let attached = client.as_ref().map(|client| attach(desk, client));
            // The monitor tries again, and tells the user.
            return attached.is_some_and(|attached| attached.is_ok());
        }
        Some(stage) => return stage == ATTACHING,
        None => {}
    }
    true
}
