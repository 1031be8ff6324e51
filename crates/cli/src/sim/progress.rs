//! Progress of long simulations: a line with a bar, on a terminal only.

use crate::top::units::{age, count};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use memfit_os::process::write_stderr;
use memfit_sim::Position;
use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Simulations that end sooner show nothing.
const SHORT: Duration = Duration::from_millis(300);
/// Most characters of a workload's name.
const NAME_MAX: usize = 24;
/// The line during the first pass at workloads, and during their simulation.
const FIRST_PASS: &str = "{prefix}: {msg}";
const SIMULATES: &str = "{prefix} {percent:>3} % [{wide_bar}] {msg}, {rate} events/s, {left} left";

/// Simulations of a workload that advance together, fed with its events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// How many simulations.
    pub simulations: u64,
    /// Events of each simulation, known or expected.
    pub events: u64,
    /// A yardstick: one run gives the results of all sizes.
    pub at_once: bool,
}

impl Part {
    /// Events of all simulations.
    fn events(&self) -> u64 {
        self.events * if self.at_once { 1 } else { self.simulations }
    }
}

/// Planned or finished work: simulations, and the events of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    simulations: u64,
    events: u64,
}

impl Work {
    fn add(&mut self, part: Part) {
        self.simulations += part.simulations;
        self.events += part.events();
    }
}

/// Events of a part that are done when its source has come so far.
fn reached(part: Part, far: Position) -> u64 {
    let share = far.share.unwrap_or(far.events as f64 / part.events.max(1) as f64);
    (share.min(1.0) * part.events() as f64) as u64
}

/// Counts events of simulations: the events of a workload, times the machines that it is fed to.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    planned: Cell<Work>,
    done: Cell<Work>,
}

impl Progress {
    /// Shows nothing if `quiet`, or if standard error is no terminal.
    pub fn new(quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target).with_style(style(FIRST_PASS));
        Progress { bar, began: Instant::now(), planned: Cell::default(), done: Cell::default() }
    }

    /// Whether the line is shown.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    fn is_due(&self) -> bool {
        self.is_shown() && self.began.elapsed() >= SHORT
    }

    /// Shows the first pass at a workload, before its simulation.
    pub fn first_pass(&self, name: &str, far: Position) {
        if self.is_due() {
            let share = far.share.map_or_else(String::new, |share| format!(", {:.0} %", share * 100.0));
            self.bar.set_prefix(short(name));
            self.bar.set_message(format!("first pass, {} events{share}", count(far.events as f64)));
        }
    }

    /// Adds planned work.
    pub fn plan(&self, part: Part) {
        let mut planned = self.planned.get();
        planned.add(part);
        self.planned.set(planned);
    }

    /// Removes planned work that will not be done.
    pub fn give_up(&self, part: Part) {
        let Work { simulations, events } = self.planned.get();
        self.planned.set(Work { simulations: simulations - part.simulations, events: events - part.events() });
    }

    /// Begins to show simulations instead of first pass.
    pub fn begin(&self) {
        self.bar.set_style(style(SIMULATES));
        self.bar.reset_eta();
    }

    /// Shows how far the current part is.
    pub fn show(&self, name: &str, part: Part, far: Position) {
        if self.is_due() {
            let (planned, done) = (self.planned.get(), self.done.get());
            self.bar.set_prefix(short(name));
            self.bar.set_message(format!("{} of {} simulations", done.simulations, planned.simulations));
            self.bar.set_length(planned.events);
            self.bar.set_position(done.events + reached(part, far));
        }
    }

    /// Counts a part as done.
    pub fn done(&self, part: Part) {
        let mut done = self.done.get();
        done.add(part);
        self.done.set(done);
    }

    /// Prints a line without disturbing the bar.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| write_stderr(&format!("{text}\n")));
    }

    /// Removes the line.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    /// Removes the line, so that an error message gets one of its own.
    fn drop(&mut self) {
        self.end();
    }
}

fn style(template: &str) -> ProgressStyle {
    let rate = |state: &ProgressState, out: &mut dyn Write| _ = out.write_str(&count(state.per_sec()));
    let left = |state: &ProgressState, out: &mut dyn Write| {
        _ = out.write_str(&age(u64::try_from(state.eta().as_nanos()).unwrap_or(u64::MAX)));
    };
    let style = ProgressStyle::with_template(template).expect("a template that is none is seen by the tests");
    style.progress_chars("=> ").with_key("rate", rate).with_key("left", left)
}

fn short(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 3).chain("...".chars()).collect(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_as_far_as_its_events() {
        let part = Part { simulations: 8, events: 1000, at_once: false };
        assert_eq!(reached(part, Position { events: 250, share: None }), 2000);
        assert_eq!(reached(part, Position { events: 1100, share: None }), 8000, "no more than it has");
        assert_eq!(
            reached(part, Position { events: 7, share: Some(0.5) }),
            4000,
            "a recording knows how far it was read"
        );
        assert_eq!(reached(Part { at_once: true, ..part }, Position { events: 250, share: None }), 250);
    }

    #[test]
    fn plans_grow_and_are_given_up() {
        let progress = Progress::new(true);
        assert!(!progress.is_shown());
        let part = |simulations, events| Part { simulations, events, at_once: false };
        progress.plan(part(2, 100));
        progress.plan(part(10, 50));
        assert_eq!(progress.planned.get(), Work { simulations: 12, events: 700 });
        progress.begin();
        progress.done(part(2, 100));
        progress.give_up(part(4, 50));
        assert_eq!(progress.done.get(), Work { simulations: 2, events: 200 });
        assert_eq!(progress.planned.get(), Work { simulations: 8, events: 500 });
        assert_eq!((short("ns2"), short(&"n".repeat(40)).len()), ("ns2".into(), NAME_MAX));
    }
}
