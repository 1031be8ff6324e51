//! The pager process: faults, events, reclaim, staging, swap tier.
//!
//! Threads: one fault thread per paged process (`fault`), the reclaim thread (`reclaim`), the
//! monitor thread (`monitor`), and the control thread for stubs and the launcher (`control`). All
//! decisions are taken in `memfit_core`, behind one lock (`state`).

#![deny(unsafe_code)]

mod adopt;
mod attach;
mod automatic;
mod background;
mod bare_children;
mod blocks;
mod budget;
mod clients;
mod compress;
pub mod config;
mod contents;
mod control;
mod detach;
mod family;
mod fault;
mod files;
mod flight;
mod fork_children;
mod forks;
mod frames;
mod idle;
mod leases;
mod load;
mod load_control;
mod locks;
mod meters;
mod monitor;
mod mutant;
pub mod netns_fallback;
mod newcomers;
mod observe;
mod oom;
mod outbox;
mod own_uffd;
mod ownership;
mod page_cache;
pub mod places;
mod pressure;
mod proc;
mod quarantine;
mod reclaim;
mod record;
pub mod regions;
mod room;
mod sampling;
mod sharers;
mod shortage;
mod starts;
mod state;
mod stats;
mod stopped;
mod swap;
mod tasks;
pub mod timeline;
mod trainer;
mod turns;
mod wake;
mod weigh;

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

use crate::locks::Lock;
use crate::swap::Allowance;
use config::{Config, FromPager};
use contents::Contents;
use memfit_core::scheme::{AdmissionKind, Scheme, SwapFormat};
use memfit_os::capability::{self, CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use memfit_os::describe;
use memfit_os::probe;
use memfit_os::standby::Standby;
use memfit_os::uffd;
use regions::Regions;
use sampling::Sampling;
use state::Shared;
use std::sync::Arc;
use swap::{Layout, SwapTier};

/// Runs the pager; never returns.
pub fn serve(config: Config) -> ! {
    memfit_os::memory::keep_no_heaps();
    memfit_os::memory::keep_code();
    memfit_os::memory::undumpable();
    let launcher = config.to_launcher;
    // Files of /proc that the pager opens and lends to stubs would show physical addresses.
    // Without CAP_SYS_PTRACE it may only look at programs that have no more rights than it.
    let given_up = match capability::has(CAP_SYS_PTRACE) {
        true => capability::give_up(CAP_SYS_ADMIN),
        false => Ok(()),
    };
    let given_up = given_up.map_err(|error| (format!("the pager cannot give CAP_SYS_ADMIN up: {error}"), 1));
    let desk = match given_up.and_then(|()| start(config)) {
        Ok(desk) => desk,
        Err((message, code)) => {
            let message = memfit_os::without_numbers(message);
            control::send_to_launcher(launcher, &FromPager::Failed { message, code });
            std::process::exit(1);
        }
    };
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(body) {
            let message = memfit_os::without_numbers(room::no_thread(&error).to_string());
            control::send_to_launcher(launcher, &FromPager::Failed { message, code: 1 });
            std::process::exit(1);
        }
    };
    let shared = Arc::clone(&desk.shared);
    let oom = oom::Oom::new(desk.config.on_full);
    let allowance = desk.config.swap_writes.map(Allowance::new);
    spawn("reclaim", Box::new(move || reclaim::run(shared, oom, allowance)));
    let for_monitor = Arc::clone(&desk);
    let (ready, monitor_is_ready) = std::sync::mpsc::channel();
    spawn("monitor", Box::new(move || monitor::run(for_monitor, ready)));
    // On a busy machine a new thread waits for a CPU, and a program could fill memory unseen. An
    // error means that the monitor has ended.
    let _ = monitor_is_ready.recv();
    desk.wakers.wait_until_ready();
    control::send_to_launcher(launcher, &FromPager::Ready);
    control::run(&desk);
    if let Some(recording) = &desk.recording {
        recording.finish(&mut desk.shared.lock().core);
    }
    std::process::exit(0);
}

/// Why a scheme can keep no page without a swap tier.
fn needs_tier(scheme: &Scheme) -> Option<&'static str> {
    match (scheme.admission.kind, scheme.swap_format.kind) {
        (AdmissionKind::None, _) => Some("keeps pages in swap alone"),
        (_, SwapFormat::CompressedBatches) => Some("stores no page without a block of swap for it"),
        _ => None,
    }
}

fn start(mut config: Config) -> Result<Arc<control::Desk>, (String, i32)> {
    let fork_events = probe::can_enable(uffd::EVENT_FORK);
    // Also in a recording: its replay has to decide the same.
    let lacks_bits = config.scheme.reclaim.accessed_bits != 0 && !probe::can_enable(uffd::ACCESSES);
    if lacks_bits {
        config.scheme.reclaim.accessed_bits = 0;
    }
    let swap = open_swap(&config, config.scheme.swap_format.kind)?;
    if let (None, Some(why)) = (&swap, needs_tier(&config.scheme)) {
        return Err((format!("scheme {} {why}: it needs a swap tier, see --swap", config.scheme.name), 2));
    }
    let mut shared =
        Shared::new(config.scheme.clone(), config.budget_bytes, config.on_full, swap).map_err(|error| {
            let limit = match memfit_os::process::address_space_limit() {
                Some(_) => "; raise ulimit -v",
                None => "",
            };
            (format!("cannot reserve memory for a budget of {} MiB: {error}{limit}", config.budget_bytes >> 20), 1)
        })?;
    if lacks_bits {
        shared.warn(
            "reclaim.accessed_bits: no such bits from this kernel (Linux 7.3 and later have them): page faults decide"
                .into(),
        );
    }
    shared.protect.clone_from(&config.protect);
    shared.stub.clone_from(&config.stub);
    if config.lock_pool {
        shared.memory.lock().map_err(|error| {
            let why = format!("--lock-pool: cannot lock the pool: {error}");
            (format!("{why}; raise RLIMIT_MEMLOCK (ulimit -l), or give CAP_IPC_LOCK"), 1)
        })?;
    }
    flight::start(&mut shared.lock().core);
    let launcher = config.to_launcher;
    let tell = move |text| control::send_to_launcher(launcher, &FromPager::Warning { text });
    let recording = record::start(&mut shared.lock().core, &config, tell)
        .map_err(|error| (format!("--record: cannot start its thread: {error}"), 1))?;
    if let (Some(recording), Some(percent)) = (&recording, config.record_access) {
        let sampling =
            Sampling::new(&shared.lock().core, shared.budget.sizes.staging / 4096, percent, recording.notes());
        shared.sampling = Some(sampling);
    }
    shared.regions = config.timeline.then(Regions::default);
    if let Some(recording) =
        recording.as_ref().filter(|_| config.record_access.is_some() || !config.record_contents.is_empty())
    {
        let contents = Contents::new(&config.record_contents, &shared, recording.notes());
        let contents = contents.map_err(|error| (format!("--record: cannot make a key for hashes: {error}"), 1))?;
        shared.contents = Some(contents);
    }
    // A dead pager thread would leave faults unanswered for ever.
    std::panic::set_hook(Box::new(panic_hook(config.to_launcher)));
    Ok(Arc::new(control::Desk {
        shared: Arc::new(shared),
        clients: Lock::new(Vec::new()),
        device: attach::open_device(),
        fork_events,
        ended: Lock::new(None),
        netns_fallback: netns_fallback::NetnsFallback::new(&config.fallback_dir),
        launcher_ended: false.into(),
        over: false.into(),
        past: Lock::new(Vec::new()),
        detached: Lock::default(),
        unpaged: Lock::default(),
        // Two threads have the stub thread of a process made.
        wakers: Standby::new("wake", 2, 256 << 10),
        library: load::Library::default(),
        recording,
        timeline: config.timeline.then(Lock::default),
        config,
    }))
}

/// A bug in the pager: tells the launcher why. The pager then aborts, and the launcher kills the
/// tree, because nobody could bring evicted pages back.
fn panic_hook(launcher: i32) -> impl Fn(&std::panic::PanicHookInfo<'_>) {
    move |info| {
        let text = format!("the pager failed: {info}");
        control::send_to_launcher(launcher, &FromPager::Fatal { text });
    }
}

fn open_swap(config: &Config, format: SwapFormat) -> Result<Option<Arc<SwapTier>>, (String, i32)> {
    let places = places::places(&config.swap, config.swap_size, format);
    if places.is_empty() {
        return Ok(None);
    }
    let pages = (config.budget_bytes / memfit_core::PAGE_BYTES) as usize;
    let mut tier = SwapTier::new(pages, Layout::of(format))
        .map_err(|error| (format!("cannot make a key for the swap tier: {error}"), 1))?;
    for place in places {
        tier.add(&place.path, place.bytes).map_err(|error| {
            let path = place.path.display();
            let advice = "choose another place with --swap DIR, or --swap none";
            (format!("cannot use {path} for swap: {}; {advice}", describe(&error)), 1)
        })?;
    }
    Ok(Some(Arc::new(tier)))
}
