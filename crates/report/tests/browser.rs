//! Checks the page in a real browser: it draws all figures, reads them aloud and switches series,
//! without errors and without network requests.

use memfit_report::{Axis, Figure, Kind, Mark, Report, Section, Series, Unit};
use serde_json::Value;
use skip::skip;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../examples/every_figure.rs"]
mod every_figure;
#[path = "../../../tests/skip.rs"]
mod skip;

const TEST: &str = "report_in_a_browser";
const BROWSERS: [&str; 4] = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
const PROBE: &str = include_str!("probe.js");
/// A frame of WIDTH pixels around the page, because browser windows cannot be as narrow as a phone.
const FRAME: &str = r#"<!DOCTYPE html><meta name="color-scheme" content="light dark">
<iframe src="page.html" width="WIDTH" height="900" style="border: 0"></iframe>
<script>
addEventListener("message", event => {
  const seen = document.body.appendChild(document.createElement("script"));
  seen.type = "application/json";
  seen.id = "seen";
  seen.textContent = event.data;
});
</script>"#;
/// A page takes two seconds; on a busy machine it can take much longer.
const LIMIT: Duration = Duration::from_secs(120);
const EVIL: &str = "</script><script>window.harmed = 1</script><img src=x onerror=\"window.harmed = 2\"> & more";

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path).collect::<Vec<PathBuf>>();
    BROWSERS.iter().flat_map(|name| all.iter().map(move |directory| directory.join(name))).find(|file| file.is_file())
}

struct Browser {
    program: PathBuf,
    /// A directory for this browser only, removed at the end.
    directory: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Browser {
    /// The DOM of a loaded page, and the log of the browser.
    fn open(&self, url: &str, dark: bool) -> Result<(String, String), String> {
        let (dom, log) = (self.directory.join("dom.html"), self.directory.join("log"));
        let profile = self.directory.join("profile");
        // A new profile: the page stores the chosen theme.
        let _ = fs::remove_dir_all(&profile);
        let file = |path: &Path| File::create(path).expect("a file");
        let mut command = Command::new(&self.program);
        // The page is trusted, and as root the browser has no sandbox.
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]);
        command.args(["--dump-dom", "--virtual-time-budget=60000", "--window-size=1400,1000"]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        if dark {
            command.arg("--force-dark-mode");
        }
        command.arg(url).stdin(Stdio::null()).stdout(file(&dom)).stderr(file(&log));
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let end = Instant::now() + LIMIT;
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} took more than {LIMIT:?}", self.program.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).expect("what was written")).into_owned();
        Ok((text(&dom), text(&log)))
    }

    /// What the probe found in a page, and the lines of its console.
    fn see(&self, page: &str, width: u32, dark: bool) -> (Value, Vec<String>) {
        let path = self.directory.join("frame.html");
        fs::write(&path, FRAME.replace("WIDTH", &width.to_string())).expect("the frame");
        let probed = page.replacen("<head>", &format!("<head><script>{PROBE}</script>"), 1);
        fs::write(self.directory.join("page.html"), probed).expect("the page");
        let (dom, log) = self.open(&format!("file://{}", path.display()), dark).expect("a page that loads");
        let found = dom.split_once("id=\"seen\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let (found, _) = found.unwrap_or_else(|| panic!("the probe did not come to its end: {log}"));
        let console = log.lines().filter(|line| line.contains("CONSOLE")).map(String::from).collect();
        (serde_json::from_str(found).expect("JSON"), console)
    }
}

fn page(report: &Report) -> String {
    let mut bytes = Vec::new();
    report.write(&mut bytes).expect("writing to memory");
    String::from_utf8(bytes).expect("text")
}

/// Figures of each kind with few values or none.
fn corners() -> Section {
    let mut figures = Vec::new();
    let series: [(&str, Vec<f64>, Vec<Series>); 5] = [
        ("no series", vec![1.0, 2.0], vec![]),
        ("no places", vec![], vec![Series::default(), Series::new("a", [])]),
        ("no values", vec![1.0, 2.0], vec![Series::with_gaps("a", [None, None]), Series::new("b", [f64::NAN])]),
        ("one point", vec![5.0], vec![Series::new("a", [3.0]), Series::new("b", [4.0])]),
        (
            "negative",
            vec![1.0, 2.0, 3.0],
            vec![Series::new("a", [-3.0, 0.0, 2.0]), Series::new("b", [1e-9, 1e12, -4.0])],
        ),
    ];
    for kind in [Kind::Lines, Kind::Curves, Kind::Points, Kind::Stacked, Kind::Steps, Kind::Bars] {
        for (title, places, series) in &series {
            for log in [false, true] {
                let axis = |label: &str, unit| if log { Axis::log(label, unit) } else { Axis::new(label, unit) };
                let (x, y) = (axis("x", Unit::Nanoseconds), axis("y", Unit::Bytes));
                let mut figure = Figure::new(kind, title, "", x, y, places.clone());
                figure.series.clone_from(series);
                figure.marks = vec![Mark::new(2.0, "here"), Mark::new(1e30, "far away")];
                figure.levels = vec![Mark::new(2.0, "so much")];
                figures.push(figure);
            }
        }
    }
    Section { title: "Corners".into(), figures, ..Section::default() }
}

/// Checks for every page.
fn check(seen: &Value, console: &[String], report: &Report) {
    assert_eq!(seen["problems"], Value::Array(Vec::new()));
    assert_eq!(seen["requests"], Value::Array(Vec::new()), "the page asked for something");
    assert_eq!(console, [""; 0]);
    assert_eq!(seen["title"], report.title);
    assert_eq!(seen["harmed"], false);
    assert!(seen["wider"].as_i64().unwrap() <= 0, "the page is wider than its window of {}", seen["width"]);
    let figures: Vec<&Figure> = report.sections.iter().flat_map(|section| &section.figures).collect();
    let found = seen["figures"].as_array().unwrap();
    assert_eq!(found.len(), figures.len());
    for (figure, seen) in figures.into_iter().zip(found) {
        let name = format!("{} ({:?}): {seen}", figure.title, figure.kind);
        assert_eq!(seen["title"], figure.title, "{name}");
        assert!(seen["width"].as_u64().unwrap() > 200 && seen["height"].as_u64().unwrap() > 200, "{name}");
        assert!(seen["inked"].as_u64().unwrap() > 0, "{name}");
        assert!(seen["role"] == "img" && seen["reachable"] == true && seen["heads"] == true, "{name}");
        assert!(seen["label"].as_str().unwrap().contains(&figure.title), "{name}");
        assert!(seen["caption"].as_str().unwrap().contains(&figure.title), "{name}");
        assert_eq!(seen["series"], figure.series.len(), "{name}");
    }
}

/// Checks for figures with values at most places.
fn check_use(seen: &Value, report: &Report) {
    let figures = report.sections.iter().flat_map(|section| &section.figures);
    for (figure, seen) in figures.zip(seen["figures"].as_array().unwrap()) {
        let name = format!("{} ({:?}): {seen}", figure.title, figure.kind);
        assert!(seen["rows"].as_u64().unwrap() > 2, "{name}");
        assert!(seen["inked"].as_u64().unwrap() > 3, "{name}");
        assert_eq!(seen["switched"], true, "{name}");
        let expected = if figure.series.len() > 1 { figure.series.len() } else { 0 };
        assert_eq!(seen["legend"], expected, "{name}");
        let tip = seen["tip"].as_str().unwrap();
        for series in &figure.series {
            assert!(tip.contains(&series.name), "{name}");
        }
        assert!(seen["spoken"].as_str().unwrap().contains(&figure.series[0].name), "{name}");
    }
}

#[test]
fn report_in_a_browser() {
    let Some(program) = find() else {
        return skip(TEST, "there is no chromium; tests/setup installs it");
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let browser = Browser { program, directory };
    match browser.open("data:text/html,<p>ready", false) {
        Ok((dom, _)) if dom.contains("ready") => {}
        Ok((_, log)) => return skip(TEST, &format!("{} shows nothing: {log:?}", browser.program.display())),
        Err(error) => return skip(TEST, &format!("{} does not work: {error}", browser.program.display())),
    }

    // First: the probe must find planted problems.
    let bad =
        "<script>console.error('bad')</script><img src=\"http://127.0.0.1:9/x\"><script>undefined.x</script></body>";
    let (seen, _) = browser.see(&page(&Report::default()).replace("</body>", bad), 1280, false);
    let problems = seen["problems"].to_string();
    for problem in ["error: bad", "wanted: http://127.0.0.1:9/x", "uncaught: "] {
        assert!(problems.contains(problem), "the probe misses things: {problems}");
    }

    let report = every_figure::every_figure();
    let text = page(&report);
    for (width, dark) in [(1280, false), (400, true)] {
        let (seen, console) = browser.see(&text, width, dark);
        check(&seen, &console, &report);
        check_use(&seen, &report);
        assert_eq!((&seen["width"], &seen["tables"]), (&width.into(), &1.into()));
        assert_eq!(seen["page"], seen[if dark { "dark" } else { "light" }], "the colours that the reader prefers");
        assert_ne!(seen["dark"], seen["light"]);
    }

    let mut evil = every_figure::every_figure();
    evil.title = EVIL.into();
    for section in &mut evil.sections {
        section.title = EVIL.into();
        for figure in &mut section.figures {
            (figure.title, figure.says) = (EVIL.into(), EVIL.into());
            figure.series.iter_mut().for_each(|series| series.name = EVIL.into());
            figure.marks.iter_mut().for_each(|mark| mark.label = EVIL.into());
        }
    }
    evil.sections.push(corners());
    let (seen, console) = browser.see(&page(&evil), 700, false);
    check(&seen, &console, &evil);
}
