//! The program: threads with short scripts, in steps between which the kernel drops its locks.

use crate::kernel::{Event, Pte};
use crate::world::{Actor, World};
use crate::PageNo;

/// An operation of a script. A range is a first page and a number of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    /// Reads a page and checks its value.
    Read(PageNo),
    /// Writes a value, 1..16.
    Write(PageNo, u8),
    Map(PageNo, u8),
    Unmap(PageNo, u8),
    Remap {
        from: PageNo,
        to: PageNo,
        pages: u8,
    },
    DontNeed(PageNo, u8),
    Free(PageNo, u8),
    /// Protects a range as PROT_READ if true, otherwise as readable and writable.
    Protect(PageNo, u8, bool),
    Fork,
    /// Lets another thread go on.
    Signal(u8),
    /// Waits for that signal.
    Await(u8),
    /// Ends the process, not only the thread.
    Exit,
}

/// What a thread does after its event was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum After {
    /// Returns from the system call.
    Return,
    /// MADV_DONTNEED zaps, MADV_FREE marks.
    Zap(PageNo, u8, bool),
    /// mremap raises the UNMAP of the old place.
    TellUnmap(PageNo, u8),
    /// fork lets the child run.
    StartChild,
}

/// Position of a thread in its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pc {
    /// A fork child that does not run yet.
    Unborn,
    /// Before its next operation.
    Ready,
    /// Sleeps in a fault.
    InFault(PageNo),
    /// The mappings are changed; the event is not queued yet.
    Raise(Event, After),
    /// The event is queued.
    InEvent(After),
    /// The event was read; it still counts as pending.
    Resume(After),
    /// Between the event and the zap.
    BeforeZap(PageNo, u8, bool),
    /// Ended.
    Ended,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its process, 0 or 1.
    pub proc: u8,
    /// Number of its script; the child's is the last.
    pub script: u8,
    /// Index of the next operation.
    pub at: u8,
    /// Position in the current operation.
    pub pc: Pc,
}

impl Thread {
    /// Whether the quarantine proof sees the thread in an interruptible sleep or gone.
    pub fn sleeps(&self, next: Option<Op>, signals: u8) -> bool {
        match self.pc {
            Pc::Ended | Pc::InFault(_) => true,
            Pc::Ready => matches!(next, Some(Op::Await(k)) if signals >> k & 1 == 0),
            _ => false,
        }
    }
}

impl World<'_> {
    pub(crate) fn next_op(&self, thread: u8) -> Option<Op> {
        let t = &self.s.threads[usize::from(thread)];
        let script = self.scenario.threads.get(usize::from(t.script)).unwrap_or(&self.scenario.child);
        script.get(usize::from(t.at)).copied()
    }

    pub(crate) fn thread_enabled(&self, thread: u8) -> bool {
        match self.s.threads[usize::from(thread)].pc {
            Pc::Unborn | Pc::InFault(_) | Pc::InEvent(_) | Pc::Ended => false,
            Pc::Ready => self.op_enabled(thread),
            _ => true,
        }
    }

    /// mmap and mremap need a free place: with several threads the kernel would choose one.
    fn op_enabled(&self, thread: u8) -> bool {
        let vma = &self.s.mm[usize::from(self.s.threads[usize::from(thread)].proc)].vma;
        let free =
            |first: u8, pages: u8| vma[usize::from(first)..usize::from(first + pages)].iter().all(Option::is_none);
        match self.next_op(thread) {
            Some(Op::Await(k)) => self.s.signals >> k & 1 == 1,
            Some(Op::Map(first, pages)) => free(first, pages),
            Some(Op::Remap { to, pages, .. }) => free(to, pages),
            _ => true,
        }
    }

    pub(crate) fn step_thread(&mut self, thread: u8) -> Result<(), String> {
        let t = usize::from(thread);
        let proc = usize::from(self.s.threads[t].proc);
        match self.s.threads[t].pc {
            Pc::Ready => return self.step_op(thread),
            Pc::Raise(event, after) => {
                self.say(|| format!("queues the event {event:?}"));
                self.s.mm[proc].events.push_back((event, thread));
                self.s.threads[t].pc = Pc::InEvent(after);
            }
            Pc::Resume(after) => {
                self.s.mm[proc].changing -= 1;
                self.say(|| format!("goes on after its event was read, then {after:?}"));
                self.s.threads[t].pc = match after {
                    After::Return => Pc::Ready,
                    After::Zap(first, pages, free) => Pc::BeforeZap(first, pages, free),
                    After::TellUnmap(first, pages) => Pc::Raise(Event::Unmap { first, pages }, After::Return),
                    After::StartChild => self.start_child(),
                };
            }
            Pc::BeforeZap(first, pages, free) => {
                self.say(|| format!("{} {pages} pages at {first}", if free { "marks as free" } else { "zaps" }));
                self.s.mm[proc].zap(first, pages, free);
                self.s.threads[t].pc = Pc::Ready;
            }
            Pc::Unborn | Pc::InFault(_) | Pc::InEvent(_) | Pc::Ended => {}
        }
        Ok(())
    }

    fn start_child(&mut self) -> Pc {
        for t in &mut self.s.threads {
            if t.pc == Pc::Unborn {
                t.pc = Pc::Ready;
            }
        }
        Pc::Ready
    }

    fn step_op(&mut self, thread: u8) -> Result<(), String> {
        let t = usize::from(thread);
        let proc = usize::from(self.s.threads[t].proc);
        let Some(op) = self.next_op(thread) else {
            self.say(|| "ends".into());
            self.end_thread(thread);
            return Ok(());
        };
        if let Op::Read(page) | Op::Write(page, _) = op {
            return self.access(thread, page, op);
        }
        self.say(|| format!("calls {op:?}"));
        let mm = &mut self.s.mm[proc];
        let mut pc = Pc::Ready;
        match op {
            Op::Map(first, pages) => mm.map(first, pages, false),
            Op::Unmap(first, pages) => {
                if mm.unmap(first, pages) {
                    pc = Pc::Raise(Event::Unmap { first, pages }, After::Return);
                }
            }
            Op::Remap { from, to, pages } => {
                if mm.remap(from, to, pages) {
                    pc = Pc::Raise(Event::Remap { from, to, pages }, After::TellUnmap(from, pages));
                }
            }
            Op::DontNeed(first, pages) | Op::Free(first, pages) => {
                let free = matches!(op, Op::Free(..));
                if mm.removal_begins(first, pages) {
                    // Nothing is changed yet, so queueing the event at once makes no difference.
                    mm.events.push_back((Event::Remove { first, pages }, thread));
                    pc = Pc::InEvent(After::Zap(first, pages, free));
                } else {
                    mm.zap(first, pages, free);
                }
            }
            Op::Protect(first, pages, read_only) => {
                for vma in mm.vma[usize::from(first)..usize::from(first + pages)].iter_mut().flatten() {
                    vma.read_only = read_only;
                }
            }
            Op::Fork => pc = self.fork(),
            Op::Signal(k) => self.s.signals |= 1 << k,
            Op::Await(_) => {}
            Op::Exit => {
                self.end_process(proc as u8);
                return Ok(());
            }
            Op::Read(_) | Op::Write(..) => unreachable!("an access"),
        }
        self.s.threads[t].at += 1;
        self.s.threads[t].pc = pc;
        Ok(())
    }

    fn fork(&mut self) -> Pc {
        let child = self.s.mm[0].fork();
        let managed = child.vma.iter().flatten().any(|v| v.registered);
        self.s.mm[1] = child;
        let script = self.scenario.threads.len() as u8;
        let pc = if managed { Pc::Unborn } else { Pc::Ready };
        self.s.threads.push(Thread { proc: 1, script, at: 0, pc });
        self.s.child_managed = managed;
        if managed {
            Pc::Raise(Event::Fork, After::StartChild)
        } else {
            Pc::Ready
        }
    }

    fn access(&mut self, thread: u8, page: PageNo, op: Op) -> Result<(), String> {
        let t = usize::from(thread);
        let (proc, i) = (usize::from(self.s.threads[t].proc), usize::from(page));
        let mm = &mut self.s.mm[proc];
        let Some(vma) = mm.vma[i] else { return Err(format!("the script touches page {page}, which is not mapped")) };
        if mm.pte[i].is_none() && vma.registered {
            mm.faults.push_back((page, thread));
            self.s.threads[t].pc = Pc::InFault(page);
            self.say(|| format!("{op:?}: faults"));
            return Ok(());
        }
        let pte = mm.pte[i].get_or_insert(Pte { zero: true, ..Pte::of(0) });
        if let Op::Write(_, value) = op {
            *pte = Pte::of(value);
            mm.cell[i].write(value);
            self.say(|| format!("{op:?}"));
        } else {
            let (value, allowed) = (pte.value, mm.cell[i].values());
            self.say(|| format!("{op:?}: {value}"));
            if !self.s.mm[proc].cell[i].read(value) {
                return Err(format!("process {proc} read {value} in page {page}, allowed are {allowed:?}"));
            }
        }
        self.s.threads[t].at += 1;
        Ok(())
    }

    /// Wakes threads that sleep in faults on these pages; they retry their access.
    pub(crate) fn wake(&mut self, proc: u8, first: PageNo, pages: u8) {
        for t in self.s.threads.iter_mut().filter(|t| t.proc == proc) {
            if matches!(t.pc, Pc::InFault(p) if p >= first && p < first + pages) {
                t.pc = Pc::Ready;
            }
        }
        if proc == 0 {
            self.s.stub.wake(first, pages);
        }
        self.s.mm[usize::from(proc)].faults.retain(|&(p, _)| p < first || p >= first + pages);
    }

    fn end_thread(&mut self, thread: u8) {
        let proc = self.s.threads[usize::from(thread)].proc;
        self.s.threads[usize::from(thread)].pc = Pc::Ended;
        if self.s.threads.iter().filter(|t| t.proc == proc).all(|t| t.pc == Pc::Ended) {
            self.end_process(proc);
        }
    }

    pub(crate) fn end_process(&mut self, proc: u8) {
        for t in self.s.threads.iter_mut().filter(|t| t.proc == proc) {
            t.pc = Pc::Ended;
        }
        let mm = &mut self.s.mm[usize::from(proc)];
        *mm = crate::kernel::Mm::default();
        mm.gone = true;
        if proc == 0 {
            self.s.stub.kill();
        }
    }

    pub(crate) fn name_of(actor: Actor) -> String {
        match actor {
            Actor::Thread(t) => format!("program thread {t}"),
            Actor::Fault(p) => format!("fault thread of process {p}"),
            Actor::Stub => "stub".into(),
            Actor::Reclaim => "reclaim thread".into(),
            Actor::Rescan => "monitor: rescan".into(),
            Actor::Proof => "monitor: quarantine".into(),
            Actor::Kernel => "kernel".into(),
        }
    }
}
