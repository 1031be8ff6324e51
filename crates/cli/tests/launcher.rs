//! The launcher with pagers that misbehave on purpose.
//!
//! This program is its own subject: called with `FAKE_PAGER` set it is `memfit` with that pager,
//! else it runs the tests by calling itself. It has no test harness because the launcher must start
//! with a single thread.

mod support;

use memfit_os::event::wait_readable;
use memfit_os::proctree::{self, ProcStat};
use memfit_os::{process, seqpacket};
use memfit_pager::config::{Config, FromPager, ToPager};
use memfit_stats::{Exit, Stats};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::tree::eventually;
use support::{remove_left_by_killed, skip};

fn main() {
    if std::env::var_os("FAKE_PAGER").is_some() {
        std::process::exit(memfit_cli::main_with(fake_pager));
    }
    // A shell cannot trap what was ignored when it started, as SIGHUP is under nohup.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the defaults, before there is another thread.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // Options as a Rust test harness gets them, from cargo-nextest or by hand.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| words.iter().any(|word| word == option);
    let filter = words.iter().find(|word| !word.starts_with('-') && *word != "terse").map_or("", String::as_str);
    let wanted = |name: &str| if has("--exact") { name == filter } else { name.contains(filter) };
    let tests = TESTS.iter().filter(|(name, _)| wanted(name) && !has("--ignored"));
    if has("--list") {
        return tests.for_each(|(name, _)| println!("{name}: test"));
    }
    if let Err(reason) = memfit_os::probe::try_move() {
        return skip(&format!("launcher {filter}"), &format!("no userfaultfd with MOVE here: {reason}"));
    }
    remove_left_by_killed(Path::new("/var/tmp"), "memfit-launcher-");
    let _left = Pagers;
    for (name, test) in tests {
        let start = Instant::now();
        test();
        drop(Pagers);
        println!("test {name} ... ok ({} ms)", start.elapsed().as_millis());
    }
}

const TESTS: &[(&str, fn())] = &[
    ("statistics_and_summary", statistics_and_summary),
    ("large_statistics_come_by_memfd", large_statistics_come_by_memfd),
    ("missing_statistics_are_told", missing_statistics_are_told),
    ("pager_that_cannot_start", pager_that_cannot_start),
    ("pager_that_dies_at_start", pager_that_dies_at_start),
    ("pager_death_kills_the_tree", pager_death_kills_the_tree),
    ("a_full_table_of_descriptors_hinders_nothing", a_full_table_of_descriptors_hinders_nothing),
    ("fatal_kills_the_tree", fatal_kills_the_tree),
    ("failed_runs_have_statistics", failed_runs_have_statistics),
    ("pager_end_after_the_command", pager_end_after_the_command),
    ("warnings_are_bounded", warnings_are_bounded),
    ("signals_reach_the_command_once", signals_reach_the_command_once),
    ("signals_to_the_group_arrive_once", signals_to_the_group_arrive_once),
    ("a_signal_after_one_of_the_terminal_arrives", a_signal_after_one_of_the_terminal_arrives),
    ("signals_to_the_group_that_come_together_arrive_once", signals_to_the_group_that_come_together_arrive_once),
    ("signals_before_the_command_are_those_of_the_command", signals_before_the_command_are_those_of_the_command),
    ("signals_to_the_group_just_before_the_command_reach_it", signals_to_the_group_just_before_the_command_reach_it),
    ("timers_are_those_of_the_command", timers_are_those_of_the_command),
    ("timers_do_not_expire_before_the_command", timers_do_not_expire_before_the_command),
    ("timeout_of_the_group", timeout_of_the_group),
    ("a_command_that_kills_its_group", a_command_that_kills_its_group),
    ("inherited_state", inherited_state),
    ("no_descriptor_leaks", no_descriptor_leaks),
    ("pipes_end_with_the_command", pipes_end_with_the_command),
    ("nothing_is_left", nothing_is_left),
    ("descendants_live_on", descendants_live_on),
    ("descendants_live_on_with_a_late_pager", descendants_live_on_with_a_late_pager),
    ("guard_outlives_the_launcher", guard_outlives_the_launcher),
    ("former_children_are_spared", former_children_are_spared),
    ("signals_of_former_children_reach_the_command", signals_of_former_children_reach_the_command),
    ("nested_runs_join", nested_runs_join),
    ("nested_runs_use_no_option", nested_runs_use_no_option),
    ("stat_asks_the_pager", stat_asks_the_pager),
    ("terminal_stop_and_continue", terminal_stop_and_continue),
];

// The pagers.

fn fake_pager(config: Config) -> ! {
    // SAFETY: the pager owns this descriptor; nobody else in this process closes it.
    let socket = unsafe { OwnedFd::from_raw_fd(config.to_launcher) };
    let kind = std::env::var("FAKE_PAGER").unwrap();
    match kind.as_str() {
        "fails" => tell(&socket, &FromPager::Failed { message: "no such scheme: x".into(), code: 2 }),
        "dies-at-start" => process::exit_now(3),
        "late" => late_pager(&socket, config),
        "warns-first" => {
            tell(&socket, &FromPager::Warning { text: "slow disk".into() });
            tell(&socket, &FromPager::Ready);
        }
        "slow" => {
            wait_for_flag();
            tell(&socket, &FromPager::Ready);
        }
        _ => tell(&socket, &FromPager::Ready),
    }
    loop {
        let _ = wait_readable([socket.as_fd()], None);
        let Ok(Some(packet)) = seqpacket::receive(socket.as_fd()) else { continue };
        match (serde_json::from_slice::<ToPager>(&packet.bytes).unwrap(), kind.as_str()) {
            (ToPager::Started { .. }, "dies") => {
                wait_for_flag();
                process::exit_now(9)
            }
            (ToPager::Started { .. }, "fills") => {
                // In the common table: far more than the user's soft limit.
                (0..200).for_each(|_| std::mem::forget(socket.try_clone().unwrap()));
                wait_for_flag();
                process::exit_now(9)
            }
            (ToPager::Started { .. }, "fatal") => {
                wait_for_flag();
                tell(&socket, &FromPager::Fatal { text: "page 5 was lost".into() });
            }
            (ToPager::Started { .. }, "warns") => {
                (0..500)
                    .for_each(|i| while send(&socket, &FromPager::Warning { text: format!("w{i}\nx") }).is_err() {});
                fs::write(flag(), "").unwrap();
            }
            (ToPager::Started { .. }, "stat") => answer_stat(config.listener),
            (ToPager::TreeEnded, _) => process::exit_now(0),
            (ToPager::CommandExited { wait_for_stats, code, .. }, _) => ended(&socket, &kind, wait_for_stats, code),
            _ => {}
        }
    }
}

/// The real pager, which begins to listen when the launcher has gone.
fn late_pager(socket: &OwnedFd, config: Config) -> ! {
    tell(socket, &FromPager::Ready);
    while std::os::unix::process::parent_id() == config.launcher_pid as u32 {
        std::thread::sleep(Duration::from_millis(5));
    }
    memfit_pager::serve(config)
}

/// A file by which a command and its pager wait for each other.
fn flag() -> String {
    std::env::var("FAKE_FLAG").unwrap()
}

fn wait_for_flag() {
    for _ in 0..6000 {
        if fs::remove_file(flag()).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(socket: &OwnedFd, kind: &str, wanted: bool, code: Option<i32>) {
    let summary = format!("fake summary, wanted {wanted}");
    match kind {
        "leaves" => process::exit_now(0),
        "dies-after" => process::exit_now(1),
        "mute" => {}
        "large" => {
            let stats = Box::new(Stats { command: vec!["x".repeat(1 << 20)], ..Stats::default() });
            let text = serde_json::to_vec(&FromPager::Stats { stats, summary }).unwrap();
            let path = format!("/var/tmp/memfit-fake-{}", std::process::id());
            let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            fs::remove_file(path).unwrap();
            file.write_all(&text).unwrap();
            seqpacket::send(socket.as_fd(), b"{}", Some(file.as_fd())).unwrap();
        }
        _ => tell(socket, &FromPager::Stats { stats: Box::new(stats(code)), summary }),
    }
}

fn stats(code: Option<i32>) -> Stats {
    Stats { schema: 1, exit: Some(Exit { code, signal: None }), ..Stats::default() }
}

fn answer_stat(listener: i32) {
    // SAFETY: the listener stays open as long as this process lives.
    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
    std::thread::spawn(move || loop {
        wait_readable([listener], None).unwrap();
        let client = accept(listener);
        let asked = seqpacket::receive_within(client.as_fd(), Duration::from_secs(120));
        if asked.is_ok_and(|packet| packet.is_some_and(|packet| packet.bytes == br#"{"stat":1}"#)) {
            let answer = br#"{"budget_bytes":1073741824,"now":{"total_bytes":5242880},"processes":[{"pid":1}]}"#;
            seqpacket::send(client.as_fd(), answer, None).unwrap();
        }
    });
}

fn accept(listener: BorrowedFd<'_>) -> OwnedFd {
    use std::os::fd::AsRawFd;
    // SAFETY: null address pointers are allowed; the result is a new descriptor.
    unsafe {
        let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    }
}

fn send(socket: &OwnedFd, message: &FromPager) -> std::io::Result<()> {
    seqpacket::send(socket.as_fd(), &serde_json::to_vec(message).unwrap(), None)
}

fn tell(socket: &OwnedFd, message: &FromPager) {
    send(socket, message).unwrap();
}

// Helpers.

fn harmless_stub() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
    library[library.find('/').unwrap()..].to_owned()
}

fn memfit(pager: &str, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).env("FAKE_PAGER", pager).env("MEMFIT_STUB", harmless_stub()).env("FAKE_FLAG", scratch("flag"));
    command.env_remove("MEMFIT_SOCKET").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn shell(pager: &str, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    output(&mut memfit(pager, &[&["run"], options, &["--", "sh", "-c", script]].concat()))
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn alive(pid: &str) -> bool {
    proctree::read_stat(pid.trim().parse().unwrap()).is_some_and(|stat| !stat.is_dead())
}

/// A process that is killed when this goes out of scope, also because an assertion failed.
struct Killed(ProcStat);

impl Killed {
    /// A process that must be alive.
    #[track_caller]
    fn at_end(pid: &str) -> Killed {
        let process = proctree::read_stat(pid.trim().parse().unwrap()).filter(|stat| !stat.is_dead());
        Killed(process.unwrap_or_else(|| panic!("{pid} is dead")))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = proctree::kill_exactly(&self.0);
    }
}

/// The fake pager serves for ever: those that are left are killed when this goes out of scope.
struct Pagers;

impl Drop for Pagers {
    fn drop(&mut self) {
        let exe = std::env::current_exe().unwrap();
        for process in proctree::snapshot().unwrap() {
            let same = fs::read_link(format!("/proc/{}/exe", process.pid)).is_ok_and(|link| link == exe);
            if same && process.comm.starts_with("memfit-") {
                let _ = proctree::kill_exactly(&process);
            }
        }
    }
}

/// The pager of a run.
fn pagers_of(launcher: u32) -> Vec<String> {
    let all = proctree::snapshot().unwrap();
    let own = all.iter().filter(|p| p.comm == "memfit-pager" && !p.is_dead() && p.ppid == launcher as i32);
    own.map(|p| p.pid.to_string()).collect()
}

/// Whether a process has not read a signal yet.
fn pending(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim();
    u64::from_str_radix(of, 16).unwrap() >> (signal - 1) & 1 != 0
}

/// Whether a command of this machine works.
fn runs(words: &[&str]) -> bool {
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
}

fn scratch(name: &str) -> String {
    format!("/var/tmp/memfit-launcher-{name}-{}", std::process::id())
}

// The tests.

fn statistics_and_summary() {
    let file = scratch("stats");
    let (code, _, err) = shell("good", &["--stats", &file], "exit 5");
    assert_eq!((code, err.as_str()), (Some(5), "memfit: fake summary, wanted true\n"));
    assert_eq!(serde_json::from_slice::<Stats>(&fs::read(&file).unwrap()).unwrap(), stats(Some(5)));
    fs::remove_file(file).unwrap();
    let (code, _, err) = shell("good", &["-q"], "true");
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

fn large_statistics_come_by_memfd() {
    let file = scratch("large");
    let (code, _, err) = shell("large", &["-q", "--stats", &file], "true");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(fs::metadata(&file).unwrap().len() > 1 << 20);
    // A report needs only these statistics.
    let (code, _, err) = shell("large", &["-q", "--report", &file], "true");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(fs::read_to_string(&file).unwrap().contains("gave no samples"));
    fs::remove_file(file).unwrap();
}

fn missing_statistics_are_told() {
    let file = scratch("none");
    let page = scratch("page");
    let (code, _, err) = shell("mute", &["--stats", &file, "--report", &page], "exit 4");
    assert_eq!(code, Some(4));
    assert!(err.contains("--report: no page was written, for want of statistics: the pager gave none"), "{err}");
    assert!(!fs::exists(&page).unwrap());
    assert!(err.contains("--stats: no statistics were written: the pager gave none within 5 s"), "{err}");
    assert!(!fs::exists(&file).unwrap());
}

fn pager_that_cannot_start() {
    let (code, out, err) = shell("fails", &[], "echo never");
    assert_eq!((code, out.as_str(), err.as_str()), (Some(2), "", "memfit: no such scheme: x\n"));
}

fn pager_that_dies_at_start() {
    let (code, out, err) = shell("dies-at-start", &[], "echo never");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(err, "memfit: the pager died while it started (exit status 3); the command was not started\n");
}

fn pager_death_kills_the_tree() {
    let (code, out, err) = shell("dies", &[], "setsid sleep 100 & sleep 100 & echo $!; : >$FAKE_FLAG; wait");
    assert_eq!(code, Some(1));
    assert!(err.contains("memfit: the pager died (exit status 9); the command and all that it started were killed"));
    assert!(!alive(&out));
    // The same if the pager is killed from outside; the whole tree is gone when the launcher
    // returns.
    let mut run =
        memfit("good", &["run", "--", "sh", "-c", "trap '' TERM; sleep 100 & echo $!; wait"]).spawn().unwrap();
    let sleeper = first_line(&mut run);
    let pagers = pagers_of(run.id());
    assert_eq!(pagers.len(), 1);
    process::send_signal(pagers[0].parse().unwrap(), libc::SIGKILL, None).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert!(!alive(&sleeper));
}

/// The pager has filled the table beyond the soft limit of the user, which the command has.
fn a_full_table_of_descriptors_hinders_nothing() {
    let script = "ulimit -Sn; sleep 100 & echo $!; : >$FAKE_FLAG; wait";
    let mut few = memfit("fills", &[]);
    few = {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\""]).arg(few.get_program());
        shell.args(["run", "--", "sh", "-c", script]);
        shell.envs(few.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("MEMFIT_SOCKET");
        shell
    };
    let (code, out, err) = output(&mut few);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((code, lines[0]), (Some(1), "64"), "{err}");
    assert!(err.contains("the pager died") && !err.contains("could not kill"), "{err}");
    assert!(!alive(lines[1]), "{err}");
}

fn fatal_kills_the_tree() {
    let (code, out, err) = shell("fatal", &[], "sleep 100 & echo $!; : >$FAKE_FLAG; wait");
    assert_eq!((code, err.as_str()), (Some(1), "memfit: page 5 was lost\n"));
    assert!(!alive(&out));
}

/// `--stats` and `--report` of a run that memfit had to end.
fn failed_runs_have_statistics() {
    let (file, page) = (scratch("failed-stats"), scratch("failed-page"));
    let options = ["--stats", &file, "--report", &page, "--advise"];
    let (code, _, err) = shell("fatal", &options, ": >$FAKE_FLAG; sleep 100");
    assert_eq!(code, Some(1), "{err}");
    let (first, last) = err.trim_end().split_once('\n').unwrap();
    assert!(first.starts_with("memfit: --advise: no advice is given, as the run had to be ended"), "{err}");
    assert_eq!(last, "memfit: page 5 was lost");
    let stats: Stats = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(stats.schema, 1);
    assert!(fs::read_to_string(&page).unwrap().contains("</html>"));
    // A pager that died gives none: an old file stays, and memfit says so.
    let (code, _, err) = shell("dies", &options, ": >$FAKE_FLAG; sleep 100");
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("memfit: --stats: no statistics were written: the pager died\n"), "{err}");
    assert!(err.contains("memfit: --report: no page was written, for want of statistics: the pager died\n"), "{err}");
    [file, page].iter().for_each(|path| fs::remove_file(path).unwrap());
}

fn pager_end_after_the_command() {
    // With nothing left to serve, the status of the command counts.
    assert_eq!(shell("leaves", &[], "exit 6").0, Some(6));
    assert_eq!(shell("dies-after", &[], "exit 6").0, Some(6));
    // An orderly end spares processes that were never managed, a death does not.
    let (code, pid, _) = shell("leaves", &[], "sleep 100 >/dev/null 2>&1 & echo $!; exit 6");
    let _sleeper = Killed::at_end(&pid);
    assert_eq!(code, Some(6));
    let (code, pid, err) = shell("dies-after", &[], "sleep 100 >/dev/null 2>&1 & echo $!; exit 6");
    assert_eq!(code, Some(1), "{err}");
    assert!(!alive(&pid));
}

fn warnings_are_bounded() {
    let (code, _, err) = shell("warns", &["-q"], "while [ ! -e $FAKE_FLAG ]; do sleep 0.02; done; rm $FAKE_FLAG");
    assert_eq!(code, Some(0));
    assert!(err.starts_with("memfit: w0 x\nmemfit: w1 x\n"), "{err}");
    assert!((20..25).contains(&err.lines().count()), "{err}");
    assert!(err.ends_with("more messages were left out\n"), "{err}");
}

fn signals_reach_the_command_once() {
    // A second signal, if there is one, comes soon.
    let count = "n=0; trap 'n=$((n+1)); echo got' USR1 TERM INT HUP WINCH; trap 'exit $n' USR2; echo go; \
                 while :; do sleep 0.01; done";
    for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGWINCH] {
        let mut run = memfit("good", &["run", "-q", "--", "sh", "-c", count]).spawn().unwrap();
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "go");
        process::send_signal(run.id() as i32, signal, None).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "got", "signal {signal}");
        std::thread::sleep(Duration::from_millis(100));
        process::send_signal(run.id() as i32, libc::SIGUSR2, None).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(1), "signal {signal}");
    }
    let mut run = memfit("good", &["run", "-q", "--", "sh", "-c", "echo go; exec sleep 100"]).spawn().unwrap();
    assert_eq!(first_line(&mut run), "go");
    process::send_signal(run.id() as i32, libc::SIGTERM, None).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
}

/// The command already has those signals, or gets them from the launcher if it left the group.
fn signals_to_the_group_arrive_once() {
    let count = "n=0; trap 'n=$((n+1)); echo got' USR1 TERM INT HUP; trap 'exit $n' WINCH; echo go; while :; do sleep 0.01; done";
    // A shell with job control gives its jobs, not itself, another group: python becomes the leader
    // of one and then the shell.
    let leave = "import os, sys; os.setpgid(0, 0); os.execvp('sh', ['sh', '-c', sys.argv[1]])";
    for leaves in [false, true] {
        let words: &[&str] = if leaves { &["python3", "-c", leave, count] } else { &["sh", "-c", count] };
        for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            let mut run = memfit("good", &[&["run", "-q", "--"], words].concat()).process_group(0).spawn().unwrap();
            let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
            let context = format!("signal {signal}, the command leaves the group: {leaves}");
            assert_eq!(lines.next().unwrap().unwrap(), "go", "{context}");
            for _ in 0..3 {
                // SAFETY: signals the group of our own child, which has not been waited for.
                assert_eq!(unsafe { libc::kill(-(run.id() as i32), signal) }, 0);
                assert_eq!(lines.next().unwrap().unwrap(), "got", "{context}");
                // The launcher may get the signal later than the command.
                std::thread::sleep(Duration::from_millis(50));
            }
            process::send_signal(run.id() as i32, libc::SIGWINCH, None).unwrap();
            assert_eq!(run.wait().unwrap().code(), Some(3), "{context}");
        }
    }
}

/// The launcher finds both at once.
fn signals_to_the_group_that_come_together_arrive_once() {
    let count = "u=0; t=0; trap 'u=$((u+1)); echo got' USR1; trap 't=$((t+1)); echo got' TERM; \
                 trap 'echo $u $t; exit 0' WINCH; echo go; while :; do sleep 0.01; done";
    let mut run = memfit("good", &["run", "-q", "--", "sh", "-c", count]).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "go");
    let launcher = run.id() as i32;
    process::send_signal(launcher, libc::SIGSTOP, None).unwrap();
    eventually("the launcher stops", || proctree::read_stat(launcher).is_some_and(|stat| stat.is_stopped()));
    for signal in [libc::SIGUSR1, libc::SIGTERM] {
        // SAFETY: signals the group of our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(-launcher, signal) }, 0);
        assert_eq!(lines.next().unwrap(), "got");
    }
    process::send_signal(launcher, libc::SIGCONT, None).unwrap();
    eventually("the launcher reads them", || !pending(launcher, libc::SIGUSR1) && !pending(launcher, libc::SIGTERM));
    process::send_signal(launcher, libc::SIGWINCH, None).unwrap();
    assert_eq!(lines.last().unwrap(), "1 1");
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

/// They arrive when the launcher has read its signals for the last time before the fork: it prints
/// a warning to a pipe that is full.
fn signals_to_the_group_just_before_the_command_reach_it() {
    use std::os::fd::AsRawFd;
    for signal in [libc::SIGUSR1, libc::SIGTERM] {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: plain numbers; the smallest pipe.
        let bytes = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        writer.write_all(&vec![b'x'; bytes.try_into().unwrap()]).unwrap();
        let mut command = memfit("warns-first", &["run", "-q", "--", "sleep", "20"]);
        let mut run = command.process_group(0).stderr(writer).spawn().unwrap();
        drop(command);
        let call = format!("/proc/{}/syscall", run.id());
        eventually("the launcher writes", || fs::read_to_string(&call).unwrap().split(' ').nth(1) == Some("0x2"));
        // SAFETY: signals the group of our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(-(run.id() as i32), signal) }, 0);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("xmemfit: slow disk\n"), "{text}");
        assert_eq!(run.wait().unwrap().code(), Some(128 + signal));
    }
}

/// They arrive while the pager starts.
fn signals_before_the_command_are_those_of_the_command() {
    let tools = [&["perl", "-e", "1"][..], &["env", "--default-signal", "--ignore-signal", "--block-signal", "true"]];
    if let Some(words) = tools.iter().find(|words| !runs(words)) {
        return skip("signals_before_the_command_are_those_of_the_command", &format!("no {}", words.join(" ")));
    }
    let end = |signal: i32, options: &[&str], command: &[&str]| {
        let exe = std::env::current_exe().unwrap();
        let mut run = Command::new("env");
        run.args(options).arg(exe).args(["run", "-q", "--"]).args(command).env("FAKE_PAGER", "slow");
        run.env("MEMFIT_STUB", harmless_stub()).env("FAKE_FLAG", scratch("flag")).env_remove("MEMFIT_SOCKET");
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the pager starts", || !pagers_of(run.id()).is_empty());
        process::send_signal(run.id() as i32, signal, None).unwrap();
        fs::write(scratch("flag"), "").unwrap();
        let output = run.wait_with_output().unwrap();
        let _ = fs::remove_file(scratch("flag"));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "signal {signal} {options:?}");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // As if it had ended the command at its start.
        assert_eq!(end(signal, &["--default-signal"], &["echo", "ran"]), (Some(128 + signal), String::new()));
        assert_eq!(end(signal, &["--ignore-signal"], &["echo", "ran"]), (Some(0), "ran\n".into()), "{signal}");
    }
    for signal in [libc::SIGUSR1, libc::SIGALRM] {
        let (code, _) = end(signal, &["--default-signal"], &["sleep", "100"]);
        assert_eq!(code, Some(128 + signal));
        assert_eq!(end(signal, &["--ignore-signal"], &["echo", "ran"]), (Some(0), "ran\n".into()), "{signal}");
    }
    for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM, libc::SIGRTMIN()] {
        // The launcher sends it when the command has begun. A shell could change the mask.
        let waits =
            "while (1) { open F, '/proc/self/status'; /^ShdPnd:\\s*(\\w*[1-9a-f]\\w*)/ && print($1) && exit for <F> }";
        let (code, out) = end(signal, &[&format!("--block-signal={signal}")], &["perl", "-e", waits]);
        assert_eq!((code, u64::from_str_radix(&out, 16)), (Some(0), Ok(1 << (signal - 1))), "{signal}");
    }
}

/// Ctrl-C reaches all of the group. What is sent to the launcher alone after it does not.
fn a_signal_after_one_of_the_terminal_arrives() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("a_signal_after_one_of_the_terminal_arrives", "there is no script(1)");
    }
    let count = "n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'exit 0' USR1; echo pid $MEMFIT_PID; while :; do sleep 0.01; done";
    let file = scratch("count");
    fs::write(&file, count).unwrap();
    let mut terminal = Command::new("script");
    let line = format!("exec {} run -q -- sh {file}", std::env::current_exe().unwrap().display());
    terminal.args(["-qec", &line, "/dev/null"]).env("FAKE_PAGER", "good").env("MEMFIT_STUB", harmless_stub());
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |word: &str| {
        let line = lines.find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word}"));
        line[line.find(word).unwrap() + word.len()..].trim().to_owned()
    };
    let launcher = next("pid ").parse().unwrap();
    keys.write_all(b"\x03").unwrap();
    assert_eq!(next("got "), "1");
    // The launcher may get the signal later than the command.
    while pending(launcher, libc::SIGINT) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    process::send_signal(launcher, libc::SIGINT, None).unwrap();
    process::send_signal(launcher, libc::SIGWINCH, None).unwrap();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let bound = std::thread::spawn(move || {
        // Without the signal the command would run for ever, and nobody would print a line.
        if is_done.recv_timeout(Duration::from_secs(20)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = process::send_signal(launcher, libc::SIGUSR1, None);
        }
    });
    assert_eq!(next("got "), "2");
    drop(done);
    bound.join().unwrap();
    process::send_signal(launcher, libc::SIGUSR1, None).unwrap();
    terminal.wait().unwrap();
    fs::remove_file(file).unwrap();
}

/// `perl -e 'alarm N; exec @ARGV'` limits the time of a program.
fn timers_are_those_of_the_command() {
    let exe = std::env::current_exe().unwrap();
    let run = |seconds: &str, script: &str| {
        let mut command = Command::new("perl");
        command
            .args(["-e", &format!("alarm {seconds}; exec @ARGV")])
            .arg(&exe)
            .args(["run", "-q", "--", "sh", "-c", script]);
        command.env("FAKE_PAGER", "good").env("MEMFIT_STUB", harmless_stub()).env_remove("MEMFIT_SOCKET");
        output(&mut command)
    };
    let (code, _, err) = run("1", "exec sleep 100");
    assert_eq!(code, Some(128 + libc::SIGALRM), "{err}");
    let (code, out, err) = run("1000", "exec perl -e 'print alarm(0) > 0'");
    assert_eq!((code, out.as_str()), (Some(0), "1"), "the command can stop it: {err}");
}

/// The pager takes longer to start than the timer that memfit inherits: the command has all of it.
fn timers_do_not_expire_before_the_command() {
    let timer = "import os, signal, sys; signal.setitimer(signal.ITIMER_REAL, 5); os.execv(sys.argv[1], sys.argv[1:])";
    let script = "trap 'echo got; exit 5' ALRM; while :; do sleep 0.01; done";
    let mut run = Command::new("python3");
    run.args(["-c", timer]).arg(std::env::current_exe().unwrap()).args(["run", "-q", "--", "sh", "-c", script]);
    run.env("FAKE_PAGER", "slow").env("MEMFIT_STUB", harmless_stub()).env("FAKE_FLAG", scratch("flag"));
    let run = run.env_remove("MEMFIT_SOCKET").stdout(Stdio::piped()).spawn().unwrap();
    eventually("the pager starts", || !pagers_of(run.id()).is_empty());
    std::thread::sleep(Duration::from_millis(5100));
    fs::write(scratch("flag"), "").unwrap();
    let output = run.wait_with_output().unwrap();
    let _ = fs::remove_file(scratch("flag"));
    assert_eq!((output.status.code(), &*output.stdout), (Some(5), &b"got\n"[..]));
}

/// As timeout(1) does: it signals its child and then its whole group, so the command gets the
/// second signal directly.
fn timeout_of_the_group() {
    let script = "trap 'echo got' TERM; echo go; n=0; while [ $n -lt 20 ]; do sleep 0.05; n=$((n+1)); done";
    let mut run = memfit("good", &["run", "-q", "--", "sh", "-c", script]).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "go");
    let pid = run.id() as i32;
    process::send_signal(pid, libc::SIGTERM, None).unwrap();
    // SAFETY: signals the group of our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(-pid, libc::SIGTERM) }, 0);
    let got: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    // As without memfit: once from each, or once if both came at the same time.
    assert!(got == ["got"] || got == ["got", "got"], "{got:?}");
}

fn a_command_that_kills_its_group() {
    // As interactive programs and shell scripts do; the command must not get its own signal back.
    let script = "n=0; trap 'n=$((n+1))' TERM; kill -TERM 0; sleep 0.1; exit $n";
    let mut command = memfit("good", &["run", "-q", "--", "sh", "-c", script]);
    command.process_group(0);
    let (code, _, err) = output(&mut command);
    assert_eq!(code, Some(1), "{err}");
}

fn inherited_state() {
    let show = "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/$$/environ | tr '\\0' '\\n' | grep -cE '^MEMFIT_(SOCKET|PID|STUB)='";
    let plain = Command::new("sh").args(["-c", show]).env_remove("MEMFIT_STUB").output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    let (_, managed, _) = shell("good", &["-q"], show);
    assert_eq!(managed.lines().take(2).collect::<Vec<_>>(), plain.lines().take(2).collect::<Vec<_>>());
    assert_eq!(managed.lines().last(), Some("3"), "MEMFIT_SOCKET, MEMFIT_PID and this test's MEMFIT_STUB");

    // Signals that the parent ignores stay ignored; SIGPIPE is the one that Rust's runtime changes.
    let mut command = Command::new("env");
    command.args(["--ignore-signal=PIPE,HUP,CHLD"]).arg(std::env::current_exe().unwrap());
    command.args(["run", "-q", "--", "grep", "SigIgn", "/proc/self/status"]);
    command.env("FAKE_PAGER", "good").env("MEMFIT_STUB", harmless_stub());
    let (code, out, err) = output(&mut command);
    assert_eq!(code, Some(0), "{err}");
    let mask = u64::from_str_radix(out.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD] {
        assert_ne!(mask & 1 << (signal - 1), 0, "signal {signal} in {out}");
    }
    // The same process group as the launcher, which the shell made the job.
    let (_, out, _) = shell("good", &["-q"], "ps -o pgid= -p $$; ps -o pgid= -p $PPID");
    let groups: Vec<_> = out.split_whitespace().collect();
    assert_eq!(groups[0], groups[1]);
}

fn no_descriptor_leaks() {
    let list = "ls /proc/self/fd";
    let plain = Command::new("sh").args(["-c", list]).stdin(Stdio::null()).output().unwrap();
    let (_, managed, _) = shell("good", &["-q"], list);
    assert_eq!(managed, String::from_utf8(plain.stdout).unwrap());
}

fn pipes_end_with_the_command() {
    // The command closes its output and lives on: a reader sees the end at once, though launcher
    // and pager live.
    let script = "echo x; exec >&- 2>&-; read line; exit 0";
    let mut command = memfit("good", &["run", "-q", "--", "sh", "-c", script]);
    let mut run = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    run.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x\n");
    assert!(run.try_wait().unwrap().is_none(), "the command is still there");
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
}

fn nothing_is_left() {
    let mut command = memfit("good", &["run", "-q", "--", "sh", "-c", "read line; exit 0"]);
    let mut run = command.stdin(Stdio::piped()).spawn().unwrap();
    let id = run.id();
    eventually("the pager runs", || !pagers_of(id).is_empty());
    let pager = pagers_of(id);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    assert!(pager.iter().all(|pid| !alive(pid)));
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&format!("-{id}-")));
}

fn descendants_live_on() {
    // The run returns when the command does, and holds no pipe of its caller.
    let script = "sleep 1000 >/dev/null 2>&1 </dev/null & echo $!";
    let (code, pid, _) = shell("good", &["-q"], script);
    let _sleeper = Killed::at_end(&pid);
    assert_eq!(code, Some(0));
}

/// The pager reads what the launcher has told, although the launcher has gone.
fn descendants_live_on_with_a_late_pager() {
    let script = "sleep 1000 >/dev/null 2>&1 </dev/null & echo $!; \
                  cat /proc/[0-9]*/stat 2>/dev/null | grep \"(memfit-pager) [A-Z] $PPID \" | cut -d ' ' -f 1";
    let (code, pids, err) = shell("late", &["-q", "--swap", "none"], script);
    let (sleeper, pager) = pids.split_once('\n').unwrap_or_else(|| panic!("{code:?} {pids:?}: {err}"));
    let _sleeper = Killed::at_end(sleeper);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{pids}");
    eventually("the pager has nobody to serve", || !alive(pager));
    assert!(alive(sleeper));
}

fn guard_outlives_the_launcher() {
    let script = "sleep 1000 >/dev/null 2>&1 </dev/null & echo $!";
    let (_, pid, _) = shell("good", &["-q"], script);
    let helper = |name: &str| {
        let all = proctree::snapshot().unwrap();
        let exe = std::env::current_exe().unwrap();
        all.into_iter().find(|p| {
            p.comm == name && !p.is_dead() && fs::read_link(format!("/proc/{}/exe", p.pid)).is_ok_and(|e| e == exe)
        })
    };
    let _sleeper = Killed::at_end(&pid);
    let pager = helper("memfit-pager").unwrap();
    // The guard sets its process name itself.
    eventually("the guard watches", || helper("memfit-guard").is_some());
    assert!(proctree::kill_exactly(&pager));
    eventually("the guard kills the rest of the tree", || !alive(&pid));
    eventually("the guard ends", || helper("memfit-guard").is_none());
}

fn former_children_are_spared() {
    // A shell that replaces itself by memfit leaves its children to it; they are no part of the
    // tree.
    let exe = std::env::current_exe().unwrap();
    let script = format!(
        "sleep 100 >/dev/null 2>&1 & echo $!; exec {} run -- sh -c 'sleep 100 & : >$FAKE_FLAG; wait'",
        exe.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("FAKE_PAGER", "dies").env("MEMFIT_STUB", harmless_stub());
    command.env("FAKE_FLAG", scratch("flag"));
    let (code, pid, err) = output(&mut command);
    assert!(!pid.is_empty(), "{code:?}: {err}");
    let _sleeper = Killed::at_end(&pid);
    assert_eq!(code, Some(1), "{err}");
}

/// `(sleep N; kill $$) & exec memfit run ...` limits the time of a command.
fn signals_of_former_children_reach_the_command() {
    let (exe, go, flag) = (std::env::current_exe().unwrap(), scratch("go"), scratch("flag"));
    // Before the command starts and after that.
    for pager in ["slow", "good"] {
        let script = format!(
            "(until [ -e {go} ]; do sleep 0.01; done; kill -USR1 $$; : >{flag}) &              exec {} run -q -- sh -c 'echo go; exec sleep 20'",
            exe.display()
        );
        let mut run = Command::new("sh");
        run.args(["-c", &script]).env("FAKE_PAGER", pager).env("FAKE_FLAG", &flag).env_remove("MEMFIT_SOCKET");
        let mut run = run.env("MEMFIT_STUB", harmless_stub()).stdout(Stdio::piped()).spawn().unwrap();
        match pager {
            "good" => assert_eq!(first_line(&mut run), "go"),
            _ => eventually("the pager starts", || !pagers_of(run.id()).is_empty()),
        }
        fs::write(&go, "").unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(128 + libc::SIGUSR1), "{pager}");
        fs::remove_file(&go).unwrap();
        let _ = fs::remove_file(&flag);
    }
}

fn nested_runs_join() {
    let exe = std::env::current_exe().unwrap();
    let inner = format!("{} run -m 1G -- sh -c 'echo $PPID $MEMFIT_SOCKET; exit 3'", exe.display());
    let (code, out, err) = shell("good", &["-q"], &format!("echo $$ $MEMFIT_SOCKET; {inner}; exit $?"));
    assert_eq!(code, Some(3), "{err}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], lines[1], "the same pager, and no process in between");
    assert!(err.contains("memfit: joins the run that it is started in"), "{err}");
}

fn nested_runs_use_no_option() {
    let exe = std::env::current_exe().unwrap();
    let inner = format!("{} run -q -m 1M -s nosuch --swap /nonexistent -- true", exe.display());
    let (code, _, err) = shell("good", &["-q"], &inner);
    assert_eq!(code, Some(0), "{err}");
}

fn stat_asks_the_pager() {
    let mut run = memfit("stat", &["run", "-q", "--", "sh", "-c", "echo go; exec sleep 100"]).spawn().unwrap();
    first_line(&mut run);
    let (code, out, err) = output(&mut memfit("stat", &["stat"]));
    // Other runs of this user may exist meanwhile, and their pagers may not answer.
    let silent = err.lines().filter(|line| line.contains(" does not answer") && !line.contains(&run.id().to_string()));
    assert_eq!((code, err.lines().count()), (Some(i32::from(!err.is_empty())), silent.count()), "{err}");
    let line = out.lines().find(|line| line.contains(&run.id().to_string())).unwrap();
    assert!(line.contains("1.0G") && line.contains("5.0M") && line.contains(" 1 "), "{out}");
    let (_, json, _) = output(&mut memfit("stat", &["stat", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(value.as_array().unwrap().iter().any(|tree| tree["now"]["total_bytes"] == 5242880), "{json}");
    process::send_signal(run.id() as i32, libc::SIGTERM, None).unwrap();
    run.wait().unwrap();
}

/// A job-control shell in a terminal: Ctrl-Z stops the job, `fg` continues it.
fn terminal_stop_and_continue() {
    let Ok(script) = Command::new("script").arg("--version").output() else {
        return skip("terminal_stop_and_continue", "there is no script(1)");
    };
    assert!(script.status.success());
    let exe = std::env::current_exe().unwrap();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", "bash --norc -i", "/dev/null"]).env("PS1", "$ ");
    terminal.env("FAKE_PAGER", "good").env("MEMFIT_STUB", harmless_stub()).env("TERM", "dumb");
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let seen: Arc<Mutex<String>> = Arc::default();
    let (mut out, into) = (terminal.stdout.take().unwrap(), Arc::clone(&seen));
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = out.read(&mut bytes) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    });
    // Types a line, or a control character, and waits for a word that it does not contain.
    let mut press = |text: &str, word: &str| {
        let from = seen.lock().unwrap().len();
        keys.write_all(text.as_bytes()).unwrap();
        eventually(word, || seen.lock().unwrap()[from..].contains(word));
    };
    press(&format!("{} run -q -- sh -c 'echo rea''dy; read x; echo fin''ished $x'\n", exe.display()), "ready");
    press("\x1a", "Stopped");
    press("echo AF''TER\n", "AFTER");
    press("fg\n", "read x");
    press("now\n", "finished now");
    press("echo status $?\n", "status 0");
    keys.write_all(b"exit\n").unwrap();
    drop(keys);
    terminal.wait().unwrap();
    reader.join().unwrap();
}
