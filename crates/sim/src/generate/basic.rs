//! Single access patterns: scans, phases and bursts.

use super::stream::{part, process, shuffle, workload, Share, StreamRegion, Writes};
use super::Values;
use crate::workload::{Event, Workload};
use memfit_codec::generate::Rng;
use std::sync::Arc;

/// Scans all pages again and again. Mark 0 is the end of the fill, mark n that of pass n.
pub(super) fn scan(v: &Values<'_>) -> Box<dyn Workload> {
    let data = StreamRegion::new(0, v.count("pages"));
    let (mut rng, writes) = (Rng::new(v.count("seed")), Writes::percent(v.real("writes")));
    let passes = (1..=v.count("passes")).flat_map(move |pass| {
        let mut rng = part(&mut rng);
        let touches = (0..data.pages).map(move |page| data.touch(page, writes.how(&mut rng)));
        touches.chain([Event::Reaches { mark: pass as u32 }])
    });
    let body = data.fill().chain([Event::Reaches { mark: 0 }]).chain(passes);
    let events = process(0, vec![data.maps(v.kind("contents"))], body);
    workload(events, v.count("touch_ns"), |mark| match mark {
        0 => "filled".into(),
        pass => format!("pass {pass}"),
    })
}

/// Touches a working set that moves. Mark 0 is the end of the fill, mark n that of phase n.
pub(super) fn phase(v: &Values<'_>) -> Box<dyn Workload> {
    let data = StreamRegion::new(0, v.count("pages"));
    let mut rng = Rng::new(v.count("seed"));
    let (writes, to_set) = (Writes::percent(v.real("writes")), Share::percent(v.real("share")));
    let set = ((data.pages as f64 * v.real("set") / 100.0).round() as u64).max(1);
    let step = (set as f64 * v.real("moves") / 100.0).round() as u64;
    let order: Option<Arc<[u32]>> = (v.choice("lies") == "scattered").then(|| {
        let mut order: Vec<u32> = (0..data.pages as u32).collect();
        shuffle(&mut order, &mut rng);
        order.into()
    });
    let accesses = v.count("accesses");
    let phases = (1..=v.count("phases")).flat_map(move |phase| {
        let (mut rng, order) = (part(&mut rng), order.clone());
        let start = (phase - 1) * step % data.pages;
        let touches = (0..accesses).map(move |_| {
            let at = if to_set.next(&mut rng) {
                let at = start + rng.below(set);
                // Cheaper than a remainder.
                if at < data.pages {
                    at
                } else {
                    at - data.pages
                }
            } else {
                rng.below(data.pages)
            };
            let page = order.as_ref().map_or(at, |order| u64::from(order[at as usize]));
            data.touch(page, writes.how(&mut rng))
        });
        touches.chain([Event::Reaches { mark: phase as u32 }])
    });
    let body = data.fill().chain([Event::Reaches { mark: 0 }]).chain(phases);
    let events = process(0, vec![data.maps(v.kind("contents"))], body);
    workload(events, v.count("touch_ns"), |mark| match mark {
        0 => "filled".into(),
        phase => format!("phase {phase}"),
    })
}

/// Fills fresh memory in bursts. Mark n is the end of burst n, from 0 on.
pub(super) fn burst(v: &Values<'_>) -> Box<dyn Workload> {
    let (pages, bursts, kept) = (v.count("pages"), v.count("bursts"), v.count("kept"));
    let (kind, pause) = (v.kind("contents"), Event::Computes { ns: v.count("pause_ms") * 1_000_000 });
    let (mut rng, first) = (Rng::new(v.count("seed")), StreamRegion::new(0, pages));
    // Burst n has the n-th place: freed memory is not used again.
    let place = first.next(pages).first - first.first;
    let region = move |burst: u64| StreamRegion { first: first.first + burst * place, ..first };
    let body = (0..bursts).flat_map(move |burst| {
        let (data, old) = (region(burst), burst.checked_sub(kept).map(region));
        // Reads a few random pages of a burst again before the next burst.
        let mut rng = part(&mut rng);
        let looks = (0..pages / 16).map(move |_| data.read(rng.below(pages)));
        let then = looks.chain(old.map(|old| old.frees())).chain([pause]);
        let filled = [Event::Reaches { mark: burst as u32 }].into_iter().chain(then);
        [data.maps(kind)].into_iter().chain(data.fill().chain(filled))
    });
    workload(process(0, vec![], body), v.count("touch_ns"), |mark| format!("burst {mark}"))
}
