//! The reclaim thread: batches, compression, writeback.

use crate::pager::RAW_VALUE;
use crate::world::World;
use crate::{page, PAGES};
use memfit_core::{Coded, Entry, Extent, ObjectId, Placed, StagingSlot};

/// Position of the reclaim thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pc {
    /// Between two jobs.
    #[default]
    Idle,
    /// Has the list of processes and will do this job.
    Listed(Job),
    /// Before it copies the bytes of an object out of this slot (object, area, index).
    Read(u32, u32, u32),
    /// Before it reports the compressed size of an object with this value to the core.
    Coded(u32, u8),
    /// Before it reports to the core that an object was written to this unit.
    Written(u32, u32),
}

/// Its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Job {
    Post,
    Collect,
    Compress,
    WriteBack,
}

impl World<'_> {
    /// The jobs that would have an effect now.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        let p = &self.s.procs[0];
        let listed = p.listed && p.io.is_none();
        let evictable =
            || (0..PAGES as u8).any(|i| matches!(self.core.entry(p.core_id(), page(i)), Entry::Resident | Entry::Lazy));
        let answered = |i: usize| p.ranges[i].is_some() && self.s.ring.ranges[i].status.is_some();
        let mut jobs = Vec::new();
        if listed && self.s.left.posts > 0 && !p.busy && !p.dead && evictable() {
            jobs.push(Job::Post);
        }
        if listed && p.busy && (self.s.ring.finished == p.number || (0..p.ranges.len()).any(answered)) {
            jobs.push(Job::Collect);
        }
        if self.s.left.compress > 0 && self.core.totals(0).inactive > 0 {
            jobs.push(Job::Compress);
        }
        if self.s.left.writes > 0 && self.core.totals(0).pooled > 0 {
            jobs.push(Job::WriteBack);
        }
        jobs
    }

    pub(crate) fn step_reclaim(&mut self, variant: u8) -> Result<(), String> {
        match self.s.reclaim {
            Pc::Idle => {
                let job = self.jobs()[usize::from(variant)];
                if self.scenario.stale_lists && matches!(job, Job::Post | Job::Collect) {
                    self.say(|| format!("has the list of processes, for {job:?}"));
                    self.s.reclaim = Pc::Listed(job);
                    return Ok(());
                }
                self.job(job)
            }
            Pc::Listed(job) => {
                self.s.reclaim = Pc::Idle;
                // try_lock: skips a process whose `io` is held.
                if self.s.procs[0].io.is_none() {
                    self.job(job)?;
                }
                Ok(())
            }
            Pc::Read(object, area, index) => {
                let value = *self.s.bytes.staging.get(&(area, index)).ok_or("a slot under compression is gone")?;
                self.say(|| format!("copies object {object} from its slot: {value}"));
                self.s.reclaim = Pc::Coded(object, value);
                Ok(())
            }
            Pc::Coded(object, value) => {
                self.s.reclaim = Pc::Idle;
                self.compressed(object, value);
                Ok(())
            }
            Pc::Written(object, unit) => {
                self.s.reclaim = Pc::Idle;
                self.say(|| format!("has written object {object}"));
                self.call("written", |core| core.written(ObjectId(object), Some(Extent { unit })));
                Ok(())
            }
        }
    }

    fn job(&mut self, job: Job) -> Result<(), String> {
        match job {
            Job::Post => self.post_batch(),
            Job::Collect => self.collect(0, false)?,
            Job::Compress => self.pick_compress(),
            Job::WriteBack => self.pick_writeback(),
        }
        Ok(())
    }

    fn post_batch(&mut self) {
        let p = &self.s.procs[0];
        let may_take = !p.busy && !p.dead && !p.removed;
        self.s.left.posts = self.s.left.posts.saturating_sub(1);
        if !may_take {
            return;
        }
        let id = p.core_id();
        let max = if self.scenario.batch == 0 { PAGES } else { self.scenario.batch };
        self.tick += 1 << 15;
        let tick = self.tick;
        let picked = self.call("pick_victims", |core| core.pick_victims(max, tick, &|p| p == id));
        if let Some((_, victims)) = picked {
            self.post(0, victims);
        }
    }

    fn pick_compress(&mut self) {
        let mut out = Vec::new();
        self.call("pick_compress", |core| core.pick_compress(1, &mut out));
        self.s.left.compress -= 1;
        if let Some(item) = out.first() {
            let StagingSlot { area, index } = item.slot;
            self.say(|| format!("will compress object {}", item.object.0));
            self.s.reclaim = Pc::Read(item.object.0, area.0, index);
        }
    }

    fn compressed(&mut self, object: u32, value: u8) {
        let coded = match value {
            0 => Coded::Word(0),
            RAW_VALUE.. => Coded::Incompressible,
            _ => Coded::Bytes { codec: 1, len: 100 },
        };
        let freed = self.call("compressed", |core| {
            let freed = core.take_freed_frames();
            (freed, core.compressed(ObjectId(object), coded))
        });
        self.say(|| format!("object {object} is {coded:?}: {:?}", freed.1));
        match freed.1 {
            Placed::Pool { runs, .. } => {
                self.s.bytes.pool.insert(runs.slot().byte(), value);
            }
            Placed::Swap => {
                let unit = self.free_unit();
                self.s.bytes.swap.insert(unit, value);
                self.s.reclaim = Pc::Written(object, unit);
            }
            Placed::Nothing | Placed::Refaulted | Placed::Full => {}
        }
    }

    fn free_unit(&self) -> u32 {
        (0..).find(|unit| !self.s.bytes.swap.contains_key(unit)).unwrap_or(0)
    }

    fn pick_writeback(&mut self) {
        let mut out = Vec::new();
        self.call("pick_writeback", |core| core.pick_writeback(true, 100, &mut out));
        self.s.left.writes -= 1;
        let Some(item) = out.first() else { return };
        let value = self.s.bytes.pool.get(&item.runs.slot().byte()).copied().unwrap_or(u8::MAX);
        let unit = self.free_unit();
        self.say(|| format!("writes object {} with value {value}", item.object.0));
        self.s.bytes.swap.insert(unit, value);
        self.s.reclaim = Pc::Written(item.object.0, unit);
    }
}
