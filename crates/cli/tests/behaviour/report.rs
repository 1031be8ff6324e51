//! `memfit run --report`: pages of real runs, their numbers, and how a browser shows them.

use crate::support::contents::assert_contents_eq;
use crate::support::stats::Stats;
use crate::support::tree::{eventually, Tree};
use crate::support::{find, memfit_command, skip, Bench, PYTHON};
use memfit_os::process::send_signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A dictionary that is filled and then read at random. Under memfit it is filled slowly until the
/// process is paged, which has a thread more then. So the process is paged before all of its memory
/// is in RAM, also on a busy machine.
const DICTIONARY: &str = "import os, random, time
random.seed(5)
d = {}
for n in range(150_000):
    d[n] = [n, str(n) * 9, random.random()]
    if n % 1000 == 0 and 'MEMFIT_SOCKET' in os.environ and len(os.listdir('/proc/self/task')) == 1:
        time.sleep(0.02)
print(sum(d[random.randrange(150_000)][0] for _ in range(120_000)))
";
const BROWSERS: [&str; 4] = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
/// Goes first into a page; the end of the document then tells what went wrong and what was drawn.
const PROBE: &str = r#"<script>
const problems = [];
addEventListener("error", event => problems.push(`uncaught: ${event.message || event.target.outerHTML}`), true);
document.addEventListener("securitypolicyviolation", event => problems.push(`wanted: ${event.blockedURI}`));
for (const level of ["error", "warn"]) console[level] = (...words) => problems.push(`${level}: ${words.join(" ")}`);
addEventListener("load", async () => {
  const drawn = [];
  for (const figure of document.querySelectorAll("figure")) {
    figure.querySelector(".plot").scrollIntoView();
    await new Promise(done => setTimeout(done, 100));
    const canvas = figure.querySelector("canvas");
    const pixels = canvas ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];
    if (new Set(new Uint32Array(pixels.buffer ?? 0)).size > 3) drawn.push(figure.querySelector("h3").textContent);
  }
  const seen = document.body.appendChild(document.createElement("script"));
  seen.type = "application/json";
  seen.id = "seen";
  seen.textContent = JSON.stringify({ problems, drawn }).replaceAll("<", "\\u003c");
});
</script>"#;

/// The contents of a page: its text, and what its script draws.
struct Page {
    html: String,
    figures: Vec<Value>,
}

impl Page {
    #[track_caller]
    fn read(path: &Path) -> Page {
        let html = fs::read_to_string(path).unwrap_or_else(|error| panic!("no page: {}: {error}", path.display()));
        assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"), "it is whole");
        let (_, rest) = html.split_once("id=\"figures\">").expect("what is drawn");
        let figures = serde_json::from_str(rest.split_once("</script>").unwrap().0).expect("it is JSON");
        Page { html, figures }
    }

    fn titles(&self) -> Vec<&str> {
        self.figures.iter().map(|figure| figure["title"].as_str().unwrap()).collect()
    }

    #[track_caller]
    fn figure(&self, title: &str) -> &Value {
        let found = self.figures.iter().find(|figure| figure["title"] == title);
        found.unwrap_or_else(|| panic!("no {title}: {:?}", self.titles()))
    }

    /// Positions along x, and the sum of all series at each.
    fn sums(&self, title: &str) -> Vec<(f64, f64)> {
        let data = self.figure(title)["data"].as_array().unwrap();
        let column = |n: usize| data[n].as_array().unwrap();
        let sum = |row: usize| (1..data.len()).map(|n| column(n)[row].as_f64().unwrap_or(0.0)).sum::<f64>();
        column(0).iter().enumerate().map(|(row, place)| (place.as_f64().unwrap(), sum(row))).collect()
    }

    /// Cells of the rows of a table, as text.
    fn rows(&self, table: &str) -> Vec<Vec<&str>> {
        let (_, rest) =
            self.html.split_once(&format!("<caption><strong>{table}</strong>")).unwrap_or_else(|| panic!("no {table}"));
        let body = rest.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
        body.lines()
            .filter(|line| line.starts_with("<tr>"))
            .map(|line| line.split("</t").filter_map(|cell| cell.rsplit_once('>').map(|(_, text)| text)).collect())
            .collect()
    }

    /// A column of counts.
    fn column(&self, table: &str, column: usize) -> Vec<u64> {
        let number = |text: &str| text.replace('\u{202f}', "").parse().unwrap_or_else(|_| panic!("{table}: {text}"));
        self.rows(table).iter().map(|row| number(row[column])).collect()
    }

    fn fact(&self, name: &str) -> &str {
        let rest = self.html.split_once(&format!("<dt>{name}</dt><dd>")).unwrap_or_else(|| panic!("no {name}")).1;
        rest.split_once("</dd>").unwrap().0
    }
}

/// A dictionary in 60 % of the memory that it takes.
fn dictionary(bench: &Bench) -> (Page, Stats) {
    bench.file("dictionary.py", DICTIONARY);
    let line = format!("{PYTHON} dictionary.py");
    let plain = bench.plain(&line);
    let (ran, stats) = bench.managed_with(&["--report", "page.html"], &line, plain.peak * 6 / 10);
    assert_contents_eq!((ran.code, &ran.out), (Some(0), &plain.out), "{}", ran.err);
    assert_eq!(ran.err, "");
    (Page::read(&bench.directory.join("page.html")), stats)
}

#[test]
fn report_of_a_paged_program() {
    let Some(bench) = Bench::new("report_paged", &[PYTHON]) else { return };
    let (page, stats) = dictionary(&bench);
    for title in ["Memory by state", "What the programs have, wherever it is", "Faults by source over time"] {
        page.figure(title);
    }
    page.figure("How long faults took");
    page.figure("Ratio by codec");
    // The same values as in the statistics.
    let memory = page.figure("Memory by state");
    assert_eq!(memory["y"]["suffix"], "MiB");
    let peak = page.sums("Memory by state").iter().map(|row| row.1).fold(0.0, f64::max) * f64::from(1 << 20);
    let expected = stats.number("/peak/total_bytes") as f64;
    assert!((peak / expected - 1.0).abs() < 0.005, "{peak} and {expected}");
    assert!(
        memory["levels"][0]["at"].as_f64().unwrap() * f64::from(1 << 20) / stats.number("/budget_bytes") as f64 > 0.99
    );
    // Each stretch has its rate at its middle: the area of all is the number of faults.
    let rates = page.sums("Faults by source over time");
    let mut end = 0.0;
    let faults: f64 = rates
        .iter()
        .map(|&(middle, rate)| {
            let half = middle - end;
            end += half * 2.0;
            rate * half * 2.0
        })
        .sum();
    let sources = ["zero", "staged", "filled", "pool", "swap", "file"];
    let total: u64 = sources.iter().map(|source| stats.number(&format!("/faults/{source}"))).sum();
    assert!(total > 0 && (faults / total as f64 - 1.0).abs() < 0.05, "{faults} and {total}");
    // The sum over regions must be that of the codecs; one is the heap of the interpreter.
    let count = |table: &str, column| page.column(table, column).iter().sum::<u64>();
    let (here, all) = (count("Regions of memory", 3), count("Codecs", 1));
    assert!(
        all > 0 && here.abs_diff(all) <= 64,
        "{here} and {all}: what is under way at the end may be in one of them"
    );
    let names: Vec<&str> = page.rows("Regions of memory").iter().map(|row| row[0]).collect();
    assert!(names.iter().any(|name| name.starts_with("heap")) && names.len() <= 40, "{names:?}");
    page.figure("Ratio by region");
    assert_eq!(page.fact("Exit"), "status 0");
    assert!(page.fact("Command").contains("dictionary.py"));
    assert!(page.html.len() < 2 << 20, "{}", page.html.len());
    // Schema 1 has not changed.
    assert!(stats.json.get("samples").is_none() && stats.json.get("course").is_none());
}

#[test]
fn report_of_a_run_without_paging() {
    let Some(bench) = Bench::new("report_quiet", &[]) else { return };
    let (ran, stats) = bench.managed_with(&["--report", "page.html"], "sleep 0.2; exit 7", 256 << 20);
    assert_eq!((ran.code, ran.err.as_str()), (Some(7), ""));
    assert_eq!(stats.number("/evictions/pages"), 0);
    let page = Page::read(&bench.directory.join("page.html"));
    assert_eq!(page.titles(), ["Memory by state"]);
    assert!(page.html.contains("nothing was paged"));
    assert_eq!(page.fact("Exit"), "status 7");
}

#[test]
fn report_of_several_processes() {
    let Some(bench) = Bench::new("report_tree", &[PYTHON]) else { return };
    bench.file("hold.py", "import sys, time\nb = b'x' * (int(sys.argv[1]) << 20)\ntime.sleep(2)\n");
    let line = format!("{PYTHON} hold.py 12 & {PYTHON} hold.py 20; wait");
    let (ran, stats) = bench.managed_with(&["--report", "page.html"], &line, 256 << 20);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let page = Page::read(&bench.directory.join("page.html"));
    let names: Vec<&str> = page.figure("Resident memory by process")["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["name"].as_str().unwrap())
        .collect();
    assert!(names.len() >= 2 && names[..2].iter().all(|name| name.starts_with("python3 ")), "{names:?}");
    for row in stats.json["processes"].as_array().unwrap() {
        assert!(page.html.contains(&format!("{} {}", row["comm"].as_str().unwrap(), row["pid"])), "{row}");
    }
}

#[test]
fn report_of_a_run_that_is_killed() {
    let Some(bench) = Bench::new("report_killed", &["sleep"]) else { return };
    let page = bench.directory.join("page.html");
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "64M", "--report", "page.html", "--", "sleep", "1000"]);
        let mut tree = Tree::start(command, &bench.directory, true);
        eventually("the command runs", || tree.members().command.is_some());
        assert!(!page.exists(), "it comes at the end");
        // The launcher forwards the first signal; the second one goes to the command alone.
        let command = tree.members().command.unwrap().pid;
        let whom = if signal == libc::SIGTERM { tree.root() } else { command };
        send_signal(whom, signal, None).unwrap();
        assert_eq!(tree.wait(), 128 + signal);
        let exit = Page::read(&page).fact("Exit").to_owned();
        assert!(exit.starts_with(&format!("killed by signal {signal} (SIG")), "{exit}");
        fs::remove_file(&page).unwrap();
    }
}

#[test]
fn report_file_is_checked_before_the_start() {
    let Some(bench) = Bench::new("report_path", &["touch"]) else { return };
    let run = |path: &str, words: &[&str]| {
        let mut command = memfit_command();
        command.args(["run", "-q", "--report", path, "--"]).args(words);
        bench.checked(command, path)
    };
    for path in ["/nonexistent/page.html", "/proc/page.html", "/"] {
        let ran = run(path, &["touch", "ran"]);
        assert_eq!(ran.code, Some(1), "{path}: {}", ran.err);
        assert!(ran.err.starts_with(&format!("memfit: --report {path}: cannot be written: ")), "{}", ran.err);
    }
    assert!(!bench.directory.join("ran").exists());
    // If the page cannot be written at the end, memfit says so and keeps the command's status.
    let ran = run("/dev/full", &["sh", "-c", "exit 3"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.err.starts_with("memfit: cannot write /dev/full: No space left"), "{}", ran.err);
    // Without a command there is no page, and no temporary file is left.
    assert_eq!(run("page.html", &["memfit-no-such-command"]).code, Some(127));
    let left = fs::read_dir(&bench.directory).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "stdout" && name != "stderr").count(), 0);
}

/// Kills a browser that hangs.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The document after its scripts have run.
fn browse(browser: &Path, directory: &Path, page: &Path) -> String {
    let out = directory.join("dom.html");
    let mut command = Command::new(browser);
    // The page is ours, and the browser has no sandbox for root.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args(["--disable-background-networking", "--dump-dom", "--virtual-time-budget=60000"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.arg(format!("file://{}", page.display())).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(fs::File::create(&out).unwrap());
    let mut child = Ended(command.spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(120);
    while child.0.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(child);
    String::from_utf8_lossy(&fs::read(out).unwrap()).into_owned()
}

#[test]
fn report_in_a_browser_of_a_run() {
    const TEST: &str = "report_in_a_browser_of_a_run";
    let Some(browser) = BROWSERS.iter().find_map(|name| find(name)) else {
        return skip(TEST, "there is no chromium; tests/setup installs it");
    };
    let Some(bench) = Bench::new("report_browser", &[PYTHON]) else { return };
    let ready = bench.file("ready.html", "<p>ready");
    if !browse(&browser, &bench.directory, &ready).contains("ready") {
        return skip(TEST, &format!("{} shows nothing", browser.display()));
    }
    let (page, _) = dictionary(&bench);
    check(&browser, &bench.directory, &page);
}

/// Asserts that all of a page is drawn without an error.
#[track_caller]
fn check(browser: &Path, directory: &Path, page: &Page) {
    let probed = directory.join("probed.html");
    fs::write(&probed, page.html.replacen("<head>", &format!("<head>{PROBE}"), 1)).unwrap();
    let dom = browse(browser, directory, &probed);
    let seen = dom.split_once("id=\"seen\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let seen: Value = serde_json::from_str(seen.expect("the probe came to its end").0).unwrap();
    assert_eq!(seen["problems"], Value::Array(Vec::new()));
    assert_eq!(seen["drawn"], Value::from(page.titles()));
}

/// Pages of existing results, made by the real program: those of the papers, and an invented
/// comparison.
#[test]
fn reports_of_the_benches() {
    let Some(python) = find(PYTHON) else { return skip("reports_of_the_benches", "there is no Python") };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("benches-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let made =
        "import json, sys; sys.path.insert(0, 'lab/bench'); import test_bench; json.dump(test_bench.result(), sys.stdout)";
    let made = Command::new(&python).args(["-B", "-c", made]).current_dir(&root).output().unwrap();
    let result = directory.join("result.json");
    fs::write(&result, made.stdout).unwrap();
    let browser = BROWSERS.iter().find_map(|name| find(name));
    for (bench, from, title) in [
        ("lab/bench/papers.py", root.join("docs/papers/result.json"), "relative to swap: bytes written"),
        ("lab/bench/run.py", result, "Wall time and its spread"),
    ] {
        let html = directory.join("page.html");
        let mut command = Command::new(&python);
        command.args(["-B", bench, "--memfit", env!("CARGO_BIN_EXE_memfit"), "--from"]).arg(from).arg("--report");
        let ran = command.arg(&html).current_dir(&root).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{bench}: {}", String::from_utf8_lossy(&ran.stderr));
        let page = Page::read(&html);
        assert!(page.titles().iter().any(|found| found.contains(title)), "{bench}: {:?}", page.titles());
        assert!(page.html.len() < 1 << 20, "{}", page.html.len());
        match &browser {
            Some(browser) => check(browser, &directory, &page),
            None => skip("reports_of_the_benches in a browser", "there is no chromium; tests/setup installs it"),
        }
    }
    fs::remove_dir_all(directory).unwrap();
}
