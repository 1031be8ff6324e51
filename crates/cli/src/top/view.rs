//! What the user has chosen to see, and the effects of keys. Pure.

use super::sample::Rates;
use clap::ValueEnum;
use memfit_stats::Process;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;
use termion::event::Key;

/// A column to sort the processes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Process number.
    Pid,
    /// Memory in RAM.
    Resident,
    /// The most memory that it had.
    Peak,
    /// Memory taken away since its start.
    Evicted,
    /// Page faults since its start.
    Faults,
    /// Page faults a second.
    Rate,
    /// State, as in `ps`.
    State,
    /// Name of its command.
    Command,
}

impl Sort {
    /// All, in the order of the columns.
    pub const ALL: [Sort; 8] =
        [Sort::Pid, Sort::Resident, Sort::Peak, Sort::Evicted, Sort::Faults, Sort::Rate, Sort::State, Sort::Command];

    /// The key that chooses it.
    #[must_use]
    pub fn key(self) -> char {
        match self {
            Self::Pid => 'p',
            Self::Resident => 'r',
            Self::Peak => 'k',
            Self::Evicted => 'e',
            Self::Faults => 'f',
            Self::Rate => 's',
            Self::State => 't',
            Self::Command => 'c',
        }
    }

    /// Whether small values come first.
    fn ascends(self) -> bool {
        matches!(self, Self::Pid | Self::State | Self::Command)
    }

    /// The next or the previous column.
    fn beside(self, step: isize) -> Sort {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0) as isize;
        Self::ALL[(at + step).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

/// Intervals that `+` and `-` go through, milliseconds.
const INTERVALS_MS: [u64; 10] = [100, 200, 500, 1000, 2000, 3000, 5000, 10_000, 30_000, 60_000];

/// What a key asks for beyond the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    None,
    /// To leave.
    Leave,
    /// To stop, as Ctrl-Z does.
    Suspend,
    /// To draw all of the screen again.
    Redraw,
    /// To see the next tree, or the one before.
    Tree(isize),
}

/// What is shown, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The column.
    pub sort: Sort,
    /// In reverse order.
    pub reversed: bool,
    /// No requests are sent, and nothing new is shown.
    pub paused: bool,
    /// The help is shown.
    pub help: bool,
    /// Rows of the help above the first shown one.
    pub help_scrolled: usize,
    /// Rows for the help, and how many it has, when it was drawn last.
    pub help_rows: (usize, usize),
    /// Processes above the first shown one.
    pub scrolled: usize,
    /// Time between two requests.
    pub interval: Duration,
    /// Rows of the table of processes, and how many processes there are, when it was drawn last.
    pub rows: (usize, usize),
}

impl View {
    /// The view at the start.
    #[must_use]
    pub fn new(sort: Sort, interval: Duration) -> Self {
        Self {
            sort,
            reversed: false,
            paused: false,
            help: false,
            help_scrolled: 0,
            help_rows: (0, 0),
            scrolled: 0,
            interval,
            rows: (0, 0),
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> Wish {
        match key {
            Key::Ctrl('c') => return Wish::Leave,
            Key::Ctrl('z') => return Wish::Suspend,
            Key::Ctrl('l') => return Wish::Redraw,
            Key::Char('q') | Key::Esc if !self.help => return Wish::Leave,
            Key::Char('?' | 'h') | Key::F(1) if !self.help => (self.help, self.help_scrolled) = (true, 0),
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => self.scroll(key),
            _ if self.help => self.help = false,
            Key::Char('\t') | Key::Right => return Wish::Tree(1),
            Key::BackTab | Key::Left => return Wish::Tree(-1),
            Key::Char(' ') => self.paused = !self.paused,
            Key::Char('+' | '=') => self.change_interval(true),
            Key::Char('-') => self.change_interval(false),
            Key::Char('<') => self.sort_by(self.sort.beside(-1)),
            Key::Char('>') => self.sort_by(self.sort.beside(1)),
            Key::Char(letter) => {
                if let Some(sort) = Sort::ALL.into_iter().find(|sort| sort.key() == letter) {
                    self.sort_by(sort);
                }
            }
            _ => {}
        }
        Wish::None
    }

    /// Sorts by another column, or reverses the order of the same one.
    fn sort_by(&mut self, sort: Sort) {
        self.reversed = sort == self.sort && !self.reversed;
        self.sort = sort;
    }

    /// Scrolls the help if it is shown, else the processes.
    fn scroll(&mut self, key: Key) {
        let (at, (room, all)) = match self.help {
            true => (&mut self.help_scrolled, self.help_rows),
            false => (&mut self.scrolled, self.rows),
        };
        let rows = match key {
            Key::Up => -1,
            Key::Down => 1,
            Key::PageUp => -(room.max(1) as isize),
            Key::PageDown => room.max(1) as isize,
            Key::Home => isize::MIN,
            _ => all as isize,
        };
        *at = at.saturating_add_signed(rows).min(all.saturating_sub(room));
    }

    fn change_interval(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS_MS.into_iter().find(|ms| *ms > now)
        } else {
            INTERVALS_MS.into_iter().rev().find(|ms| *ms < now)
        };
        if let Some(ms) = next {
            self.interval = Duration::from_millis(ms);
        }
    }

    /// Puts the processes in order. Equal ones are in the order of their numbers, so that rows do
    /// not jump. `states`: as in `ps`, by pid.
    pub fn arrange(&self, processes: &mut [Process], rates: &Rates, states: &HashMap<i32, char>) {
        let rate = |process: &Process| rates.processes.get(&process.pid).map_or(0.0, |(faults, _)| *faults);
        let by_column = |a: &Process, b: &Process| match self.sort {
            Sort::Pid => Ordering::Equal,
            Sort::Resident => a.resident_bytes.cmp(&b.resident_bytes),
            Sort::Peak => a.peak_total_bytes.cmp(&b.peak_total_bytes),
            Sort::Evicted => a.evicted_pages.cmp(&b.evicted_pages),
            Sort::Faults => a.faults.cmp(&b.faults),
            Sort::Rate => rate(a).total_cmp(&rate(b)),
            Sort::State => states.get(&a.pid).cmp(&states.get(&b.pid)),
            Sort::Command => a.comm.cmp(&b.comm),
        };
        let falling = self.sort.ascends() == self.reversed;
        processes.sort_by(|a, b| {
            let order = by_column(a, b);
            let order = if falling { order.reverse() } else { order };
            let by_pid = a.pid.cmp(&b.pid);
            order.then(if self.sort == Sort::Pid && falling { by_pid.reverse() } else { by_pid })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View::new(Sort::Resident, Duration::from_secs(1))
    }

    fn order(view: &View) -> Vec<i32> {
        let process = |pid, comm: &str, resident_bytes, faults| Process {
            pid,
            comm: comm.into(),
            resident_bytes,
            faults,
            ..Process::default()
        };
        let mut all = [process(3, "b", 10, 5), process(1, "c", 30, 5), process(2, "a", 10, 9), process(4, "a", 20, 0)];
        let processes = HashMap::from([(4, (7.0, 0.0))]);
        let states = HashMap::from([(3, 'S'), (1, 'R'), (2, 'S'), (4, 'T')]);
        view.arrange(&mut all, &Rates { processes, ..Rates::default() }, &states);
        all.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn every_column_sorts_by_its_key_and_back() {
        let mut view = view();
        assert_eq!(order(&view), [1, 4, 2, 3]);
        for (key, wanted) in
            [('p', [1, 2, 3, 4]), ('f', [2, 1, 3, 4]), ('s', [4, 1, 2, 3]), ('t', [1, 2, 3, 4]), ('c', [2, 4, 3, 1])]
        {
            view.press(Key::Char(key));
            assert_eq!((order(&view).as_slice(), view.reversed), (&wanted[..], false), "{key}");
        }
        view.press(Key::Char('c'));
        assert_eq!(order(&view), [1, 3, 2, 4]);
        view.press(Key::Char('p'));
        view.press(Key::Char('p'));
        assert_eq!(order(&view), [4, 3, 2, 1]);
        let mut keys: Vec<char> = Sort::ALL.into_iter().map(Sort::key).collect();
        keys.dedup();
        assert_eq!(keys.len(), Sort::ALL.len());
        for _ in 0..Sort::ALL.len() {
            view.press(Key::Char('>'));
        }
        assert_eq!(view.sort, Sort::Pid);
        view.press(Key::Char('<'));
        assert_eq!(view.sort, Sort::Command);
    }

    #[test]
    fn scrolls_within_the_processes() {
        let mut view = view();
        view.rows = (6, 20);
        for (key, wanted) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::PageDown, 7),
            (Key::End, 14),
            (Key::Down, 14),
            (Key::PageUp, 8),
            (Key::Home, 0),
        ] {
            assert_eq!(view.press(key), Wish::None);
            assert_eq!(view.scrolled, wanted, "{key:?}");
        }
        view.rows = (6, 3);
        view.press(Key::End);
        assert_eq!(view.scrolled, 0);
    }

    #[test]
    fn keys_leave_pause_and_change_the_interval() {
        let mut view = view();
        assert_eq!([Key::Char('q'), Key::Esc, Key::Ctrl('c')].map(|key| view.press(key)), [Wish::Leave; 3]);
        view.press(Key::Char('?'));
        assert!(view.help);
        assert_eq!((view.press(Key::Esc), view.help), (Wish::None, false), "the help goes first");
        view.press(Key::Char('h'));
        assert_eq!((view.press(Key::Char('q')), view.help), (Wish::None, false), "as the help says");
        assert_eq!((view.press(Key::Char('\t')), view.press(Key::BackTab)), (Wish::Tree(1), Wish::Tree(-1)));
        // The help is scrolled, and stays.
        view.press(Key::Char('?'));
        (view.rows, view.help_rows) = ((6, 20), (10, 24));
        for (key, wanted) in [(Key::Down, 1), (Key::PageDown, 11), (Key::End, 14), (Key::Up, 13), (Key::Home, 0)] {
            view.press(key);
            assert_eq!((view.help, view.help_scrolled, view.scrolled), (true, wanted, 0), "{key:?}");
        }
        view.press(Key::Char('x'));
        assert!(!view.help);
        view.press(Key::Char(' '));
        assert!(view.paused);
        view.press(Key::Char('+'));
        assert_eq!(view.interval, Duration::from_secs(2));
        assert!((0..20).all(|_| view.press(Key::Char('-')) == Wish::None));
        assert_eq!(view.interval, Duration::from_millis(100));
        assert!((0..20).all(|_| view.press(Key::Char('+')) == Wish::None));
        assert_eq!(view.interval, Duration::from_secs(60));
    }
}
