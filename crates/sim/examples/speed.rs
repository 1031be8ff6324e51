//! Measures events a second of the simulator on one core: `cargo run --release -p memfit-sim
//! --example speed -- [ROUNDS] [CASE]`. `CASE` selects cases by a part of their name.
//!
//! The events are made in advance. The fastest of all rounds counts, because other programs only
//! make a run slower.

use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::Spec;
use memfit_sim::lru::{Distances, Lru};
use memfit_sim::{replay, Batch, Contents, EventSource, Machine, Recorder, Residents, Setup};
use memfit_trace::Reader;
use std::sync::Arc;
use std::time::Instant;

const PAGES: u64 = 40_000;

fn setup(preset: &str, percent: u64) -> Setup {
    Setup {
        scheme: Arc::new(memfit_scheme::preset(preset, &[]).expect("a preset").expect("a scheme")),
        budget: PAGES * percent / 100 * 4096,
        swap_bytes: 16 << 30,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::new(CostTable::find("measured").expect("a table")),
        device: Arc::new(Device::find("ssd-nvme").expect("a device")),
    }
}

fn events(spec: &str) -> Vec<Batch> {
    let mut source = Spec::parse(spec).expect("a workload").make();
    let (mut batches, mut batch) = (Vec::new(), Batch::default());
    while source.fill(&mut batch).expect("it is made") {
        batches.push(batch.hand_over());
    }
    batches
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: u32 = args.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let only = args.next().unwrap_or_default();
    let zipf = events(&format!("zipf:pages={PAGES},accesses=2000000"));
    let scan = events(&format!("scan:pages={PAGES},passes=25"));
    type Case<'a> = (String, u64, Box<dyn FnMut() + 'a>);
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (name, batches) in [("zipf", &zipf), ("scan", &scan)] {
        let count = batches.iter().map(|batch| batch.events.len() as u64).sum();
        let each = || batches.iter().flat_map(|batch| &batch.events);
        let direct = move || {
            let mut lru = Lru::new(PAGES / 2);
            each().for_each(|event| lru.event(event));
            std::hint::black_box(lru.hits());
        };
        cases.push((format!("lru, one size: {name}"), count, Box::new(direct)));
        let all = move || {
            let mut distances = Distances::new();
            each().for_each(|event| distances.event(event));
            std::hint::black_box(distances.curve());
        };
        cases.push((format!("lru, all sizes: {name}"), count, Box::new(all)));
    }
    for preset in ["swap", "zswap-zbud", "memfit"] {
        for (name, percent, batches) in
            [("zipf", 150, &zipf), ("zipf", 95, &zipf), ("zipf", 50, &zipf), ("scan", 50, &scan)]
        {
            let count = batches.iter().map(|batch| batch.events.len() as u64).sum();
            let setup = setup(preset, percent);
            let run = move || {
                let mut machine = Machine::new(&setup, Contents::new());
                batches.iter().for_each(|batch| machine.batch(batch));
                std::hint::black_box(machine.tally().touches);
            };
            cases.push((format!("{preset}: {name} in {percent} %"), count, Box::new(run)));
        }
    }
    for preset in ["swap", "memfit"] {
        let mut machine = Machine::new(&setup(preset, 50), Contents::new());
        let recorder = Recorder::start(&mut machine, Vec::new(), vec!["zipf".into()]).expect("a recording");
        zipf.iter().take(40).for_each(|batch| machine.batch(batch));
        let bytes = recorder.finish(&mut machine).expect("a recording");
        let count = machine.core().number();
        let run = move || {
            let replay = replay(&mut Reader::new(&bytes[..]).expect("a recording")).expect("the same");
            std::hint::black_box(replay.calls);
        };
        cases.push((format!("calls of a recording, {preset}: zipf in 50 %"), count, Box::new(run)));
    }
    cases.retain(|(name, ..)| name.contains(&only));
    let mut best = vec![f64::INFINITY; cases.len()];
    for _ in 0..rounds {
        for ((_, _, run), best) in cases.iter_mut().zip(&mut best) {
            let began = Instant::now();
            run();
            *best = best.min(began.elapsed().as_secs_f64());
        }
    }
    for ((name, count, _), best) in cases.iter().zip(&best) {
        println!("{name:45} {:7.2} million a second", *count as f64 / best / 1e6);
    }
}
