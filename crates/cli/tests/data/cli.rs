//! Black-box tests of the `memfit` program: exit statuses and messages. Unless they say so, they
//! need no root and no working userfaultfd.

use memfit_os::{probe, seqpacket};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The result of a run of the program.
struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Outcome {
    #[track_caller]
    fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "out: {}\nerr: {}", self.out, self.err);
        assert!(self.err.starts_with("memfit: "), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        assert_eq!(self.out, "");
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A library that is harmless to preload: the C library of this very test.
fn harmless_stub() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find(|line| line.contains("/libc.so")).expect("this test is linked to a C library");
    library[library.find('/').unwrap()..].to_owned()
}

fn memfit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.env("MEMFIT_STUB", harmless_stub()).env_remove("MEMFIT_SOCKET").stdin(Stdio::null());
    command
}

/// `memfit` is `$0` of a script.
fn memfit_by(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_memfit")]);
    command.env("MEMFIT_STUB", harmless_stub()).env_remove("MEMFIT_SOCKET").stdin(Stdio::null());
    command
}

fn call(words: &[&str]) -> Outcome {
    memfit().args(words).output().unwrap().into()
}

/// `memfit run -q WORDS`
fn run(words: &[&str]) -> Outcome {
    call(&[&["run", "-q"], words].concat())
}

fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(format!("/var/tmp/memfit-cli-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// Reports that this test cannot run here, or not all of it.
fn skip(reason: &str) {
    crate::support::skip(std::thread::current().name().unwrap_or("cli"), reason);
}

/// Whether runs can work on this machine. If not, tests that need one say so and end early.
fn can_run() -> bool {
    let can = probe::try_move().is_ok();
    if !can {
        skip("no userfaultfd with MOVE here");
    }
    can
}

#[test]
fn usage_errors() {
    // A command of that name would be run.
    let outcome = run(&["--foo", "--", "true"]);
    outcome.fails(2, &["unexpected argument '--foo' found"]);
    assert!(!outcome.err.contains("tip"), "{}", outcome.err);
    call(&["rum"]).fails(2, &["unrecognized subcommand 'rum'", "'run'", "--help"]);
    call(&["run"]).fails(2, &["<COMMAND>"]);
    call(&["run", "--memroy", "1G", "--", "true"]).fails(2, &["unexpected argument '--memroy'", "'--memory'"]);
    call(&["run", "-m"]).fails(2, &["--memory <SIZE|PCT>"]);
    call(&["doctor", "now"]).fails(2, &["unexpected argument 'now'"]);
    let bare = call(&[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.err.contains("Usage: memfit <COMMAND>"), "{}", bare.err);
}

#[test]
fn help_and_version_are_no_errors() {
    for words in [&["--help"][..], &["-h"], &["run", "--help"], &["stat", "-h"]] {
        let outcome = call(words);
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.out.contains("Usage: memfit"), "{}", outcome.out);
        assert!(!outcome.out.contains("__generate"), "{}", outcome.out);
    }
    let version = call(&["--version"]);
    assert_eq!(version.out, concat!("memfit ", env!("CARGO_PKG_VERSION"), "\n"));
    for words in [&["--help"][..], &["run", "-h"], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = memfit().args(words).stdout(full).output().unwrap();
        Outcome::from(output).fails(1, &["cannot write to standard output: No space left on device"]);
    }
}

#[test]
fn names_and_numbers_of_nothing_are_refused() {
    run(&["--protect", "", "true"]).fails(2, &["--protect <NAME,...>", "a value is required"]);
    run(&["--protect", "init,", "true"]).fails(2, &["--protect <NAME,...>"]);
    for words in [&["top", "0"][..], &["top", "--", "-7"], &["bg", "0"]] {
        call(words).fails(2, &["PID", "is not in 1.."]);
    }
}

#[test]
fn bad_sizes() {
    run(&["-m", "5X", "true"]).fails(2, &["'5X'", "--memory", "'X' is not a unit", "K, M, G or T", "percentage"]);
    run(&["-m", "lots", "true"]).fails(2, &["'lots'", "does not start with a number"]);
    run(&["-m", "150%", "true"]).fails(2, &["'150%'", "at most 100"]);
    run(&["-m", "-5M", "true"]).fails(2, &["'-5M' for '--memory", "it does not start with a number"]);
    run(&["--swap-size", "", "true"]).fails(2, &["--swap-size", "does not start with a number"]);
    run(&["--swap-size", "0", "true"]).fails(2, &["--swap-size 0", "--swap none"]);
    run(&["--swap-size", "1K", "true"]).fails(2, &["--swap-size 1 KiB: it is too small", "the least is 4 MiB"]);
    run(&["--swap", "none", "--swap-size", "1G", "true"]).fails(2, &["no meaning"]);
    run(&["--swap", "none", "--swap-writes", "1G", "true"]).fails(2, &["--swap-writes has no meaning"]);
    run(&["--swap-writes", "1M", "true"]).fails(2, &["--swap-writes 1 MiB", "16M or more"]);
    run(&["--swap-writes", "50%", "true"]).fails(2, &["--swap-writes 50%", "number of bytes"]);
    run(&["--set", "novalue", "true"]).fails(2, &["--set", "KEY=VALUE"]);
}

#[test]
fn budget_too_small() {
    for size in ["0", "1K", "16777215"] {
        run(&["-m", size, "true"]).fails(2, &["too small", "the least is 16 MiB", "-m 16M"]);
    }
}

#[test]
fn swap_places() {
    if !can_run() {
        return;
    }
    run(&["--swap", "/nonexistent/dir", "true"]).fails(1, &["--swap /nonexistent/dir", "no such directory", "none"]);
    run(&["--swap", "/dev/null", "true"]).fails(1, &["--swap /dev/null", "neither a directory"]);
    if Path::new("/dev/shm").is_dir() {
        run(&["--swap", "/dev/shm", "true"]).fails(1, &["--swap /dev/shm", "kept in RAM", "/var/tmp"]);
    }
    let directory = directory("swap");
    let file = directory.join("letter");
    fs::write(&file, "Dear").unwrap();
    run(&["--swap", file.to_str().unwrap(), "true"]).fails(1, &["holds data", "overwrite"]);
    assert_eq!(fs::read(&file).unwrap(), b"Dear");
    fs::remove_dir_all(directory).unwrap();
    // No user, not even root, can make a file there.
    run(&["--swap", "/proc", "true"]).fails(1, &["--swap /proc", "no file can be made"]);
}

#[test]
fn stats_file_is_checked_before_the_start() {
    if !can_run() {
        return;
    }
    let directory = directory("stats");
    let mark = directory.join("ran");
    let touch = format!("touch {}", mark.display());
    for path in ["/nonexistent/x.json", "/proc/x.json", "/"] {
        run(&["--stats", path, "sh", "-c", &touch]).fails(1, &["--stats", path, "cannot be written"]);
    }
    assert!(!mark.exists());
    let stats = directory.join("s.json");
    run(&["--stats", stats.to_str().unwrap(), "memfit-no-such-command"]).fails(127, &[]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is left behind");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn outputs_keep_what_an_open_file_has() {
    if !can_run() {
        return;
    }
    let directory = directory("append");
    let program = env!("CARGO_BIN_EXE_memfit");
    for (option, name, number) in
        [("--stats", "/dev/stdout", 1), ("--stats", "/dev/stderr", 2), ("--stats", "/dev/fd/7", 7)]
    {
        let log = directory.join("log");
        fs::write(&log, "old\n").unwrap();
        let script =
            format!("exec {program} run -q -m 64M {option} {name} -- sh -c 'echo hi >&{number}' {number}>>log");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(&directory)
            .env("MEMFIT_STUB", harmless_stub())
            .env_remove("MEMFIT_SOCKET");
        let outcome = Outcome::from(shell.output().unwrap());
        assert_eq!(outcome.code, Some(0), "{name}: {}", outcome.err);
        let text = fs::read_to_string(&log).unwrap();
        let json = text.strip_prefix("old\nhi\n").unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(serde_json::from_str::<serde_json::Value>(json).unwrap()["budget_bytes"].is_u64(), "{name}");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_recording_is_replaced_by_a_run_that_begins() {
    if !can_run() {
        return;
    }
    let directory = directory("rerecord");
    let path = directory.join("run.memfit");
    let record = path.to_str().unwrap();
    fs::write(&path, "earlier").unwrap();
    run(&["--record", record, "memfit-no-such-command"]).fails(127, &[]);
    run(&["--record", record, "--advise=/nonexistent/x.toml", "true"]).fails(1, &["--advise /nonexistent/x.toml"]);
    assert_eq!(fs::read(&path).unwrap(), b"earlier");
    let advice = directory.join("advice.toml");
    let outcome = run(&["--record", record, &format!("--advise={}", advice.display()), "true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(!outcome.err.contains("/proc/"), "{}", outcome.err);
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_str().is_some_and(|name| name.starts_with('.'))).count(), 0);
    assert_eq!(call(&["trace", "info", record]).code, Some(0));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn no_output_replaces_another_one_or_an_input() {
    let directory = directory("distinct");
    let path = directory.join("x");
    let scheme = call(&["schemes", "zram"]).out;
    fs::write(&path, &scheme).unwrap();
    let x = path.to_str().unwrap();
    let (new, advise) = (directory.join("new").to_str().unwrap().to_owned(), format!("--advise={x}"));
    for words in [
        &["sim", x, "--json", x][..],
        &["sim", "zipf:pages=100", "-s", x, "--csv", x],
        &["sim", "zipf:pages=100", "--json", &new, "--csv", &new],
        &["advise", x, "--toml", x],
        &["advise", "zipf:pages=100", "--json", &new, "--report", &new],
        &["report", x, "-o", x],
        &["trace", "generate", "zipf:pages=10000", "-s", x, "-o", x],
        &["trace", "export", x, "--format", "csv", "-o", x],
        &["run", "--stats", &new, "--record", &new, "true"],
        &["run", "--stats", x, "--report", x, "true"],
        &["run", "--swap", x, "--stats", x, "true"],
        &["run", &advise, "--stats", x, "true"],
    ] {
        call(words).fails(2, &["this is "]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), scheme);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_swap_file_is_used_by_one_run_at_a_time() {
    if !can_run() {
        return;
    }
    let directory = directory("swap-used");
    let (swap, flag) = (directory.join("swap"), directory.join("flag"));
    fs::write(&swap, "").unwrap();
    let first = ["run", "-q", "-m", "64M", "--swap", swap.to_str().unwrap(), "--", "sh", "-c"];
    let script = format!("echo started; while [ ! -e {} ]; do sleep 0.05; done", flag.display());
    let mut first = memfit().args(first).arg(&script).stdout(Stdio::piped()).spawn().unwrap();
    let started = std::io::Read::read(first.stdout.as_mut().unwrap(), &mut [0; 100]).unwrap();
    let second = run(&["--swap", swap.to_str().unwrap(), "--swap-overwrite", "true"]);
    fs::write(flag, "").unwrap();
    let code = first.wait().unwrap().code();
    second.fails(1, &["--swap ", "it is in use by another run of memfit"]);
    assert_eq!((started, code), (8, Some(0)));
    assert_eq!(run(&["-m", "64M", "--swap", swap.to_str().unwrap(), "true"]).code, Some(0));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_want_of_descriptors_is_told_with_its_fix() {
    if !can_run() {
        return;
    }
    let script = format!("ulimit -n 4; exec {} run true", env!("CARGO_BIN_EXE_memfit"));
    let outcome = Outcome::from(Command::new("sh").args(["-c", &script]).output().unwrap());
    outcome.fails(1, &["no descriptor left", "ulimit -n"]);
    assert!(!outcome.err.contains("boot Linux"), "{}", outcome.err);
}

#[test]
fn stub_not_found() {
    if !can_run() {
        return;
    }
    let outcome: Outcome =
        memfit().env("MEMFIT_STUB", "/nonexistent.so").args(["run", "true"]).output().unwrap().into();
    outcome.fails(1, &["libmemfit.so", "/nonexistent.so", "MEMFIT_STUB"]);
}

#[test]
fn scheme_file_not_found() {
    if can_run() {
        run(&["-s", "./none.toml", "true"]).fails(1, &["./none.toml", "No such file"]);
    }
    // A file of that name is one only by its path.
    let directory = directory("scheme");
    fs::write(directory.join("t.py"), "").unwrap();
    let words = ["sim", "zipf:pages=4M,accesses=10", "-s", "t.py"];
    let outcome: Outcome = memfit().args(words).current_dir(&directory).output().unwrap().into();
    outcome.fails(2, &["there is no scheme t.py; the file of that name is ./t.py", "contains a / or ends in .toml"]);
    call(&words).fails(2, &["there is no scheme t.py; there are: memfit, "]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn command_cannot_run() {
    if !can_run() {
        return;
    }
    run(&["--", "memfit-no-such-command"]).fails(127, &["command not found: memfit-no-such-command", "PATH"]);
    run(&["--", "/nonexistent/x"]).fails(127, &["/nonexistent/x"]);
    run(&["--", ""]).fails(127, &["command not found"]);
    run(&["--", "/var/tmp"]).fails(126, &["cannot execute /var/tmp: it is a directory"]);
    let directory = directory("exec");
    let data = directory.join("data");
    fs::write(&data, "echo script \"$@\"\n").unwrap();
    run(&["--", data.to_str().unwrap()]).fails(126, &["Permission denied", "chmod +x"]);
    // As a shell does: a file without #! is a script.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let script = run(&["--", data.to_str().unwrap(), "a b"]);
    assert_eq!((script.code, script.out.as_str()), (Some(0), "script a b\n"), "{}", script.err);
    // A program for another machine is none.
    let mut foreign = fs::read("/bin/true").unwrap();
    foreign[18] = 183; // AArch64
    fs::write(directory.join("foreign"), foreign).unwrap();
    fs::set_permissions(directory.join("foreign"), fs::Permissions::from_mode(0o755)).unwrap();
    run(&["--", directory.join("foreign").to_str().unwrap()]).fails(126, &["no program for this machine"]);
    fs::remove_dir_all(directory).unwrap();
}

/// As another user, whom permissions bind.
#[test]
fn a_search_in_path_tells_what_is_there() {
    if !can_run() || memfit_os::process::effective_uid() != 0 {
        return skip("needs root and userfaultfd");
    }
    let directory = directory("path");
    let file = |name: &str, text: &str, mode: u32| {
        let file = directory.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    file("memfit-no-interpreter", "#!/nonexistent/sh\n", 0o755);
    file("memfit-data", "", 0o644);
    let closed = directory.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    // Without a budget: userfaultfd is not for every user. The search is the same.
    let search = |name: &str| -> Outcome {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_memfit")]);
        command.args(["run", "--best-effort", "--", name]).env_remove("MEMFIT_SOCKET");
        command.env("PATH", format!("/usr/bin:/bin:{}:{}", closed.display(), directory.display()));
        command.output().unwrap().into()
    };
    let may_run = |mode: u32| mode & 0o1 != 0;
    let above = std::path::Path::new(env!("CARGO_BIN_EXE_memfit")).ancestors();
    if !above.filter(|path| path.is_absolute()).all(|path| may_run(fs::metadata(path).unwrap().permissions().mode())) {
        return skip("another user may not run this build");
    }
    search("memfit-no-such-command").fails(127, &["command not found: memfit-no-such-command: no directory of PATH"]);
    let there = |name: &str| format!("cannot execute {}: ", directory.join(name).display());
    search("memfit-no-interpreter").fails(127, &[&there("memfit-no-interpreter"), "interpreter"]);
    search("memfit-data").fails(126, &[&there("memfit-data"), "chmod +x"]);
    fs::remove_dir_all(directory).unwrap();
}

/// A service of systemd with `ProcSubset=pid` has only the processes in /proc.
#[test]
fn a_proc_with_nothing_but_processes_will_do() {
    let subset = |script: &str| -> Outcome {
        let mount = "mount -t proc -o subset=pid proc /proc || exit 99; ";
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "sh",
            "-c",
            &format!("{mount}{script}"),
            env!("CARGO_BIN_EXE_memfit"),
        ]);
        command.env("MEMFIT_STUB", harmless_stub()).env_remove("MEMFIT_SOCKET");
        command.output().unwrap().into()
    };
    if !can_run() || subset("exit 0").code != Some(0) {
        return skip("no private mount of /proc with subset=pid");
    }
    for options in ["-m 64M", "-m 64M --best-effort", "-m 10%"] {
        let outcome = subset(&format!("\"$0\" run -q --swap none {options} -- echo x"));
        assert_eq!((outcome.code, &*outcome.out), (Some(0), "x\n"), "{options}: {}", outcome.err);
    }
    let doctor = subset("uname -r; \"$0\" doctor");
    let (release, checks) = doctor.out.split_once('\n').unwrap();
    let kernel = checks.lines().find(|line| line.contains("Linux kernel")).unwrap_or_default();
    let words: Vec<_> = kernel.split_whitespace().take(4).collect();
    assert_eq!((doctor.code, words), (Some(0), vec!["ok", "Linux", "kernel", release]), "{}{}", doctor.out, doctor.err);
}

/// `ulimit -s 64`: the command has this limit, memfit raises its own.
#[test]
fn a_small_stack_is_that_of_the_command() {
    if can_run() {
        let script = "ulimit -Ss 64; exec \"$0\" run -q -m 64M --swap none sh -c 'ulimit -s'";
        let outcome: Outcome = memfit_by(script).output().unwrap().into();
        assert_eq!((outcome.code, &*outcome.out), (Some(0), "64\n"), "{}", outcome.err);
    }
    // Without CAP_SYS_RESOURCE nobody raises the hard limit.
    let mut plain = Command::new("setpriv");
    plain.args(["--bounding-set=-all", "--inh-caps=-all", "sh", "-c", "ulimit -s 64; exec \"$0\" doctor"]);
    let Ok(output) = plain.arg(env!("CARGO_BIN_EXE_memfit")).output() else { return skip("there is no setpriv(1)") };
    Outcome::from(output).fails(1, &["the hard limit of the stack (ulimit -Hs) is 64 KiB", "must raise it"]);
}

/// As without memfit.
#[test]
fn closed_standard_descriptors_stay_closed() {
    let place = directory("closed");
    let told = place.join("told");
    let script = "for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] || closed=\"$closed $fd\"; done; echo $closed >\"$0\"";
    for (redirections, closed) in [("<&-", "0"), (">&-", "1"), ("2>&- <&-", "0 2"), ("<&- >&- 2>&-", "0 1 2")] {
        if !can_run() {
            break;
        }
        let line =
            format!("exec \"$0\" run -q -m 64M --swap none -- sh -c '{script}' {} {redirections}", told.display());
        let outcome: Outcome = memfit_by(&line).output().unwrap().into();
        assert_eq!(outcome.code, Some(0), "{redirections}: {}", outcome.err);
        assert_eq!(fs::read_to_string(&told).unwrap().trim(), closed, "{redirections}");
    }
    fs::remove_dir_all(place).unwrap();
    let outcome: Outcome = memfit_by("exec \"$0\" schemes >&-").output().unwrap().into();
    outcome.fails(1, &["cannot write to standard output: Bad file descriptor"]);
    let outcome: Outcome = memfit_by("exec \"$0\" schemes 1</dev/null").output().unwrap().into();
    outcome.fails(1, &["cannot write to standard output: it is open for reading only"]);
    if can_run() {
        let line = "exec \"$0\" run -q -m 64M --swap none --stats /dev/stdout true >&-";
        Outcome::from(memfit_by(line).output().unwrap()).fails(1, &["--stats /dev/stdout: cannot be written"]);
    }
}

/// Nobody can see its launcher, as in another PID namespace, and others wait to be accepted.
#[test]
fn a_pager_whose_queue_is_full_is_joined() {
    let name = format!("memfit-cli-full-{}", std::process::id());
    let listener = seqpacket::listen_abstract(&name).unwrap();
    seqpacket::set_backlog(listener.as_raw_fd(), 0);
    let waits = seqpacket::connect_abstract(&name).unwrap();
    let mut nested = memfit();
    nested.args(["run", "true"]).env("MEMFIT_SOCKET", &name).env("MEMFIT_PID", (1 << 30).to_string());
    let nested = nested.stderr(Stdio::piped()).spawn().unwrap();
    // It sleeps only between two attempts.
    let call = format!("/proc/{}/syscall", nested.id());
    let sleeps = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep].map(|number| format!("{number} "));
    let deadline = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(&call).is_ok_and(|text| sleeps.iter().any(|sleep| text.starts_with(sleep))) {
        assert!(Instant::now() < deadline, "it does not wait");
        std::thread::sleep(Duration::from_millis(1));
    }
    let accepted = seqpacket::accept(listener.as_raw_fd(), true).unwrap();
    let outcome: Outcome = nested.wait_with_output().unwrap().into();
    drop((waits, accepted));
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.err.starts_with("memfit: joins the run that it is started in"), "{}", outcome.err);
    // Nobody accepts that connection, which fills the queue.
    let mut nested = memfit();
    nested.args(["run", "-s", "nosuch", "true"]).env("MEMFIT_SOCKET", &name).env("MEMFIT_PID", (1 << 30).to_string());
    let outcome: Outcome = nested.output().unwrap().into();
    assert!(outcome.err.starts_with("memfit: the pager of the outer run does not answer"), "{}", outcome.err);
}

#[test]
fn a_want_of_tasks_and_address_space_is_told_with_its_fix() {
    if !can_run() {
        return;
    }
    let limited = |limit: &str| -> Outcome {
        let script = format!("ulimit {limit}; exec \"$0\" run -q -m 64M --swap none true");
        memfit_by(&script).output().unwrap().into()
    };
    limited("-v 100000").fails(1, &["for a budget of 64 MiB", "ulimit -v"]);
}

#[test]
fn status_and_streams_are_those_of_the_command() {
    if !can_run() {
        return;
    }
    let outcome = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((outcome.code, outcome.out.as_str(), outcome.err.as_str()), (Some(7), "out\n", "err\n"));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).code, Some(137));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).code, Some(143));
}

#[test]
fn no_permission_is_told_with_the_fix() {
    // Needs root, to become a user without rights.
    let denied = |extra: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(env!("CARGO_BIN_EXE_memfit")).arg("run").args(extra).arg("true");
        let output = command.env("MEMFIT_STUB", harmless_stub()).env_remove("MEMFIT_SOCKET").output().ok()?;
        Some(Outcome::from(output))
    };
    let closed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "0");
    let is_root = memfit_os::process::effective_uid() == 0;
    let Some(outcome) = denied(&[]).filter(|_| closed && is_root && can_run()) else { return };
    outcome
        .fails(1, &["userfaultfd", "sudo sysctl -w vm.unprivileged_userfaultfd=1", "memfit doctor", "--best-effort"]);
    let outcome = denied(&["--best-effort"]).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert_eq!(outcome.err.lines().count(), 1, "one warning: {}", outcome.err);
    assert!(outcome.err.starts_with("memfit: runs the command unmanaged"), "{}", outcome.err);
    // What is not written is told.
    let files = ["--stats", "/x/s", "--report", "/x/p", "--record", "/x/r", "--advise"];
    let outcome = denied(&[&["--best-effort"], &files[..]].concat()).unwrap();
    assert_eq!((outcome.code, outcome.err.lines().count()), (Some(0), 5), "{}", outcome.err);
    for what in
        ["--stats /x/s: no statistics are", "--report /x/p: no page is", "--record /x/r: nothing is", "--advise: no"]
    {
        let line = outcome.err.lines().find(|line| line.starts_with(&format!("memfit: {what}"))).unwrap();
        assert!(line.ends_with(": the command runs unmanaged"), "{line}");
    }
}

#[test]
fn a_dead_outer_run_is_no_outer_run() {
    if !can_run() {
        return;
    }
    let mut command = memfit();
    command.args(["run", "-q", "--", "sh", "-c", "echo $MEMFIT_SOCKET"]).env("MEMFIT_SOCKET", "memfit-0-1-gone");
    let outcome: Outcome = command.output().unwrap().into();
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    let uid = memfit_os::process::effective_uid();
    assert!(outcome.out.starts_with(&format!("memfit-{uid}-")) && !outcome.out.contains("gone"), "{}", outcome.out);
}

#[test]
fn doctor_agrees_with_run() {
    let text = call(&["doctor"]);
    let json = call(&["doctor", "--json"]);
    assert_eq!(text.code, json.code);
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(value["ok"], json.code == Some(0));
    assert_eq!(json.code == Some(0), probe::try_move().is_ok());
    for check in value["checks"].as_array().unwrap() {
        assert!(text.out.contains(check["name"].as_str().unwrap()), "{check}");
        assert!(matches!(check["status"].as_str(), Some("ok" | "missing" | "optional")));
    }
    let ids =
        ["kernel", "userfaultfd", "stub", "pagemap_scan", "swap", "descriptors", "yama", "thp", "memory", "cores"];
    for id in ids {
        assert!(value["checks"].as_array().unwrap().iter().any(|check| check["id"] == id), "{id}");
    }
    let broken: Outcome = memfit().env("MEMFIT_STUB", "/none").arg("doctor").output().unwrap().into();
    assert_eq!(broken.code, Some(1));
    assert!(broken.out.contains("missing   libmemfit.so"), "{}", broken.out);
}

#[test]
fn doctor_names_the_limits_of_a_machine() {
    // None where a program or the kernel's protection is missing.
    let status = |command: &mut Command| {
        let outcome: Outcome = command.output().ok()?.into();
        if outcome.out.is_empty() {
            return None;
        }
        let value: serde_json::Value = serde_json::from_str(&outcome.out).expect("doctor --json prints JSON");
        let checks = value["checks"].as_array().unwrap().clone();
        Some(move |id: &str| {
            let check = checks.iter().find(|check| check["id"] == id);
            check.map(|check| check["status"].as_str().unwrap().to_owned())
        })
    };
    let optional = Some("optional".to_owned());
    let script = r#"ulimit -r 0; ulimit -v 8000000; exec "$0" doctor --json"#;
    let mut limited = memfit();
    let program = limited.get_program().to_owned();
    if memfit_os::process::effective_uid() == 0 {
        let without = ["--bounding-set=-sys_nice,-sys_ptrace", "--inh-caps=-sys_nice,-sys_ptrace", "bash"];
        limited = Command::new("setpriv");
        limited.args(without);
    } else {
        limited = Command::new("bash");
    }
    match status(limited.args(["-c", script]).arg(&program)) {
        None => skip("setpriv and bash are needed"),
        Some(limited) => {
            for id in ["real_time", "address_space", "file_pages"] {
                assert_eq!(limited(id), optional, "{id}");
            }
            assert!(limited("glibc").is_some());
        }
    }
    // In a user namespace a program has all capabilities, but only over the namespace.
    let mut apart = Command::new("unshare");
    match status(apart.args(["--user", "--map-root-user"]).arg(&program).args(["doctor", "--json"])) {
        None => skip("unshare and user namespaces are needed"),
        Some(apart) => assert_eq!(apart("file_pages"), optional),
    }
    let mut protected = memfit();
    // SAFETY: one system call with plain numbers (PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN).
    unsafe {
        let protect = || match libc::prctl(65, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        std::os::unix::process::CommandExt::pre_exec(&mut protected, protect);
    }
    match status(protected.args(["doctor", "--json"])) {
        None => skip("the kernel has no PR_SET_MDWE"),
        Some(protected) => assert_eq!(protected("executable"), optional),
    }
}

#[test]
fn the_limits_of_a_machine_are_explained() {
    let value: serde_json::Value = serde_json::from_str(&call(&["doctor", "--json"]).out).unwrap();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md")).unwrap();
    for check in value["checks"].as_array().unwrap() {
        let row = format!("\n| {} |", check["name"].as_str().unwrap());
        assert!(text.contains(&row), "docs/limits.md has no row {row:?}");
    }
}

#[test]
fn schemes_are_listed_and_printed() {
    let list = call(&["schemes"]);
    assert_eq!(list.code, Some(0));
    assert!(list.out.contains("--set KEY=VALUE"), "{}", list.out);
    assert!(call(&["schemes", "memfit"]).out.contains("name = \"memfit\""));
    call(&["schemes", "nothing"]).fails(2, &["there is no scheme nothing; there are: memfit"]);
}

#[test]
fn report_of_a_description() {
    const PAGE: &str = include_str!("../../../report/examples/described.json");
    let directory = directory("report");
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (described, html) = (file("page.json"), file("page.html"));
    fs::write(&described, PAGE).unwrap();
    let outcome = call(&["report", &described, "-o", &html]);
    assert_eq!((outcome.code, &*outcome.out, &*outcome.err), (Some(0), "", ""));
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<title>Two programs</title>") && page.contains("<h3>Time by program</h3>"), "{page}");
    // The same from standard input.
    let mut command = memfit();
    command.args(["report", "-", "-o", &file("piped.html")]).stdin(fs::File::open(&described).unwrap());
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(file("piped.html")).unwrap(), page);
    // An error leaves no file, and keeps an existing one.
    call(&["report", &file("none"), "-o", &html]).fails(1, &["cannot read", "none: No such file or directory"]);
    fs::write(&described, PAGE.replace("\"kind\"", "\"kinds\"")).unwrap();
    call(&["report", &described, "-o", &html])
        .fails(1, &[&described, "unknown field `kinds`", "line 17", "docs/report.md"]);
    fs::write(&described, &PAGE[..PAGE.len() / 2]).unwrap();
    call(&["report", &described, "-o", &file("new.html")]).fails(1, &[&described, "EOF while parsing"]);
    fs::write(&described, PAGE).unwrap();
    call(&["report", &described, "-o", "/nonexistent/page.html"])
        .fails(1, &["--output /nonexistent/page.html: cannot be written"]);
    call(&["report", &described]).fails(2, &["--output <FILE.html>"]);
    assert_eq!(fs::read_to_string(&html).unwrap(), page);
    let mut left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["page.html", "page.json", "piped.html"]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn stat_without_a_tree() {
    // Other tests may run trees meanwhile.
    let outcome = call(&["stat", "--json"]);
    assert!(outcome.out.starts_with('['), "{}", outcome.out);
}

#[test]
fn top_without_a_tree() {
    // Other tests may run trees meanwhile, but never this process.
    let outcome = call(&["top", "1"]);
    assert!(outcome.err.contains("no tree of yours"), "{}", outcome.err);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    call(&["top", "-d", "0"]).fails(2, &["at least 0.1"]);
    call(&["top", "-n", "0"]).fails(2, &["0"]);
    call(&["top", "--sort", "size"]).fails(2, &["resident", "faults"]);
}

#[test]
fn generates_pages_and_completions() {
    let directory = directory("generate");
    for what in ["man", "bash", "zsh", "fish"] {
        let outcome = call(&["__generate", what, directory.to_str().unwrap()]);
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    }
    assert!(directory.join("memfit-run.1").exists());
    fs::remove_dir_all(directory).unwrap();
    call(&["__generate", "man", "/nonexistent"]).fails(1, &["/nonexistent"]);
}

/// What bash completes at the end of a line, without files.
#[test]
fn bash_completes_names_and_not_the_options_of_commands() {
    let directory = directory("bash");
    call(&["__generate", "bash", directory.to_str().unwrap()]);
    let complete = |words: &str| {
        let script = format!(
            ". ./memfit.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _memfit_names memfit \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo ${{COMPREPLY[*]}}"
        );
        let bash = Command::new("bash").args(["--norc", "-c", &script]).current_dir(&directory).output();
        bash.ok().map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    if complete("memfit").is_none() {
        return skip("there is no bash");
    }
    for (words, wanted) in [
        ("memfit run -s zs", "zswap-zbud zswap-z3fold zswap-zsmalloc zsmalloc-sr"),
        ("memfit sim zipf -s memfit,lr", "memfit,lru"),
        ("memfit sim --device ssd-s", "ssd-sata"),
        ("memfit advise --costs han1", "han18"),
        ("memfit run --record-contents = zstd-strong-,lzr", "zstd-strong-,lzrw1"),
        ("memfit run -m 32M -- ls --o", ""),
        ("memfit run -m 32M --swap = none ls --o", ""),
        ("memfit run --files ls --o", ""),
        ("memfit run -m 32M --on-f", "--on-full"),
        ("memfit run --files --rec", "--record --record-access --record-contents"),
    ] {
        assert_eq!(complete(words).as_deref(), Some(wanted), "{words}");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn output_to_a_closed_pipe_is_no_error() {
    let program = env!("CARGO_BIN_EXE_memfit");
    let script = format!("({program} doctor --json; echo $? >&2) | true");
    let outcome: Outcome = Command::new("sh").args(["-c", &script]).output().unwrap().into();
    assert!(!outcome.err.contains("panicked") && !outcome.err.contains("memfit:"), "{}", outcome.err);
}
