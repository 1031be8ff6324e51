//! The reclaim thread: keeps memory free by taking pages out of the tree, compressing what has been
//! staged longest, and writing the coldest of the pool to the swap tier.

use crate::compress::Compressor;
use crate::proc::{Broken, Proc, STOPPED_AFTER};
use crate::state::Shared;
use crate::swap::{Aligned, SegmentWriter, SEGMENT_BYTES};
use crate::trainer::Trainer;
use memfit_core::{Answer, Compress, ObjectId};
use memfit_os::sched::Cpus;
use memfit_wire::BATCH_PAGES;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages compressed between two looks at the batches.
const COMPRESS_CHUNK: usize = 32;
/// Pages that reclaim must gain in a window to be worth waiting for.
const PACE_PAGES: usize = 64;
const PACE_WINDOW: Duration = Duration::from_millis(50);
/// Windows in a row without gain, over the budget, before the user is told: 5 s.
const SHORT_WINDOWS: u32 = 100;
/// Moves of one compaction step: the lock is held for 20 us.
const COMPACT_MOVES: usize = 32;
/// Waste above which compaction pays, bytes per frame: a move costs a tenth of an eviction, and no fault later.
const WASTE: u64 = 256;
/// Part of the floor that must be left for pages which can be taken away, while the pool can give.
const SQUEEZED: u64 = 2;
/// Rounds without compaction after one that found nothing to move.
const COMPACT_PAUSE: u32 = 64;

/// Buffers and contexts of the thread.
struct Reclaimer {
    shared: Arc<Shared>,
    compressor: Compressor,
    page: Aligned,
    disk: Aligned,
    cpus: Cpus,
    avoids: Option<usize>,
    idle_rounds: u32,
    /// Rounds until compaction is tried again.
    compact_pause: u32,
    short_windows: u32,
    swap_broken: bool,
}

/// Runs until the pager ends.
pub fn run(shared: Arc<Shared>) {
    let mut reclaimer = Reclaimer {
        shared: Arc::clone(&shared),
        compressor: Compressor::new(&shared.dictionaries, Some(Trainer::new(shared.sizes.budget))),
        page: Aligned::new(4096),
        disk: Aligned::new(SEGMENT_BYTES),
        cpus: Cpus::of_this_thread(),
        avoids: None,
        idle_rounds: 0,
        compact_pause: 0,
        short_windows: 0,
        swap_broken: false,
    };
    let mut seen = 0;
    let mut pace = Pace { since: Instant::now(), gained: 0 };
    while !shared.ending.load(Relaxed) {
        if shared.free() >= shared.marks().low as i64 {
            shared.stuck.store(false, Relaxed);
            seen = shared.wait_for_work(seen, Duration::from_millis(100));
            pace = Pace { since: Instant::now(), gained: 0 };
            reclaimer.collect_all();
            continue;
        }
        while shared.free() < shared.marks().high as i64 && !shared.ending.load(Relaxed) {
            let gained = reclaimer.round();
            pace.gained += gained;
            if let Some(enough) = pace.judge() {
                if !enough {
                    reclaimer.tell_shortage();
                }
                shared.stuck.store(!enough, Relaxed);
            }
            shared.made_progress();
            if gained == 0 {
                reclaimer.idle_rounds += 1;
                std::thread::sleep(Duration::from_micros(500 * u64::from(reclaimer.idle_rounds.min(20))));
                break;
            }
            reclaimer.idle_rounds = 0;
        }
        shared.made_progress();
    }
}

/// How much reclaim gains. When it is next to nothing (pages shared after a fork, a stopped process)
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
    /// One round: batches, compression, write-back. Returns how many pages it moved on.
    fn round(&mut self) -> usize {
        self.make_way();
        let mut gained = self.compact();
        if gained > 0 && self.shared.free() >= self.shared.marks().high as i64 {
            return gained;
        }
        self.post();
        let slots_short = self.slots_short();
        gained += if slots_short { self.compress(COMPRESS_CHUNK) } else { 0 };
        let raw = std::mem::take(&mut *self.shared.raw.lock().unwrap());
        gained += self.write_raw(&raw);
        // A batch of which nothing could be taken (shared after a fork, pinned) is no gain.
        gained += self.collect_all();
        if gained == 0 {
            self.wait_for_batch();
            gained = self.collect_all();
        }
        if self.below_floor() {
            gained += self.make_pool_smaller();
        }
        gained
    }

    /// Leaves the CPU to a program that is alone: its fault thread has stepped back there (SCHED_IDLE), so that the kernel
    /// takes the CPU for free and puts this thread on it, and the program waits until this one sleeps.
    fn make_way(&mut self) {
        let shared = &self.shared;
        let alone = shared.polite.load(Relaxed) && shared.procs.lock().unwrap().len() == 1;
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
        drop(state);
        let sizes = &self.shared.sizes;
        let floor = if pool.zpages >= u64::from(pool.frames) * 2 { sizes.dense_floor } else { sizes.floor };
        // What is not registered yet is resident as well. But much of it can be what never will be: too little would be left of
        // what the programs get back, and they would wait for the same pages for ever.
        let squeezed = present < floor / SQUEEZED && u64::from(pool.frames) * 4096 > floor && self.can_write();
        squeezed || present + self.shared.unmanaged.load(Relaxed) <= floor
    }

    /// Whether the swap tier takes pages.
    fn can_write(&self) -> bool {
        self.shared.swap.is_some() && !self.swap_broken
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
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().unwrap().clone();
        let mut tried = Vec::new();
        loop {
            // Locked in advance: the core must only choose processes that are free.
            let mut free: Vec<_> = procs
                .iter()
                .filter(|p| !tried.contains(&p.id))
                .filter_map(|p| p.io.try_lock().ok().filter(|io| p.idle(io)).map(|io| (p, io)))
                .collect();
            let mut shielding = Vec::new();
            free.retain_mut(|(p, io)| {
                let posted = p.post_shields(io);
                shielding.extend(posted.then(|| Arc::clone(p)));
                !posted
            });
            shielding.iter().for_each(|p| p.ring_bell());
            if free.is_empty() {
                return;
            }
            let ids: Vec<_> = free.iter().map(|(p, _)| p.id).collect();
            let max = (self.shared.scheme.replacement.batch_pages as usize).min(BATCH_PAGES);
            let mut state = self.shared.lock();
            let picked = state.core.pick_victims(max, self.shared.tick(), &|id| ids.contains(&id));
            self.shared.settle(state);
            let Some((id, mut victims)) = picked else { return };
            let Some((proc, io)) = free.iter_mut().find(|(p, _)| p.id == id) else { return };
            let rest = victims.split_off(victims.len().min(memfit_wire::BATCH_RANGES));
            if !rest.is_empty() {
                let mut state = self.shared.lock();
                for victim in rest {
                    state.core.evicted(id, victim.first, victim.slots.len() as u32, Answer::default(), 0);
                }
                self.shared.settle(state);
            }
            proc.post(io, victims);
            let proc = Arc::clone(proc);
            drop(free);
            proc.ring_bell();
            tried.push(id);
        }
    }

    /// Takes answers of all processes; returns how many pages left the programs.
    fn collect_all(&mut self) -> usize {
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().unwrap().clone();
        let mut pages = 0;
        for proc in procs {
            let Ok(mut io) = proc.io.try_lock() else { continue };
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
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().unwrap().clone();
        let now = Instant::now();
        for proc in procs {
            let Some((number, posted)) =
                proc.io.try_lock().ok().and_then(|io| io.busy.then_some((io.number, io.posted)))
            else {
                continue;
            };
            if posted.is_some_and(|p| now - p < STOPPED_AFTER) {
                proc.wait_finished(number, Duration::from_millis(2));
                return;
            }
        }
    }

    /// Compresses up to `max` of the oldest staged pages. Returns how many went into the pool.
    fn compress(&mut self, max: usize) -> usize {
        let outcome = self.compressor.compress(&self.shared, max);
        if outcome.full {
            self.make_pool_smaller();
        }
        outcome.done
    }

    /// Frees frames: by compaction if it pays, else by writing the coldest objects to the swap tier.
    /// Returns how many frames or objects that were.
    fn make_pool_smaller(&mut self) -> usize {
        match self.compact() {
            0 => self.write_back(),
            frames => frames,
        }
    }

    /// Empties the emptiest zspages, if there is waste enough. Returns how many frames that freed.
    fn compact(&mut self) -> usize {
        if self.compact_pause > 0 {
            self.compact_pause -= 1;
            return 0;
        }
        let mut state = self.shared.lock();
        let usage = state.core.pool_usage();
        if usage.stored_bytes + u64::from(usage.frames) * WASTE > u64::from(usage.frames) * 4096 {
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
        self.shared.settle(state);
        freed
    }

    /// Writes one segment of the coldest pooled objects.
    fn write_back(&mut self) -> usize {
        let shared = Arc::clone(&self.shared);
        let Some(swap) = shared.swap.as_ref().filter(|_| !self.swap_broken) else { return 0 };
        let Some(mut segment) = swap.begin() else {
            self.shared.warn("the swap file has its full size: raise --swap-size".into());
            return 0;
        };
        let mut victims = Vec::new();
        let mut state = shared.lock();
        state.core.pick_writeback((SEGMENT_BYTES - SEGMENT_BYTES / 8) as u32, &mut victims);
        let written: Vec<(ObjectId, Option<_>)> = victims
            .iter()
            .map(|v| {
                let codec = state.core.codec_of(v.object);
                // SAFETY: the object is being written: its bytes stay, and the lock is held.
                let bytes = unsafe { shared.memory.read(v.slot.byte(), v.len as usize) };
                (v.object, segment.add(bytes, codec, &mut self.disk))
            })
            .collect();
        shared.settle(state);
        self.finish_write(segment, &written)
    }

    /// Writes incompressible pages from staging. Returns how many left.
    fn write_raw(&mut self, items: &[Compress]) -> usize {
        let shared = Arc::clone(&self.shared);
        let mut left = 0;
        for chunk in items.chunks(SEGMENT_BYTES / 4224) {
            let segment = shared.swap.as_ref().filter(|_| !self.swap_broken).and_then(|s| s.begin());
            let Some(mut segment) = segment else {
                let mut state = shared.lock();
                for item in chunk {
                    state.core.written(item.object, None);
                }
                shared.settle(state);
                continue;
            };
            let mut written = Vec::with_capacity(chunk.len());
            for item in chunk {
                let area = shared.lock().segments.get(&item.slot.area).cloned();
                let extent = area.and_then(|area| {
                    // SAFETY: the core keeps the slot until `written`.
                    let bytes = unsafe { area.page(crate::proc::slot_offset(item.slot.index)) };
                    self.page.bytes().copy_from_slice(bytes);
                    segment.add(self.page.bytes(), 0, &mut self.disk)
                });
                written.push((item.object, extent));
            }
            left += self.finish_write(segment, &written);
        }
        left
    }

    fn finish_write(
        &mut self,
        segment: SegmentWriter<'_>,
        written: &[(ObjectId, Option<memfit_core::Extent>)],
    ) -> usize {
        let result = segment.finish(&mut self.disk);
        if let Err(error) = &result {
            self.swap_broken = true;
            let text = format!("cannot write to the swap tier: {error}; going on without it, pages stay in RAM");
            self.shared.warn(text);
        }
        let mut state = self.shared.lock();
        for &(object, extent) in written {
            state.core.written(object, extent.filter(|_| result.is_ok()));
        }
        if self.swap_broken {
            state.core.swap_lost();
        }
        self.shared.settle(state);
        if result.is_ok() {
            written.iter().filter(|(_, e)| e.is_some()).count()
        } else {
            0
        }
    }

    /// Nothing can be freed now, and faults go on over the budget: says so once, when it lasts.
    fn tell_shortage(&mut self) {
        let over = -self.shared.free() >> 20;
        self.short_windows = if over > 0 { self.short_windows + 1 } else { 0 };
        if self.short_windows == SHORT_WINDOWS {
            self.shared.warn(format!(
                "the budget is {over} MiB too small for what cannot be taken away at the moment; raise -m, or allow a swap \
                 tier with --swap DIR"
            ));
        }
    }
}
