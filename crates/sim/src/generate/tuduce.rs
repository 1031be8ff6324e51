//! The programs of Tuduce and Gross, "Adaptive Main Memory Compression", USENIX 2005, section 5.

use super::stream::{divisor, part, process, workload, Mix, Share, StreamRegion, Writes};
use super::{choice, contents, count, pages, param, percent, scale, touch_ns, warm, Param, Unit, Values, SEED, WRITES};
use crate::workload::{Event, Workload};
use memfit_codec::generate::Rng;

const fn size(default: &'static str) -> Param {
    pages("size", "footprint, at the paper's size", default)
}

pub(super) const THRASHER: &[Param] =
    &[size("1.2G"), scale("8"), count("cycles", "after the fill", "5", 0.0, 1e9), contents("f=0.40"), touch_ns("1000")];

pub(super) const RAND: &[Param] = &[
    choice("size", "footprint and accesses, at the paper's size", &["1.2G", "1.4G", "1.8G"], "1.2G"),
    scale("8"),
    choice("ratio", "percent that the codec makes of it", &["50", "7"], "50"),
    warm("2"),
    WRITES,
    touch_ns("1000"),
    SEED,
];

pub(super) const SMV: &[Param] = &[
    size("164M"),
    scale("1"),
    percent("cold", "pages that are written once and never looked at again", "10"),
    count("walks", "steps through nodes after all were made, at the paper's size", "2000000", 0.0, 1e12),
    touch_ns("100"),
    SEED,
];

pub(super) const NS2: &[Param] = &[
    size("730M"),
    scale("8"),
    param("set", "pages in the working set", Unit::Percent, "15", 0.001, 100.0),
    percent("share", "touches that go to the working set; the others go anywhere", "95"),
    param("accesses", "touches for each page, on average", Unit::Real, "2", 0.0, 1e6),
    warm("2"),
    WRITES,
    touch_ns("15000"),
    SEED,
];

pub(super) const QSIM: &[Param] = &[
    size("1.3G"),
    scale("8"),
    param("moves", "of agents for each page, on average; a page has 16 agents", Unit::Real, "4", 0.0, 1e6),
    warm("2"),
    touch_ns("1000"),
    SEED,
];

/// Nodes of a decision diagram in a page: 32 bytes each.
const NODES: u64 = 128;
/// Agents in a page: 256 bytes each.
const AGENTS: u64 = 16;
/// Links of the roads, and how many are in a page: 64 bytes each.
const LINKS: u64 = 4096;
const LINKS_IN_PAGE: u64 = 64;

/// The footprint at this scale, pages.
fn scaled(v: &Values<'_>) -> u64 {
    ((v.real("size") / v.real("scale")).round() as u64).max(1)
}

fn marks(names: &'static [&'static str]) -> impl Fn(u32) -> String + Send {
    move |mark| names.get(mark as usize).map_or_else(|| format!("mark {mark}"), |name| (*name).into())
}

/// Fills the memory (mark 0), then writes it `warm` more times, so that an adaptive compressed area
/// finds its size (mark 1).
fn fills(data: StreamRegion, warm: u64) -> impl Iterator<Item = Event> + Send {
    let warms = (0..warm).flat_map(move |_| data.fill());
    data.fill().chain([Event::Reaches { mark: 0 }]).chain(warms).chain([Event::Reaches { mark: 1 }])
}

/// Goes through the memory in linear cycles. Mark 0 is the end of the fill, mark n that of cycle n.
pub(super) fn thrasher(v: &Values<'_>) -> Box<dyn Workload> {
    let data = StreamRegion::new(0, scaled(v));
    let cycles =
        (1..=v.count("cycles") as u32).flat_map(move |cycle| data.fill().chain([Event::Reaches { mark: cycle }]));
    let body = data.fill().chain([Event::Reaches { mark: 0 }]).chain(cycles);
    workload(process(0, vec![data.maps(v.kind("contents"))], body), v.count("touch_ns"), |mark| match mark {
        0 => "filled".into(),
        cycle => format!("cycle {cycle}"),
    })
}

/// Touches random pages. Mark 2 is the end.
pub(super) fn rand(v: &Values<'_>) -> Box<dyn Workload> {
    let (gib, accesses) = match v.choice("size") {
        "1.2G" => (1.2, 200_000.0),
        "1.4G" => (1.4, 1_200_000.0),
        _ => (1.8, 6_000_000.0),
    };
    let data = StreamRegion::new(0, (gib * 262_144.0 / v.real("scale")).round() as u64);
    let (mut rng, writes) = (Rng::new(v.count("seed")), Writes::percent(v.real("writes")));
    // Ratios under WKdm, which the paper used, and LZO are 0.499 and 0.500; 0.070 and 0.024.
    let mix = Mix::new(&[(10, if v.choice("ratio") == "50" { "f=0.40" } else { "sparse" })]);
    let maps = mix.maps(data, &mut rng);
    let touches = (0..(accesses / v.real("scale")).round() as u64).map(move |_| {
        let page = rng.below(data.pages);
        data.touch(page, writes.how(&mut rng))
    });
    let body = fills(data, v.count("warm")).chain(touches).chain([Event::Reaches { mark: 2 }]);
    workload(process(0, maps, body), v.count("touch_ns"), marks(&["filled", "warm", "accesses"]))
}

/// Makes the nodes of a decision diagram in order (mark 0). For each node it looks up the table of
/// results, two older nodes and the table that finds nodes. Then it walks over all nodes (mark 1).
pub(super) fn smv(v: &Values<'_>) -> Box<dyn Workload> {
    let all = scaled(v).max(16);
    let cold = StreamRegion::new(0, (all as f64 * v.real("cold") / 100.0) as u64);
    let used = (all - cold.pages).max(4);
    let results = cold.next((used / 5).max(1));
    let slots = results.next((used / 10).max(1));
    let nodes = slots.next(used - results.pages - slots.pages);
    let mut rng = Rng::new(v.count("seed"));
    // 0.52 under WKdm.
    let mix = Mix::new(&[(6, "f=0.40"), (4, "f=0.50")]);
    let maps: Vec<Event> = [cold, results, slots, nodes].iter().flat_map(|part| mix.maps(*part, &mut rng)).collect();
    let mut walk = part(&mut rng);
    let makes = (0..nodes.pages * NODES).flat_map(move |node| {
        let page = node / NODES;
        let result = rng.below(results.pages);
        [
            results.read(result),
            // The page that is being filled counts as an older one, too.
            nodes.read(rng.below(page + 1)),
            nodes.read(rng.below(page + 1)),
            slots.write(rng.below(slots.pages)),
            nodes.write(page),
            results.write(result),
        ]
    });
    let steps = (v.real("walks") / v.real("scale")).round() as u64;
    let walks = (0..steps).flat_map(move |step| {
        let result = walk.below(results.pages);
        let node = nodes.read(walk.below(nodes.pages));
        // One of eight results is not known yet.
        let found = (step % 8 == 0).then(|| [slots.read(walk.below(slots.pages)), results.write(result)]);
        [node, results.read(result)].into_iter().chain(found.into_iter().flatten())
    });
    let body = cold.fill().chain(makes).chain([Event::Reaches { mark: 0 }]).chain(walks);
    let events = process(0, maps, body.chain([Event::Reaches { mark: 1 }]));
    workload(events, v.count("touch_ns"), marks(&["nodes made", "walked"]))
}

/// The working set is spread over the footprint, like nodes with a connection. Mark 2 is the end.
pub(super) fn ns2(v: &Values<'_>) -> Box<dyn Workload> {
    let data = StreamRegion::new(0, scaled(v));
    let (mut rng, writes, share) =
        (Rng::new(v.count("seed")), Writes::percent(v.real("writes")), Share::percent(v.real("share")));
    let set = ((data.pages as f64 * v.real("set") / 100.0).round() as u64).max(1);
    // 0.20 under WKdm.
    let maps = Mix::new(&[(8, "f=0.10"), (2, "f=0.20")]).maps(data, &mut rng);
    let touches = (0..(data.pages as f64 * v.real("accesses")).round() as u64).map(move |_| {
        let page = match share.next(&mut rng) {
            true => rng.below(set) * data.pages / set,
            false => rng.below(data.pages),
        };
        data.touch(page, writes.how(&mut rng))
    });
    let body = fills(data, v.count("warm")).chain(touches).chain([Event::Reaches { mark: 2 }]);
    workload(process(0, maps, body), v.count("touch_ns"), marks(&["filled", "warm", "accesses"]))
}

/// Each step goes through all links in order and moves the first agent in the queue of each to the
/// end of another queue. The order in which agents leave has no relation to their places, and each
/// agent moves once before any moves again. Mark 2 is the end.
pub(super) fn qsim(v: &Values<'_>) -> Box<dyn Workload> {
    let all = scaled(v);
    let links = StreamRegion::new(0, LINKS / LINKS_IN_PAGE);
    let data = links.next(all.saturating_sub(links.pages).max(1));
    let (mut rng, agents) = (Rng::new(v.count("seed")), data.pages * AGENTS);
    // 0.0975 under WKdm.
    let mix = Mix::new(&[(5, "sparse"), (5, "f=0.05")]);
    let mut maps = mix.maps(links, &mut rng);
    maps.extend(mix.maps(data, &mut rng));
    // The n-th agent to leave is n * stride modulo the number of agents: every agent, if the two
    // have no common divisor.
    let mut stride = rng.below(agents) | 1;
    while divisor(stride, agents) != 1 {
        stride += 2;
    }
    let page = move |leaves: u64| (u128::from(leaves) * u128::from(stride) % u128::from(agents)) as u64 / AGENTS;
    let moves = (0..(all as f64 * v.real("moves")).round() as u64).flat_map(move |i| {
        let link = (i % LINKS_IN_PAGE == 0).then(|| links.write(i % LINKS / LINKS_IN_PAGE));
        // Behind an agent that arrived there in the last step.
        let tail = i + agents - 1 - rng.below(LINKS.min(agents));
        link.into_iter().chain([data.write(page(i)), data.write(page(tail))])
    });
    let warm = v.count("warm");
    let body = links.fill().chain(fills(data, warm)).chain(moves).chain([Event::Reaches { mark: 2 }]);
    workload(process(0, maps, body), v.count("touch_ns"), marks(&["filled", "warm", "moved"]))
}
