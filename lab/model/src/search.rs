//! Tries the orders of steps: depth first, with a bound on preemptions, without known states.
//!
//! The core cannot be copied. So the search reaches a state again by running its choices from the
//! start.

use crate::config::{Changes, Scenario};
use crate::table::Transitions;
use crate::world::{Actor, Choice, World};
use std::collections::HashMap;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// Bounds of a search.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most times that an actor is interrupted although it could go on.
    pub preemptions: u8,
    /// Most wall time.
    pub time: Duration,
}

impl Bounds {
    /// Bounds for the tests. `MEMFIT_MODEL_DEPTH` adds preemptions, `MEMFIT_MODEL_SECONDS` sets the
    /// time of one search.
    pub fn of(preemptions: u8) -> Bounds {
        let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
        let more = number("MEMFIT_MODEL_DEPTH").unwrap_or(0) as u8;
        let time = Duration::from_secs(number("MEMFIT_MODEL_SECONDS").unwrap_or(600));
        Bounds { preemptions: preemptions + more, time }
    }
}

/// A run with an error.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The error.
    pub what: String,
    /// The steps that led to it.
    pub trace: Vec<String>,
}

/// Result of a search.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Name of the scenario.
    pub name: &'static str,
    /// Number of different states.
    pub states: usize,
    /// Number of steps, without those of prefixes that were run again.
    pub steps: u64,
    /// Number of runs from the start.
    pub runs: u64,
    /// Preemptions allowed.
    pub preemptions: u8,
    /// Every order within the bound was tried.
    pub complete: bool,
    /// The shortest run with a violation.
    pub violation: Option<Violation>,
    /// Counts of state changes.
    pub table: Transitions,
    /// Wall time.
    pub time: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, states, steps, runs, preemptions, .. } = self;
        let whole = if self.complete { "complete" } else { "cut off" };
        let ms = self.time.as_millis();
        writeln!(
            f,
            "{name}: {states} states, {steps} steps, {runs} runs, {preemptions} preemptions, {whole}, {ms} ms"
        )?;
        if let Some(violation) = &self.violation {
            writeln!(f, "  VIOLATION: {}", violation.what)?;
            for (i, line) in violation.trace.iter().enumerate() {
                writeln!(f, "  {:>3} {line}", i + 1)?;
            }
        }
        Ok(())
    }
}

/// Most steps of a run; no program of the model needs as many.
const STEPS_MAX: usize = 2000;

struct Node {
    choices: Vec<(Choice, u8)>,
    at: usize,
}

struct Search<'a> {
    scenario: &'a Scenario,
    changes: &'a Changes,
    bounds: Bounds,
    /// For each expanded state, the most preemptions that were left there.
    seen: HashMap<(u64, Option<Actor>), u8>,
    path: Vec<Node>,
    shortest: Option<(usize, String, Vec<Choice>)>,
    outcome: Outcome,
}

/// Tries all orders with 0, then 1, ... preemptions up to the bound. Stops at the first number with
/// a violation and returns the shortest such run.
pub fn explore(scenario: &Scenario, changes: &Changes, bounds: Bounds) -> Outcome {
    quiet_panics();
    let begun = Instant::now();
    let mut last = Outcome::default();
    for preemptions in 0..=bounds.preemptions {
        let bounds = Bounds { preemptions, time: bounds.time.saturating_sub(begun.elapsed()) };
        let mut search = Search {
            scenario,
            changes,
            bounds,
            seen: HashMap::new(),
            path: Vec::new(),
            shortest: None,
            outcome: Outcome { name: scenario.name, preemptions, ..Outcome::default() },
        };
        search.run();
        last = search.finish(begun);
        if last.violation.is_some() || !last.complete {
            break;
        }
    }
    last
}

impl Search<'_> {
    fn run(&mut self) {
        let begun = Instant::now();
        loop {
            self.one_run();
            self.outcome.runs += 1;
            if !self.advance() {
                self.outcome.complete = true;
                return;
            }
            if begun.elapsed() > self.bounds.time {
                return;
            }
        }
    }

    /// Goes to the next path: the deepest node with a choice left takes it. False at the end.
    fn advance(&mut self) -> bool {
        while let Some(node) = self.path.last_mut() {
            node.at += 1;
            if node.at < node.choices.len() {
                return true;
            }
            self.path.pop();
        }
        false
    }

    fn one_run(&mut self) {
        let mut world = World::new(self.scenario, self.changes, false);
        let result = catch_unwind(AssertUnwindSafe(|| self.walk(&mut world)));
        self.outcome.table.add(&std::mem::take(&mut world.table));
        let what = match result {
            Ok(Ok(())) => return,
            Ok(Err(what)) => what,
            Err(panic) => format!("panic: {}", text_of(&*panic)),
        };
        let length = self.path.len();
        if self.shortest.as_ref().is_none_or(|s| length < s.0) {
            let choices = self.path.iter().map(|n| n.choices[n.at].0).collect();
            self.shortest = Some((length, what, choices));
        }
    }

    /// Runs the path again, then goes on until a known state, the end or a violation.
    fn walk(&mut self, world: &mut World) -> Result<(), String> {
        let (mut last, mut left) = (None, self.bounds.preemptions);
        for i in 0..self.path.len() {
            let (choice, cost) = self.path[i].choices[self.path[i].at];
            world.recording = i + 1 == self.path.len();
            world.step(choice)?;
            (last, left) = (Some(choice.actor), left - cost);
        }
        world.recording = true;
        loop {
            world.core.check();
            // A run longer than the shortest one with a violation is of no use.
            if self.shortest.as_ref().is_some_and(|s| self.path.len() + 1 >= s.0) {
                return Ok(());
            }
            let state = (world.fingerprint(), last);
            match self.seen.get(&state) {
                Some(&before) if before >= left => return Ok(()),
                _ => self.seen.insert(state, left),
            };
            if self.path.len() > STEPS_MAX {
                return Err("goes on for ever".into());
            }
            let choices = affordable(world.choices(), last, left);
            if choices.iter().all(|(c, _)| c.optional) {
                return world.check_end();
            }
            let (choice, cost) = choices[0];
            self.path.push(Node { choices, at: 0 });
            world.step(choice)?;
            self.outcome.steps += 1;
            (last, left) = (Some(choice.actor), left - cost);
        }
    }

    fn finish(mut self, begun: Instant) -> Outcome {
        self.outcome.states = self.seen.len();
        self.outcome.time = begun.elapsed();
        if let Some((_, what, choices)) = self.shortest {
            let mut world = World::new(self.scenario, self.changes, true);
            let _ = catch_unwind(AssertUnwindSafe(|| choices.iter().try_for_each(|&c| world.step(c))));
            self.outcome.violation = Some(Violation { what, trace: world.trace().to_vec() });
        }
        self.outcome
    }
}

/// The choices within the bound with their cost. Those of the same actor come first.
fn affordable(choices: Vec<Choice>, last: Option<Actor>, left: u8) -> Vec<(Choice, u8)> {
    let goes_on = choices.iter().any(|c| Some(c.actor) == last && !c.optional);
    let cost = |c: &Choice| u8::from(goes_on && Some(c.actor) != last);
    let mut all: Vec<(Choice, u8)> = choices.iter().map(|c| (*c, cost(c))).filter(|(_, cost)| *cost <= left).collect();
    all.sort_by_key(|(c, _)| (Some(c.actor) != last, c.optional));
    all
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "?".into())
}

/// Silences panics of the core, which are results here. Panics of tests stay visible.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |l| l.file());
            if !file.contains("core/src/") {
                loud(info);
            }
        }));
    });
}
