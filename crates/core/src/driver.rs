//! What drives a run. This file has the order of reclaim: which step comes next. [`order`] has that
//! of events, [`fork`] decides what a fork child has of its parent, and [`adoption`] what of the
//! new memory that was registered may be evicted.
//!
//! [`Core::next_step`] decides that from what the last step gave and from what its caller sees. It
//! has no clock and carries nothing out. The pager carries the steps out, the simulator prices
//! them, and the replay of a recording repeats the decisions.
//!
//! A round begins when less than the low watermark is free, or when a process is to leave as a
//! whole ([`Core::reclaim_process`]). Rounds follow each other until the high watermark is free and
//! those processes have left, or until one gains nothing. That one is followed by a pause, or by a
//! wait for a write under way. Neither follows if pages refused to move and other runs had no turn
//! yet: what refused is parked, so the next round takes others. While memory is short, processes in
//! the background leave as a whole one after another ([`Core::set_background`]).
//!
//! A step gains what moved one step on its way out of memory: a page that was staged, compressed,
//! or written. So one page can count three times, and a gain need not free memory. The levels that
//! the caller sees say what is free.

pub mod adoption;
pub mod fork;
pub mod fork_changes;
pub mod order;

use crate::budget::{compaction_pays, Level, COMPRESS_CHUNK};
use crate::core_call::{CoreCall, Decided};
use crate::engine::Core;
use crate::evict::BATCH_PAGES;
use crate::ids::{ProcId, PAGE_BYTES};
use crate::pool::PoolUsage;
use crate::reclaim::Origin;
use crate::replacement::ReplacementMode;
use alloc::vec::Vec;

/// Time over which the gain of reclaim is judged, ms.
const WINDOW_MS: u64 = 50;
/// Gain of a round that is worth waiting for, however long the round takes: a strong codec on a
/// busy machine needs 50 ms for two rounds.
const ROUND_PAGES: u32 = 16;
/// Windows without enough gain, all of them over the budget, before the user is warned: at least
/// 5 s.
const SHORT_WINDOWS: u32 = 100;
/// Hopeless windows in a row before that is reported, each time.
const HOPELESS_WINDOWS: u32 = 2;
/// Pause of compression after the pool had no room for a page, ms.
const FULL_PAUSE_MS: u64 = 2;
/// The pool counts as full this long after it had no room for a page, ms.
const FULL_MS: u64 = 4 * WINDOW_MS;
/// Rounds without compaction after one that found nothing to move.
const COMPACT_PAUSE: u32 = 64;
/// Pause after a round without gain, us: so much more for each such round in a row.
const PAUSE_US: u32 = 500;
const PAUSES_MAX: u32 = 20;
/// Waits of at most 5 ms in which no write has ended, before a device counts as one that does not
/// answer: 2 s.
const WAITS_MAX: u32 = 400;

/// What the caller of [`Core::next_step`] sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// How much memory is free.
    pub level: Level,
    /// What the last step gained: frames, pages or objects, as its description says.
    pub gained: u32,
    /// The last step could not work: [`Step::Compact`] had nothing to move, [`Step::Compress`]
    /// found no room in the pool.
    pub blocked: bool,
    /// Memory that counts and that the core does not know of, pages: what cannot be evicted, what
    /// is not registered yet, the pager itself.
    pub unmanaged: u32,
    /// Pages can be evicted. False where a recorded run decides which pages are resident.
    pub evicts: bool,
    /// The swap tier takes writes.
    pub tier_writable: bool,
    /// It has room, or makes some.
    pub tier_has_space: bool,
    /// It needs more time for a page than a codec.
    pub tier_slow: bool,
    /// Writes to it are under way.
    pub tier_busy: bool,
    /// Programs wait for a CPU.
    pub cpus_full: bool,
    /// A process that could answer has not yet answered a batch.
    pub answer_late: bool,
    /// Time of a read from the swap tier in a fault, us, a running mean; 0: not known.
    pub read_us: u32,
}

impl Seen {
    /// The facts that are true, as bits: `blocked`, `evicts`, `tier_writable`, `tier_has_space`,
    /// `tier_slow`, `tier_busy`, `cpus_full`, `answer_late`, from the lowest.
    pub fn facts(self) -> u8 {
        let facts = [
            self.blocked,
            self.evicts,
            self.tier_writable,
            self.tier_has_space,
            self.tier_slow,
            self.tier_busy,
            self.cpus_full,
            self.answer_late,
        ];
        facts.iter().enumerate().fold(0, |bits, (i, &fact)| bits | u8::from(fact) << i)
    }

    pub(crate) fn of(level: Level, gained: u32, unmanaged: u32, facts: u8, read_us: u32) -> Seen {
        let is = |bit: u8| facts >> bit & 1 == 1;
        Seen {
            level,
            gained,
            unmanaged,
            blocked: is(0),
            evicts: is(1),
            tier_writable: is(2),
            tier_has_space: is(3),
            tier_slow: is(4),
            tier_busy: is(5),
            cpus_full: is(6),
            answer_late: is(7),
            read_us,
        }
    }
}

/// What a step gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// As in [`Seen`].
    pub gained: u32,
    /// As in [`Seen`].
    pub blocked: bool,
}

impl Done {
    /// A step that could work.
    pub fn gained(gained: usize) -> Done {
        Done { gained: gained as u32, blocked: false }
    }
}

/// A step of reclaim. Its caller waits for nobody in it, but for the steps that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Enough is free. Hand buffered writes to the device, and sleep until memory is wanted. Nobody
    /// waits for reclaim.
    Sleep,
    /// Move zpages together ([`Core::compact`]). Gains frames.
    Compact,
    /// Post a batch of victims ([`Core::pick_victims`]) to each process that can take one. Gains
    /// pages if the answers come at once.
    Evict,
    /// Compress staged pages ([`Core::pick_compress`]). Gains those that leave staging: for the
    /// pool, as same-filled pages, or as clean copies in the swap tier.
    Compress {
        /// How many at most.
        most: u32,
        /// Whether a program waits for this.
        origin: Origin,
    },
    /// Begin to write the pages that compression has left for the swap tier.
    WriteRaw,
    /// Report finished writes ([`Core::written`]). Gains objects.
    Reap,
    /// Report the answers to batches ([`Core::evicted`]). Gains pages.
    Collect,
    /// Wait for the answer to a batch, for a moment.
    WaitForBatch,
    /// Begin to write zpages to the swap tier ([`Core::pick_writeback`]); unless `pressed`, only
    /// those that are due. Gains objects.
    WriteBack {
        /// The pool must become smaller.
        pressed: bool,
    },
    /// Hand buffered writes to the device.
    Flush,
    /// Clean a segment of the swap tier, if that pays. If the tier is full, wait up to 20 ms for
    /// the writes under way. Gains objects that have left memory by these.
    Clean,
    /// The round is over.
    RoundEnds {
        /// Reclaim gains next to nothing (pages shared after a fork, a stopped process). Nobody
        /// waits for it: they would wait for ever.
        stuck: bool,
        /// What the user must know.
        trouble: Option<Trouble>,
    },
    /// Wait for a write under way.
    WaitForDevice,
    /// Wait for this time, microseconds.
    Pause {
        /// Microseconds.
        us: u32,
    },
}

/// Why the budget does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// What is resident cannot be taken away at the moment.
    Short,
    /// Neither the pool nor the swap tier takes a page, or those that are resident are at their
    /// floor.
    Hopeless,
}

/// What [`Core::next_step`] decides about next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Begin,
    // After a sleep.
    Woken,
    WokenReap,
    WokenClean,
    // A round.
    Compact,
    Evict,
    Compress,
    WriteRaw,
    Reap,
    Collect,
    Wait,
    CollectAgain,
    Staged,
    Floor,
    Flush,
    Clean,
    End,
    After,
    // The pool shall become smaller; then `Driver::then` follows.
    Shrink,
    WriteBack,
    // Under a synchronous scheme.
    AwaitWrite,
    AwaitReap,
}

/// State of the driver.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    next: Next,
    /// Tick at which this round began.
    pub(crate) round_began: u64,
    /// The last step; `None` before the first one.
    last: Option<Step>,
    /// Where the round goes on when the pool has become smaller.
    then: Next,
    pressed: bool,
    /// The pool makes room for more resident pages: only its older pages leave.
    pub(crate) giving: bool,
    /// It had nothing to give, so that the next round takes pages from the programs.
    gave_nothing: bool,
    may_give: bool,
    /// Rounds go on until the high watermark is free.
    reclaiming: bool,
    /// Only processes that leave as a whole give pages in this round.
    pub(crate) only_leaving: bool,
    /// The processes that leave as a whole give no pages at the moment.
    pub(crate) leaving_stalled: bool,
    stuck: bool,
    /// In this round runs refused to move and were parked.
    pub(crate) refused: bool,
    /// Runs that did so since the last window with enough gain.
    pub(crate) refusals: u64,
    /// The next choice of victims is the first one of this round.
    pub(crate) chooses: bool,
    /// The processes that could give pages then.
    pub(crate) open: Vec<ProcId>,
    /// Gained in this round.
    gained: u32,
    /// Rounds without gain in a row.
    idle_rounds: u32,
    compact_pause: u32,
    /// Waits for writes, one after the other, in which none has ended.
    waits: u32,
    /// When the pool last had no room for a page.
    full_at: Option<u64>,
    /// `None` while reclaim sleeps: the first window begins with a round.
    window: Option<Window>,
    short_windows: u32,
    hopeless_windows: u32,
    pub(crate) decided: Decided,
}

/// What reclaim has gained since a moment.
#[derive(Debug, Default)]
struct Window {
    since: u64,
    gained: u32,
    rounds: u32,
}

impl Window {
    fn begun(since: u64) -> Window {
        Window { since, gained: 0, rounds: 0 }
    }
}

impl Core {
    /// The step of reclaim that comes next. `tick` is in ms and may be of another clock than the
    /// ticks of other calls.
    pub fn next_step(&mut self, tick: u64, seen: Seen) -> Step {
        self.record(&CoreCall::NextStep { tick, seen });
        self.driver.apply_result(tick, seen);
        loop {
            if let Some(step) = self.advance(tick, seen) {
                self.driver.last = Some(step);
                self.driver.decided.mix(self.driver.next as u64, step.number());
                return step;
            }
        }
    }

    /// Whether the last step was [`Step::Sleep`], or none was taken yet.
    pub fn reclaim_sleeps(&self) -> bool {
        matches!(self.driver.last, None | Some(Step::Sleep))
    }

    /// Whether reclaim gains too little to be waited for.
    pub fn is_stuck(&self) -> bool {
        self.driver.stuck
    }

    /// Decides about the next step, and what to decide after it. `None`: that step is left out.
    fn advance(&mut self, tick: u64, seen: Seen) -> Option<Step> {
        let (next, step) = match self.driver.next {
            Next::Begin => return self.begin(tick, seen),
            Next::Woken => (Next::WokenReap, Some(Step::Collect)),
            Next::WokenReap => (Next::WokenClean, Some(Step::Reap)),
            Next::WokenClean => (Next::Begin, Some(Step::Clean)),
            Next::Compact => (Next::Evict, self.compaction()),
            Next::Evict if self.driver.gained > 0 && seen.level == Level::Enough && self.leaving.is_empty() => {
                (Next::End, None)
            }
            Next::Evict => {
                let others = self.driver.reclaiming && seen.evicts && !self.apply_floor(seen);
                let leaving = seen.evicts && !self.leaving.is_empty();
                // If faults wait already, all give pages.
                let spared = seen.level >= Level::BelowLow && self.a_process_gives();
                self.driver.only_leaving = leaving && (!others || spared);
                self.driver.chooses = true;
                (Next::Compress, (others || leaving).then_some(Step::Evict))
            }
            Next::Compress => (Next::WriteRaw, if self.slots_short() { self.compression(tick, seen) } else { None }),
            Next::WriteRaw => (Next::Reap, Some(Step::WriteRaw)),
            Next::Reap => (Next::Collect, Some(Step::Reap)),
            // A batch that took no page (shared after a fork, pinned) is no gain.
            Next::Collect => (Next::Wait, Some(Step::Collect)),
            Next::Wait if self.driver.gained > 0 => (Next::Floor, None),
            Next::Wait => (Next::CollectAgain, Some(Step::WaitForBatch)),
            Next::CollectAgain => (Next::Staged, Some(Step::Collect)),
            Next::Staged if self.driver.gained > 0 || self.totals_staged() == 0 => (Next::Floor, None),
            Next::Staged => (Next::Floor, self.compression(tick, seen)),
            Next::Floor => {
                // Few pages are resident where much has left as a whole: that is no shortage.
                let below = self.driver.reclaiming && self.apply_floor(seen);
                self.pool_control.adapt(tick, &mut *self.pool);
                let smaller = below || self.wants_room();
                (self.driver.pressed, self.driver.then) = (below, Next::Flush);
                (if smaller { Next::Shrink } else { Next::Flush }, None)
            }
            Next::Flush => (Next::Clean, (self.driver.gained == 0).then_some(Step::Flush)),
            Next::Clean => (Next::End, Some(Step::Clean)),
            Next::End => {
                self.pool.trim();
                self.driver.refused = self.driver.refused && self.others_had_no_turn();
                let grows = self.pool_control.can_grow();
                let trouble = self.driver.judge(tick, seen, self.tunables.sizes.pace_pages, grows);
                (Next::After, Some(Step::RoundEnds { stuck: self.driver.stuck, trouble }))
            }
            Next::After => (Next::Begin, self.driver.pause(seen)),
            Next::Shrink => (Next::WriteBack, self.compaction()),
            Next::WriteBack => {
                let frames = self.driver.last == Some(Step::Compact) && seen.gained > 0;
                (Next::AwaitWrite, (!frames).then_some(Step::WriteBack { pressed: self.driver.pressed }))
            }
            Next::AwaitWrite => match self.awaits_write(seen) {
                true => (Next::AwaitReap, Some(Step::WaitForDevice)),
                false => (self.driver.then, None),
            },
            Next::AwaitReap => (Next::AwaitWrite, Some(Step::Reap)),
        };
        self.driver.next = next;
        step
    }

    /// Begins a round, or lets reclaim sleep.
    fn begin(&mut self, tick: u64, seen: Seen) -> Option<Step> {
        self.driver.round_began = tick;
        self.advance_leaving(tick);
        self.pool_control.busy = seen.cpus_full && seen.tier_writable && !seen.tier_slow;
        let driver = &mut self.driver;
        (driver.gained, driver.refused) = (0, false);
        driver.may_give = !core::mem::take(&mut driver.gave_nothing);
        driver.giving = false;
        driver.reclaiming = seen.level < if driver.reclaiming { Level::Enough } else { Level::BelowHigh };
        if driver.reclaiming {
            driver.window.get_or_insert(Window::begun(tick));
            self.let_background_leave();
        } else {
            (driver.stuck, driver.window) = (false, None);
            (driver.short_windows, driver.hopeless_windows, driver.refusals) = (0, 0, 0);
            if self.leaving.is_empty() {
                driver.next = Next::Woken;
                return Some(Step::Sleep);
            }
            // Few pages may be resident, and yet there is room.
            self.pool_control.close(false);
        }
        self.driver.compact_pause = self.driver.compact_pause.saturating_sub(1);
        self.driver.next = Next::Compact;
        None
    }

    /// Whether too few staging slots are free for a batch, over all processes.
    pub fn slots_short(&self) -> bool {
        let cap = u64::from(self.tunables.staging_slots);
        self.totals_staged() + (BATCH_PAGES as u64).min(cap / 2) > self.usable_slots()
    }

    /// Judges whether the resident pages are at their floor, so that only the pool can become
    /// smaller. If nothing ever leaves the pool, closes it at the floor instead: evicted pages go
    /// to the swap tier.
    fn apply_floor(&mut self, seen: Seen) -> bool {
        if !seen.evicts {
            return seen.level < Level::BelowLow;
        }
        let (present, unmanaged) = (self.present_total() * PAGE_BYTES, u64::from(seen.unmanaged) * PAGE_BYTES);
        let usage = self.pool_usage();
        let below = self.tunables.sizes.below_floor(present, unmanaged, &usage, seen.tier_has_space);
        if self.pool_control.swap && matches!(self.pool_control.mode, ReplacementMode::Nobody) {
            self.pool_control.close(below);
            return false;
        }
        self.driver.giving = !below && self.pool_gives(seen, &usage);
        below || self.driver.giving
    }

    /// Whether the older pages of the pool go to the swap tier, so that more stay in memory. Not
    /// while programs wait for room: a page leaves them sooner than a write ends.
    fn pool_gives(&self, seen: Seen, usage: &PoolUsage) -> bool {
        let may = self.driver.may_give && seen.tier_has_space && !seen.tier_slow && seen.level >= Level::BelowLow;
        let ages = self.objects.ages.as_ref().filter(|_| may);
        ages.is_some_and(|ages| ages.pool_gives(self.present_total(), usage.zpages, usage.frames.into(), seen.read_us))
    }

    /// Whether the writes under way are waited for, once more: under a synchronous scheme, unless
    /// the device does not answer.
    fn awaits_write(&mut self, seen: Seen) -> bool {
        let some_ended = self.driver.last == Some(Step::Reap) && seen.gained > 0;
        if some_ended || !seen.tier_busy {
            self.driver.waits = 0;
        }
        let waits =
            self.tunables.scheme.swap_format.synchronous != 0 && seen.tier_busy && self.driver.waits < WAITS_MAX;
        self.driver.waits += u32::from(waits);
        waits
    }

    fn compaction(&mut self) -> Option<Step> {
        let usage = self.pool_usage();
        let pays = compaction_pays(&usage) || usage.frames > self.pool_limit();
        (pays && self.driver.compact_pause == 0).then_some(Step::Compact)
    }

    fn compression(&self, tick: u64, seen: Seen) -> Option<Step> {
        if !seen.tier_has_space && self.driver.was_full(tick, FULL_PAUSE_MS) {
            return None;
        }
        // Waiting faults are served first: what is compressed now counts as compressed for them.
        let origin = match seen.level {
            level if level < Level::BelowLow => Origin::Direct,
            _ if !self.leaving.is_empty() => Origin::Process,
            _ => Origin::Background,
        };
        Some(Step::Compress { most: COMPRESS_CHUNK as u32, origin })
    }
}

impl Step {
    /// For the hash of the decisions.
    fn number(self) -> u64 {
        match self {
            Step::Compress { most, origin } => u64::from(most) << 8 | origin as u64,
            Step::WriteBack { pressed } => pressed.into(),
            Step::RoundEnds { stuck, trouble } => {
                u64::from(stuck) << 8 | trouble.map_or(0, |trouble| trouble as u64 + 1)
            }
            Step::Pause { us } => us.into(),
            _ => 0,
        }
    }
}

impl Driver {
    /// Applies what the last step gave.
    fn apply_result(&mut self, tick: u64, seen: Seen) {
        self.gained = self.gained.saturating_add(seen.gained);
        match self.last {
            Some(Step::Compact) if seen.blocked => self.compact_pause = COMPACT_PAUSE,
            Some(Step::WriteBack { .. }) => self.gave_nothing = self.giving && seen.gained == 0,
            Some(Step::Compress { .. }) if seen.blocked => {
                self.full_at = Some(tick);
                (self.pressed, self.then, self.next) = (true, self.next, Next::Shrink);
                self.giving = false;
            }
            _ => {}
        }
    }

    fn was_full(&self, tick: u64, within: u64) -> bool {
        self.full_at.is_some_and(|at| tick.saturating_sub(at) < within)
    }

    /// Judges the gain when a window is over: whether it is worth waiting for. It is so, too, while
    /// pages refuse to move and other runs had no turn yet. If it is not, faults go on over the
    /// budget. The user is told when that lasts. When there is no place for incompressible data,
    /// something must be done before the machine or a container's limit ends the run. `grows`: the
    /// pool may yet become larger.
    fn judge(&mut self, tick: u64, seen: Seen, enough: u32, grows: bool) -> Option<Trouble> {
        let window = self.window.as_mut()?;
        window.gained = window.gained.saturating_add(self.gained);
        window.rounds += 1;
        // A thread of the program that waits for a CPU will answer: until then this window goes on.
        if tick.saturating_sub(window.since) < WINDOW_MS || seen.answer_late {
            return None;
        }
        let worth_it = window.gained >= enough.min(window.rounds * ROUND_PAGES);
        // The last round counts: if it finds none, no others can move.
        self.stuck = !worth_it && !self.refused;
        self.refusals = if worth_it { 0 } else { self.refusals };
        *window = Window::begun(tick);
        let short = seen.level <= Level::Over;
        self.short_windows = if short { self.short_windows + u32::from(self.stuck) } else { 0 };
        // A gain is no way out yet: a page that is staged, or stored raw, has freed nothing.
        let far_over = seen.level == Level::FarOver;
        if !far_over {
            self.hopeless_windows = 0;
        }
        if !self.stuck {
            return None;
        }
        // At their floor the resident pages no longer fill the pool, which may have room.
        let takes_none = self.was_full(tick, FULL_MS) && !grows || self.pressed && seen.evicts;
        let hopeless = far_over && !seen.tier_has_space && takes_none;
        self.hopeless_windows = if hopeless { self.hopeless_windows + 1 } else { 0 };
        if self.short_windows == SHORT_WINDOWS {
            return Some(Trouble::Short);
        }
        // Again and again: what was done about it may not have been enough.
        (hopeless && self.hopeless_windows % HOPELESS_WINDOWS == 0).then_some(Trouble::Hopeless)
    }

    /// What follows a round.
    fn pause(&mut self, seen: Seen) -> Option<Step> {
        if self.gained > 0 || self.refused {
            self.idle_rounds = 0;
            return None;
        }
        self.idle_rounds = self.idle_rounds.saturating_add(1);
        if seen.tier_busy {
            return Some(Step::WaitForDevice);
        }
        self.reclaiming = false;
        Some(Step::Pause { us: PAUSE_US * self.idle_rounds.min(PAUSES_MAX) })
    }
}
