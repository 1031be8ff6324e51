//! Programs that do not fit: what `--on-full` does. Two processes fill memory with random bytes,
//! and there is no swap tier.

use crate::support::contents::wrong;
use crate::support::tree::{eventually, Tree};
use crate::support::{Bench, PYTHON};
use memfit_os::process::send_signal;
use memfit_os::proctree;
use std::fs;

const BUDGET: &str = "100M";

/// Two processes: `front` stays in the foreground, `back` is told to go to the background.
struct Two {
    bench: Bench,
    tree: Tree,
}

impl Two {
    /// With these sizes, in MiB. Both have started, and nothing is filled yet.
    fn start(name: &str, options: &[&str], [front, back]: [u32; 2]) -> Option<Two> {
        let bench = Bench::new(name, &[PYTHON])?;
        bench.file("noise.py", include_str!("../workloads/noise.py"));
        let start = |name: &str, mib| format!("{PYTHON} noise.py {name} {mib} > {name}.out & echo $! > {name}.pid");
        let line = format!(
            "{}; {}; wait $(cat front.pid); code=$?; wait; exit $code",
            start("front", front),
            start("back", back)
        );
        let mut command = bench.memfit();
        command.args(["run", "-q", "-m", BUDGET, "--swap", "none", "--stats", "stats.json"]).args(options);
        command.args(["--", "sh", "-c", &line]);
        let two = Two { tree: Tree::start(command, &bench.directory, true), bench };
        for name in ["front", "back"] {
            two.says(name, "starts");
        }
        let out = two.bench.memfit().args(["bg", "--when-short", &two.pid("back").to_string()]).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        Some(two)
    }

    /// `front` has filled its memory, and `back` is stopped because it does not fit.
    fn stopped(name: &str) -> Option<Two> {
        let two = Two::start(name, &["--on-full", "stop"], [60, 85])?;
        two.tell("front.fill");
        two.says("front", "ready");
        two.tell("back.fill");
        eventually("the background is stopped", || two.state("back") == Some('T'));
        Some(two)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.bench.directory.join(file)).unwrap_or_default()
    }

    fn pid(&self, name: &str) -> i32 {
        self.read(&format!("{name}.pid")).trim().parse().unwrap()
    }

    #[track_caller]
    fn says(&self, name: &str, word: &str) {
        eventually(&format!("{name} says {word}: {}", self.tree.errors()), || {
            self.read(&format!("{name}.out")).contains(word)
        });
    }

    fn tell(&self, file: &str) {
        fs::write(self.bench.directory.join(file), "").unwrap();
    }

    fn state(&self, name: &str) -> Option<char> {
        proctree::read_stat(self.pid(name)).map(|stat| stat.state)
    }

    /// The run has ended so; its only message has all of these words.
    #[track_caller]
    fn ends(&mut self, code: i32, words: &[&str]) {
        let ended = self.tree.wait();
        for name in ["front.out", "back.out"] {
            if self.read(name).contains("WRONG") {
                wrong(name);
            }
        }
        let said = self.tree.errors();
        assert_eq!((ended, said.matches("out of memory").count()), (code, 1), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&self.read("stats.json")).unwrap()
    }

    #[track_caller]
    fn counted(&self, key: &str) -> u64 {
        self.stats()["transitions"][key].as_u64().unwrap()
    }
}

#[test]
fn the_background_is_killed_for_the_foreground() {
    let Some(mut two) = Two::start("oom_kill", &["--on-full", "kill", "--protect", "sh"], [85, 60]) else { return };
    let back = two.pid("back");
    two.tell("back.fill");
    two.says("back", "ready");
    two.tell("front.fill");
    two.says("front", "ready");
    eventually("the background has ended", || proctree::read_stat(back).is_none_or(|stat| stat.is_dead()));
    two.tell("front.go");
    two.ends(0, &["no swap tier", "over the budget of 100 MiB", &format!("killed python3 ({back}), the largest")]);
    assert!(two.read("front.out").contains("right"));
    assert_eq!((two.counted("killed"), two.counted("stopped")), (1, 0));
    // It is killed at 105 MiB, although the pool may have room.
    let peak = two.stats()["peak"]["total_bytes"].as_u64();
    assert!(peak < Some(112 << 20), "{peak:?}");
}

/// Python is on the list, so nobody is left.
#[test]
fn what_is_protected_is_not_killed() {
    let options = ["--on-full", "kill", "--protect", "sh,python3"];
    let Some(mut two) = Two::start("oom_protect", &options, [85, 60]) else { return };
    two.tell("back.fill");
    two.says("back", "ready");
    two.tell("front.fill");
    two.ends(1, &["there is no process in the background that may be"]);
}

#[test]
fn the_background_is_stopped_until_there_is_room() {
    let Some(mut two) = Two::stopped("oom_stop") else { return };
    two.tell("back.go");
    two.tell("front.go");
    two.says("front", "right");
    two.says("back", "right");
    two.ends(0, &[&format!("stopped python3 ({}), the largest", two.pid("back"))]);
    assert_eq!((two.counted("killed"), two.counted("stopped")), (0, 1));
}

/// Who brings it to the foreground wants it to run.
#[test]
fn a_stopped_process_goes_on_in_the_foreground() {
    let Some(mut two) = Two::stopped("oom_stop_fg") else { return };
    two.bench.memfit().args(["fg", &two.pid("back").to_string()]).output().unwrap();
    // It goes on, and does not fit: now there is nobody in the background.
    two.tree.wait();
    let said = two.tree.errors();
    assert!(said.contains("stopped python3") && said.contains("there is no process in the background"), "{said}");
}

#[test]
fn the_run_goes_on_over_the_budget_where_it_may() {
    let Some(mut two) = Two::start("oom_reclaim", &["--on-full", "reclaim"], [60, 85]) else { return };
    for name in ["front", "back"] {
        two.tell(&format!("{name}.fill"));
        two.says(name, "ready");
    }
    eventually("it is told", || two.tree.errors().contains("goes on over the budget"));
    for name in ["front", "back"] {
        two.tell(&format!("{name}.go"));
        two.says(name, "right");
    }
    two.ends(0, &["goes on over the budget"]);
}

/// The default. A process in the background is no reason to kill it.
#[test]
fn the_run_ends_unless_told_otherwise() {
    let Some(mut two) = Two::start("oom_fail", &["--report", "report.html"], [85, 60]) else { return };
    two.tell("back.fill");
    two.says("back", "ready");
    two.tell("front.fill");
    two.ends(1, &["there is no swap tier"]);
    let stats = two.stats();
    let warnings = stats["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|text| text.as_str().unwrap().starts_with("out of memory: ")), "{warnings:?}");
    assert!(stats["evictions"]["pages"].as_u64() > Some(0));
    assert!(two.read("report.html").contains("out of memory: the programs are"));
    // memfit has waited for the end of all, and has taken their exit statuses.
    assert!(send_signal(two.pid("back"), 0, None).is_err(), "nobody is left");
}
