//! The launcher: parent of the pager and of the command, subreaper of the tree.
//!
//! ```text
//! start pager -> wait for Ready -> start command -> watch -> command ended -> statistics -> leave
//!                     |                               |
//!                     +-- pager failed: say, end      +-- died or Fatal: kill tree, report, exit 1
//! ```
//!
//! The launcher shares its descriptor table with the pager. So every userfaultfd stays open when
//! the pager dies: page faults of the tree wait until the launcher has killed it, and no program
//! reads a wrong page. Because of the shared table the launcher closes no descriptor but its own,
//! and the pager's death does not close the socket between them: SIGCHLD reports it.
//!
//! The main loop blocks only in its poll. A thread prints the messages (see `messages`). The
//! launcher kills the tree before it prints anything about it: a program of the tree may hold the
//! lock of the terminal.

use crate::errors::{describe, tell, Failure, RAISE_TASKS};
use crate::guard::Watch;
use crate::messages::Messages;
use crate::output::{OutputFile, RecordFile};
use crate::preload::{self, FALLBACK_VARIABLE, FILES_VARIABLE, PID_VARIABLE, SOCKET_VARIABLE, THREAD_VARIABLE};
use crate::report;
use crate::run::Inherited;
use crate::{swap, Serve};
use memfit_codec::CodecEntry;
use memfit_core::scheme::{Classes, Scheme};
use memfit_os::event::wait_readable;
use memfit_os::exec::Executable;
use memfit_os::process::{self, Arrived, Change, InheritedState, Pid, SignalFd};
use memfit_os::signal_probe::{self, SignalProbe, SignalSet};
use memfit_os::{inject, proctree, seqpacket};
use memfit_pager::config::{start_socket_name, Automatic, Config, FromPager, OnFull, SwapChoice, ToPager};
use memfit_pager::netns_fallback;
use memfit_pager::timeline::Course;
use memfit_stats::Stats;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much more readily the OOM killer takes a program than the pager: difference in
/// `oom_score_adj`, thousandths of the machine's memory.
const OOM_DISTANCE: i32 = 500;
/// How long the pager may take to start.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the final statistics may take.
const STATS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long killed processes may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest message that is read from a memfd, bytes.
const LARGE_MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Everything that `run` has determined.
pub struct Plan {
    /// Budget of the tree, bytes.
    pub budget_bytes: u64,
    /// The scheme, which makes the decisions.
    pub scheme: Scheme,
    /// The swap tier.
    pub swap: SwapChoice,
    /// Largest size of the swap tier, bytes.
    pub swap_size: Option<u64>,
    /// Most bytes that may be written to it in 24 hours.
    pub swap_writes: Option<u64>,
    /// Keep pool and staging out of the kernel's swap.
    pub lock_pool: bool,
    /// Bytes that the swap device is rated to take.
    pub endurance: Option<u64>,
    /// What is done when the programs do not fit.
    pub on_full: OnFull,
    /// Names of processes that are never stopped or killed for that.
    pub protect: Vec<String>,
    /// Length of a turn of load control, ms; 0: none.
    pub turn_ms: u64,
    /// Which processes are in the background without being told.
    pub automatic: Automatic,
    /// Print no summary.
    pub quiet: bool,
    /// Print more messages.
    pub verbose: bool,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Absolute path of libmemfit.so.
    pub stub: PathBuf,
    /// Where the statistics go.
    pub stats: Option<OutputFile>,
    /// Where the report goes.
    pub report: Option<OutputFile>,
    /// Where the run is recorded.
    pub record: Option<RecordFile>,
    /// Record accesses too; page faults on sampled pages may take this percentage of the time.
    pub record_access: Option<u32>,
    /// With what pages hold, as these codecs see it.
    pub record_contents: Vec<&'static CodecEntry>,
    /// Advice is given at the end.
    pub advise: bool,
    /// What the command inherits from our parent.
    pub inherited: Inherited,
    /// The pager.
    pub serve: Serve,
}

/// How a run came to its end.
pub struct Ended {
    /// The command's exit status.
    pub code: i32,
    /// Peak memory of the tree and of memfit without staging, bytes, if the pager reported it.
    pub peak: Option<u64>,
    /// The pager has ended as well, so the recording is complete.
    pub wholly: bool,
}

/// Runs the plan.
///
/// # Errors
/// When the command could not be started, or the tree had to be killed.
pub fn run(mut plan: Plan) -> Result<Ended, Failure> {
    let random = |error| Failure::system("get random bytes", &error);
    let (socket_name, fallback_dir) =
        (unique_name().map_err(random)?, format!("/tmp/{}", unique_name().map_err(random)?));
    let mut set = vec![
        (SOCKET_VARIABLE, OsString::from(&socket_name)),
        (FALLBACK_VARIABLE, OsString::from(&fallback_dir)),
        (PID_VARIABLE, OsString::from(std::process::id().to_string())),
    ];
    if plan.scheme.classes != Classes::Anonymous {
        set.push((FILES_VARIABLE, OsString::from("1")));
    }
    // Recording of accesses begins at the start of each program.
    if plan.record_access.is_some() || !inject::is_allowed() {
        set.push((THREAD_VARIABLE, OsString::from("1")));
    }
    let environment = preload::environment(&plan.stub, &set);
    let prepare = |environment| {
        Executable::new(&plan.command, environment, std::env::var_os("PATH").as_deref())
            .map_err(|error| Failure::system("prepare the command", &error))
    };
    let mut executable = prepare(environment)?;
    if executable.is_32_bit() {
        // The loader of a 32-bit program cannot load the stub and would print an error.
        executable = prepare(std::env::vars_os().collect())?;
    }

    let mut launcher = Launcher::start(&mut plan, &socket_name, &fallback_dir)?;
    if let Some(signal) = launcher.wait_until_ready()? {
        return Ok(Ended { code: 128 + signal, peak: None, wholly: false });
    }
    let forked = |pid| {
        launcher.hold_signals(pid);
        // If the pager dies, the whole tree dies, because the pager holds most of its memory. When
        // the machine runs out of memory, the OOM killer should take a program instead.
        if process::move_oom_score(launcher.pager, -OOM_DISTANCE).is_err() {
            let _ = process::move_oom_score(pid, OOM_DISTANCE);
        }
    };
    let spawned = executable.spawn(&plan.inherited.state, forked);
    let spawned = spawned.map_err(|error| Failure::start("start a process", &error))?;
    let command = spawned.map_err(|error| Failure::command(&plan.command[0], error))?;
    launcher.command_started(command);
    if let Some(Err(failure)) = plan.record.take().map(RecordFile::keep) {
        launcher
            .say(&format!("--record: the recording does not get its name, and the run goes on: {}", failure.message));
    }
    // Inherited pipes must not stay open because of the launcher: their readers wait for the end.
    // From here on it needs only standard error.
    plan.inherited.descriptors.close();
    process::detach_standard(&[0, 1]);

    let change = launcher.watch_command().inspect_err(|_| launcher.report_failed(&mut plan))?;
    let wants_stats = plan.stats.is_some() || plan.report.is_some() || plan.advise || !plan.quiet;
    // After SIGKILL, wait too: the pager may have killed the command, and then says why.
    let wanted = wants_stats || change == Change::Killed(libc::SIGKILL);
    launcher.wait_for_stats(change, wanted).inspect_err(|_| launcher.report_failed(&mut plan))?;
    if let Some(summary) = launcher.report(&mut plan).filter(|_| !plan.quiet) {
        launcher.say(&summary);
    }
    let peak = launcher.peak;
    let wholly = launcher.leave(&plan, socket_name);
    let code = match change {
        Change::Exited(code) => code,
        Change::Killed(signal) | Change::Dumped(signal) | Change::Stopped(signal) => 128 + signal,
    };
    Ok(Ended { code, peak, wholly })
}

/// `memfit-<uid>-<pid>-<random>`: `memfit stat` finds it by this prefix.
fn unique_name() -> io::Result<String> {
    let random = u64::from_ne_bytes(process::random_bytes()?);
    Ok(format!("memfit-{}-{}-{random:016x}", process::effective_uid(), std::process::id()))
}

/// The launcher's view of the run.
struct Launcher {
    me: Pid,
    pager: Pid,
    pager_end: Option<Change>,
    command: Option<Pid>,
    command_end: Option<Change>,
    /// Children that this process had when it executed memfit, started by its previous program.
    other_children: HashSet<Pid>,
    socket: OwnedFd,
    signals: SignalFd,
    /// Directory that the pager may have made.
    fallback_dir: PathBuf,
    /// `None` if the probe could not start: the command then gets signals to the group twice.
    signal_probe: Option<SignalProbe>,
    /// Signals to the group that a former probe has seen, and this process not yet.
    seen_before: SignalSet,
    inherited: InheritedState,
    /// Signals that have arrived before the command was started, which gets them.
    held: Vec<Arrived>,
    messages: Option<Messages>,
    ready: bool,
    /// Why the pager cannot go on, and the exit status for that.
    failed: Option<Failure>,
    stats: Option<(Box<Stats>, String)>,
    course: Option<Box<Course>>,
    /// See [`Ended::peak`].
    peak: Option<u64>,
    /// The pager serves processes outside of the tree.
    serves_others: bool,
    /// The pager ends: nobody needs it.
    pager_is_done: bool,
    /// A signal that asked us to end while no command could receive it.
    interrupted: Option<i32>,
}

/// Starting and ending.
impl Launcher {
    fn start(plan: &mut Plan, socket_name: &str, fallback_dir: &str) -> Result<Self, Failure> {
        let system = |what: &'static str| move |error: io::Error| Failure::system(what, &error);
        let other_children = if process::has_children() {
            proctree::own_children().map_err(system("list processes in /proc"))?.into_iter().collect()
        } else {
            HashSet::new()
        };
        process::become_subreaper().map_err(system("adopt orphaned processes"))?;
        let signals = SignalFd::take_over().map_err(system("take over signals"))?;
        let signal_probe = SignalProbe::start().ok();
        let (socket, pager_socket) = seqpacket::pair().map_err(system("make a socket"))?;
        // Before the other one: as soon as that name is bound, other users know both.
        let start_listener =
            seqpacket::listen_abstract(&start_socket_name(socket_name)).map_err(system("make a socket"))?;
        let listener = seqpacket::listen_abstract(socket_name).map_err(system("make a socket"))?;
        let config = Config {
            budget_bytes: plan.budget_bytes,
            scheme: plan.scheme.clone(),
            swap: plan.swap.clone(),
            swap_size: plan.swap_size,
            swap_writes: plan.swap_writes,
            lock_pool: plan.lock_pool,
            endurance: plan.endurance,
            on_full: plan.on_full,
            protect: std::mem::take(&mut plan.protect),
            turn_ms: plan.turn_ms,
            stub: preload::file_name(&plan.stub),
            stub_path: plan.stub.clone(),
            automatic: plan.automatic,
            record: plan.record.as_mut().and_then(RecordFile::take).map(IntoRawFd::into_raw_fd),
            record_access: plan.record_access,
            record_contents: std::mem::take(&mut plan.record_contents),
            timeline: plan.report.is_some(),
            command: plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            socket_name: socket_name.to_owned(),
            fallback_dir: fallback_dir.to_owned(),
            // The pager owns these; in the shared table, closing them here would close them there.
            listener: listener.into_raw_fd(),
            start_listener: start_listener.into_raw_fd(),
            to_launcher: pager_socket.into_raw_fd(),
            verbose: plan.verbose,
            launcher_pid: std::process::id() as Pid,
        };
        let serve = plan.serve;
        let pager = process::spawn_sharing_descriptors(c"memfit-pager", &plan.inherited.state, move || serve(config))
            .map_err(|error| Failure::start("start the pager", &error))?;
        Ok(Self {
            me: std::process::id() as Pid,
            pager,
            pager_end: None,
            command: None,
            command_end: None,
            other_children,
            socket,
            signals,
            fallback_dir: fallback_dir.into(),
            signal_probe,
            seen_before: SignalSet::default(),
            inherited: plan.inherited.state,
            held: Vec::new(),
            messages: None,
            ready: false,
            failed: None,
            stats: None,
            course: None,
            peak: None,
            serves_others: false,
            pager_is_done: false,
            interrupted: None,
        })
    }

    /// Waits until the pager is ready. If a signal asks to end instead, returns the signal.
    fn wait_until_ready(&mut self) -> Result<Option<i32>, Failure> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while !self.ready {
            self.step(Some(deadline))?;
            self.check_pager("the pager died while it started")?;
            if let Some(signal) = self.interrupted {
                return Ok(Some(signal));
            }
            if Instant::now() >= deadline {
                let limit = READY_TIMEOUT.as_secs();
                return Err(Failure::here(format!("the pager was not ready within {limit} s; try --swap none")));
            }
        }
        Ok(None)
    }

    fn command_started(&mut self, pid: Pid) {
        self.command = Some(pid);
        for Arrived { signal, value, .. } in std::mem::take(&mut self.held) {
            let _ = process::send_signal(pid, signal, value);
        }
        self.tell(&ToPager::Started { pid });
        self.messages = Some(Messages::start());
    }

    fn watch_command(&mut self) -> Result<Change, Failure> {
        loop {
            self.step(None)?;
            self.check_pager("the pager died")?;
            if let Some(change) = self.command_end {
                return Ok(change);
            }
        }
    }

    /// Tells the pager that the command has ended, and waits for its statistics if they are
    /// `wanted`.
    fn wait_for_stats(&mut self, change: Change, wanted: bool) -> Result<(), Failure> {
        self.tell_end(change, wanted);
        let mut deadline = Instant::now();
        if wanted {
            deadline += STATS_TIMEOUT;
        }
        loop {
            self.step(Some(deadline))?;
            if self.pager_end == Some(Change::Exited(0)) && self.failed.is_none() {
                return Ok(()); // Nothing was left to serve.
            }
            if self.pager_end.is_some() || self.failed.is_some() {
                return match self.tree().is_empty() {
                    true => Ok(()),
                    false => self.check_pager("the pager died when the command had ended"),
                };
            }
            if self.stats.is_some() || self.interrupted.is_some() || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    fn tell_end(&mut self, change: Change, wait_for_stats: bool) {
        let (code, signal) = match change {
            Change::Exited(code) => (Some(code), None),
            Change::Killed(signal) | Change::Dumped(signal) | Change::Stopped(signal) => (None, Some(signal)),
        };
        let pid = self.command.unwrap_or(0);
        self.tell(&ToPager::CommandExited { pid, code, signal, wait_for_stats });
    }

    /// Writes the files of a run that had to be ended, if the pager still gives its statistics. The
    /// tree is dead.
    fn report_failed(&mut self, plan: &mut Plan) {
        if plan.advise {
            self.say("--advise: no advice is given, as the run had to be ended");
        }
        if plan.stats.is_none() && plan.report.is_none() {
            return;
        }
        if self.pager_end.is_none() {
            self.tell_end(self.command_end.unwrap_or(Change::Killed(libc::SIGKILL)), true);
        }
        let deadline = Instant::now() + STATS_TIMEOUT;
        while self.stats.is_none() && self.pager_end.is_none() && Instant::now() < deadline {
            if self.step(Some(deadline)).is_err() {
                break;
            }
        }
        self.report(plan);
    }

    /// Writes the files of the run, and gives its summary; without statistics it says so instead.
    fn report(&mut self, plan: &mut Plan) -> Option<String> {
        let (file, page) = (plan.stats.take(), plan.report.take());
        let Some((stats, summary)) = self.stats.take() else {
            let why = match (&self.failed, self.pager_end) {
                (Some(failure), _) => failure.message.clone(),
                (None, Some(_)) => "the pager died".to_owned(),
                (None, None) => format!("the pager gave none within {} s", STATS_TIMEOUT.as_secs()),
            };
            if file.is_some() {
                self.say(&format!("--stats: no statistics were written: {why}"));
            }
            if page.is_some() {
                self.say(&format!("--report: no page was written, for want of statistics: {why}"));
            }
            return None;
        };
        self.peak = Some(stats.peak.total_bytes.saturating_sub(stats.peak.staged_bytes));
        let json = || format!("{:#}\n", serde_json::json!(stats));
        if let Some(Err(failure)) = file.map(|output| output.finish(json().as_bytes())) {
            self.say(&failure.message);
        }
        if let Some(output) = page {
            let course = self.course.take().unwrap_or_default();
            let page =
                report::page(&report::Run { stats: &stats, course: &course, swap: &swap::place_names(&plan.swap) });
            if let Err(failure) = output.finish(&page) {
                self.say(&failure.message);
            }
        }
        Some(summary)
    }

    /// Ends the pager, or leaves it with a guard if processes still need it. Returns whether the
    /// pager is no longer needed.
    fn leave(mut self, plan: &Plan, socket_name: String) -> bool {
        let single_threaded = self.messages.take().is_none_or(Messages::finish);
        let tree = self.tree();
        if tree.is_empty() && !self.others_are_served() {
            return true; // Dropping ends the pager, if it has not ended.
        }
        if plan.advise {
            self.say("--advise: no advice is given, as processes of the run live on, and so does its recording");
        }
        if single_threaded && self.pager_end.is_none() && !self.pager_is_done {
            let watch = Watch {
                pager: self.pager,
                socket: self.socket.as_raw_fd(),
                tree,
                environment_entry: format!("{SOCKET_VARIABLE}={socket_name}"),
                stub: preload::file_name(&plan.stub),
                fallback_dir: self.fallback_dir.clone(),
            };
            let state = &plan.inherited.state;
            let _ = process::spawn_sharing_descriptors(c"memfit-guard", state, move || watch.run());
        }
        // The pager shares these and would keep the terminal and pipes of our caller open.
        process::detach_standard(&[0, 1, 2]);
        std::mem::forget(self);
        false
    }

    /// Whether the pager must serve on for paged processes outside of the tree, which inherited its
    /// environment. The pager tells the others that are not paged to go on alone. If none is paged,
    /// it ends. Nobody is killed because its answer has not come.
    fn others_are_served(&mut self) -> bool {
        if self.pager_end.is_some() {
            return false;
        }
        self.tell(&ToPager::TreeEnded);
        let deadline = Instant::now() + STATS_TIMEOUT;
        while self.pager_end.is_none() && !self.serves_others && Instant::now() < deadline {
            if self.step(Some(deadline)).is_err() || self.failed.is_some() || self.interrupted.is_some() {
                break;
            }
        }
        self.failed.is_none() && self.pager_end.is_none()
    }

    /// The living members of the tree. The usual case, no child, is checked first and cheaply.
    fn tree(&self) -> Vec<proctree::ProcStat> {
        let non_descendants = self.non_descendants();
        match proctree::own_children() {
            Ok(children) if children.iter().all(|child| non_descendants.contains(child)) => Vec::new(),
            _ => proctree::descendants(self.me, &non_descendants).unwrap_or_default(),
        }
    }

    /// Children that do not belong to the tree.
    fn non_descendants(&self) -> HashSet<Pid> {
        self.other_children
            .iter()
            .copied()
            .chain([self.pager])
            .chain(self.signal_probe.as_ref().map(SignalProbe::pid))
            .collect()
    }

    /// If the pager cannot go on, kills the tree and fails.
    fn check_pager(&mut self, what_happened: &str) -> Result<(), Failure> {
        let failure = match (self.failed.take(), self.pager_end) {
            (Some(failure), _) => failure,
            (None, None) => return Ok(()),
            (None, Some(end)) => {
                let how = match end {
                    Change::Exited(process::NO_THREAD) => format!("the kernel gives it no thread; {RAISE_TASKS}"),
                    Change::Exited(code) => format!("exit status {code}"),
                    Change::Killed(signal) | Change::Dumped(signal) | Change::Stopped(signal) => {
                        format!("signal {signal}")
                    }
                };
                let killed = match self.command {
                    None => "the command was not started",
                    Some(_) => "the command and all that it started were killed, as their memory is lost",
                };
                Failure::here(format!("{what_happened} ({how}); {killed}"))
            }
        };
        let survivors = self.kill_tree();
        // Print the queued lines first: they are older than this failure.
        if let Some(messages) = self.messages.take() {
            messages.finish();
        }
        if survivors.is_empty() {
            return Err(failure);
        }
        let Failure { code, message } = failure;
        Err(Failure { code, message: format!("{message}; could not kill: {survivors}") })
    }

    /// Kills all descendants but the pager; returns the names of those that do not die.
    fn kill_tree(&mut self) -> String {
        let non_descendants = self.non_descendants();
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut pause = Duration::from_micros(200);
        loop {
            let killed = proctree::kill_descendants(self.me, &non_descendants);
            // All orphans of the tree are our children. Once it is dead, this is the end of all.
            while let Some((pid, change)) = process::next_child_change() {
                self.on_child(pid, change);
            }
            let late = Instant::now() >= deadline;
            match killed {
                Ok(alive) if late || alive.is_empty() => {
                    let names = alive.iter().map(|process| format!("{} ({})", process.pid, process.comm));
                    return names.collect::<Vec<_>>().join(", ");
                }
                Err(error) if late => return format!("any that are left: {}", describe(&error)),
                // Without a list of processes, nobody knows whether one is left.
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Launcher {
    /// On every way out, no pager outlives its tree.
    fn drop(&mut self) {
        if self.pager_end == Some(Change::Exited(0)) {
            return;
        }
        netns_fallback::remove(&self.fallback_dir);
        if self.pager_end.is_some() {
            return;
        }
        process::kill(self.pager);
        let deadline = Instant::now() + KILL_TIMEOUT;
        while Instant::now() < deadline && process::has_children() {
            match process::next_child_change() {
                Some((pid, change)) if pid == self.pager && !matches!(change, Change::Stopped(_)) => return,
                Some(_) => {}
                // The kernel is freeing the pager's memory; SIGCHLD comes when that is done.
                None => drop(wait_readable([self.signals.as_fd()], Some(Duration::from_millis(20)))),
            }
            while self.signals.next_signal().is_some() {}
        }
    }
}

/// One turn of the main loop.
impl Launcher {
    /// Waits for an event or the deadline, and handles all events that have arrived.
    fn step(&mut self, deadline: Option<Instant>) -> Result<(), Failure> {
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        wait_readable([self.socket.as_fd(), self.signals.as_fd()], timeout)
            .map_err(|error| Failure::system("wait for events", &error))?;
        while let Some(arrived) = self.signals.next_signal() {
            self.on_signal(arrived);
        }
        while let Some((pid, change)) = process::next_child_change() {
            self.on_child(pid, change);
        }
        // Read packets last: a pager that has just died may have sent the reason.
        self.read_packets();
        Ok(())
    }

    fn on_child(&mut self, pid: Pid, change: Change) {
        if matches!(change, Change::Dumped(_)) && pid != self.pager {
            // While the kernel writes a core dump it does not wait for a userfaultfd.
            self.say(&format!("the core dump of process {pid} has zeros where pages were paged out"));
        }
        if pid == self.pager {
            if !matches!(change, Change::Stopped(_)) {
                self.pager_end = Some(change);
            }
        } else if Some(pid) == self.command && self.command_end.is_none() {
            match change {
                Change::Stopped(signal) => self.stop_with_command(signal),
                ended => self.command_end = Some(ended),
            }
        } else if !matches!(change, Change::Stopped(_)) {
            self.other_children.remove(&pid);
            self.signal_probe = self.signal_probe.take().filter(|signal_probe| signal_probe.pid() != pid);
        }
    }

    /// Whether a signal that has arrived was sent to our whole process group.
    fn had_the_group(&mut self, signal: i32) -> bool {
        let seen = self.signal_probe.as_ref().map(SignalProbe::seen).unwrap_or_default();
        let had = seen.and(self.seen_before).has(signal);
        self.seen_before = self.seen_before.without(signal);
        if seen.has(signal) {
            // Start another probe for the next signal, before the old one is asked for what it has
            // seen until then.
            let old = std::mem::replace(&mut self.signal_probe, SignalProbe::start().ok());
            let seen = old.as_ref().map(SignalProbe::seen).unwrap_or_default();
            self.seen_before = self.seen_before.and(seen).without(signal);
        }
        had
    }

    /// Whether a process is ours, and was not started before this one executed memfit.
    fn is_of_the_tree(&self, pid: Pid) -> bool {
        let is_below = |root: Pid| proctree::is_at_or_below(pid, root);
        is_below(self.me) && !self.other_children.iter().any(|child| is_below(*child))
    }

    fn in_our_group(&self, pid: Pid) -> bool {
        let group = |pid| proctree::read_stat(pid).map(|process| process.pgrp);
        group(pid) == group(self.me)
    }

    /// Stops the launcher when the command stops: the shell that waits for us watches the launcher,
    /// not the command.
    ///
    /// Only under a terminal, where a user can continue the job. Elsewhere the process that stopped
    /// the command continues only the command, and the launcher would stay stopped.
    fn stop_with_command(&mut self, signal: i32) {
        let (Some(own), Some(command)) = (proctree::read_stat(self.me), self.command) else { return };
        let by_job_control = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        // If the command is a shell, it has a process group of its own, and `suspend` stops it with
        // SIGSTOP.
        let in_foreground =
            own.in_foreground() || proctree::read_stat(command).is_some_and(|stat| stat.in_foreground());
        if own.tty_nr != 0 && (by_job_control || in_foreground) {
            process::stop_self();
            self.continue_command();
        }
    }

    /// Continues the command if it is stopped: a shell continues only our own process group.
    fn continue_command(&self) {
        if let (Some(pid), None) = (self.command, self.command_end) {
            if proctree::read_stat(pid).is_some_and(|stat| stat.is_stopped()) {
                let _ = process::send_signal(pid, libc::SIGCONT, None);
            }
        }
    }

    /// Nobody waits for the pager to start, or for statistics, after a signal that would end the
    /// command. Other signals are held until the command starts.
    fn on_signal_without_command(&mut self, arrived: Arrived) {
        let signal = arrived.signal;
        let asks_to_end = matches!(signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT);
        // The next one to this process alone must not be taken for one to the group.
        self.had_the_group(signal);
        if asks_to_end && self.inherited.obeys(signal) {
            self.interrupted = Some(signal);
        } else if self.command.is_none() && signal != libc::SIGCHLD {
            self.held.push(arrived);
        }
    }

    /// Holds the signals that have come since the last turn for a command that has just been forked
    /// and blocks all signals. Those to the group that came after the fork wait in it already.
    fn hold_signals(&mut self, command: Pid) {
        let arrived: Vec<_> = std::iter::from_fn(|| self.signals.next_signal()).collect();
        let had = signal_probe::pending(command);
        for arrived in arrived {
            self.had_the_group(arrived.signal);
            if arrived.signal != libc::SIGCHLD && !had.has(arrived.signal) {
                self.held.push(arrived);
            }
        }
    }

    /// Forwards a signal if it was meant for the command.
    ///
    /// The terminal signals its whole process group, and so does a sender like `timeout`. The
    /// command already has such a signal and must not get it twice. A signal that a member of the
    /// tree sends to the launcher alone is not for the command, which may be the sender.
    fn on_signal(&mut self, arrived: Arrived) {
        let Arrived { signal, from_process, sender, value } = arrived;
        let (Some(command), None) = (self.command, self.command_end) else {
            return self.on_signal_without_command(arrived);
        };
        match signal {
            libc::SIGCHLD => {}
            libc::SIGCONT => self.continue_command(),
            _ if !from_process => {
                // The probe has this signal, too. It would take the next one for one to the group.
                self.had_the_group(signal);
                // When a terminal hangs up, the kernel signals only the leader of its session. The
                // other processes get the signal when the leader ends.
                if signal == libc::SIGHUP && process::leads_session() {
                    let _ = process::send_signal(command, signal, None);
                }
            }
            _ if self.had_the_group(signal) && self.in_our_group(command) => {}
            _ if sender != 0 && self.is_of_the_tree(sender) => {}
            _ => {
                let _ = process::send_signal(command, signal, value);
            }
        }
    }
}

/// Talking.
impl Launcher {
    fn tell(&mut self, message: &ToPager) {
        let sent = serde_json::to_vec(message)
            .map_err(io::Error::from)
            .and_then(|packet| seqpacket::send(self.socket.as_fd(), &packet, None));
        if let Err(error) = sent {
            self.warn(&format!("the pager cannot be told what happened: {}", describe(&error)));
        }
    }

    fn read_packets(&mut self) {
        loop {
            match seqpacket::receive(self.socket.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.warn(&format!("a message of the pager is lost: {}", describe(&error))),
                Ok(None) => {
                    // The pager never closes its end unless something is wrong with it.
                    if self.pager_end.is_none() {
                        process::kill(self.pager);
                    }
                    return;
                }
                Ok(Some(packet)) => match decode(packet) {
                    Ok(message) => self.on_message(message),
                    Err(error) => self.warn(&format!("a message of the pager is lost: {}", describe(&error))),
                },
            }
        }
    }

    fn on_message(&mut self, message: FromPager) {
        match message {
            FromPager::Ready => self.ready = true,
            FromPager::Failed { message, code } => self.failed = Some(Failure { code, message }),
            FromPager::Warning { text } => self.warn(&text),
            FromPager::Fatal { text } => self.failed = Some(Failure::here(text)),
            FromPager::Course(course) => self.course = Some(course),
            FromPager::Stats { stats, summary } => self.stats = Some((stats, summary)),
            FromPager::Serves => self.serves_others = true,
            FromPager::Done => self.pager_is_done = true,
        }
    }

    fn warn(&mut self, text: &str) {
        match &mut self.messages {
            Some(messages) => messages.warn(text),
            None => tell(text),
        }
    }

    fn say(&mut self, text: &str) {
        match &mut self.messages {
            Some(messages) => messages.say(text),
            None => tell(text),
        }
    }
}

/// A message is in the packet or, if it is large, in the memfd that came with it.
fn decode(packet: seqpacket::Packet) -> io::Result<FromPager> {
    let Some(fd) = packet.fd else { return Ok(serde_json::from_slice(&packet.bytes)?) };
    let mut file = File::from(fd);
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LARGE_MESSAGE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
