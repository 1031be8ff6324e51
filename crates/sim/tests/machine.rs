//! The simulated machine under every scheme.

use memfit_codec::CodecId;
use memfit_core::sample::{Sampled, EVERYTHING, REGION_PAGES};
use memfit_core::Page;
use memfit_scheme::PRESETS;
use memfit_sim::device::Transfers;
use memfit_sim::generate::Spec;
use memfit_sim::price::{price, Counts};
use memfit_sim::{
    cost::CostTable, device::Device, kind, replay, Access, Batch, Contents, Event, EventSource, Machine, Recorded,
    Recorder, Residents, Setup,
};
use memfit_trace::Reader;
use std::sync::Arc;

fn setup(preset: &str, budget: u64) -> Setup {
    Setup {
        scheme: Arc::new(memfit_scheme::preset(preset, &[]).unwrap().unwrap()),
        budget,
        swap_bytes: 256 << 20,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::new(CostTable::find("measured").unwrap()),
        device: Arc::new(Device::find("ssd-sata").unwrap()),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// Two processes, of which one forks; mixed contents; pages of files.
fn churn(machine: &mut Machine, events: u64, seed: u64, check: bool) {
    let mut random = Random(seed);
    let kinds = ["f=0.20", "f=0.50", "random", "zero", "text"].map(|name| kind(name).unwrap());
    for proc in 0..2 {
        machine.event(Event::Starts { proc });
        for (i, &kind) in kinds.iter().enumerate() {
            machine.event(Event::Maps { proc, first: i as u64 * 1000, pages: 1000, kind });
        }
        machine.event(Event::Maps { proc, first: 1 << 20, pages: 500, kind: kinds[0] });
    }
    let mut child = None;
    let mut next = 2;
    for i in 0..events {
        let procs = 2 + u64::from(child.is_some());
        let proc = match random.below(procs) {
            2 => child.unwrap(),
            n => n as u32,
        };
        match random.below(1000) {
            0 => {
                let (first, pages) = (random.below(5000), 1 + random.below(300));
                machine.event(Event::Frees { proc, first, pages });
            }
            1 => {
                let (first, pages) = (random.below(4000), 1 + random.below(100));
                machine.event(Event::Moves { proc, first, pages, to: 10_000 + random.below(100) * 100 });
            }
            2 if child.is_none() => {
                machine.event(Event::Forks { parent: proc, child: next, present: true });
                child = Some(next);
                next += 1;
            }
            3 if child.is_some() => machine.event(Event::Ends { proc: child.take().unwrap() }),
            4..=200 => machine.event(Event::Touches { proc, page: (1 << 20) + random.below(500), how: Access::File }),
            n => {
                let page = random.below(5000);
                let how = if n % 3 == 0 { Access::Write } else { Access::Read };
                machine.event(Event::Touches { proc, page, how });
            }
        }
        if check && i % 997 == 0 {
            machine.check();
        }
    }
    machine.check();
}

#[test]
fn every_scheme_keeps_its_books_and_its_budget() {
    for preset in PRESETS {
        let budget = 12 << 20;
        let mut machine = Machine::new(&setup(preset.name, budget), Contents::new());
        churn(&mut machine, 60_000, 7, true);
        let tally = machine.tally();
        assert!(tally.evicted > 10_000, "{}: {tally:?}", preset.name);
        assert!(tally.peak_bytes <= budget + (1 << 20), "{}: {} bytes", preset.name, tally.peak_bytes);
        let out = tally.faults.major() + tally.around.major();
        assert!(out > 1000, "{}: {tally:?}", preset.name);
    }
}

/// When the pool has become full, the other pages that were picked wait until it has room again.
#[test]
fn a_full_pool_costs_few_compressions() {
    for preset in ["zram", "zswap-zbud", "zswap-z3fold", "zsmalloc-sr", "ezswap"] {
        let mut machine = Machine::new(&setup(preset, 12 << 20), Contents::new());
        churn(&mut machine, 60_000, 7, false);
        let tally = machine.tally();
        let all: u64 = tally.compressions.iter().sum();
        println!("{preset}: {all} compressions of {} evicted pages", tally.evicted);
        assert!(all * 2 < tally.evicted * 3, "{preset}: {all} compressions of {} evicted pages", tally.evicted);
    }
}

/// Compression stops at the page with which the share of full buffers reaches the threshold, so
/// that no more than these are written at once (cervera99, rule 10 and 5.11).
#[test]
fn full_buffers_leave_at_the_threshold() {
    for (threshold, buffers) in [(1, 1), (10, 4)] {
        // 40 buffers in the pool of 160 KiB.
        let overrides = ["sizing.pool_permille=20".into(), format!("replacement.threshold_percent={threshold}")];
        let scheme = memfit_scheme::preset("cervera99", &overrides).unwrap().unwrap();
        let setup = Setup { scheme: Arc::new(scheme), ..setup("cervera99", 8 << 20) };
        let mut machine = Machine::new(&setup, Contents::new());
        machine.event(Event::Starts { proc: 0 });
        machine.event(Event::Maps { proc: 0, first: 0, pages: 6000, kind: kind("f=0.20").unwrap() });
        for page in (0..6000).chain(0..6000) {
            machine.event(Event::Touches { proc: 0, page, how: Access::Write });
        }
        let writes = &machine.tally().writes;
        let mean = writes.bytes as f64 / 4096.0 / writes.operations as f64;
        println!("threshold {threshold} %: {mean} buffers in each of {} writes", writes.operations);
        assert!(writes.operations > 100 && (mean - f64::from(buffers)).abs() < 0.2, "{threshold} %: {mean}");
    }
}

/// A working set that does not fit beside a pool of all cold pages.
#[test]
fn cold_pages_leave_the_pool_where_that_costs_less_than_faults() {
    let run = |device: &str, swap_bytes| {
        let device = Arc::new(Device::find(device).unwrap());
        let setup = Setup { swap_bytes, device, ..setup("memfit", 16 << 20) };
        let mut machine = Machine::new(&setup, Contents::new());
        let spec = Spec::parse("phase:pages=8000,phases=2,accesses=80000,set=30,share=99").unwrap();
        spec.make().for_each(|event| machine.event(event));
        machine.check();
        machine.tally().faults.major()
    };
    let (quick, slow, none) = (run("ssd-nvme", 256 << 20), run("hdd-2005", 256 << 20), run("ssd-nvme", 0));
    println!("{quick} faults, {slow} on a slow disk, {none} without a tier");
    assert!(quick * 2 < slow && quick * 2 < none, "{quick} {slow} {none}");
}

/// The scheme decides for the device itself and not for the slower one that prices the sample.
#[test]
fn a_miniature_has_the_faults_of_the_whole() {
    let sampled = Sampled { threshold: EVERYTHING / 8, period_ms: 100 };
    let pages = 32_000;
    let own = (0..pages).filter(|&page| sampled.has(Page(page))).count() as f64;
    let faults = |rate: f64| {
        let device = Arc::new(Device::find("ssd-nvme").unwrap());
        let setup = Setup { device, rate, ..setup("memfit", 64 << 20) };
        let mut machine = Machine::new(&setup, Contents::new());
        let spec = Spec::parse(&format!("phase:pages={pages},phases=2,accesses=320000,set=30,share=99")).unwrap();
        let whole = rate == 1.0;
        for event in spec.make() {
            match event {
                Event::Touches { page, .. } if !whole && !sampled.has(Page(page)) => {}
                // A fault brings in sampled pages only, as with recordings.
                Event::Maps { proc, first, pages, kind } if !whole => {
                    for region in first / REGION_PAGES..(first + pages).div_ceil(REGION_PAGES) {
                        let (first, pages) = (region * REGION_PAGES, REGION_PAGES);
                        machine.event(Event::Maps { proc, first, pages, kind });
                    }
                }
                event => machine.event(event),
            }
        }
        machine.tally().times(1.0 / rate).faults.major() as f64
    };
    let (whole, miniature) = (faults(1.0), faults(own / pages as f64));
    println!("{whole} faults, {miniature} in a miniature");
    assert!((0.75..1.33).contains(&(miniature / whole)), "{whole} faults, {miniature} in a miniature");
}

/// The machine and `price` agree about what faults cost beside their reads.
#[test]
fn faults_cost_what_their_price_is() {
    let zeros = "scan:pages=6000,passes=2,contents=zero";
    let files = "launch:apps=6,repetitions=2,anon=1M,code=1M,media=1M";
    for (preset, workload) in [("memfit", zeros), ("swap", "zipf:pages=6000,accesses=20000"), ("ezswap", files)] {
        let setup = setup(preset, 8 << 20);
        let mut machine = Machine::new(&setup, Contents::new());
        Spec::parse(workload).unwrap().make().for_each(|event| machine.event(event));
        let (tally, times) = (machine.tally(), machine.times());
        let around = &tally.around;
        assert!(tally.faults.major() > 100, "{preset}: {tally:?}");
        assert!(workload != zeros || around.zero > 100 && around.filled > 100, "{preset}: {tally:?}");
        assert!(workload != files || tally.file_first > 100, "{preset}: {tally:?}");
        let none = Transfers::default();
        let counts = Counts { swap_reads: none, file_reads: none, ..memfit_sim::counts(tally) };
        let price = price(&counts, &setup.costs, &setup.device, u64::MAX / 2);
        assert_eq!(price.program_ns, times.faults - times.reads, "{preset}: {tally:?}");
    }
}

#[test]
fn the_codec_follows_the_price_of_memory() {
    // The share of compressions by the zstds, percent.
    let dense = |workload: &str| {
        let mut machine = Machine::new(&setup("memfit", 16 << 20), Contents::new());
        Spec::parse(workload).unwrap().make().for_each(|event| machine.event(event));
        let by_codec = &machine.tally().compressions;
        let of = |codec: CodecId| by_codec[usize::from(codec.0)];
        let quick = of(CodecId::WORD_MASK) + of(CodecId::LZ4);
        let dense = of(CodecId::ZSTD_FAST) + of(CodecId::ZSTD);
        dense * 100 / (quick + dense)
    };
    let (random, sweep) = (
        dense("uniform:pages=8000,accesses=200000,contents=py-objects"),
        dense("scan:pages=8000,passes=20,contents=py-objects"),
    );
    println!("{random} % for random accesses, {sweep} % for a sweep");
    assert!(random > 25 && sweep < 10, "{random} {sweep}");
}

#[test]
fn the_same_workload_gives_the_same_counts() {
    for preset in ["memfit", "ezswap", "zswap-zbud"] {
        let run = || {
            let mut machine = Machine::new(&setup(preset, 12 << 20), Contents::new());
            churn(&mut machine, 30_000, 3, false);
            (machine.tally().clone(), machine.times())
        };
        assert_eq!(run(), run(), "{preset}");
    }
}

/// A recording of the churn under a scheme, and the machine that made it.
fn recorded(preset: &str, events: u64) -> (Vec<u8>, Machine) {
    let mut machine = Machine::new(&setup(preset, 12 << 20), Contents::new());
    let recorder = Recorder::start(&mut machine, Vec::new(), vec!["churn".into()]).unwrap();
    churn(&mut machine, events, 11, false);
    let bytes = recorder.finish(&mut machine).unwrap();
    (bytes, machine)
}

#[test]
fn a_simulated_run_can_be_recorded_and_replayed() {
    for preset in ["memfit", "swap", "cervera99", "tuduce05", "ezswap"] {
        let (bytes, machine) = recorded(preset, 30_000);
        let replay = replay(&mut Reader::new(&bytes[..]).unwrap()).unwrap();
        assert_eq!(replay.calls, machine.core().number(), "{preset}");
        assert_eq!(format!("{:?}", replay.counters), format!("{:?}", machine.counters()), "{preset}");
        assert!(replay.cut.is_none());
    }
}

#[test]
fn a_recording_as_a_workload_has_the_residents_that_it_had() {
    for preset in ["memfit", "swap", "zswap-zbud", "ezswap"] {
        let (bytes, machine) = recorded(preset, 40_000);
        let mut recorded = Recorded::new(Reader::new(&bytes[..]).unwrap(), 1.0).unwrap();
        let setup = Setup { residents: Residents::AsRecorded, ..setup(preset, 12 << 20) };
        let mut again = Machine::new(&setup, Contents::new());
        let mut batch = Batch::default();
        while recorded.fill(&mut batch).unwrap() {
            again.batch(&batch);
        }
        again.check();
        assert_eq!(recorded.calls(), machine.core().number());
        let (then, now) = (machine.tally(), again.tally());
        assert_eq!(then.evicted, now.evicted, "{preset}: all that left then leaves now");
        let both = |tally: &memfit_sim::Tally| tally.faults.major() + tally.around.major() + tally.faults.staged;
        let share = both(now) as f64 / both(then) as f64;
        assert!((0.95..1.05).contains(&share), "{preset}: {then:?} {now:?}");
        let from = |tally: &memfit_sim::Tally| (tally.faults.pool + tally.around.pool) as f64;
        assert!((from(now) - from(then)).abs() <= from(then) * 0.1 + 200.0, "{preset}: {then:?} {now:?}");
    }
}

/// The clock of a recorder stands still between two settings. The calls' ticks do not.
#[test]
fn the_time_of_a_recording_counts_once() {
    let mut machine = Machine::new(&setup("memfit", 4 << 20), Contents::new());
    let recorder = Recorder::start(&mut machine, Vec::new(), vec!["touches".into()]).unwrap();
    machine.event(Event::Starts { proc: 0 });
    machine.event(Event::Maps { proc: 0, first: 0, pages: 4000, kind: kind("text").unwrap() });
    for i in 0..60_000 {
        machine.event(Event::Touches { proc: 0, page: i * 7 % 4000, how: Access::Write });
        machine.event(Event::Computes { ns: 100_000 });
        if i % 5000 == 0 {
            recorder.now(machine.times().program);
        }
    }
    // From here on nothing is asked of the core.
    machine.event(Event::Touches { proc: 0, page: 0, how: Access::Read });
    machine.event(Event::Computes { ns: 3_000_000_000 });
    let end = machine.times().program;
    recorder.now(end);
    let bytes = recorder.finish(&mut machine).unwrap();
    let mut recorded = Recorded::new(Reader::new(&bytes[..]).unwrap(), 1.0).unwrap();
    let (mut batch, mut computes) = (Batch::default(), 0);
    while recorded.fill(&mut batch).unwrap() {
        let passes = |event: &Event| if let Event::Computes { ns } = event { *ns } else { 0 };
        computes += batch.events.iter().map(passes).sum::<u64>();
    }
    assert_eq!(recorded.run_ns(), end);
    assert!(computes <= end && computes > end / 100 * 99, "{computes} of {end}");
}
