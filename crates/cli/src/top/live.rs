//! The screen: waits for keys, signals and answers, and draws. One thread, which sleeps in `poll`.

use super::draw::{draw, Appearance, Model};
use super::sample::shown;
use super::terminal::{self, Terminal};
use super::view::{View, Wish};
use super::Ending;
use crate::args::TopArgs;
use crate::errors::{describe, Failure};
use crate::trees::{self, Question, Tree, ANSWER_TIMEOUT};
use memfit_os::event::wait_readable;
use memfit_os::process::{self, SignalFd};
use memfit_os::proctree;
use memfit_stats::{Process, Stats};
use ratatui_core::buffer::Buffer;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The second request follows soon after the first: before it there are no rates.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// The tree on the screen.
struct Shown {
    tree: Tree,
    ending: Ending,
    model: Model,
    /// The pending request, and when it was sent.
    asked: Option<(OwnedFd, Instant)>,
    next: Instant,
    answers: u64,
    ended: bool,
}

impl Shown {
    fn new(tree: Tree) -> Self {
        let stats = Stats { pid: tree.pid().parse().unwrap_or(0), ..Stats::default() };
        let model = Model { stats, place: (1, 1), ..Model::default() };
        Self { ending: Ending::of(&tree), tree, model, asked: None, next: Instant::now(), answers: 0, ended: false }
    }

    /// Until when nothing must be done.
    fn due(&self) -> Instant {
        self.asked.as_ref().map_or(self.next, |(_, since)| *since + ANSWER_TIMEOUT)
    }

    /// Sends a request, or gives up waiting for an answer.
    fn tick(&mut self, now: Instant, interval: Duration) {
        if now < self.due() {
            return;
        }
        if self.asked.take().is_some() {
            self.model.trouble = Some("the pager does not answer".into());
            self.next = now + interval;
            return;
        }
        self.next = now + if self.answers == 0 { interval.min(FIRST_INTERVAL) } else { interval };
        if self.ended {
            // The launcher's parent may not have collected its exit status before.
            self.end();
            return;
        }
        match self.tree.ask(Question::Brief) {
            Ok(Some(socket)) => self.asked = Some((socket, now)),
            Ok(None) => self.end(),
            Err(error) => self.model.trouble = Some(describe(&error)),
        }
    }

    fn receive(&mut self) {
        let Some((socket, _)) = self.asked.take() else { return };
        match trees::receive(&socket) {
            Ok(Some(answer)) => {
                self.model.update(shown(answer), self.answers == 0);
                let state = |process: &Process| Some((process.pid, proctree::read_stat(process.pid)?.state));
                self.model.states = self.model.stats.processes.iter().filter_map(state).collect();
                self.model.trouble = None;
                self.answers += 1;
            }
            Ok(None) => self.end(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.model.trouble = Some(describe(&error)),
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.model.trouble = Some(self.ending.told());
    }
}

/// State that lives as long as the screen.
struct Live {
    terminal: Terminal,
    signals: SignalFd,
    view: View,
    appearance: Appearance,
    shown: Shown,
}

/// Shows the first of the trees until the user leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub fn run(args: &TopArgs, trees: Vec<Tree>) -> Result<i32, Failure> {
    // A job that is started in the background stops, as with any program that wants the terminal.
    wait_for_foreground();
    // From here on no signal ends us before the terminal is restored.
    let signals = SignalFd::take_over().map_err(|error| Failure::system("take over signals", &error))?;
    let appearance = Appearance { colours: wants_colours(), blocks: has_blocks() };
    let terminal = Terminal::take().map_err(|error| Failure::system("use the terminal", &error))?;
    let first = trees.into_iter().next().expect("there is a tree");
    let view = View::new(args.sort, args.interval);
    let mut live = Live { terminal, signals, view, appearance, shown: Shown::new(first) };
    live.update_place();
    let watched = live.watch();
    drop(live.terminal);
    if live.shown.ended {
        println!("memfit: tree {} {}", live.shown.tree.pid(), live.shown.ending.told());
    }
    watched.map_err(|error| Failure::system("wait for keys", &error))
}

impl Live {
    /// Returns the exit status.
    fn watch(&mut self) -> io::Result<i32> {
        loop {
            self.arrange();
            let picture = self.picture();
            if self.terminal.show(picture).is_err() {
                return Ok(128 + libc::SIGHUP);
            }
            let [keys, signal, answer] = self.wait()?;
            while let Some(arrived) = self.signals.next_signal().filter(|_| signal) {
                match arrived.signal {
                    libc::SIGTSTP => self.suspend(),
                    // SIGSTOP had stopped us, and a shell has set the terminal since.
                    libc::SIGCONT => self.come_back(),
                    libc::SIGWINCH => self.terminal.forget(),
                    libc::SIGCHLD | libc::SIGURG | libc::SIGPIPE | libc::SIGTTIN | libc::SIGTTOU => {}
                    fatal => return Ok(128 + fatal),
                }
            }
            if answer {
                self.shown.receive();
            }
            if keys {
                let Some(keys) = self.terminal.read_keys() else { return Ok(128 + libc::SIGHUP) };
                for key in keys {
                    match self.view.press(key) {
                        Wish::None => {}
                        Wish::Leave => return Ok(0),
                        Wish::Suspend => self.suspend(),
                        Wish::Redraw => self.terminal.forget(),
                        Wish::Tree(step) => self.go_to(step),
                    }
                }
                // An interval that was made shorter counts from now on.
                self.shown.next = self.shown.next.min(Instant::now() + self.view.interval);
            }
            if !self.view.paused {
                let now = Instant::now();
                if now >= self.shown.due() {
                    self.shown.tick(now, self.view.interval);
                    self.update_place();
                }
            }
        }
    }

    /// Waits until a key, a signal or an answer arrives, or something is due.
    fn wait(&self) -> io::Result<[bool; 3]> {
        let (keys, signals) = (self.terminal.keys().as_fd(), self.signals.as_fd());
        let rest = self.shown.due().saturating_duration_since(Instant::now());
        let rest = (!self.view.paused).then_some(rest);
        match &self.shown.asked {
            Some((socket, _)) => wait_readable([keys, signals, socket.as_fd()], rest),
            None => wait_readable([keys, signals], rest).map(|[keys, signal]| [keys, signal, false]),
        }
    }

    fn picture(&mut self) -> Buffer {
        let (columns, rows) = terminal::size();
        draw(&self.shown.model, &mut self.view, self.appearance, columns, rows)
    }

    fn arrange(&mut self) {
        let Model { stats, rates, states, .. } = &mut self.shown.model;
        self.view.arrange(&mut stats.processes, rates, states);
    }

    /// The running trees, and the tree on the screen, which may have ended.
    fn trees(&self) -> Vec<Tree> {
        let mut trees = trees::running().unwrap_or_default();
        if !trees.contains(&self.shown.tree) {
            trees.push(self.shown.tree.clone());
            trees.sort();
        }
        trees
    }

    fn update_place(&mut self) {
        let trees = self.trees();
        let place = trees.iter().position(|tree| *tree == self.shown.tree).unwrap_or(0);
        self.shown.model.place = (place + 1, trees.len());
    }

    fn go_to(&mut self, step: isize) {
        let trees = self.trees();
        let place = trees.iter().position(|tree| *tree == self.shown.tree).unwrap_or(0) as isize;
        let next = &trees[(place + step).rem_euclid(trees.len() as isize) as usize];
        if *next != self.shown.tree {
            self.shown = Shown::new(next.clone());
            self.view.scrolled = 0;
            self.update_place();
        }
    }

    /// As Ctrl-Z does in other programs: stops the whole job.
    fn suspend(&mut self) {
        terminal::give_back();
        let _ = process::send_signal(0, libc::SIGTSTP, None);
        process::stop_self();
        self.come_back();
    }

    fn come_back(&mut self) {
        wait_for_foreground();
        // These signals belong to the stop that has just ended.
        while self.signals.next_signal().is_some_and(|arrived| matches!(arrived.signal, libc::SIGTSTP | libc::SIGCONT))
        {
        }
        // If the terminal is gone, drawing the next picture fails.
        let _ = self.terminal.take_again();
    }
}

/// Stops while other programs use the terminal.
fn wait_for_foreground() {
    while !terminal::is_ours() {
        process::stop_self();
    }
}

/// See <https://no-color.org>.
fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the locale says that the terminal shows UTF-8.
fn has_blocks() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    let name = set.map(|value| value.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.contains("utf-8") || name.contains("utf8")
}
