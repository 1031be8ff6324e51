//! The reclaim thread keeps memory free: it evicts pages of the tree, compresses the pages staged
//! longest, and writes the coldest pages of the pool to the swap tier. The core says which step
//! comes next ([`memfit_core::driver`]), and this module carries it out.

use crate::blocks::BlockOutput;
use crate::compress::Compressor;
use crate::contents::ContentScanner;
use crate::oom::Oom;
use crate::proc::{Broken, Proc, STOPPED_AFTER};
use crate::sampling::Sampler;
use crate::sharers::{self, Found, Looks};
use crate::shortage::{self, Tier};
use crate::state::Shared;
use crate::stopped;
use crate::swap::{Allowance, Output, Room, Written};
use crate::trainer::Trainer;
use memfit_core::budget::{COMPACT_MOVES, COMPRESS_CHUNK, ROOM_AGAIN, SLOW_DEVICE_NS};
use memfit_core::driver::{Done, Seen, Step, Trouble};
use memfit_core::{ObjectId, Origin, BATCH_VICTIMS, PAGE_BYTES};
use memfit_os::procfs::{hold, Hold};
use memfit_os::sched::Cpus;
use memfit_wire::BATCH_RANGES;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

// The victims of one core call fit into one batch.
const _: () = assert!(BATCH_VICTIMS <= BATCH_RANGES);

/// A process that is not stopped answers a batch within this time, however busy the machine is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Objects of a segment that are cleaned between two checks of the batches.
const CLEAN_CHUNK: usize = 64;
/// Time for cleaning between two checks of the batches when the tier is full.
const CLEAN_TIME: Duration = Duration::from_millis(20);

/// Buffers and contexts of the thread.
struct Reclaimer {
    shared: Arc<Shared>,
    compressor: Compressor,
    /// Writes to the swap tier, if there is one.
    writer: Option<Output>,
    blocks: BlockOutput,
    /// A page, or the compressed bytes of one, on its way to the swap tier.
    page: Box<[u8]>,
    /// Set if accesses are recorded.
    sampler: Option<Sampler>,
    scanner: Option<ContentScanner>,
    cpus: Cpus,
    avoids: Option<usize>,
    swap_full: bool,
    /// A device had no space for more, whatever --swap-size allows.
    disk_full: bool,
    /// How much may be written to the swap tier, if that is limited.
    allowance: Option<Allowance>,
    oom: Oom,
    /// A process that could answer has not yet answered a batch in this round.
    answer_late: bool,
    /// Looks at which pages fork relatives share.
    looks: Looks,
    /// Free memory when the core last decided, bytes.
    free: i64,
    /// How often reclaim was wanted when it last looked.
    raised: u64,
}

/// Runs until the pager ends.
pub fn run(shared: Arc<Shared>, oom: Oom, allowance: Option<Allowance>) {
    let budget = shared.budget.sizes.budget;
    let mut reclaimer = Reclaimer {
        shared: Arc::clone(&shared),
        compressor: Compressor::new(&shared.dictionaries, budget, Some(Trainer::new(budget))),
        writer: shared.swap.clone().map(Output::new),
        blocks: BlockOutput::new(&shared.dictionaries),
        page: vec![0; PAGE_BYTES as usize].into(),
        sampler: Sampler::new(&shared),
        scanner: ContentScanner::new(&shared),
        cpus: Cpus::of_this_thread(),
        avoids: None,
        swap_full: false,
        disk_full: false,
        allowance,
        oom,
        answer_late: false,
        looks: Looks::default(),
        free: 0,
        raised: 0,
    };
    let mut done = Done::default();
    while !shared.ending.load(Relaxed) {
        let step = reclaimer.next_step(&done);
        done = reclaimer.carry_out(step);
    }
    reclaimer.oom.end(&shared);
}

impl Reclaimer {
    fn next_step(&mut self, done: &Done) -> Step {
        self.mind_allowance();
        self.free = self.shared.budget.free();
        let shared = &self.shared;
        let seen = Seen {
            level: shared.budget.sizes.level(&shared.budget.marks(), self.free),
            gained: done.gained,
            blocked: done.blocked,
            unmanaged: (shared.budget.unmanaged.load(Relaxed) / PAGE_BYTES) as u32,
            evicts: true,
            tier_writable: self.can_write(),
            tier_has_space: self.swap_gives(),
            tier_slow: shared.swap.as_deref().is_some_and(|swap| swap.is_slow(SLOW_DEVICE_NS)),
            tier_busy: self.writer.as_ref().is_some_and(Output::busy),
            cpus_full: shared.cpus.full.load(Relaxed),
            answer_late: self.answer_late,
            read_us: shared.meters.latency.mean_read_us(),
        };
        let mut state = shared.lock();
        let step = state.core.next_step(shared.tick(), seen);
        shared.apply_effects(state);
        step
    }

    fn carry_out(&mut self, step: Step) -> Done {
        match step {
            Step::Sleep => self.sleep(),
            Step::Compact => return self.compact(),
            Step::Evict => self.post(),
            Step::Compress { most, origin } => return self.compressor.compress(&self.shared, most as usize, origin),
            Step::WriteRaw => self.write_raw(),
            Step::Reap => return Done::gained(self.written()),
            Step::Collect => return Done::gained(self.collect_all()),
            Step::WaitForBatch => self.wait_for_batch(),
            Step::WriteBack { pressed } => return Done::gained(self.write_back(pressed)),
            Step::Flush => self.flush(),
            Step::Clean => return Done::gained(self.clean()),
            Step::RoundEnds { stuck, trouble } => {
                self.answer_late = false;
                self.shared.budget.stuck.store(stuck, Relaxed);
                let over = self.over();
                let hopeless = stuck && over > self.shared.budget.sizes.far_over && !self.swap_gives();
                let holds = self.oom.holds(&self.shared, hopeless, over) && !self.swap_gives();
                self.shared.budget.holds.store(holds, Relaxed);
                trouble.into_iter().for_each(|trouble| self.tell(trouble));
                self.oom.go_on(&self.shared, false);
                self.shared.budget.made_progress();
                self.make_way();
            }
            Step::WaitForDevice => self.writer.iter_mut().for_each(|writer| writer.wait(5)),
            Step::Pause { us } => {
                std::thread::sleep(Duration::from_micros(us.into()));
                self.shared.budget.made_progress();
            }
        }
        Done::default()
    }

    fn sleep(&mut self) {
        self.shared.budget.stuck.store(false, Relaxed);
        self.flush();
        let nap = self.sample().min(self.nap());
        self.oom.go_on(&self.shared, true);
        self.raised = self.shared.budget.wait_for_work(self.raised, nap);
        self.make_way();
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
            if self.compressor.compress(&self.shared, COMPRESS_CHUNK, Origin::Background).blocked {
                self.write_back(true);
            }
            self.write_raw();
        }
        step.within.min(self.scanner.as_mut().map_or(Duration::MAX, ContentScanner::step))
    }

    /// Keeps this thread off the CPU of a program that is alone in the tree. The program's fault
    /// thread is SCHED_IDLE there, so the kernel takes the CPU for idle and puts this thread on it,
    /// and the program waits until this thread sleeps.
    fn make_way(&mut self) {
        let shared = &self.shared;
        let alone = shared.cpus.idle_class.load(Relaxed) && shared.procs.lock().len() == 1;
        let avoids = if alone { shared.cpus.of_faults.load(Relaxed).checked_sub(1) } else { None };
        if avoids != self.avoids {
            self.avoids = avoids;
            self.cpus.apply(avoids);
        }
    }

    /// Whether the swap tier takes pages.
    fn can_write(&self) -> bool {
        self.writer.as_ref().is_some_and(Output::usable)
    }

    /// Posts a batch to every process that can take one, oldest pages first.
    fn post(&mut self) {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        self.looks.begin(&self.shared, &procs);
        let (mut tried, mut takes_shared, mut looked) = (Vec::new(), false, false);
        loop {
            // The core must only choose processes whose `io` is free, so these are locked in
            // advance.
            let mut free: Vec<_> = procs
                .iter()
                .filter(|p| !tried.contains(&p.id))
                .filter_map(|p| p.io.try_lock().filter(|io| p.idle(io)).map(|io| (p, io)))
                .collect();
            let mut posted = Vec::new();
            free.retain_mut(|(p, io)| {
                let dontfork = p.post_dontfork(io);
                posted.extend(dontfork.then(|| Arc::clone(p)));
                !dontfork
            });
            posted.drain(..).for_each(|p| p.ring_bell());
            let cache = self.shared.cache.idle().filter(|cache| !tried.contains(&cache.id()));
            if free.is_empty() && cache.is_none() {
                return;
            }
            let (max, tick) = (self.shared.scheme.reclaim.batch_pages as usize, self.shared.tick());
            let may = |id| cache.as_ref().is_some_and(|c| c.id() == id) || free.iter().any(|(p, _)| p.id == id);
            let mut state = self.shared.lock();
            let aside = state.core.pages_aside();
            let picked = match takes_shared {
                false => state.core.pick_victims(max, tick, &may),
                true => state.core.pick_shared(max, tick, &may),
            };
            // Behind the runs that were set aside there are others.
            let goes_on = state.core.pages_aside() > aside;
            self.shared.apply_effects(state);
            let Some(picked) = picked else {
                drop((free, cache));
                if goes_on && !takes_shared {
                    continue;
                }
                if takes_shared || looked || !tried.is_empty() {
                    return;
                }
                match self.looks.judge(&self.shared) {
                    Found::Others => looked = true,
                    Found::Shared => takes_shared = true,
                    Found::Nothing => return,
                }
                continue;
            };
            if let Some(cache) = cache.filter(|cache| cache.id() == picked.0) {
                drop(free);
                tried.push(picked.0);
                cache.evict(&self.shared, &picked.1);
                continue;
            }
            let mut batches = vec![picked];
            if takes_shared {
                sharers::join(&self.shared, free.iter().map(|(p, _)| &***p), &mut batches);
            }
            for (id, victims) in batches {
                let (proc, io) = free.iter_mut().find(|(p, _)| p.id == id).expect("the core chose these");
                proc.post(io, victims);
                posted.push(Arc::clone(proc));
                tried.push(id);
            }
            drop(free);
            posted.iter().for_each(|p| p.ring_bell());
        }
    }

    /// Collects the answers of all stubs; returns how many pages were evicted.
    fn collect_all(&mut self) -> usize {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let mut pages = self.shared.cache.take_evicted();
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
    fn wait_for_batch(&mut self) {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let now = Instant::now();
        for proc in procs {
            let Some((number, posted)) = proc.io.try_lock().and_then(|io| io.busy.then_some((io.number, io.posted)))
            else {
                continue;
            };
            let waits = posted.map_or(Duration::MAX, |posted| now - posted);
            let held = if waits < STOPPED_AFTER { None } else { proc.pid().and_then(hold) };
            if held.is_none() && waits < ANSWERS_WITHIN {
                self.answer_late = true;
                proc.wait_finished(number, Duration::from_millis(2));
                return;
            }
            if held == Some(Hold::Stopped) {
                stopped::run_stub(&self.shared, &proc);
            }
        }
    }

    /// Empties the emptiest zspages.
    fn compact(&mut self) -> Done {
        let mut state = self.shared.lock();
        let before = state.core.pool_usage().frames;
        let steps = state.core.compact(COMPACT_MOVES);
        let blocked = steps.is_empty();
        self.shared.move_objects(&state, steps);
        let gained = before.saturating_sub(state.core.pool_usage().frames);
        self.shared.apply_effects(state);
        Done { gained, blocked }
    }

    /// Begins to write a segment of the coldest pooled objects. Returns how many objects left
    /// memory by earlier writes, or were dropped.
    fn write_back(&mut self, pressed: bool) -> usize {
        let shared = Arc::clone(&self.shared);
        let gained = self.written();
        if self.is_spent() {
            return gained + self.drop_files(pressed);
        }
        let writer = match &mut self.writer {
            None => return self.drop_files(pressed),
            Some(Output::Log(writer)) => writer,
            Some(Output::Blocks(writer)) if writer.usable() => {
                return gained + self.blocks.write_back(&shared, writer, pressed);
            }
            Some(Output::Blocks(_)) => return gained + self.drop_files(pressed),
        };
        let bytes = match writer.batch() {
            Ok(bytes) => bytes,
            Err(Room::No) => {
                self.full();
                return gained + self.drop_files(pressed);
            }
            Err(_) => return gained,
        };
        let mut victims = Vec::new();
        let mut state = shared.lock();
        let dropped = state.core.pick_writeback(pressed, bytes, &mut victims);
        shared.apply_effects(state);
        for victim in victims {
            // While the object is being written its bytes stay.
            let bytes = &mut self.page[..victim.runs.len() as usize];
            shared.read_pooled(&victim.runs, bytes);
            writer.add(victim.object, victim.codec, bytes, None);
        }
        writer.flush();
        gained + dropped
    }

    /// The swap tier takes nothing: clean pages of files can still leave the pool. Returns how many
    /// did.
    fn drop_files(&self, pressed: bool) -> usize {
        if !self.shared.takes_files() {
            return 0;
        }
        let mut state = self.shared.lock();
        let dropped = state.core.pick_writeback(pressed, 0, &mut Vec::new());
        self.shared.apply_effects(state);
        dropped
    }

    /// Begins to write staged pages to the swap tier uncompressed.
    fn write_raw(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut items = std::mem::take(&mut *shared.raw.lock());
        let mut refused = Vec::new();
        if self.is_spent() {
            refused.extend(items.iter().map(|item| item.object));
            return self.keep(&refused);
        }
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
                            // The core keeps the slot until `written`.
                            area.copy_page(crate::proc::slot_offset(item.slot.index), &mut self.page);
                            writer.add(item.object, 0, &self.page, None);
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
        for Written { items, error, device } in writer.reap() {
            let mut state = self.shared.lock();
            for item in &items {
                match (item.from, &error) {
                    (None, None) => state.core.written(item.object, Some(item.stored.extent)),
                    (None, Some(_)) if writer.log().is_none() => state.core.refused(item.object),
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
            failures.extend(device.zip(error));
        }
        if let Some(Output::Blocks(writer)) = &mut self.writer {
            self.blocks.go_on(&self.shared, writer);
        }
        failures.iter().for_each(|(device, error)| self.tell_failure(*device, error));
        left
    }

    /// Cleans a segment full of holes if that pays: appends its live objects anew, so that the
    /// segment can be used again. Returns how many objects have left memory meanwhile.
    fn clean(&mut self) -> usize {
        // While the tier is full everything else waits for this.
        let until = Instant::now() + if self.swap_full { CLEAN_TIME } else { Duration::ZERO };
        let mut gained = 0;
        loop {
            self.clean_step();
            self.no_longer_full();
            let cleaning = self.cleans();
            if !self.swap_full || !cleaning || Instant::now() >= until {
                return gained;
            }
            if let Some(writer) = &mut self.writer {
                writer.wait(2);
            }
            gained += self.written();
        }
    }

    /// Whether a segment is being cleaned. While nothing may be written, that rests.
    fn cleans(&self) -> bool {
        !self.is_spent() && self.writer.as_ref().is_some_and(Output::cleaning)
    }

    fn clean_step(&mut self) {
        if self.is_spent() {
            return;
        }
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
        let busy = self.writer.as_ref().is_some_and(Output::busy) || self.cleans();
        Duration::from_millis(if busy { 5 } else { 100 })
    }

    fn tell_failure(&mut self, device: usize, error: &std::io::Error) {
        let Some(swap) = &self.shared.swap else { return };
        let full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
        self.disk_full |= full;
        let place = swap.path(device).display();
        self.shared.warn(match full {
            true => format!(
                "the swap tier cannot grow at {place}: {error}; going on with the room that the tier has, other pages stay \
                 in RAM"
            ),
            false if self.can_write() => {
                format!("cannot write to the swap tier at {place}: {error}; going on with the other places")
            }
            false => {
                format!("cannot write to the swap tier at {place}: {error}; going on without it, pages stay in RAM")
            }
        });
    }

    /// Notes that the swap tier has no room.
    fn full(&mut self) {
        if self.can_write() {
            let room = if self.disk_full { shortage::MORE_DISK } else { shortage::MORE_SWAP };
            self.shared.warn(format!("the swap tier is full: {room}"));
        }
        self.swap_full = true;
        self.shared.lock().core.swap_takes(false);
    }

    /// Notes if it has room again.
    fn no_longer_full(&mut self) {
        let enough = |swap: &crate::swap::SwapTier| swap.free_bytes() >= ROOM_AGAIN;
        if self.swap_full && self.can_write() && self.shared.swap.as_deref().is_some_and(enough) {
            self.swap_full = false;
            self.shared.lock().core.swap_takes(!self.is_spent());
        }
    }

    /// Whether as much was written to the swap tier as may be for now.
    fn is_spent(&self) -> bool {
        self.allowance.as_ref().is_some_and(Allowance::is_spent)
    }

    /// Looks whether the swap tier may be written to.
    fn mind_allowance(&mut self) {
        let (Some(allowance), Some(swap)) = (&mut self.allowance, &self.shared.swap) else { return };
        let written = swap.counters.write_bytes.load(Relaxed);
        if !allowance.look(written, self.shared.started.elapsed()) {
            return;
        }
        let spent = allowance.is_spent();
        self.shared.lock().core.swap_takes(!spent && !self.swap_full && self.can_write());
        if spent && swap.counters.held_back.fetch_add(1, Relaxed) == 0 {
            self.shared.warn(format!(
                "{} MiB were written to the swap tier, as much as --swap-writes allows for now: pages stay in RAM",
                written >> 20
            ));
        }
    }

    /// How far the tree is over its budget, bytes.
    fn over(&self) -> u64 {
        u64::try_from(-self.free).unwrap_or(0)
    }

    fn tell(&mut self, trouble: Trouble) {
        let over = self.over();
        match trouble {
            Trouble::Short => self.shared.warn(shortage::short(&self.shared, over)),
            Trouble::Hopeless => {
                let tier = match (&self.writer, self.can_write()) {
                    (None, _) => Tier::Missing,
                    (_, false) => Tier::Failed,
                    _ if self.is_spent() => Tier::Spent,
                    (_, true) => Tier::Full { disk: self.disk_full },
                };
                self.oom.act(&self.shared, over, &tier);
            }
        }
    }

    /// Whether the swap tier can still take something.
    fn swap_gives(&self) -> bool {
        let room = match &self.writer {
            Some(Output::Blocks(_)) => self.shared.swap.as_ref().is_some_and(|swap| swap.free_bytes() > 0),
            _ => true,
        };
        room && self.can_write() && !self.is_spent() && (!self.swap_full || self.cleans())
    }
}
