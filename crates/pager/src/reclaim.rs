//! The reclaim thread keeps memory free: it evicts pages of the tree, compresses the pages staged
//! longest, and writes the coldest pages of the pool to the swap tier.

use crate::blocks::BlockOutput;
use crate::compress::Compressor;
use crate::contents::ContentScanner;
use crate::proc::{Broken, Proc, STOPPED_AFTER};
use crate::sampling::Sampler;
use crate::state::Shared;
use crate::stopped;
use crate::swap::{Output, Room, Written};
use crate::trainer::Trainer;
use memfit_core::budget::{compaction_pays, COMPACT_MOVES, COMPRESS_CHUNK, ROOM_AGAIN, SLOW_DEVICE_NS};
use memfit_core::{ObjectId, Origin, BATCH_VICTIMS};
use memfit_os::procfs::{self, Hold};
use memfit_os::sched::Cpus;
use memfit_os::unevictable;
use memfit_wire::{BATCH_PAGES, BATCH_RANGES};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

// The victims of one core call fit into one batch.
const _: () = assert!(BATCH_VICTIMS <= BATCH_RANGES);

/// Pages that reclaim must gain in a window to be worth waiting for.
const PACE_PAGES: usize = 64;
const PACE_WINDOW: Duration = Duration::from_millis(50);
/// Windows without enough gain, all of them over the budget, before the user is warned: 5 s.
const SHORT_WINDOWS: u32 = 100;
/// Most kinds of memory that this warning names.
const KEPT_NAMED: usize = 3;
/// Excess over the budget that is worth a warning, bytes and percent, whichever is more: less is
/// under way.
const SHORT_BYTES: u64 = 1 << 20;
const SHORT_PERCENT: u64 = 2;
/// Hopeless windows in a row before the run is ended.
const HOPELESS_WINDOWS: u32 = 2;
/// Pause of compression after the pool had no room for a page.
const FULL_PAUSE: Duration = Duration::from_millis(2);
/// Excess over the budget at which the run is ended if neither pool nor tier takes a page, percent.
const FAR_OVER_PERCENT: u64 = 20;
/// Objects of a segment that are cleaned between two checks of the batches.
const CLEAN_CHUNK: usize = 64;
/// Time for cleaning between two checks of the batches when the tier is full.
const CLEAN_TIME: Duration = Duration::from_millis(20);
/// Rounds without compaction after one that found nothing to move.
const COMPACT_PAUSE: u32 = 64;

/// Buffers and contexts of the thread.
struct Reclaimer {
    shared: Arc<Shared>,
    compressor: Compressor,
    /// Writes to the swap tier, if there is one.
    writer: Option<Output>,
    blocks: BlockOutput,
    /// Set if accesses are recorded.
    sampler: Option<Sampler>,
    scanner: Option<ContentScanner>,
    cpus: Cpus,
    avoids: Option<usize>,
    idle_rounds: u32,
    /// Rounds until compaction is tried again.
    compact_pause: u32,
    short_windows: u32,
    hopeless_windows: u32,
    swap_full: bool,
    /// The last value given to `Core::set_busy`.
    busy: bool,
    /// When the pool last had no room for a page.
    full_at: Option<Instant>,
}

/// Runs until the pager ends.
pub fn run(shared: Arc<Shared>) {
    let mut reclaimer = Reclaimer {
        shared: Arc::clone(&shared),
        compressor: Compressor::new(&shared.dictionaries, Some(Trainer::new(shared.sizes.budget))),
        writer: shared.swap.clone().map(Output::new),
        blocks: BlockOutput::new(&shared.dictionaries),
        sampler: Sampler::new(&shared),
        scanner: ContentScanner::new(&shared),
        cpus: Cpus::of_this_thread(),
        avoids: None,
        idle_rounds: 0,
        compact_pause: 0,
        short_windows: 0,
        hopeless_windows: 0,
        swap_full: false,
        busy: false,
        full_at: None,
    };
    let mut seen = 0;
    let mut pace = Pace { since: Instant::now(), gained: 0 };
    while !shared.ending.load(Relaxed) {
        if shared.free() >= shared.marks().low as i64 {
            shared.stuck.store(false, Relaxed);
            reclaimer.short_windows = 0;
            reclaimer.flush();
            let nap = reclaimer.sample().min(reclaimer.nap());
            seen = shared.wait_for_work(seen, nap);
            pace = Pace { since: Instant::now(), gained: 0 };
            reclaimer.collect_all();
            reclaimer.written();
            reclaimer.clean();
            continue;
        }
        while shared.free() < shared.marks().high as i64 && !shared.ending.load(Relaxed) {
            let gained = reclaimer.round();
            pace.gained += gained;
            if let Some(enough) = pace.judge() {
                reclaimer.tell_shortage(enough);
                shared.stuck.store(!enough, Relaxed);
            }
            shared.made_progress();
            if gained == 0 {
                reclaimer.idle_rounds += 1;
                if reclaimer.wait_for_device() {
                    continue;
                }
                std::thread::sleep(Duration::from_micros(500 * u64::from(reclaimer.idle_rounds.min(20))));
                break;
            }
            reclaimer.idle_rounds = 0;
        }
        shared.made_progress();
    }
}

/// What reclaim gains. If that is next to nothing (pages shared after a fork, a stopped process),
/// faults do not wait for it: they would wait for ever.
struct Pace {
    since: Instant,
    gained: usize,
}

impl Pace {
    /// Every [`PACE_WINDOW`]: whether the gain was worth waiting for.
    fn judge(&mut self) -> Option<bool> {
        if self.since.elapsed() < PACE_WINDOW {
            return None;
        }
        let enough = self.gained >= PACE_PAGES;
        (self.since, self.gained) = (Instant::now(), 0);
        Some(enough)
    }
}

impl Reclaimer {
    /// One round: batches, compression, writeback. Returns how many pages it moved on.
    fn round(&mut self) -> usize {
        self.make_way();
        let mut gained = self.compact();
        if gained > 0 && self.shared.free() >= self.shared.marks().high as i64 {
            return gained;
        }
        self.post();
        let slots_short = self.slots_short();
        gained += if slots_short { self.compress(COMPRESS_CHUNK) } else { 0 };
        self.write_raw();
        gained += self.written();
        // A batch that took no page (shared after a fork, pinned) is no gain.
        gained += self.collect_all();
        if gained == 0 {
            self.wait_for_batch();
            gained = self.collect_all();
        }
        let below_floor = self.below_floor();
        if below_floor || self.wants_room() {
            gained += self.make_pool_smaller(below_floor);
        }
        if gained == 0 {
            self.flush();
        }
        self.clean();
        gained
    }

    /// Evicts sampled pages and samples page contents, if accesses are recorded. Returns when there
    /// is more to do.
    fn sample(&mut self) -> Duration {
        if self.sampler.is_none() {
            return Duration::MAX;
        }
        self.make_way();
        let Some(sampler) = &mut self.sampler else { return Duration::MAX };
        let step = sampler.step();
        if step.short {
            // Sampled pages are staged like others: the pages staged first go on to the pool.
            self.compress(COMPRESS_CHUNK);
            self.write_raw();
        }
        step.within.min(self.scanner.as_mut().map_or(Duration::MAX, ContentScanner::step))
    }

    /// Keeps this thread off the CPU of a program that is alone in the tree. The program's fault
    /// thread is SCHED_IDLE there, so the kernel takes the CPU for idle and puts this thread on it,
    /// and the program waits until this thread sleeps.
    fn make_way(&mut self) {
        let shared = &self.shared;
        let alone = shared.idle_class.load(Relaxed) && shared.procs.lock().len() == 1;
        let avoids = if alone { shared.fault_cpu.load(Relaxed).checked_sub(1) } else { None };
        if avoids != self.avoids {
            self.avoids = avoids;
            self.cpus.apply(avoids);
        }
    }

    /// Whether the resident pages are at their floor: then only the pool can give.
    fn below_floor(&self) -> bool {
        let state = self.shared.lock();
        let (present, pool) = (state.core.present_total() * 4096, state.core.pool_usage());
        let overflows = state.core.overflows();
        drop(state);
        // Unregistered memory is resident as well.
        let unmanaged = self.shared.unmanaged.load(Relaxed);
        let below = self.shared.sizes.below_floor(present, unmanaged, &pool, self.can_write());
        if overflows {
            // Nothing leaves the pool: it keeps its size, and evicted pages go to the swap tier.
            self.shared.lock().core.close_pool(below);
        }
        below && !overflows
    }

    /// Whether pages shall leave the pool though it has room. Lets the core adapt the pool's size.
    fn wants_room(&self) -> bool {
        let mut state = self.shared.lock();
        state.core.adapt(self.shared.tick());
        let wants = state.core.wants_room();
        self.shared.apply_effects(state);
        wants
    }

    /// Whether the swap tier takes pages.
    fn can_write(&self) -> bool {
        self.writer.as_ref().is_some_and(Output::usable)
    }

    /// Whether a batch would find too few staging slots.
    fn slots_short(&self) -> bool {
        let state = self.shared.lock();
        let cap = self.shared.sizes.staging / 4096;
        state.core.totals_staged() + (BATCH_PAGES as u64).min(cap / 2) > cap
    }

    /// Posts a batch to every process that can take one, oldest pages first.
    fn post(&mut self) {
        if self.below_floor() {
            return;
        }
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let mut tried = Vec::new();
        loop {
            // The core must only choose processes whose `io` is free, so these are locked in
            // advance.
            let mut free: Vec<_> = procs
                .iter()
                .filter(|p| !tried.contains(&p.id))
                .filter_map(|p| p.io.try_lock().filter(|io| p.idle(io)).map(|io| (p, io)))
                .collect();
            let mut dontfork_posted = Vec::new();
            free.retain_mut(|(p, io)| {
                let posted = p.post_dontfork(io);
                dontfork_posted.extend(posted.then(|| Arc::clone(p)));
                !posted
            });
            dontfork_posted.iter().for_each(|p| p.ring_bell());
            if free.is_empty() {
                return;
            }
            let ids: Vec<_> = free.iter().map(|(p, _)| p.id).collect();
            let max = (self.shared.scheme.reclaim.batch_pages as usize).min(BATCH_PAGES);
            let mut state = self.shared.lock();
            let picked = state.core.pick_victims(max, self.shared.tick(), &|id| ids.contains(&id));
            self.shared.apply_effects(state);
            let Some((id, victims)) = picked else { return };
            let Some((proc, io)) = free.iter_mut().find(|(p, _)| p.id == id) else { return };
            proc.post(io, victims);
            let proc = Arc::clone(proc);
            drop(free);
            proc.ring_bell();
            tried.push(id);
        }
    }

    /// Collects the answers of all stubs; returns how many pages were evicted.
    fn collect_all(&mut self) -> usize {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let mut pages = 0;
        for proc in procs {
            let Some(mut io) = proc.io.try_lock() else { continue };
            match proc.collect(&self.shared, &mut io, false) {
                Ok(taken) => pages += taken,
                Err(Broken(why)) => {
                    drop(io);
                    proc.stop(&self.shared, &why);
                }
            }
        }
        pages
    }

    /// Waits a little for a batch under way that can still answer.
    fn wait_for_batch(&self) {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let now = Instant::now();
        for proc in procs {
            let Some((number, posted)) = proc.io.try_lock().and_then(|io| io.busy.then_some((io.number, io.posted)))
            else {
                continue;
            };
            if posted.is_some_and(|p| now - p < STOPPED_AFTER) {
                proc.wait_finished(number, Duration::from_millis(2));
                return;
            }
            stopped::run_stub(&self.shared, &proc);
        }
    }

    /// Compresses up to `max` of the oldest staged pages. Returns how many went into the pool.
    fn compress(&mut self, max: usize) -> usize {
        if !self.swap_gives() && self.full_at.is_some_and(|at| at.elapsed() < FULL_PAUSE) {
            return 0;
        }
        let busy = self.shared.cpus_full.load(Relaxed)
            && self.can_write()
            && self.shared.swap.as_deref().is_some_and(|swap| !swap.is_slow(SLOW_DEVICE_NS));
        if busy != self.busy {
            self.busy = busy;
            self.shared.lock().core.set_busy(busy);
        }
        // Waiting faults are served first: what is compressed now counts as compressed for them.
        let waited_for = self.shared.free() < self.shared.marks().min as i64;
        let origin = if waited_for { Origin::Direct } else { Origin::Background };
        let outcome = self.compressor.compress(&self.shared, max, origin);
        if outcome.full {
            self.full_at = Some(Instant::now());
            self.make_pool_smaller(true);
        }
        outcome.done
    }

    /// Frees frames, by compaction if it pays, else by writeback of the coldest objects. Unless
    /// `pressed`, only the objects that are due leave. Returns the number of frames or objects.
    fn make_pool_smaller(&mut self, pressed: bool) -> usize {
        match self.compact() {
            0 => self.write_back(pressed),
            frames => frames,
        }
    }

    /// Empties the emptiest zspages if the pool has enough waste. Returns how many frames that
    /// freed.
    fn compact(&mut self) -> usize {
        if self.compact_pause > 0 {
            self.compact_pause -= 1;
            return 0;
        }
        let mut state = self.shared.lock();
        let usage = state.core.pool_usage();
        if !compaction_pays(&usage) && usage.frames <= state.core.pool_limit() {
            return 0;
        }
        let before = usage.frames;
        let steps = state.core.compact(COMPACT_MOVES);
        if steps.is_empty() {
            self.compact_pause = COMPACT_PAUSE;
        }
        for step in steps {
            // SAFETY: the core moved the object, nobody has it pinned, and the lock is held.
            unsafe { self.shared.memory.shift(step.from.byte(), step.to.byte(), step.len as usize) };
        }
        let freed = before.saturating_sub(state.core.pool_usage().frames) as usize;
        self.shared.apply_effects(state);
        freed
    }

    /// Begins to write a segment of the coldest pooled objects. Returns how many objects left
    /// memory by earlier writes.
    fn write_back(&mut self, pressed: bool) -> usize {
        let shared = Arc::clone(&self.shared);
        let gained = self.written();
        let writer = match &mut self.writer {
            None => return 0,
            Some(Output::Log(writer)) => writer,
            Some(Output::Blocks(writer)) => {
                self.blocks.write_back(&shared, writer, pressed);
                return gained;
            }
        };
        let bytes = match writer.batch() {
            Ok(bytes) => bytes,
            Err(Room::No) => {
                self.full();
                return gained;
            }
            Err(_) => return gained,
        };
        let mut victims = Vec::new();
        let mut state = shared.lock();
        state.core.pick_writeback(pressed, bytes, &mut victims);
        shared.apply_effects(state);
        for victim in victims {
            // SAFETY: while the object is being written its bytes stay.
            let bytes = unsafe { shared.memory.read(victim.slot.byte(), victim.len as usize) };
            writer.add(victim.object, victim.codec, bytes, None);
        }
        writer.flush();
        gained
    }

    /// Begins to write staged pages to the swap tier uncompressed.
    fn write_raw(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut items = std::mem::take(&mut *shared.raw.lock());
        let mut refused = Vec::new();
        if let Some(Output::Blocks(writer)) = &mut self.writer {
            self.blocks.write_raw(&shared, writer, &mut items, &mut refused);
            if !items.is_empty() {
                shared.raw.lock().splice(0..0, items);
            }
            self.keep(&refused);
            return;
        }
        let mut done = 0;
        while let Some(item) = items.get(done).copied() {
            let mut writer = self.writer.as_mut().and_then(Output::log);
            let room = writer.as_mut().map_or(Room::No, |writer| writer.room(4096, false));
            match (room, writer) {
                (Room::Later, _) => break,
                (Room::Yes, Some(writer)) => {
                    done += 1;
                    let area = shared.lock().segments.get(&item.slot.area).cloned();
                    match area {
                        Some(area) => {
                            // SAFETY: the core keeps the slot until `written`.
                            let bytes = unsafe { area.page(crate::proc::slot_offset(item.slot.index)) };
                            writer.add(item.object, 0, bytes, None);
                        }
                        None => refused.push(item.object),
                    }
                }
                _ => {
                    refused.extend(items.drain(done..).map(|item| item.object));
                    self.full();
                }
            }
        }
        items.drain(..done);
        if !items.is_empty() {
            shared.raw.lock().splice(0..0, items);
        }
        self.keep(&refused);
    }

    /// Reports to the core that these objects were not written and stay where they are.
    fn keep(&mut self, objects: &[ObjectId]) {
        if objects.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        objects.iter().for_each(|&object| state.core.written(object, None));
        self.shared.apply_effects(state);
    }

    /// Submits buffered writes at once.
    fn flush(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.flush();
        }
    }

    /// Handles finished writes. Returns how many objects have left memory by them.
    fn written(&mut self) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        let unchanged =
            |writer: &mut Output, from, sequence| writer.log().is_some_and(|log| log.unchanged(from, sequence));
        let (mut left, mut failures) = (0, Vec::new());
        for Written { items, error } in writer.reap() {
            let mut state = self.shared.lock();
            for item in &items {
                match (item.from, &error) {
                    (None, None) => state.core.written(item.object, Some(item.stored.extent)),
                    (None, Some(_)) => state.core.written(item.object, None),
                    (Some((from, sequence)), None) if unchanged(writer, from, sequence) => {
                        state.core.relocated(item.object, from.extent, item.stored);
                    }
                    // The object left while it was copied, or the write of the copy failed.
                    (Some(_), _) => {}
                }
                let lost =
                    error.is_some() || item.from.is_some_and(|(from, sequence)| !unchanged(writer, from, sequence));
                if let (true, Some(swap)) = (lost, &self.shared.swap) {
                    swap.free(item.stored.extent, item.stored.len);
                }
            }
            left += if error.is_none() { items.iter().filter(|item| item.from.is_none()).count() } else { 0 };
            if error.is_some() && !writer.usable() {
                state.core.swap_takes(false);
            }
            self.shared.apply_effects(state);
            failures.extend(error);
        }
        if let Some(Output::Blocks(writer)) = &mut self.writer {
            self.blocks.go_on(&self.shared, writer);
        }
        failures.iter().for_each(|error| self.tell_failure(error));
        left
    }

    /// Cleans a segment full of holes if that pays: appends its live objects anew, so that the
    /// segment can be used again.
    fn clean(&mut self) {
        // While the tier is full everything else waits for this.
        let until = Instant::now() + if self.swap_full { CLEAN_TIME } else { Duration::ZERO };
        loop {
            self.clean_step();
            self.no_longer_full();
            let cleaning = self.writer.as_ref().is_some_and(Output::cleaning);
            if !self.swap_full || !cleaning || Instant::now() >= until {
                return;
            }
            if let Some(writer) = &mut self.writer {
                writer.wait(2);
            }
            self.written();
        }
    }

    fn clean_step(&mut self) {
        let Some(writer) = self.writer.as_mut().and_then(Output::log) else { return };
        writer.begin_cleaning();
        while let Some((segment, objects)) = writer.next_to_clean(CLEAN_CHUNK) {
            let state = self.shared.lock();
            let movable = |object: &ObjectId| Some((*object, state.core.movable(*object, segment)?));
            let live: Vec<_> = objects.iter().filter_map(movable).collect();
            drop(state);
            for (i, &(object, stored)) in live.iter().enumerate() {
                if !writer.append_again(object, stored) {
                    writer.clean_later(live[i..].iter().map(|(object, _)| *object));
                    return;
                }
            }
            if !self.swap_full {
                return;
            }
        }
    }

    /// How long to sleep when there is nothing to reclaim.
    fn nap(&self) -> Duration {
        let busy = self.writer.as_ref().is_some_and(|writer| writer.busy() || writer.cleaning());
        Duration::from_millis(if busy { 5 } else { 100 })
    }

    /// Waits for a write under way. False if there is none.
    fn wait_for_device(&mut self) -> bool {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.busy()) else { return false };
        writer.wait(5);
        true
    }

    fn tell_failure(&self, error: &std::io::Error) {
        self.shared.warn(match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                format!("the swap tier cannot grow: {error}; going on with what it has, the other pages stay in RAM")
            }
            _ => format!("cannot write to the swap tier: {error}; going on without it, pages stay in RAM"),
        });
    }

    /// Notes that the swap tier has no room.
    fn full(&mut self) {
        if self.can_write() {
            self.shared
                .warn("the swap tier has its full size: raise --swap-size, or name more places with --swap".into());
        }
        self.swap_full = true;
        self.shared.lock().core.swap_takes(false);
    }

    /// Notes if it has room again.
    fn no_longer_full(&mut self) {
        let enough = |swap: &crate::swap::SwapTier| swap.free_bytes() >= ROOM_AGAIN;
        if self.swap_full && self.can_write() && self.shared.swap.as_deref().is_some_and(enough) {
            self.swap_full = false;
            self.shared.lock().core.swap_takes(true);
        }
    }

    /// Called after each window. If reclaim did not gain enough in it, faults go on over the
    /// budget. Warns once when that lasts. Ends the run when there is no place for incompressible
    /// data, before the machine or a container's limit does.
    fn tell_shortage(&mut self, enough: bool) {
        let over = -self.shared.free();
        let budget = self.shared.sizes.budget;
        let short = over > SHORT_BYTES.max(budget / 100 * SHORT_PERCENT) as i64;
        self.short_windows = if short { self.short_windows + u32::from(!enough) } else { 0 };
        if enough {
            return;
        }
        let hopeless = over > (budget / 100 * FAR_OVER_PERCENT) as i64 && !self.swap_gives() && self.pool_is_full();
        self.hopeless_windows = if hopeless { self.hopeless_windows + 1 } else { 0 };
        if self.hopeless_windows == HOPELESS_WINDOWS {
            let (over, budget) = (over >> 20, budget >> 20);
            let swap = match (&self.writer, self.can_write()) {
                (None, _) => "there is no swap tier: allow one with --swap DIR",
                (_, true) => "the swap tier is full: raise --swap-size or add a place with --swap",
                (_, false) => "the swap tier takes no writes any more, see above",
            };
            self.shared.fatal(format!(
                "out of memory: the programs are {over} MiB over the budget of {budget} MiB with data that does not compress \
                 further, and {swap}; or raise -m"
            ));
        } else if self.short_windows == SHORT_WINDOWS {
            let over = over >> 20;
            self.shared.warn(match self.held() {
                Some(held) => format!(
                    "the programs are {over} MiB over the budget, because {held}: its pages cannot be taken away as they \
                     should until that ends"
                ),
                None => format!(
                    "the budget is {over} MiB too small for what cannot be taken away at the moment{}; raise -m, or allow a \
                     swap tier with --swap DIR",
                    self.kept()
                ),
            });
        }
    }

    /// The largest kinds of memory that cannot be evicted, in words.
    fn kept(&self) -> String {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let mut all = Vec::new();
        for (proc, pid) in procs.iter().filter_map(|proc| Some((proc, proc.pid()?))) {
            let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
            all.extend(
                unevictable::kept(&smaps, proc.closed.load(Relaxed))
                    .into_iter()
                    .map(|(kind, bytes)| (bytes >> 20, kind, pid)),
            );
        }
        all.retain(|&(mebibytes, ..)| mebibytes > 0);
        all.sort_by_key(|&(mebibytes, ..)| std::cmp::Reverse(mebibytes));
        let of = |&(mebibytes, kind, pid): &(u64, unevictable::Kept, i32)| {
            format!("{mebibytes} MiB {kind} of {} ({pid})", procfs::comm(pid).unwrap_or_default())
        };
        let named: Vec<String> = all.iter().take(KEPT_NAMED).map(of).collect();
        if named.is_empty() {
            String::new()
        } else {
            format!(" ({})", named.join(", "))
        }
    }

    /// Names a process that is stopped or traced, and its stub with it.
    fn held(&self) -> Option<String> {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let named = |pid| match procfs::comm(pid) {
            Some(comm) => format!("{comm} ({pid})"),
            None => "another program".into(),
        };
        procs.iter().filter_map(|proc| proc.identity.get()).find_map(|identity| match procfs::hold(identity.pid)? {
            Hold::Stopped => Some(format!("{} is stopped", named(identity.pid))),
            Hold::Traced(tracer) => Some(format!("{} is traced by {}", named(identity.pid), named(tracer))),
        })
    }

    /// Whether the swap tier can still take something.
    fn swap_gives(&self) -> bool {
        let room = match &self.writer {
            Some(Output::Blocks(_)) => self.shared.swap.as_ref().is_some_and(|swap| swap.free_bytes() > 0),
            _ => true,
        };
        room && self.can_write() && (!self.swap_full || self.writer.as_ref().is_some_and(|writer| writer.cleaning()))
    }

    fn pool_is_full(&self) -> bool {
        self.full_at.is_some_and(|at| at.elapsed() < PACE_WINDOW * 4)
    }
}
