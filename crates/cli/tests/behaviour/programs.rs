//! Real programs under tight budgets: they must print what they print without memfit, byte for
//! byte.
//!
//! Each test measures the natural peak first and takes a part of it as the budget. It fails when
//! less than a quarter of that peak was evicted, so that no test passes without paging. It prints
//! one line on the terminal.

use crate::support::contents::assert_contents_eq;
use crate::support::known::{program, share_a_table, SHARED_TABLE};
use crate::support::{find, may_wait_to_start, skip, Bench, Bounds, FORKS, ONE, PYTHON, SEVERAL};
use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

const BLOCKS: &str = include_str!("../workloads/blocks.py");

/// A test with the python modules that most scripts share.
fn python(name: &str, scripts: &[(&str, &str)]) -> Option<Bench> {
    let bench = Bench::new(name, &[PYTHON])?;
    bench.file("blocks.py", BLOCKS);
    bench.file("big.py", include_str!("../workloads/big.py"));
    for (file, text) in scripts {
        bench.file(file, text);
    }
    Some(bench)
}

/// Runs one Python script with a budget of `percent` of its natural peak.
fn script(name: &str, text: &str, percent: u64) {
    script_within(name, text, percent, ONE);
}

fn script_within(name: &str, text: &str, percent: u64, bounds: Bounds) {
    let Some(bench) = python(name, &[("script.py", text)]) else { return };
    bench.same_within(&format!("{PYTHON} script.py"), &[], percent, bounds);
}

#[test]
fn gnu_sort() {
    let Some(bench) = Bench::new("gnu_sort", &["sort", "seq", "rev"]) else { return };
    assert_eq!(bench.plain("seq 1 1400000 | rev > input").code, Some(0));
    bench.same("sort -S 300M --parallel=1 -o output input", &["output"], 65);
}

#[test]
fn gnu_sort_with_threads() {
    let Some(bench) = Bench::new("gnu_sort_with_threads", &["sort", "seq", "rev"]) else { return };
    assert_eq!(bench.plain("seq 1 1400000 | rev > input").code, Some(0));
    bench.same("sort -S 300M --parallel=4 -o output input", &["output"], 65);
}

#[test]
fn pipeline() {
    let Some(bench) = Bench::new("pipeline", &["sort", "seq", "rev", "awk", "sha256sum"]) else { return };
    let line = "seq 1 1000000 | rev | sort -S 200M --parallel=1 | awk '{ print $1 % 1000, $1 }' | \
                sort -n -S 200M --parallel=1 | tee copy | sha256sum > sum; wc -l copy > lines; rm copy";
    bench.same(line, &["lines", "sum"], 65);
}

#[test]
fn numpy_sort() {
    if find(PYTHON).is_some()
        && std::process::Command::new(PYTHON).args(["-c", "import numpy"]).output().is_ok_and(|o| !o.status.success())
    {
        return crate::support::skip("numpy_sort", "there is no numpy for /usr/bin/python3; tests/setup installs it");
    }
    script("numpy_sort", include_str!("../workloads/numsort.py"), 88);
}

#[test]
fn python_objects() {
    script("python_objects", include_str!("../workloads/graph.py"), 88);
}

#[test]
fn python_blocks() {
    let Some(bench) = python("python_blocks", &[]) else { return };
    bench.same(&format!("{PYTHON} big.py 1 60 2"), &[], 60);
}

#[test]
fn sqlite_in_memory() {
    script("sqlite_in_memory", include_str!("../workloads/database.py"), 60);
}

#[test]
fn sqlite_shell() {
    let Some(bench) = Bench::new("sqlite_shell", &["sqlite3"]) else { return };
    bench.file("script.sql", include_str!("../workloads/database.sql"));
    bench.same("sqlite3 '' < script.sql", &[], 85);
}

/// A C file of many functions and a large table, on which the compiler proper, a grandchild, grows.
fn large_c_file() -> String {
    let mut text = String::from("struct s { int a; double b; const char *c; };\n");
    for i in 0..300 {
        let _ = writeln!(
            text,
            "static int f{i}(int x, struct s *p) {{ int t[16]; for (int i = 0; i < 16; i++) t[i] = x * {i} + i; \
             switch (x % 7) {{ case 0: return t[x & 15]; case 1: p->a += {i}; case 2: return p->a ^ {i}; \
             case 3: p->b *= 1.{i}; return (int)p->b; default: while (x > {i}) x -= t[x & 7] | 1; }} return x; }}"
        );
    }
    text.push_str("int (*const table[])(int, struct s *) = {");
    (0..300).for_each(|i| {
        let _ = write!(text, "f{i},");
    });
    text.push_str("};\nconst struct s rows[] = {\n");
    for i in 0..12_000 {
        let _ = writeln!(text, "{{{i}, {i}.5, \"row number {i}\"}},");
    }
    text.push_str("};\n");
    text
}

#[test]
fn gcc_object_file() {
    let Some(bench) = Bench::new("gcc_object_file", &["gcc"]) else { return };
    bench.file("large.c", &large_c_file());
    bench.same("gcc -O1 -g -c -o large.o large.c", &["large.o"], 60);
}

#[test]
fn threads() {
    let Some(bench) = Bench::new("threads", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "threads", include_str!("../workloads/threads.c")) else { return };
    bench.same_within("./threads", &[], 60, SEVERAL);
}

#[test]
fn lazily_freed_pages() {
    let Some(bench) = Bench::new("lazily_freed_pages", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "freed", include_str!("../workloads/freed.c")) else { return };
    // A fixed budget: pages that the kernel drops must be registered and not yet evicted then.
    let (managed, stats) = bench.managed("./freed", 62 << 20);
    assert_contents_eq!((managed.code, &*managed.out), (Some(0), &b"wrong: 0\n"[..]), "{:#}", stats.json);
    assert_eq!(managed.err, "", "{:#}", stats.json);
    assert!(stats.number("/evictions/pages") > 1000, "{:#}", stats.json);
    stats.peak_within(ONE.peak_percent);
}

/// Pages freed with MADV_FREE in mappings that memfit has not found yet.
#[test]
fn pages_freed_before_memfit_finds_them() {
    let Some(bench) = Bench::new("late_freed", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "late_freed", include_str!("../workloads/late_freed.c")) else { return };
    let (managed, stats) = bench.managed("./late_freed", 24 << 20);
    let out = &b"wrong: 0, dropped: 1\n"[..];
    assert_contents_eq!((managed.code, &*managed.out), (Some(0), out), "{}\n{:#}", managed.err, stats.json);
    assert_eq!(managed.err, "", "{:#}", stats.json);
    assert!(stats.number("/evictions/pages") > 2000, "{:#}", stats.json);
}

#[test]
fn two_processes() {
    let Some(bench) = python("two_processes", &[]) else { return };
    let line = format!("{PYTHON} big.py 1 44 2 >a & a=$!; {PYTHON} big.py 2 44 2 >b & b=$!; wait $a && wait $b");
    bench.same_within(&line, &["a", "b"], 55, SEVERAL);
}

#[test]
fn many_processes() {
    let Some(bench) = python("many_processes", &[]) else { return };
    let line = format!("for i in 1 2 3 4 5 6; do {PYTHON} big.py $i 16 2 > out$i & done; wait; cat out*");
    bench.same_within(&line, &[], 60, SEVERAL);
}

#[test]
fn stopped_process() {
    script_within("stopped_process", include_str!("../workloads/stopped.py"), 70, SEVERAL);
}

#[test]
fn exits_kills_and_execs_in_the_middle() {
    script_within("leaving_processes", include_str!("../workloads/leaving.py"), 55, SEVERAL);
}

#[test]
fn shell_execs_in_the_middle() {
    let Some(bench) = python("shell_execs", &[]) else { return };
    let line = format!("{PYTHON} big.py 8 40 1; ({PYTHON} big.py 9 24 1 > c; exec {PYTHON} big.py 10 40 1 > d); exec {PYTHON} big.py 11 40 1");
    bench.same_within(&line, &["c", "d"], 65, SEVERAL);
}

#[test]
fn fork_children() {
    script_within("fork_children", include_str!("../workloads/forks.py"), 60, FORKS);
}

/// Workers that share their parent's table: it stays while they have other pages to give, and is
/// stored once if it must leave.
#[test]
fn workers_share_a_table() {
    let Some(bench) = program("shared_table", SHARED_TABLE) else { return };
    share_a_table(&bench);
}

#[test]
fn short_lived_children() {
    script_within("short_lived_children", include_str!("../workloads/short_lived.py"), 60, FORKS);
}

#[test]
fn forks_with_threads() {
    let Some(bench) = Bench::new("forks_with_threads", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "fork_threads", include_str!("../workloads/fork_threads.c")) else { return };
    bench.same_within("./fork_threads", &[], 60, FORKS);
}

/// They wait until they are attached, where the kernel reports forks.
#[test]
fn children_that_are_made_at_once() {
    let Some(bench) = Bench::new("fork_burst", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "burst", include_str!("../workloads/fork_burst.c")) else { return };
    let (ran, stats) = bench.managed_with(&[], "./burst 40 6 10", 48 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0 of 6, 0\n"[..]), "{}", ran.err);
    assert!(stats.number("/evictions/pages") > 0);
    if memfit_os::process::effective_uid() == 0 {
        assert!(stats.number("/transitions/waited_at_start") > 0);
    }
}

/// New programs wait before they run, while little memory is free and others are new.
#[test]
fn programs_that_start_at_once() {
    let Some(bench) = Bench::new("starts", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "starts", include_str!("../workloads/starts.c")) else { return };
    let (ran, stats) = bench.managed_with(&[], "./starts 60 4", 64 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0 of 60\n"[..]), "{}", ran.err);
    assert!(stats.number("/evictions/pages") > 0);
    assert!(stats.number("/transitions/waited_at_start") > 0 || !may_wait_to_start());
}

#[test]
fn redis_saves_in_a_child() {
    let Some(bench) = Bench::new("bgsave", &[PYTHON, crate::support::REDIS]) else { return };
    bench.same_bgsave();
}

fn unmanaged(name: &str, compiler: &[&str], bits: u32, why: &str) {
    // With fork events the pager gives most of them the stub: see loaded.rs.
    let Some(bench) = Bench::ordinary(name, &[compiler[0], PYTHON]) else { return };
    let Some(_) = bench.compile(compiler, name, include_str!("../workloads/unmanaged.c")) else { return };
    let mut run = bench.memfit();
    run.arg("run");
    runs_unmanaged(&bench, run, (name, why), bits);
}

/// A program that cannot be paged runs as without memfit, two at a time as well; memfit names it
/// once with the reason, and says nothing else.
fn runs_unmanaged(bench: &Bench, run: Command, (name, why): (&str, &str), bits: u32) {
    let line = format!("./{name} && ./{name} & ./{name}; wait $!");
    let plain = bench.plain(&line);
    let out = String::from_utf8_lossy(&plain.out).into_owned();
    assert_eq!((plain.code, out.lines().count()), (Some(0), 3), "{out}");
    assert!(out.starts_with(&format!("{bits} bits")), "{out}");
    let (managed, stats) = bench.managed_by(run, &line, 64 << 20);
    let found = String::from_utf8_lossy(&managed.out);
    assert_contents_eq!((managed.code, &*found), (Some(0), &*out), "{}", managed.err);
    let lines: Vec<&str> = managed.err.lines().collect();
    assert_eq!(lines, [format!("memfit: not paged, but counted: {name} ({why})")]);
    let processes = stats.json["processes"].as_array().unwrap();
    let listed = |row: &serde_json::Value| {
        row["comm"] == name && row["why_not_paged"] == why && row["paged"] == false && row["running"] == false
    };
    assert!(processes.iter().any(listed), "{:#}", stats.json);
    assert_eq!(stats.json["warnings"].as_array().map(Vec::len), Some(1), "{:#}", stats.json);
    // memfit counts it: two at a time, 8 MiB each.
    assert!(stats.number("/peak/total_bytes") > 16 << 20, "{:#}", stats.json);
}

/// One that comes later has its name told, too, also if it has the name of a process of memfit.
#[test]
fn each_static_program_is_named() {
    let Some(bench) = Bench::ordinary("several-static", &["gcc"]) else { return };
    for name in ["first-static", "memfit-sigprobe"] {
        let source = include_str!("../workloads/unmanaged.c");
        let Some(_) = bench.compile(&["gcc", "-static"], name, source) else { return };
    }
    // Each lives for a second; on a busy machine memfit does not see each of them.
    let (ran, _) = bench.managed(
        "for name in first-static memfit-sigprobe; do for i in 1 2 3 4; do ./$name || exit; done; done",
        64 << 20,
    );
    assert_contents_eq!((ran.code, ran.out.iter().filter(|&&byte| byte == b'\n').count()), (Some(0), 8), "{}", ran.err);
    let named = |name: &str| ran.err.matches(name).count();
    assert_eq!((named("first-static"), named("memfit-sigprobe")), (1, 1), "{}", ran.err);
    // As a child of the launcher, like that process.
    let (ran, _) = bench.managed("exec ./memfit-sigprobe", 64 << 20);
    assert!(ran.err.contains("memfit-sigprobe"), "{}", ran.err);
}

#[test]
fn static_programs() {
    unmanaged("static-prog", &["gcc", "-static"], 64, "static");
}

#[test]
fn musl_programs() {
    unmanaged("musl-prog", &["musl-gcc"], 64, "not linked with glibc");
}

#[test]
fn static_musl_programs() {
    unmanaged("static-musl", &["musl-gcc", "-static"], 64, "static");
}

#[test]
fn programs_of_32_bits() {
    unmanaged("prog32", &["gcc", "-m32"], 32, "32-bit");
}

/// The dynamic linker does not preload libmemfit.so into them.
#[test]
fn setuid_programs() {
    let name = "setuid-prog";
    let Some(bench) = Bench::ordinary(name, &["gcc", "findmnt"]) else { return };
    let Some(program) = bench.compile(&["gcc"], name, include_str!("../workloads/unmanaged.c")) else { return };
    let file = std::fs::metadata(&program).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if file.uid() != 0 || memfit_os::process::effective_uid() != 0 || status.contains("NoNewPrivs:\t1") {
        return skip(name, "only root can make a program setuid for another user");
    }
    let options = Command::new("findmnt").args(["-no", "OPTIONS", "-T"]).arg(&program).output().unwrap().stdout;
    if String::from_utf8_lossy(&options).contains("nosuid") {
        return skip(name, "the directory for temporary files is mounted nosuid");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let user = bench.user.as_ref().expect("an ordinary user's bench");
    let memfit = user.place().join("memfit");
    let run = user.becoming(&[], &[memfit.to_str().unwrap(), "run"]);
    let why = "setuid, setgid or with capabilities of its file";
    runs_unmanaged(&bench, run, (name, why), 64);
}
