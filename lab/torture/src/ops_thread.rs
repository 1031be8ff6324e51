//! Threads, stacks, thread-local storage, futexes, signals, sleeps.

use crate::content::{stream_word, PageBuf, WORDS};
use crate::ctx::{Ctx, Need};
use crate::model::{compare, TestRegion};
use crate::report::{self, Who};
use crate::rng::mix2;
use crate::status::ThreadStatus;
use crate::sys::{self, Errno, Span};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Duration;

const TLS_WORDS: usize = 1024;

thread_local! {
    static STORE: RefCell<[u64; TLS_WORDS]> = const { RefCell::new([0; TLS_WORDS]) };
    static SIGNALS: Cell<u64> = const { Cell::new(0) };
}

/// Checks that the thread-local storage has the words of the seed `old` (0: zeros), then fills it
/// with those of `new`.
fn use_tls(who: &Who, old: u64, new: u64) {
    STORE.with_borrow_mut(|words| {
        for (i, word) in words.iter_mut().enumerate() {
            let expected = if old == 0 { 0 } else { stream_word(old, i) };
            if *word != expected {
                report::wrong_value(who, "thread-local storage", word as *const u64 as usize, expected, *word);
            }
            *word = stream_word(new, i);
        }
    });
}

/// Compares a whole region without changing the model.
fn check_frozen(who: &Who, stats: &ThreadStatus, region: &TestRegion) {
    let memory = Span::owned(region.addr, region.len());
    let (mut expected, mut found) = (PageBuf::zeroed(), PageBuf::zeroed());
    for i in 0..region.len() {
        region.expect(i, &mut expected);
        memory.copy_out(i, &mut found);
        if let Err(bad) = compare(&expected, &found, region.pages[i].lazy) {
            report::wrong_page(who, "seen by a short thread", region, i, bad, &found, &region.history);
        }
    }
    stats.add_verified(region.len() as u64);
}

fn short_thread(who: &Who, stats: &ThreadStatus, region: &TestRegion, seed: u64) {
    use_tls(who, 0, seed);
    check_frozen(who, stats, region);
    recurse(who, stats, 8, seed);
    use_tls(who, seed, 0);
}

/// One to three new threads check regions while this thread checks another one.
pub fn threads(ctx: &mut Ctx) {
    let count = ctx.rng.range(1, 3);
    let picks: Vec<usize> = (0..count).map(|_| ctx.pick_region()).collect();
    for &r in &picks {
        let run = ctx.whole(r);
        ctx.make(run, Need::Read);
        ctx.note("shown to a thread", run);
    }
    let stack = 131_072 << ctx.rng.below(4);
    let (who, stats, seed) = (ctx.who, ctx.stats, ctx.rng.next() | 1);
    let regions = &ctx.regions;
    let started = std::thread::scope(|scope| {
        let spawn = |(i, &r): (usize, &usize)| {
            let seed = mix2(seed, i as u64);
            let body = move || short_thread(&who, stats, &regions[r], seed);
            std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, body).is_ok()
        };
        picks.iter().enumerate().filter(|p| spawn(*p)).count()
    });
    if started < count {
        ctx.refused();
    }
    let run = ctx.whole(picks[0]);
    ctx.verify(run, "after short threads");
}

const FRAME: usize = 200;

/// Recurses with known stack frames, and checks each frame on the way back.
#[inline(never)]
fn recurse(who: &Who, stats: &ThreadStatus, depth: usize, seed: u64) {
    let mut frame = [0u64; FRAME];
    frame.iter_mut().enumerate().for_each(|(i, w)| *w = stream_word(seed ^ depth as u64, i));
    black_box(&mut frame);
    if depth > 0 {
        recurse(who, stats, depth - 1, seed);
    } else if seed % 8 == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    black_box(&mut frame);
    for (i, word) in frame.iter().enumerate() {
        let expected = stream_word(seed ^ depth as u64, i);
        if *word != expected {
            report::wrong_value(who, "stack frame", word as *const u64 as usize, expected, *word);
        }
    }
    stats.pulse();
}

/// Uses the stack and the thread-local storage of a long-lived thread.
pub fn stack(ctx: &mut Ctx) {
    let bytes = ctx.rng.log_size(ctx.world.plan.stack_bytes);
    let seed = ctx.rng.next();
    let next = seed | 1;
    let old = ctx.tally.tls_seed;
    use_tls(&ctx.who, old, next);
    ctx.tally.tls_seed = next;
    // A frame of an unoptimised build is slightly larger than its array.
    recurse(&ctx.who, ctx.stats, bytes / (FRAME * 8 + 512), seed);
}

/// futex(2) on a word of a page.
fn futex_call(addr: usize, op: i32, value: u32, timeout: Option<Duration>) -> Result<i64, Errno> {
    let spec = timeout.map(|t| libc::timespec { tv_sec: 0, tv_nsec: i64::from(t.subsec_nanos()) });
    let spec = spec.as_ref().map_or(std::ptr::null(), |s| s as *const libc::timespec);
    // SAFETY: the kernel reads one word of test memory and the timespec.
    let n = unsafe { libc::syscall(libc::SYS_futex, addr, op, value, spec, 0usize, 0) };
    if n < 0 {
        Err(sys::errno())
    } else {
        Ok(n)
    }
}

/// The kernel must see the same word as the program.
pub fn futex(ctx: &mut Ctx) {
    let run = ctx.pick_run(1);
    ctx.make(run, Need::Write);
    if ctx.regions[run.r].pages[run.first].lazy {
        ctx.remember("rewrite", run);
        ctx.write_to(run, ctx.span(run));
    }
    ctx.note("futex", run);
    let mut page = PageBuf::zeroed();
    ctx.regions[run.r].expect(run.first, &mut page);
    let word = ctx.rng.below(WORDS * 2);
    let value = (page.0[word / 2] >> (32 * (word % 2))) as u32;
    let addr = ctx.span(run).addr() + word * 4;
    let private = if ctx.rng.one_in(2) { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    let wait = libc::FUTEX_WAIT | private;
    let (got, expected) = match ctx.rng.below(8) {
        0 => {
            let pause = Duration::from_micros(100);
            (futex_call(addr, wait, value, Some(pause)), Err(Errno(libc::ETIMEDOUT)))
        }
        1 | 2 => (futex_call(addr, libc::FUTEX_WAKE | private, 1, None), Ok(0)),
        _ => (futex_call(addr, wait, value.wrapping_add(1), None), Err(Errno(libc::EAGAIN))),
    };
    if got != expected && got != Err(Errno(libc::EINTR)) {
        let detail = format!("at {addr:#x}, word {value:#x}: expected {expected:?}, got {got:?}");
        ctx.broken("futex saw another value", &detail);
    }
    ctx.verify(run, "after futex");
}

extern "C" fn count_signal(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let mut frame = [0u64; 128];
    frame.iter_mut().enumerate().for_each(|(i, w)| *w = i as u64);
    black_box(&mut frame);
    if frame.iter().enumerate().all(|(i, &w)| w == i as u64) {
        SIGNALS.set(SIGNALS.get() + 1);
    }
}

/// Installs the signal handlers.
pub fn install_signals() {
    sys::on_signal(libc::SIGRTMIN(), libc::SA_RESTART, count_signal);
    sys::on_signal(libc::SIGRTMIN() + 1, libc::SA_RESTART | libc::SA_ONSTACK, count_signal);
}

/// The kernel writes the signal frame to the normal or the alternate stack. The handler must have
/// run when tgkill returns.
pub fn signal(ctx: &mut Ctx) {
    let before = SIGNALS.get();
    let which = libc::SIGRTMIN() + ctx.rng.below(2) as i32;
    // SAFETY: a signal with a handler, to ourselves.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), sys::gettid(), which) };
    if sent != 0 {
        ctx.broken("tgkill", &sys::errno());
    }
    let after = SIGNALS.get();
    if after != before + 1 {
        report::wrong_value(&ctx.who, "signals handled", &after as *const u64 as usize, before + 1, after);
    }
}

/// Sleeps for a while.
pub fn sleep(ctx: &mut Ctx) {
    std::thread::sleep(Duration::from_millis(ctx.rng.range(1, 20) as u64));
}
