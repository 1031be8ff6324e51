//! Recorded runs: `memfit run --record` and `memfit trace`. The programs see nothing of it, every recording is replayed with the same
//! decisions, and what is wrong with a file is told with its name and the place.

mod support;

use memfit_core::scheme::{Scheme, PRESETS};
use memfit_core::trace::Encoder;
use memfit_core::{Asked, ProcId, Tunables};
use memfit_os::proctree::kill_exactly;
use memfit_trace::{Begins, Block, Head, Reader, Writer};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::process::{self, Limits, Ran};
use support::stats::Stats;
use support::tree::{eventually, Tree};
use support::{memfit, memfit_command, skip, Bench, PYTHON};

const MIB: u64 = 1 << 20;
/// Where tests record to, in their directories.
const FILE: &str = "run.memfit";

fn bench(name: &str, program: &str) -> Option<Bench> {
    let bench = Bench::new(name, &["gcc"])?;
    let source = match program {
        "mix" => include_str!("workloads/mix.c"),
        "mapped" => include_str!("workloads/mapped.c"),
        _ => include_str!("workloads/touch.c"),
    };
    bench.compile(&["gcc", "-O2"], program, source)?;
    Some(bench)
}

/// Runs `memfit trace` in a directory.
fn trace(directory: &Path, words: &[&str]) -> Ran {
    let mut command = memfit_command();
    command.arg("trace").args(words);
    let ran = process::run(command, directory, &Limits::of(Duration::from_secs(60)));
    assert!(!ran.timed_out, "memfit trace {words:?} takes too long");
    ran
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `info` tells of a recording that can be read up to its end or its cut.
#[track_caller]
fn info(directory: &Path, file: &str) -> Value {
    let (ran, json) = (trace(directory, &["info", file]), trace(directory, &["info", "--json", file]));
    assert_eq!((ran.code, &*ran.err, json.code, &*json.err), (Some(0), "", Some(0), ""), "{file}");
    let value: Value = serde_json::from_slice(&json.out).unwrap();
    let told = text(&ran.out);
    assert!(told.starts_with(&format!("{file}: ")) && told.contains("budget"), "{told}");
    let all: u64 = value[0]["by_call"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(value[0]["calls"], all);
    value[0].clone()
}

/// The recording decides the same again; gives what `info` tells.
#[track_caller]
fn good(directory: &Path, file: &str, whole: bool) -> Value {
    let told = info(directory, file);
    assert_eq!(told["whole"], whole, "{told:#}");
    let verified = trace(directory, &["verify", file]);
    assert_eq!((verified.code, &*verified.err), (Some(0), ""), "{told:#}");
    assert!(text(&verified.out).contains("every decision is the same"), "{}", text(&verified.out));
    assert_eq!(text(&verified.out).contains("cut at byte"), !whole, "{}", text(&verified.out));
    told
}

/// As a table it has all calls that `info` told of.
#[track_caller]
fn as_tables(directory: &Path, file: &str, told: &Value) {
    for table in ["table.csv", "table.parquet"] {
        let exported = trace(directory, &["export", file, "-o", table]);
        let whole = !exported.err.contains("cut at byte");
        assert_eq!((exported.code, Value::from(whole)), (Some(0), told["whole"].clone()), "{}", exported.err);
    }
    let rows = fs::read(directory.join("table.csv")).unwrap().iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(told["calls"], rows - 1, "{told:#}");
}

/// A run that is recorded; its recording is good.
#[track_caller]
fn recorded(bench: &Bench, options: &[&str], line: &str, budget: u64) -> (Ran, Stats, Value) {
    let (ran, stats) = bench.managed_with(&[&["--record", FILE], options].concat(), line, budget);
    (ran, stats, good(&bench.directory, FILE, true))
}

#[test]
fn the_program_sees_nothing_of_it() {
    let Some(bench) = bench("record_same", "mix") else { return };
    let plain = bench.plain("./mix 36 1 rand; exit 3");
    let (ran, stats, told) = recorded(&bench, &[], "./mix 36 1 rand; exit 3", 20 * MIB);
    assert_eq!((ran.code, &ran.out, &*ran.err), (Some(3), &plain.out, &*plain.err));
    stats.no_warnings();
    assert!(stats.number("/evictions/pages") > 5000, "{:#}", stats.json);
    // A fault may have to be asked about again.
    assert!(told["by_call"]["fault"].as_u64().unwrap() >= stats.number("/faults/total"), "{told:#}");
    assert!(told["by_call"]["compressed"].as_u64().unwrap() > 5000, "{told:#}");
    assert_eq!(told["command"], serde_json::json!(["sh", "-c", "./mix 36 1 rand; exit 3"]));
    assert_eq!((&told["budget_bytes"], &told["scheme"]), (&Value::from(20 * MIB), &Value::from("memfit")));
    assert!(told["run_ns"].as_u64().unwrap() < ran.time.as_nanos() as u64, "{told:#}");
    as_tables(&bench.directory, FILE, &told);
    // What it held is gone.
    let (_, _, short) = recorded(&bench, &["--set", "fault.around_pages=1"], "./mix 1 0", 20 * MIB);
    assert!(short["calls"].as_u64() < told["calls"].as_u64(), "{short:#}");
    assert!(short["scheme_toml"].as_str().unwrap().contains("around_pages = 1"), "{short:#}");
}

#[test]
fn every_preset_decides_the_same_again() {
    let Some(bench) = bench("record_presets", "mix") else { return };
    for preset in PRESETS {
        let (ran, stats, told) = recorded(&bench, &["-s", preset.name], "./mix 30 1 rand", 18 * MIB);
        assert_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}: {}", preset.name, ran.err);
        assert!(stats.number("/evictions/pages") > 3000, "{:#}", stats.json);
        assert_eq!(told["scheme"], preset.name);
    }
}

/// The machine of `memfit sim` with the residents of the run does about what the pager did.
#[test]
fn a_simulation_of_the_run_as_it_was_counts_like_the_run() {
    let Some(bench) = bench("record-simulated", "mix") else { return };
    for preset in ["memfit", "swap", "zswap-zbud"] {
        let (_, stats, _) = recorded(&bench, &["-s", preset], "./mix 36 1 rand", 20 * MIB);
        let mut command = memfit_command();
        command.args(["sim", FILE, "--json", "-"]);
        let ran = process::run(command, &bench.directory, &Limits::of(Duration::from_secs(60)));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
        let rows: Value = serde_json::from_slice(&ran.out).unwrap();
        let row = &rows["rows"][0];
        let simulated = |key: &str| row[key].as_u64().unwrap() as f64;
        let (evicted, live) = (simulated("evicted_pages"), stats.number("/evictions/pages") as f64);
        assert!((evicted / live - 1.0).abs() < 0.02, "{preset}: {evicted} evicted, and {live} in the run");
        let faults = |sources: &[&str]| {
            let sum = sources.iter().map(|source| simulated(&format!("faults_{source}"))).sum::<f64>();
            let live = sources.iter().map(|source| stats.number(&format!("/faults/{source}")) as f64).sum::<f64>();
            (sum, live)
        };
        let (all, live) = faults(&["staged", "filled", "pool", "swap"]);
        assert!((all - live).abs() <= live * 0.25 + 300.0, "{preset}: {all} faults, and {live} in the run: {row:#}");
        // How far writes are behind the programs is up to the machine, and with it which pages are still in memory.
        let (swap, live) = faults(&["swap"]);
        let alike = swap <= live * 2.0 + 300.0 && live <= swap * 2.0 + 300.0;
        assert!(alike, "{preset}: {swap} faults from swap, and {live} in the run: {row:#}");
    }
}

#[test]
fn pages_of_files_are_recorded() {
    let Some(bench) = bench("record_files", "mapped") else { return };
    let (ran, stats, told) = recorded(&bench, &["-s", "ca+sa"], "./mapped file 12 6 1", 16 * MIB);
    assert_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    assert!(stats.number("/faults/file") == 0 || told["by_call"]["read_elsewhere"].as_u64() > Some(0), "{told:#}");
}

#[test]
fn forks_and_pipelines_decide_the_same_again() {
    let Some(bench) = Bench::new("record_forks", &[PYTHON]) else { return };
    bench.file("blocks.py", include_str!("workloads/blocks.py"));
    let forks = "import multiprocessing, blocks\nm = blocks.build(5, 30)\n\ndef child(n):\n    return blocks.churn(m[n::4], n, 1)\n\n\
                 for i in range(2):\n    with multiprocessing.get_context('fork').Pool(3) as pool:\n        \
                 print(pool.map(child, range(4)))\n    print(blocks.churn(m, i, 1))\n";
    bench.file("forks.py", forks);
    let pipeline = "for i in 1 2 3; do seq 1 150000 | sort -R --random-source=/bin/sh | sort -n | tail -n 1; done";
    for (line, least) in [(format!("{PYTHON} forks.py"), 6), (pipeline.to_owned(), 9)] {
        let plain = bench.plain(&line);
        let (ran, stats, told) = recorded(&bench, &[], &line, 20 * MIB);
        assert_eq!((ran.code, text(&ran.out)), (Some(0), text(&plain.out)), "{}", ran.err);
        // Those that are never paged are none of the core's.
        let paged = told["processes"].as_u64().unwrap();
        assert!(paged >= least || stats.number("/evictions/pages") < 1000, "{told:#}\n{:#}", stats.json);
    }
}

/// Of the launcher, whose tree the pager ends in order; of the pager, with which all ends at once.
#[test]
fn killed_runs_can_be_read_up_to_there() {
    let Some(bench) = bench("record_killed", "touch") else { return };
    for who in ["launcher", "pager"] {
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "32M", "--record", FILE, "--", "./touch", "40"]);
        let mut tree = Tree::start(command, &bench.directory, true);
        eventually("both processes are full", || tree.text().contains("both are full"));
        let length = || fs::metadata(bench.directory.join(FILE)).map_or(0, |data| data.len());
        let before = length();
        eventually("more is recorded", || length() > before + 100_000);
        let members = tree.members();
        let victim = if who == "pager" { members.pager } else { members.launcher };
        assert!(kill_exactly(&victim.expect("it lives")));
        tree.wait_for_all(who);
        assert!(tree.errors().contains(&format!("memfit: the {who} died")), "{}", tree.errors());
        let whole = info(&bench.directory, FILE)["whole"].as_bool().unwrap();
        assert!(!(whole && who == "pager"));
        let told = good(&bench.directory, FILE, whole);
        as_tables(&bench.directory, FILE, &told);
        assert!(told["calls"].as_u64().unwrap() > 10_000, "{told:#}");
        let end = told["cut_at"].as_u64();
        assert!(whole || end.is_some_and(|end| end > before && end <= length()), "{told:#}");
    }
}

#[test]
fn what_cannot_be_recorded_to_is_refused_before_the_start() {
    let Some(bench) = Bench::new("record_refused", &[]) else { return };
    let run = |record: &str, command: &str| {
        let mut memfit = memfit_command();
        memfit.args(["run", "-q", "--record", record, "--", command, "ran"]);
        bench.checked(memfit, record)
    };
    for (path, why) in [("none/run.memfit", "No such file"), (".", "Is a directory"), ("/proc/x", "No such file")] {
        let ran = run(path, "touch");
        assert_eq!(ran.code, Some(1), "{path}: {}", ran.err);
        assert!(ran.err.contains(&format!("--record {path}: cannot be written: {why}")), "{}", ran.err);
    }
    // There is no run either.
    assert_eq!(run(FILE, "memfit-no-such-command").code, Some(127));
    let names = fs::read_dir(&bench.directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["stderr", "stdout"]);
}

#[test]
fn a_directory_without_permission_is_refused() {
    let Some(bench) = Bench::ordinary("record_permission", &[]) else { return };
    let mut command = bench.user.as_ref().unwrap().command(&["run", "-q", "--record", "/etc/run.memfit", "--"]);
    command.args(["touch", "ran"]);
    let ran = bench.checked(command, "--record /etc/run.memfit");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("--record /etc/run.memfit: cannot be written: Permission denied"), "{}", ran.err);
    assert!(!bench.directory.join("ran").exists() && !Path::new("/etc/run.memfit").exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let Some(bench) = bench("record_full", "mix") else { return };
    let line = "./mix 36 0; exit 5";
    let (ran, stats) = bench.managed_with(&["--record", "/dev/full"], line, 20 * MIB);
    assert_eq!((ran.code, &*ran.out), (Some(5), &b"right\n"[..]), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "one warning: {}", ran.err);
    assert!(ran.err.contains("nothing is recorded, and the run goes on: No space left"), "{}", ran.err);
    assert!(stats.number("/evictions/pages") > 3000);
    // In the middle of the run.
    let mount = "mount -t tmpfs -o size=40k none small";
    fs::create_dir(bench.directory.join("small")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    let rest =
        format!("{} run -q -m 20M --record small/run -- sh -c '{line}'; echo $?; cp small/run run", memfit().display());
    command.arg(format!("{mount} && {rest}"));
    let ran = bench.checked(command, &rest);
    if ran.code != Some(0) {
        return skip(&bench.name, &format!("no file system can be mounted here: {}", ran.err));
    }
    assert_eq!(text(&ran.out), "right\n5\n", "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "one warning: {}", ran.err);
    assert!(ran.err.contains("the recording ends here, and the run goes on: No space left"), "{}", ran.err);
    good(&bench.directory, "run", false);
}

/// The outer run records both; the inner one says that it does not, also when it is quiet.
#[test]
fn a_run_inside_of_another_records_nothing() {
    let Some(bench) = bench("record_nested", "mix") else { return };
    let inner = format!("{} run -q --record inner.memfit -- ./mix 36 0; exit $?", memfit().display());
    let (ran, _, told) = recorded(&bench, &[], &inner, 20 * MIB);
    assert_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("--record inner.memfit: nothing is recorded: this run joins another one"), "{}", ran.err);
    assert!(!bench.directory.join("inner.memfit").exists());
    assert!(told["by_call"]["evicted"].as_u64().unwrap() > 100, "{told:#}");
}

/// A directory of its own for tests that run nothing.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("record-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, contents: &[u8]) {
        fs::write(self.0.join(name), contents).unwrap();
    }

    /// All of `info`, `verify` and `export` fail with this text, and no table is left.
    #[track_caller]
    fn all_refuse(&self, file: &str, parts: &[&str]) {
        for words in [&["info"][..], &["verify"], &["export", "-o", "table.parquet"], &["export", "-o", "table.csv"]] {
            self.refuses(&[words, &[file]].concat(), 1, &[parts, &[file]].concat());
        }
        let left = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.filter(|name| name.contains("table")).collect::<Vec<_>>(), [""; 0]);
    }

    #[track_caller]
    fn refuses(&self, words: &[&str], code: i32, parts: &[&str]) {
        let ran = trace(&self.0, words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
        assert!(ran.err.starts_with("memfit: ") && !ran.err.contains("panicked"), "{words:?}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{words:?}: {part:?} is not in: {}", ran.err);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn head() -> Head {
    let tunables = Tunables {
        scheme: Arc::new(Scheme::preset("memfit", &[]).unwrap().unwrap()),
        staging_slots: 48,
        pool_frames: 100,
        area_frames: 264,
        swap: false,
        blocks: Vec::new(),
    };
    Head::of(&tunables, 1 << 30, vec!["sort".into(), "a b".into()], 1_700_000_000)
}

/// Three blocks of harmless calls, and `last` as the fourth; before the end nothing was decided but `decided`.
fn recording(head: &Head, last: &Asked<'_>, decided: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), head).unwrap();
    for block in 0..4u64 {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        for i in 0..100 {
            let look = Asked::Look { tick: i };
            encoder.call(&mut bytes, if (block, i) == (3, 99) { last } else { &look });
        }
        writer.block(Begins { first: block * 100 + 1, decided: 0, at_ns: block << 30 }, 100, &bytes).unwrap();
    }
    writer.end(Begins { first: 401, decided, at_ns: 4 << 30 }).unwrap()
}

const HARMLESS: Asked<'static> = Asked::Look { tick: 100 };

/// Offsets of all parts but the head.
fn parts(bytes: &[u8]) -> Vec<u64> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut offsets = Vec::new();
    loop {
        let offset = reader.offset();
        match reader.block().unwrap() {
            Some(Block::Calls { .. } | Block::End(_)) => offsets.push(offset),
            None => return offsets,
        }
    }
}

#[test]
fn what_is_no_recording_is_named() {
    let directory = Directory::new("none");
    let whole = recording(&head(), &HARMLESS, 0);
    directory.file("whole", &whole);
    let told = good(&directory.0, "whole", true);
    as_tables(&directory.0, "whole", &told);
    assert_eq!((&told["calls"], &told["blocks"]), (&Value::from(400), &Value::from(4)));
    for table in ["table.csv", "table.parquet"] {
        fs::remove_file(directory.0.join(table)).unwrap();
    }
    directory.all_refuse("none", &["cannot read none: No such file"]);
    fs::create_dir(directory.0.join("directory")).unwrap();
    directory.all_refuse("directory", &["it is a directory"]);
    directory.file("empty", b"");
    directory.all_refuse("empty", &["the file is empty"]);
    directory.file("text", b"What is this, if it is no recording?");
    directory.all_refuse("text", &["this is no recorded run"]);
    directory.file("head", &whole[..100]);
    directory.all_refuse("head", &["the file is cut, at byte 0"]);
    directory.file("format", &[&whole[..8], &[2], &whole[9..]].concat());
    directory.all_refuse("format", &["version 2 of the format, and this memfit reads 1"]);
    directory.file("more", &[&whole[..], b"x"].concat());
    directory.all_refuse("more", &["more behind the end of the run", &format!("at byte {}", whole.len())]);
    // Several: each is told of.
    let ran = trace(&directory.0, &["info", "none", "whole", "empty"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 2), "{}", ran.err);
    assert!(text(&ran.out).starts_with("whole: whole\n"), "{}", text(&ran.out));
    let ran = trace(&directory.0, &["info", "--json", "none", "whole"]);
    let values: Value = serde_json::from_slice(&ran.out).unwrap();
    assert!(values[0]["error"].as_str().unwrap().contains("No such file") && values[1]["whole"] == true, "{values:#}");
    let ran = trace(&directory.0, &["verify", "whole", "none", "whole"]);
    assert_eq!((ran.code, text(&ran.out).lines().count()), (Some(1), 2));
}

#[test]
fn damage_is_told_with_its_place() {
    let directory = Directory::new("damage");
    let whole = recording(&head(), &HARMLESS, 0);
    let offsets = parts(&whole);
    for (part, &offset) in offsets.iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[offset as usize + 41] ^= 0x10;
        directory.file("damaged", &bytes);
        directory.all_refuse("damaged", &["the file is damaged", &format!("at byte {offset}")]);
        let told = trace(&directory.0, &["info", "--json", "damaged"]);
        let value: Value = serde_json::from_slice(&told.out).unwrap();
        assert_eq!((&value[0]["damaged_at"], &value[0]["calls"]), (&offset.into(), &(part * 100).into()));
        // Without the rest it is cut, which happens to any run.
        directory.file("cut", &whole[..offset as usize + 20]);
        let told = good(&directory.0, "cut", false);
        assert_eq!((&told["cut_at"], &told["calls"]), (&offset.into(), &(part * 100).into()));
        as_tables(&directory.0, "cut", &told);
        for table in ["table.csv", "table.parquet"] {
            fs::remove_file(directory.0.join(table)).unwrap();
        }
    }
    let mut bytes = whole;
    bytes[500] ^= 1;
    directory.file("head", &bytes);
    directory.all_refuse("head", &["the file is damaged, at byte 0"]);
}

#[test]
fn a_replay_that_cannot_be_the_same_is_explained() {
    let directory = Directory::new("other");
    directory.file("other", &recording(&Head { memfit: "0.0.9".into(), ..head() }, &HARMLESS, 0));
    directory.refuses(&["verify", "other"], 1, &["other: ", "recorded by memfit 0.0.9, and this is memfit 0."]);
    assert_eq!(info(&directory.0, "other")["memfit"], "0.0.9");
    assert_eq!(trace(&directory.0, &["export", "other", "-o", "table.csv"]).code, Some(0));
    let large = Head { page_bytes: 16384, ..head() };
    directory.file("large", &recording(&large, &HARMLESS, 0));
    assert_eq!(info(&directory.0, "large")["page_bytes"], 16384);
    for words in [&["verify", "large"][..], &["export", "large", "-o", "table.parquet"]] {
        directory.refuses(words, 1, &["large: it has pages of 16384 bytes, and this version knows 4096"]);
    }
    directory.file("scheme", &recording(&Head { scheme: "name = 3".into(), ..head() }, &HARMLESS, 0));
    directory.refuses(&["verify", "scheme"], 1, &["scheme: its scheme cannot be used: line 1"]);
    assert_eq!(info(&directory.0, "scheme")["whole"], true);
    directory.file("otherwise", &recording(&head(), &HARMLESS, 77));
    directory.refuses(&["verify", "otherwise"], 1, &["otherwise: ", "decides otherwise", "between calls 300 and 401"]);
    directory.file("impossible", &recording(&head(), &Asked::RemoveProcess { proc: ProcId(9) }, 0));
    directory.refuses(
        &["verify", "impossible"],
        1,
        &["impossible: the replay comes to a call that is impossible in it"],
    );
}

#[test]
fn tables_that_cannot_be_written_leave_nothing() {
    let directory = Directory::new("tables");
    directory.file(FILE, &recording(&head(), &HARMLESS, 0));
    directory.refuses(&["export", FILE], 2, &["--output"]);
    directory.refuses(&["export", FILE, "-o", "table"], 2, &["-o table: name it .parquet or .csv"]);
    directory.refuses(&["export", FILE, "-o", FILE, "--format", "csv"], 2, &["this is the recording"]);
    directory.refuses(&["export", FILE, "-o", "none/table.csv"], 1, &["-o none/table.csv: cannot be written: No such"]);
    directory.refuses(&["export", FILE, "-o", "/proc/table.csv"], 1, &["-o /proc/table.csv: cannot be written"]);
    for format in ["csv", "parquet"] {
        let words = ["export", FILE, "-o", "/dev/full", "--format", format];
        directory.refuses(&words, 1, &["cannot write /dev/full: No space left on device"]);
    }
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 3, "the recording and two outputs of the last command");
    // What was there stays until the new table is whole.
    directory.file("table.csv", b"old");
    directory.refuses(&["export", "none", "-o", "table.csv"], 1, &["cannot read none"]);
    assert_eq!(fs::read(directory.0.join("table.csv")).unwrap(), b"old");
    let ran = trace(&directory.0, &["export", FILE, "-o", "/dev/stdout", "--format", "csv"]);
    assert_eq!((ran.code, text(&ran.out).lines().count()), (Some(0), 401), "{}", ran.err);
}
