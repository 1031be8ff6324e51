//! `memfit sim` as a user meets it. Nothing here needs a kernel feature: no program is paged.

use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::Spec;
use memfit_sim::{Contents, Machine, Recorder, Residents, Setup};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("memfit-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sim(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.arg("sim").args(words).stdin(Stdio::null());
    command.output().expect("memfit starts")
}

fn rows(words: &[&str]) -> Vec<Value> {
    let output = sim(&[words, &["--json", "-"]].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    json["rows"].as_array().unwrap().clone()
}

/// Records a small workload under a scheme.
fn record(path: &str, workload: &str, scheme: &str, budget: u64) {
    let setup = Setup {
        scheme: Arc::new(memfit_scheme::preset(scheme, &[]).unwrap().unwrap()),
        budget,
        swap_bytes: 1 << 30,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::new(CostTable::find("measured").unwrap()),
        device: Arc::new(Device::find("ssd-nvme").unwrap()),
    };
    let mut machine = Machine::new(&setup, Contents::new());
    let file = fs::File::create(path).unwrap();
    let recorder = Recorder::start(&mut machine, file, vec![workload.into()]).unwrap();
    for event in Spec::parse(workload).unwrap().make() {
        machine.event(event);
        recorder.now(machine.times().program);
    }
    recorder.finish(&mut machine).unwrap();
}

const SMALL: &str = "zipf:pages=16M,accesses=60000,seed=3";

#[test]
fn schemes_numbers_and_sizes_in_all_combinations() {
    let words = [SMALL, "uniform:pages=12M,accesses=20000", "-s", "memfit,zswap-zbud", "-m", "8M,50%"];
    let words = [&words[..], &["--set", "codec=lz4,zstd"]].concat();
    let all = rows(&words);
    assert_eq!(all.len(), 2 * 2 * 2 * 2);
    let of = |key: &str| all.iter().map(|row| row[key].to_string()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(of("scheme").len(), 2);
    assert_eq!(of("set"), ["\"codec=lz4\"", "\"codec=zstd\""].map(String::from).into());
    assert!(of("budget_bytes").contains(&(8u64 << 20).to_string()));
    for row in &all {
        let number = |key: &str| row[key].as_u64().unwrap();
        assert!(number("faults") > 1000 && number("compressions") > 1000, "{row:#}");
        assert_eq!(
            number("faults"),
            ["pool", "swap", "filled", "file"].map(|s| number(&format!("faults_{s}"))).iter().sum::<u64>()
        );
        // One page fault fills up to 64 pages.
        assert!(number("peak_bytes") <= number("budget_bytes") + (64 << 12), "{row:#}");
        assert!(row["slowdown"].as_f64().unwrap() > 1.0);
        assert!(row["compressed_ratio"].as_f64().unwrap() < 0.7);
    }
    assert_eq!(all, rows(&words), "the same again, on however many threads");
    assert_eq!(all, rows(&[&words[..], &["-j", "1"]].concat()));
}

#[test]
fn an_old_name_of_a_choice_is_taken_with_a_note() {
    let directory = Directory::new("old_names");
    let recording = directory.file("run.memfit");
    record(&recording, SMALL, "memfit", 8 << 20);
    // A named scheme, and that of a recording.
    for workload in [SMALL, &recording] {
        let output = sim(&[workload, "-m", "8M", "--set", "reclaim=second-chance"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("`second-chance` is called `fifo` now"), "{said}");
    }
    let faults = |set: &str| rows(&[SMALL, "-m", "8M", "--set", set])[0]["faults"].clone();
    assert_eq!(faults("reclaim=second-chance"), faults("reclaim=fifo"));
}

#[test]
fn less_memory_costs_more_and_the_smallest_good_budget_is_found() {
    let output = sim(&["ns2:scale=32", "-s", "memfit", "--curve"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("keep it at most 10 % slower, "), "{text}");
    let budgets = ["-m", "30%,60%,90%,120%"];
    let slowdowns: Vec<f64> = rows(&[&["ns2:scale=32", "-s", "zswap-zbud"][..], &budgets].concat())
        .iter()
        .map(|row| row["slowdown"].as_f64().unwrap())
        .collect();
    assert!(slowdowns.windows(2).all(|pair| pair[0] >= pair[1]), "{slowdowns:?}");
    let never = sim(&[SMALL, "-s", "swap", "--curve", "-m", "5M,6M", "--slowdown", "1"]);
    assert!(String::from_utf8_lossy(&never.stdout).contains("in none of these budgets"), "{never:?}");
    // The budgets of a small program begin at the least.
    let small = rows(&["uniform:pages=800,accesses=2000", "--curve"]);
    let budgets: Vec<u64> = small.iter().map(|row| row["budget_bytes"].as_u64().unwrap()).collect();
    assert!(budgets[0] == 1 << 20 && budgets.is_sorted_by(|a, b| a < b), "{budgets:?}");
}

#[test]
fn a_recording_is_simulated_as_it_was_and_under_other_schemes() {
    let directory = Directory::new("recording");
    let path = directory.file("run.memfit");
    record(&path, SMALL, "memfit", 8 << 20);
    let own = rows(&[&path]);
    assert_eq!(own.len(), 1);
    assert_eq!((&own[0]["scheme"], &own[0]["budget_bytes"]), (&"memfit".into(), &(8u64 << 20).into()));
    let others = rows(&[&path, "-s", "swap,zswap-zbud,ezswap,memfit"]);
    let evicted: Vec<_> = others.iter().map(|row| row["evicted_pages"].clone()).collect();
    assert!(evicted.iter().all(|pages| *pages == own[0]["evicted_pages"]), "the residents are those of the run");
    assert_eq!(others[0]["faults_pool"], 0);
    assert!(others[1]["faults_swap"].as_u64() > own[0]["faults_swap"].as_u64());
    // With simulated residents, less memory costs more.
    let budgets = rows(&[&path, "--residents", "simulated", "-m", "6M,8M,12M"]);
    let faults: Vec<u64> = budgets.iter().map(|row| row["faults"].as_u64().unwrap()).collect();
    assert!(faults[0] >= faults[1] && faults[1] >= faults[2], "{faults:?}");
}

#[test]
fn yardsticks_stand_beside_schemes() {
    let words = ["zipf:pages=2000,accesses=20000", "-s", "lru,optimal,swap", "-m", "2M,4M,100M"];
    let rows = rows(&words);
    let faults = |row: &Value| row["faults"].as_u64().unwrap();
    for size in 0..3 {
        let (lru, best, swap) = (&rows[size], &rows[3 + size], &rows[6 + size]);
        assert_eq!([lru, best, swap].map(|row| row["scheme"].as_str().unwrap()), ["lru", "optimal", "swap"]);
        assert_eq!((&lru["touches"], &lru["faults_zero"]), (&best["touches"], &best["faults_zero"]));
        assert!(best["program_ns"].is_null() && swap["program_ns"].is_u64());
        match size {
            2 => assert_eq!((faults(lru), faults(best)), (0, 0)),
            _ => assert!(faults(best) * 10 < faults(lru) * 8 && faults(best) > 0, "{lru} {best}"),
        }
    }
    // Alone they may have as little memory as a page.
    assert!(faults(&self::rows(&["scan:pages=100,passes=3", "-s", "optimal", "-m", "4K"])[0]) > 190);
}

fn fails(words: &[&str], code: i32, parts: &[&str]) {
    let output = sim(words);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    assert!(output.stdout.is_empty(), "{words:?}");
    assert!(text.starts_with("memfit: ") && parts.iter().all(|part| text.contains(part)), "{words:?}: {text}");
}

#[test]
fn what_cannot_be_right_is_said_with_a_reason() {
    fails(&["nonsense"], 2, &["nonsense: No such file", "memfit run --record", "zipf"]);
    fails(&["zipf:size=3"], 2, &["zipf has no parameter 'size'", "pages"]);
    fails(&["zipf:pages=0"], 2, &["pages"]);
    fails(&[SMALL, "-s", "zramm"], 2, &["there is no scheme zramm"]);
    fails(&[SMALL, "--set", "codec=none"], 2, &["codec"]);
    fails(&[SMALL, "-m", "100K"], 2, &["too small"]);
    fails(&[SMALL, "-m", "huge"], 2, &["does not start with a number"]);
    fails(&[SMALL, "--device", "floppy"], 2, &["--device", "floppy", "ssd-nvme"]);
    fails(&[SMALL, "--costs", "free"], 2, &["--costs", "measured"]);
    fails(&[SMALL, "--swap-size", "10%"], 2, &["--swap-size"]);
    for size in ["1", "3M"] {
        fails(&[SMALL, "--swap-size", size], 2, &["--swap-size", "too small", "4M or more, or 0"]);
    }
    assert!(sim(&[SMALL, "-m", "8M", "--swap-size", "0"]).status.success(), "no swap tier");
    for schemes in ["", "lru,,memfit"] {
        fails(&[SMALL, "-s", schemes], 2, &["--scheme"]);
    }
    fails(&[SMALL, "--residents", "recorded"], 2, &["was not recorded"]);
    fails(&[SMALL, "-j", "0"], 2, &["1 to 1024"]);
    fails(&[SMALL, "--json", "-", "--csv", "-"], 2, &["--json - and --csv -: only one of them", "standard output"]);
    fails(&["zipf:skew=-1"], 2, &["skew=-1: it goes from 0 to "]);
    fails(&["zipf:skew=x"], 2, &["skew=x: not a number; it goes from 0 to "]);
    fails(&[SMALL, "--slowdown", "x"], 2, &["percentage"]);
    for option in ["--json", "--csv", "--parquet", "--report"] {
        fails(&[SMALL, option, "/nonexistent/out"], 1, &[option, "cannot be written"]);
    }
}

/// It has no date, and no run that could be recorded otherwise.
#[test]
fn a_generated_recording_is_no_run() {
    let directory = Directory::new("generated");
    let file = directory.file("g.memfit");
    let memfit = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_memfit")).args(words).output().unwrap();
    assert!(memfit(&["trace", "generate", SMALL, "-m", "8M", "-o", &file]).status.success());
    let said = String::from_utf8(memfit(&["trace", "info", &file]).stdout).unwrap();
    assert!(said.contains("  generated  by memfit ") && !said.contains("1970"), "{said}");
    let said = String::from_utf8(sim(&[&file, "-m", "50%"]).stderr).unwrap();
    assert!(said.contains("it is generated: simulate the workload itself, zipf:pages=4096,"), "{said}");
    assert!(!said.contains("--record-access"), "{said}");
}

#[test]
fn bad_recordings_are_named_with_the_byte() {
    let directory = Directory::new("bad");
    let whole = directory.file("whole");
    record(&whole, SMALL, "zswap-zbud", 8 << 20);
    let bytes = fs::read(&whole).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = directory.file(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    fails(&[&put("empty", b"")], 1, &["empty: the file is empty"]);
    fails(&[&put("text", b"hello, this is no recording")], 1, &["text: this is no recorded run"]);
    let mut other = bytes.clone();
    other[8] = 9;
    fails(&[&put("version", &other)], 1, &["version 9 of the format"]);
    fails(&[directory.0.to_str().unwrap()], 1, &["directory"]);
    fails(&[&put("head", &bytes[..100])], 1, &["head: the file is cut within its head"]);
    fails(&[&put("flipped", &flipped(&bytes))], 1, &["flipped: the file is damaged, at byte "]);
    let longer = [&bytes[..], b"more"].concat();
    fails(&[&put("longer", &longer)], 1, &["longer: there is more behind the end of the run"]);
    // The part before a cut is used, with a message.
    let output = sim(&[&put("cut", &bytes[..bytes.len() - 9])]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("the file is cut, at byte "), "{text}");
    assert!(text.contains("was used") && String::from_utf8_lossy(&output.stdout).contains("zswap-zbud"), "{text}");
}

/// Each pass over a pipe would begin where the one before it ended.
#[test]
fn a_recording_in_a_pipe_is_refused() {
    let directory = Directory::new("pipe");
    let path = directory.file("run.memfit");
    record(&path, SMALL, "memfit", 8 << 20);
    for command in ["sim", "advise"] {
        let run = |stdin: Stdio| {
            let mut memfit = Command::new(env!("CARGO_BIN_EXE_memfit"));
            memfit.args([command, "/dev/stdin"]).stdin(stdin).output().unwrap()
        };
        let output = run(Stdio::piped());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.starts_with("memfit: /dev/stdin: it is no regular file") && text.contains("several times"),
            "{text}"
        );
        assert!(run(fs::File::open(&path).unwrap().into()).status.success(), "a file by another name");
    }
}

#[test]
fn schemes_that_share_a_name_are_refused() {
    let directory = Directory::new("names");
    let text = |name| memfit_scheme::PRESETS.iter().find(|preset| preset.name == name).unwrap().text;
    let file = directory.file("my.toml");
    fs::write(&file, text("memfit")).unwrap();
    fails(
        &[SMALL, "-s", &format!("memfit,{file}")],
        2,
        &["my.toml: there are two schemes of the name memfit", "change"],
    );
    fails(&[SMALL, "-s", "zram,memfit,zram"], 2, &["-s zram: there are two schemes"]);
    fs::write(&file, text("memfit").replace("name = \"memfit\"", "name = \"lru\"")).unwrap();
    fails(&[SMALL, "-s", &format!("lru,{file}")], 2, &["my.toml: there are two schemes of the name lru"]);
    assert_eq!(rows(&[SMALL, "-s", &file, "-m", "8M", "--set", "codec=lz4,zstd"]).len(), 2);
}

#[test]
fn the_answers_for_curves_are_in_the_json() {
    let words = ["ns2:scale=64", "-s", "memfit,lru", "--set", "codec=lz4,zstd", "--curve", "--json", "-"];
    let output = sim(&words);
    assert!(output.status.success(), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let smallest = json["smallest"].as_array().unwrap();
    let sets: Vec<&Value> = smallest.iter().map(|answer| &answer["set"]).collect();
    assert_eq!(sets, ["codec=lz4", "codec=zstd"], "a yardstick has no times");
    for answer in smallest {
        assert_eq!((&answer["workload"], &answer["scheme"]), (&"ns2:scale=64".into(), &"memfit".into()));
        let slowdown = |bytes: &str| {
            let same = |row: &&Value| row["set"] == answer["set"] && row["budget_bytes"] == answer[bytes];
            json["rows"].as_array().unwrap().iter().find(same).unwrap()["slowdown"].as_f64().unwrap()
        };
        assert!(slowdown("budget_bytes") <= 1.1 && slowdown("fails_bytes") > 1.1, "{answer}");
    }
    let plain = sim(&["ns2:scale=64", "-m", "8M", "--json", "-"]);
    assert!(serde_json::from_slice::<Value>(&plain.stdout).unwrap().get("smallest").is_none());
}

/// Flips one bit in the last third.
fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = bytes.len() * 2 / 3;
    bytes[at] ^= 4;
    bytes
}

#[test]
fn results_are_written_whole_as_table_csv_and_page() {
    let directory = Directory::new("files");
    let (csv, page) = (directory.file("out.csv"), directory.file("out.html"));
    let output = sim(&[SMALL, "-s", "memfit,swap", "-m", "6M,9M", "--csv", &csv, "--report", &page]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 5);
    assert!(text.starts_with("workload") && text.contains("slowdown") && !text.contains(" set "), "{text}");
    let csv = fs::read_to_string(csv).unwrap();
    let fields: Vec<usize> = csv
        .lines()
        .map(|line| line.replace("\"zipf:pages=16M,accesses=60000,seed=3\"", "x"))
        .map(|line| line.split(',').count())
        .collect();
    assert_eq!(fields.len(), 5);
    assert!(fields.iter().all(|&count| count == fields[0]), "{fields:?}");
    let page = fs::read_to_string(page).unwrap();
    for part in ["Time in terms of that without a limit", "zswap", "Written to the swap tier", "<table"] {
        assert_eq!(page.contains(part), part != "zswap", "{part}");
    }
    assert!(page.len() < 500_000);
    assert_eq!(fs::read_dir(Path::new(&directory.0)).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn parquet_has_what_csv_has() {
    let directory = Directory::new("parquet");
    let (csv, parquet) = (directory.file("out.csv"), directory.file("out.parquet"));
    // What plain LRU does not know is missing, and an unrated device has no days.
    let words = ["ns2:scale=64", "-s", "memfit,lru", "-m", "40%,80%", "--device", "hdd-2005"];
    let output = sim(&[&words[..], &["--csv", &csv, "--parquet", &parquet]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = fs::read_to_string(csv).unwrap();
    let reader = SerializedFileReader::new(fs::File::open(&parquet).unwrap()).unwrap();
    let about = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(about[0].key == "memfit" && about[0].value.as_ref().unwrap().contains("hdd-2005: "), "{about:?}");
    let cell = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(number) => number.to_string(),
        Field::Double(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let mut lines = text.lines();
    let fields = reader.metadata().file_metadata().schema().get_fields();
    assert_eq!(lines.next().unwrap(), fields.iter().map(|field| field.name()).collect::<Vec<_>>().join(","));
    for row in reader.get_row_iter(None).unwrap() {
        let cells: Vec<_> = row.unwrap().get_column_iter().map(|(_, field)| cell(field)).collect();
        assert_eq!(Some(&*cells.join(",")), lines.next());
    }
    assert_eq!(lines.next(), None);
    // A full device, or a simulation that fails: no file is left.
    fails(&[SMALL, "-m", "8M", "--parquet", "/dev/full"], 1, &["write /dev/full", "No space left"]);
    fails(&[SMALL, "-m", "100K", "--parquet", &directory.file("none")], 2, &["too small"]);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 2, "nothing else is left");
}
