//! Programs that cannot load the stub start without an error message of their loader, and the
//! interposed functions that start programs do exactly what libc's do.
//!
//! The stub is preloaded by hand and the socket leads nowhere, so the stub thread just ends.

use crate::support::{find, memfit, memfit_command, say, skip, PYTHON};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints what it was given.
const SHOW: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static void tell(const char *name) {
    printf(" %s=%s", name, getenv(name) ? getenv(name) : "-");
}
int main(int argc, char **argv) {
    printf("bits=%d argc=%d last=%s", (int)sizeof(void *) * 8, argc, argv[argc - 1]);
    tell("LD_PRELOAD");
    tell("MEMFIT_SOCKET");
    tell("MEMFIT_PID");
    tell("KEPT");
    puts("");
}
"#;

/// Starts a program in the way that its first argument names, and prints the result if the call
/// returns.
const STARTER: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
#define TEN(x) x, x, x, x, x, x, x, x, x, x
static int start(const char *how, char *file, char **argv) {
    char *own[] = {"KEPT=own", "MEMFIT_X=1", "PATH=/nowhere", getenv("LD_PRELOAD") - sizeof("LD_PRELOAD"), NULL};
    if (!getenv("LD_PRELOAD")) own[3] = NULL;
    pid_t pid = 0;
    int status = 0, result;
    if (!strcmp(how, "execve")) return execve(file, argv, environ);
    if (!strcmp(how, "execve-own")) return execve(file, argv, own);
    if (!strcmp(how, "execv")) return execv(file, argv);
    if (!strcmp(how, "execvp")) return execvp(file, argv);
    if (!strcmp(how, "execvpe")) return execvpe(file, argv, environ);
    if (!strcmp(how, "execvpe-own")) return execvpe(file, argv, own);
    if (!strcmp(how, "execl")) return execl(file, "a", "b", NULL);
    if (!strcmp(how, "execl-4")) return execl(file, "a", "b", "c", "d", NULL);
    if (!strcmp(how, "execl-5")) return execl(file, "a", "b", "c", "d", "e", NULL);
    if (!strcmp(how, "execl-6")) return execl(file, "a", "b", "c", "d", "e", "f", NULL);
    if (!strcmp(how, "execl-100")) return execl(file, TEN(TEN("x")), NULL);
    if (!strcmp(how, "execlp")) return execlp(file, "a", "b", "c", "d", "e", "f", "g", NULL);
    if (!strcmp(how, "execle")) return execle(file, "a", "b", NULL, environ);
    if (!strcmp(how, "execle-4")) return execle(file, "a", "b", "c", "d", NULL, environ);
    if (!strcmp(how, "execle-5")) return execle(file, "a", "b", "c", "d", "e", NULL, environ);
    if (!strcmp(how, "execle-own")) return execle(file, "a", "b", "c", "d", "e", "f", "g", NULL, own);
    if (!strcmp(how, "fexecve")) return fexecve(open(file, O_RDONLY), argv, environ);
    if (!strcmp(how, "fexecve-path")) return fexecve(open(file, O_PATH), argv, own);
#ifdef __GLIBC__
    if (!strcmp(how, "execveat")) return execveat(AT_FDCWD, file, argv, environ, 0);
    if (!strcmp(how, "execveat-fd")) return execveat(open(file, O_RDONLY), "", argv, environ, AT_EMPTY_PATH);
    if (!strcmp(how, "execveat-null")) return execveat(open(file, O_RDONLY), NULL, argv, environ, AT_EMPTY_PATH);
#endif
    if (!strcmp(how, "vfork")) {
        volatile int failed = 0;
        if (!(pid = vfork())) {
            execve(file, argv, environ);
            failed = errno;
            _exit(9);
        }
        waitpid(pid, &status, 0);
        errno = failed;
        return status;
    }
    if (!strcmp(how, "vfork-execvp")) {
        if (!(pid = vfork())) {
            execvp(file, argv);
            _exit(errno);
        }
        waitpid(pid, &status, 0);
        return status;
    }
    if (!strcmp(how, "system")) return system(file);
    if (!strcmp(how, "posix_spawn")) result = posix_spawn(&pid, file, NULL, NULL, argv, environ);
    else if (!strcmp(how, "posix_spawnp")) result = posix_spawnp(&pid, file, NULL, NULL, argv, environ);
    else if (!strcmp(how, "posix_spawn-own")) result = posix_spawn(NULL, file, NULL, NULL, argv, own);
    else return 99;
    if (!result) wait(&status);
    return result ? result : status;
}
int main(int argc, char **argv) {
    int count = 0, i;
    char *before[4096], *copies[4096];
    for (; environ[count]; count++) copies[count] = strdup(before[count] = environ[count]);
    errno = 0;
    int result = start(argv[1], argv[2], argv + 2);
    printf("%s gave %d, errno %d\n", argv[1], result, errno);
    for (i = 0; environ[i]; i++)
        if (i >= count || environ[i] != before[i] || strcmp(environ[i], copies[i])) puts("environment changed");
    return argc < 3;
}
"#;

const WAYS: [&str; 26] = [
    "execve",
    "execve-own",
    "execv",
    "execvp",
    "execvpe",
    "execvpe-own",
    "execl",
    "execl-4",
    "execl-5",
    "execl-6",
    "execl-100",
    "execlp",
    "execle",
    "execle-4",
    "execle-5",
    "execle-own",
    "fexecve",
    "fexecve-path",
    "execveat",
    "execveat-fd",
    "execveat-null",
    "vfork",
    "vfork-execvp",
    "system",
    "posix_spawn",
    "posix_spawnp",
];

const SOCKET: &str = "memfit-test-nowhere";

/// A directory with programs.
struct Place {
    test: String,
    directory: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Place {
    fn new(test: &str) -> Place {
        assert!(stub().is_file(), "{} is missing: `cargo build --workspace` builds it", stub().display());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Place { test: test.into(), directory }
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>, mode: u32) -> String {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().into()
    }

    /// The program's path; `None`, with a report, if this compiler cannot.
    fn compile(&self, compiler: &[&str], name: &str, source: &str) -> Option<String> {
        let input = self.file(&format!("{name}.c"), source, 0o600);
        let output = self.directory.join(name).to_str().unwrap().to_string();
        let made = Command::new(compiler[0]).args(&compiler[1..]).args(["-w", "-O1", "-o", &output, &input]).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            skip(&self.test, &format!("{} does not work here; tests/setup may help: {made:?}", compiler.join(" ")));
            return None;
        }
        Some(output)
    }

    fn show(&self, bits: u32) -> Option<String> {
        self.compile(&["gcc", &format!("-m{}", if bits == 32 { 32 } else { 64 })], &format!("show{bits}"), SHOW)
    }

    fn starter(&self) -> Option<String> {
        self.compile(&["gcc"], "starter", STARTER)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.directory).env("KEPT", "as it is").env("LC_ALL", "C");
        command.env_remove("LD_PRELOAD").env_remove("MEMFIT_PID").env_remove("MEMFIT_SOCKET").env("MEMFIT_PID", "7");
        command
    }

    /// Runs with this LD_PRELOAD.
    fn with(&self, preload: &str, words: &[&str]) -> Outcome {
        told(self.command(words).env("LD_PRELOAD", preload).env("MEMFIT_SOCKET", SOCKET))
    }

    fn without(&self, words: &[&str]) -> Outcome {
        told(&mut self.command(words))
    }
}

/// Standard output, standard error, exit status.
type Outcome = (String, String, Option<i32>);

fn told(command: &mut Command) -> Outcome {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn stub() -> PathBuf {
    memfit().with_file_name("libmemfit.so")
}

fn stub_path() -> String {
    stub().to_str().unwrap().into()
}

/// The end of the line that a child prints if it can load the stub.
fn kept(preload: &str) -> String {
    format!(" LD_PRELOAD={preload} MEMFIT_SOCKET={SOCKET} MEMFIT_PID=7 KEPT=as it is")
}

/// As `kept`, for a child that cannot.
fn filtered(preload: &str) -> String {
    format!(" LD_PRELOAD={preload} MEMFIT_SOCKET=- MEMFIT_PID=- KEPT=as it is")
}

/// Starts the program in each way; `expected` is the end of its line when it has the starter's
/// environment.
fn every_way(place: &Place, starter: &str, program: &str, bits: &str, preload: &str, expected: &str) {
    for way in WAYS {
        if starter.contains("musl") && way.starts_with("execveat") || way == "execveat-null" {
            continue;
        }
        let (out, err, code) = place.with(preload, &[starter, way, program, "last"]);
        let context = format!("{way} of {program} by {starter} with {preload}: {out}{err}");
        assert!(code == Some(0) && out.starts_with(bits), "{context}");
        if way == "fexecve-path" {
            continue; // The file of such a descriptor cannot be read: the program starts, with a complaint.
        }
        assert_eq!(err, "", "{context}");
        let line = out.lines().next().unwrap();
        if way.ends_with("-own") {
            assert!(line.ends_with(" MEMFIT_SOCKET=- MEMFIT_PID=- KEPT=own"), "{context}");
            let own = if bits == "bits=64" { preload } else { "-" };
            assert!(line.contains(&format!(" LD_PRELOAD={own} ")), "{context}");
        } else {
            assert!(line.ends_with(expected), "{context}expected: {expected}");
        }
        let words = way.strip_prefix("execl-").filter(|_| !program.ends_with("script")).map(|n| format!("argc={n} "));
        assert!(words.is_none_or(|words| line.contains(&words)), "{context}");
        assert!(!out.contains("environment changed"), "{context}");
    }
}

#[test]
fn programs_of_32_bits_start_without_us() {
    let place = Place::new("programs_of_32_bits_start_without_us");
    let (Some(starter), Some(program)) = (place.starter(), place.show(32)) else { return };
    every_way(&place, &starter, &program, "bits=32", &stub_path(), &filtered("-"));
    let script = place.file("script", format!("#! {program}\tword\n"), 0o755);
    every_way(&place, &starter, &script, "bits=32", &stub_path(), &filtered("-"));
    let Some(fixed) = place.compile(&["gcc", "-m32", "-static"], "static32", SHOW) else { return };
    every_way(&place, &starter, &fixed, "bits=32", &stub_path(), &filtered("-"));
}

#[test]
fn programs_of_64_bits_keep_all() {
    let place = Place::new("programs_of_64_bits_keep_all");
    let (Some(starter), Some(program)) = (place.starter(), place.show(64)) else { return };
    every_way(&place, &starter, &program, "bits=64", &stub_path(), &kept(&stub_path()));
    let script = place.file("script", format!("#!{program}"), 0o755);
    every_way(&place, &starter, &script, "bits=64", &stub_path(), &kept(&stub_path()));
    for (compiler, name) in [(["gcc", "-static"], "static64"), (["musl-gcc", "-O1"], "other64")] {
        let Some(program) = place.compile(&compiler, name, SHOW) else { continue };
        every_way(&place, &starter, &program, "bits=64", &stub_path(), &kept(&stub_path()));
    }
}

#[test]
fn programs_of_musl_start_programs() {
    let place = Place::new("programs_of_musl_start_programs");
    let Some(starter) = place.compile(&["musl-gcc"], "starter-musl", STARTER) else { return };
    let Some(program) = place.show(64) else { return };
    every_way(&place, &starter, &program, "bits=64", &stub_path(), &kept(&stub_path()));
    let Some(program) = place.show(32) else { return };
    every_way(&place, &starter, &program, "bits=32", &stub_path(), &filtered("-"));
    same_failures(&place, &starter);
}

#[test]
fn other_libraries_stay() {
    let place = Place::new("other_libraries_stay");
    let (Some(starter), Some(wide), Some(narrow)) = (place.starter(), place.show(64), place.show(32)) else { return };
    let library = ["gcc", "-shared", "-fPIC"];
    let Some(other) = place.compile(&library, "other.so", "int other;") else { return };
    let Some(alike) = place.compile(&library, "notlibmemfit.so", "int alike;") else { return };
    let stub = stub_path();
    for (preload, left) in [
        (format!("{stub}:{other}"), other.clone()),
        (format!("{other} {stub}"), other.clone()),
        (format!("{other}:{stub} {alike}"), format!("{other}:{alike}")),
        (format!(":{stub}:: {stub}:{alike}"), alike.clone()),
    ] {
        every_way(&place, &starter, &wide, "bits=64", &preload, &kept(&preload));
        for way in ["execve", "execv", "execvp", "execvpe", "posix_spawn", "posix_spawnp", "vfork"] {
            let found = place.with(&preload, &[&starter, way, &narrow]);
            let expected = place.with(&left, &[&starter, way, &narrow]);
            assert_eq!(found.1, expected.1, "{way}: complaints as without the stub");
            assert!(found.0.lines().next().unwrap().ends_with(&filtered(&left)), "{way}: {}", found.0);
        }
    }
}

#[test]
fn the_path_is_searched() {
    let place = Place::new("the_path_is_searched");
    let (Some(starter), Some(wide), Some(narrow)) = (place.starter(), place.show(64), place.show(32)) else { return };
    place.file("unusable/child", "x", 0o600);
    fs::create_dir_all(place.directory.join("directory/child")).unwrap();
    fs::create_dir_all(place.directory.join("narrow")).unwrap();
    fs::create_dir_all(place.directory.join("wide")).unwrap();
    fs::copy(&narrow, place.directory.join("narrow/child")).unwrap();
    fs::copy(&wide, place.directory.join("wide/child")).unwrap();
    fs::copy(&narrow, place.directory.join("child")).unwrap();
    let long = "x".repeat(5000);
    for (path, bits) in [
        ("none:unusable:directory:narrow:wide", 32),
        ("unusable:wide:narrow", 64),
        (":wide", 32),
        ("wide:", 64),
        ("none:", 32),
        (&format!("{long}:narrow"), 32),
    ] {
        for way in ["execvp", "execvpe", "execlp", "posix_spawnp", "vfork-execvp"] {
            let mut command = place.command(&[&starter, way, "child", "last"]);
            let (out, err, _) = told(command.env("PATH", path).env("LD_PRELOAD", stub()).env("MEMFIT_SOCKET", SOCKET));
            assert_eq!(err, "", "{way} {path}");
            let end = if bits == 32 { filtered("-") } else { kept(&stub_path()) };
            let line = out.lines().next().unwrap();
            assert!(line.starts_with(&format!("bits={bits}")) && line.ends_with(&end), "{way} {path}: {out}");
        }
    }
}

/// Failures are those without the stub, and scripts are run by a shell.
fn same_failures(place: &Place, starter: &str) {
    let narrow = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
    let narrow: Vec<u8> = narrow.iter().enumerate().map(|(i, byte)| if i == 4 { 1 } else { *byte }).collect();
    let too_long = "x".repeat(300);
    let files = [
        "/nonexistent/program".into(),
        "no-such-program".into(),
        "".into(),
        "/".into(),
        "/etc/passwd/x".into(),
        too_long.clone(),
        format!("/{}", "y/".repeat(3000)),
        place.file("unusable", "x", 0o600),
        place.file("empty", "", 0o755),
        place.file("text", "echo text $0 $1\n", 0o755),
        place.file("broken32", &narrow, 0o755),
        place.file("unusable32", &narrow, 0o600),
        place.file("no-interpreter", "#!/nonexistent/sh\n", 0o755),
        place.file("only-mark", "#!", 0o755),
        place.file("blank", format!("#!{}", " ".repeat(300)), 0o755),
        place.file("long-interpreter", format!("#!/{}\n", "z".repeat(300)), 0o755),
        place.file("interpreter32", format!("#!{}\n", place.directory.join("broken32").display()), 0o755),
    ];
    for way in WAYS {
        for file in &files {
            let words = [starter, way, file.as_str(), "word"];
            let (plain, stubbed) = (place.without(&words), place.with(&stub_path(), &words));
            assert_eq!(stubbed, plain, "{way} of {file:.80?}");
        }
    }
    let mut nameless = place.command(&[starter, "execvp", "no-such-program"]);
    let plain = told(nameless.env_remove("PATH"));
    assert_eq!(told(nameless.env("LD_PRELOAD", stub())), plain, "no PATH");
}

#[test]
fn failures_are_the_same() {
    let place = Place::new("failures_are_the_same");
    let Some(starter) = place.starter() else { return };
    same_failures(&place, &starter);
}

#[test]
fn large_environments_pass() {
    let place = Place::new("large_environments_pass");
    let (Some(starter), Some(narrow)) = (place.starter(), place.show(32)) else { return };
    for (variables, preload) in [(900, "-".to_string()), (1100, stub_path())] {
        let mut command = place.command(&[&starter, "execve", &narrow]);
        command.envs((0..variables).map(|i| (format!("VARIABLE_{i}"), "x".repeat(30))));
        let (out, err, code) = told(command.env("LD_PRELOAD", stub()));
        assert!(code == Some(0) && out.contains(&format!("LD_PRELOAD={preload} ")), "{variables}: {out}{err}");
        assert_eq!(err.is_empty(), preload == "-", "{err}");
    }
    for bytes in [3000, 5000] {
        let preload = format!("{}:{}", stub_path(), format!("/{}.so", "p".repeat(195)).repeat(bytes / 200));
        let (out, err, code) = place.with(&preload, &[&starter, "posix_spawn", &narrow]);
        assert!(code == Some(0) && out.starts_with("bits=32"), "{out}{err}");
        let line = out.lines().next().unwrap();
        assert_eq!(line.contains("libmemfit.so"), bytes > 4096, "{out}");
    }
}

#[test]
fn shells_and_interpreters_start_programs() {
    let place = Place::new("shells_and_interpreters_start_programs");
    let (Some(wide), Some(narrow)) = (place.show(64), place.show(32)) else { return };
    let stub = stub_path();
    let mut lines = vec![("sh", "$0; ($0); $0 | cat; exec $0".to_string())];
    lines.extend(find("bash").map(|_| ("bash", "$0; ($0); $0 | cat; env $0; exec $0".into())));
    lines.extend(find("perl").map(|_| ("perl", "system($ARGV[0]); print `$ARGV[0] 2>&1`; exec($ARGV[0]);".into())));
    if find(PYTHON).is_some() {
        for call in [
            "subprocess.run([p])",
            "subprocess.run([p], env=dict(os.environ), close_fds=False)",
            "subprocess.run(p, shell=True)",
            "subprocess.run([p], preexec_fn=lambda: None)",
            "os.system(p)",
            "os.execv(p, [p])",
            "os.execvpe(p, [p], os.environ)",
            "os.execve(os.open(p, 0), [p], os.environ)",
            "os.waitpid(os.posix_spawn(p, [p], os.environ), 0)",
            "os.waitpid(os.posix_spawnp(p, [p], dict(os.environ)), 0)",
        ] {
            lines.push((PYTHON, format!("import os, subprocess, sys; p = sys.argv[1]; {call}")));
        }
    }
    for (program, text) in lines {
        let flag = if program == "perl" { "-e" } else { "-c" };
        for (child, end) in [(&narrow, filtered("-")), (&wide, kept(&stub))] {
            let (out, err, code) = place.with(&stub, &[program, flag, &text, child]);
            assert_eq!((err.as_str(), code), ("", Some(0)), "{program} {text}: {out}");
            assert!(!out.is_empty() && out.lines().all(|line| line.ends_with(&end)), "{program} {text}: {out}");
        }
    }
}

#[test]
fn under_memfit() {
    let place = Place::new("under_memfit");
    if let Err(reason) = memfit_os::probe::try_move() {
        return skip("under_memfit", &format!("no userfaultfd with MOVE here: {reason}"));
    }
    let (Some(wide), Some(narrow)) = (place.show(64), place.show(32)) else { return };
    let mut command = memfit_command();
    let line = format!("{narrow}; {wide}; env {narrow}; exec {narrow}");
    command.args(["run", "-q", "-m", "1G", "--", "sh", "-c", &line]);
    let (out, err, code) = told(command.env_remove("LD_PRELOAD").env_remove("MEMFIT_SOCKET").env_remove("MEMFIT_PID"));
    assert_eq!((err.as_str(), code), ("", Some(0)), "{out}");
    for (line, bits) in out.lines().zip([32, 64, 32, 32]) {
        assert!(line.starts_with(&format!("bits={bits}")), "{out}");
        assert_eq!(line.contains("libmemfit.so"), bits == 64, "{out}");
        assert_eq!(line.contains("MEMFIT_SOCKET=-"), bits == 32, "{out}");
    }
    say("32-bit programs ran under memfit without a complaint");
}
