//! Applications that are launched and used in turn. Each has data of its own and maps a file with
//! code and media.
//!
//! Modelled after lab/bench/papers/programs/apps.c, which does the same in real processes. A launch
//! touches a part of data and code, the same each time. A use touches a tenth of the rest of both,
//! a different one each turn, then random blocks of the code, and the next quarter of the media in
//! order. With services of the system, both also touch random blocks of the services' file, and a
//! launch touches random blocks of their data.

use super::stream::{named, part, process, shuffle, workload, Mix, StreamRegion};
use super::{choice, count, param, percent, scale, touch_ns, Param, Unit, Values, SEED};
use crate::workload::{Access, Event, Workload};
use memfit_codec::generate::Rng;
use memfit_core::sample::mix;
use std::sync::Arc;

/// Pages that are used together.
const BLOCK: u64 = 8;
/// A use goes through one of this many parts of the media.
const PARTS: u64 = 4;
/// Of the touched pages of data, those with a number divisible by this are written.
const WRITTEN: u64 = 4;
/// The process that holds the pages of files when applications end and their files stay.
const CACHE: u32 = 0;

const STAY: &str = "stay";
const ONCE: &str = "once";
const REPETITION: &str = "repetition";
const ENDS: &[&str] = &[STAY, REPETITION, ONCE];
const ENDS_ABOUT: &str =
    "applications end never, after each repetition, or after each use; pages of files stay in the last two cases";

const fn dwell_ms(default: &'static str) -> Param {
    param("dwell_ms", "after each use, until the next launch", Unit::Milliseconds, default, 0.0, 1e6)
}

const fn hot(default: &'static str) -> Param {
    percent("hot", "of data and code that every launch touches", default)
}

const fn size(name: &'static str, about: &'static str, default: &'static str) -> Param {
    // At most 4 GiB.
    param(name, about, Unit::Pages, default, 8.0, 1_048_576.0)
}

/// Of the blocks of the services' file that a launch and its use touch, the launch touches one in
/// this many.
const LAUNCH_PART: u64 = 5;
/// Random blocks that a use touches for each block of its code, where no parameter says so.
const USES: f64 = 8.0;

const fn shares(name: &'static str, about: &'static str, default: &'static str) -> Param {
    param(name, about, Unit::Real, default, 0.0, 10_000.0)
}

const fn of_services(name: &'static str, about: &'static str, default: &'static str) -> Param {
    // At most 4 GiB.
    param(name, about, Unit::Pages, default, 0.0, 1_048_576.0)
}

const CODE_CONTENTS: Param = param("code_contents", "what pages of code hold", Unit::Content, "f=0.28", 0.0, 0.0);

pub(super) const LAUNCH: &[Param] = &[
    count("apps", "applications", "14", 1.0, 1000.0),
    count("repetitions", "of all launches", "5", 1.0, 1e6),
    choice("order", "of the launches in a repetition", &["same", "shuffled"], "same"),
    choice("ends", ENDS_ABOUT, ENDS, STAY),
    size("anon", "data of an application", "4M"),
    size("code", "code of an application", "4M"),
    size("media", "media of an application", "4M"),
    hot("30"),
    dwell_ms("1500"),
    CODE_CONTENTS,
    touch_ns("1000"),
    SEED,
];

/// docs/workloads.md tells which of the sizes are fitted.
pub(super) const EZSWAP: &[Param] = &[
    count("apps", "applications: 8, 10, 12, 14, 16 in the paper", "14", 1.0, 16.0),
    count("repetitions", "of all launches; the first is to be left out", "5", 1.0, 1e6),
    choice("ends", ENDS_ABOUT, ENDS, REPETITION),
    scale("20"),
    size("anon", "data of an application, at the paper's size", "49M"),
    size("code", "code of an application, at the paper's size", "60M"),
    size("media", "media of an application, at the paper's size", "200M"),
    shares("uses", "random blocks of its code that a use touches, for each 100", "20"),
    of_services("services_file", "file of the services, at the paper's size", "400M"),
    shares("file_uses", "random blocks of it that a launch and the use after it touch, for each 100", "620"),
    of_services("services_data", "data of the services, at the paper's size", "95M"),
    shares("data_uses", "random blocks of it that a launch touches, for each 100", "5"),
    hot("20"),
    dwell_ms("1500"),
    touch_ns("10000"),
    SEED,
];

pub(super) const HYBRID18: &[Param] = &[
    count("apps", "applications: 16 or 60 in the paper", "16", 1.0, 64.0),
    count("turns", "each launches every application once", "16", 1.0, 1e6),
    choice("ends", ENDS_ABOUT, ENDS, STAY),
    scale("36"),
    hot("40"),
    dwell_ms("300"),
    touch_ns("1000"),
    SEED,
];

/// An application.
struct App {
    name: String,
    /// Pages of data, code and media.
    anon: u64,
    code: u64,
    media: u64,
    media_mix: Mix,
}

/// Parameters common to all launches.
struct Setup {
    apps: Vec<App>,
    anon_mix: Mix,
    code_kind: u16,
    /// What its pages hold in place of `code_kind`.
    code_mix: Option<Mix>,
    turns: u64,
    shuffled: bool,
    ends: &'static str,
    /// Share of the blocks that every launch touches, 0 to 1.
    hot: f64,
    /// Random blocks that a use touches for each block of the code.
    uses: f64,
    services: Services,
    dwell_ns: u64,
    seed: u64,
}

/// The services of the system, which work for all applications.
#[derive(Default)]
struct Services {
    /// Pages of their file and of their data; there may be none.
    file: u64,
    data: u64,
    /// Random blocks of the file that a launch and its use touch.
    file_blocks: u64,
    /// Random blocks of the data that a launch touches.
    data_blocks: u64,
}

/// The pages of an application.
#[derive(Clone, Copy)]
struct Places {
    anon: StreamRegion,
    code: StreamRegion,
    media: StreamRegion,
}

impl Setup {
    fn new(v: &Values<'_>, apps: Vec<App>, anon_mix: Mix, turns: u64) -> Setup {
        Setup {
            apps,
            anon_mix,
            code_kind: 0,
            code_mix: None,
            turns,
            shuffled: false,
            ends: v.choice("ends"),
            hot: v.real("hot") / 100.0,
            uses: USES,
            services: Services::default(),
            dwell_ns: v.count("dwell_ms") * 1_000_000,
            seed: v.count("seed"),
        }
    }

    fn stay(&self) -> bool {
        self.ends == STAY
    }

    /// Number of the application's process; each start has a new one.
    fn proc(&self, app: usize, turn: u64) -> u32 {
        let turn = if self.stay() { 0 } else { turn };
        1 + (turn * self.apps.len() as u64) as u32 + app as u32
    }

    fn places(&self, app: usize, turn: u64) -> Places {
        let App { anon, code, media, .. } = self.apps[app];
        let anon = StreamRegion::new(self.proc(app, turn), anon);
        let code = if self.stay() {
            anon.next(code)
        } else {
            // All files side by side.
            let before =
                self.apps[..app].iter().fold(StreamRegion::new(CACHE, 0), |at, app| at.next(app.code).next(app.media));
            before.next(code)
        };
        Places { anon, code, media: code.next(media) }
    }

    /// File and data of the services: pages of the process that stands for the kernel's page cache,
    /// above those of all other files.
    fn service_places(&self) -> (StreamRegion, StreamRegion) {
        let files = if self.stay() { &[][..] } else { &self.apps };
        let before = files.iter().fold(StreamRegion::new(CACHE, 0), |at, app| at.next(app.code).next(app.media));
        let file = before.next(self.services.file);
        (file, file.next(self.services.data))
    }

    /// Maps file and data of the services, and fills the data.
    fn starts_services(&self) -> Vec<Event> {
        let (file, data) = self.service_places();
        let mut out = Mix::new(CODE).maps(file, &mut Rng::new(mix(self.seed + 3)));
        out.extend(self.anon_mix.maps(data, &mut Rng::new(mix(self.seed + 4))));
        out.extend(data.fill());
        out
    }

    fn maps_file(&self, app: usize, places: Places) -> Vec<Event> {
        let mut out = match &self.code_mix {
            None => vec![places.code.maps(self.code_kind)],
            Some(kinds) => kinds.maps(places.code, &mut Rng::new(mix(self.seed + 2) ^ app as u64)),
        };
        out.extend(self.apps[app].media_mix.maps(places.media, &mut Rng::new(mix(self.seed) ^ app as u64)));
        out
    }

    /// Starts the process of an application and maps its memory.
    fn starts(&self, app: usize, turn: u64, places: Places) -> Vec<Event> {
        let mut out = vec![Event::Starts { proc: places.anon.proc }];
        out.extend(self.anon_mix.maps(places.anon, &mut Rng::new(mix(self.seed + 1) ^ app as u64)));
        if self.stay() {
            out.extend(self.maps_file(app, places));
        }
        debug_assert!(turn == 0 || !self.stay());
        out
    }

    /// Whether a page of an application is touched: in turn 0 by every launch, later by this turn's
    /// use in addition.
    fn wanted(&self, app: usize, page: u64, turn: u64) -> bool {
        let random = mix(mix(self.seed ^ (app as u64) << 40) ^ (page / BLOCK));
        if ((random & 0xf_ffff) as f64) < self.hot * (1u64 << 20) as f64 {
            turn == 0
        } else {
            turn > 0 && (random >> 20) % 10 == turn % 10
        }
    }
}

/// A touch of a page of data.
fn use_data(data: StreamRegion, page: u64) -> Event {
    data.touch(page, if page % WRITTEN == 0 { Access::Write } else { Access::Read })
}

fn touches(setup: Arc<Setup>, app: usize, places: Places, turn: u64) -> impl Iterator<Item = Event> + Send {
    let Places { anon, code, .. } = places;
    let code_setup = setup.clone();
    let data = (0..anon.pages).filter(move |&page| setup.wanted(app, page, turn));
    let data = data.map(move |page| use_data(anon, page));
    // The code has its own hot blocks.
    let read = (0..code.pages).filter(move |&page| code_setup.wanted(app, page + (1 << 30), turn));
    data.chain(read.map(move |page| code.touch(page, Access::File)))
}

/// The pages of `count` random blocks.
fn random_pages(region: StreamRegion, count: u64, rng: &mut Rng) -> impl Iterator<Item = u64> + Send {
    let firsts: Vec<u64> = (0..count).map(|_| rng.below(region.pages / BLOCK) * BLOCK).collect();
    firsts.into_iter().flat_map(|first| first..first + BLOCK)
}

/// What the services do for a launch.
fn serves(setup: &Setup, rng: &mut Rng) -> impl Iterator<Item = Event> + Send {
    let (file, data) = setup.service_places();
    let read = random_pages(file, setup.services.file_blocks / LAUNCH_PART, rng);
    let used = random_pages(data, setup.services.data_blocks, rng);
    read.map(move |page| file.touch(page, Access::File)).chain(used.map(move |page| use_data(data, page)))
}

/// Touches random blocks of the code and of the services' file, evenly mixed, and meanwhile a part
/// of the media in order.
fn wanders(setup: &Setup, places: Places, turn: u64, mut rng: Rng) -> impl Iterator<Item = Event> + Send {
    let (Places { code, media, .. }, (file, _)) = (places, setup.service_places());
    // A workload without media has launches only.
    let own = if media.pages == 0 { 0 } else { ((code.pages / BLOCK) as f64 * setup.uses).round() as u64 };
    let others = setup.services.file_blocks - setup.services.file_blocks / LAUNCH_PART;
    let steps = own + others;
    let (from, end) = (turn % PARTS * media.pages / PARTS, (turn % PARTS + 1) * media.pages / PARTS);
    (0..steps).flat_map(move |i| {
        let region = if (i + 1) * others / steps > i * others / steps { file } else { code };
        let first = rng.below(region.pages / BLOCK) * BLOCK;
        let seen = from + i * (end - from) / steps..from + (i + 1) * (end - from) / steps;
        let block = (first..first + BLOCK).map(move |page| region.touch(page, Access::File));
        block.chain(seen.map(move |page| media.touch(page, Access::File)))
    })
}

/// A launch and the use after it.
fn visit(setup: Arc<Setup>, app: usize, turn: u64) -> impl Iterator<Item = Event> + Send {
    let places = setup.places(app, turn);
    let cold = turn == 0 || !setup.stay();
    let starts = if cold { setup.starts(app, turn, places) } else { vec![] };
    let fill = cold.then(|| places.anon.fill()).into_iter().flatten();
    let launched = Event::Reaches { mark: mark(&setup, turn, app) };
    let idle = Event::Computes { ns: setup.dwell_ns };
    let ends = (setup.ends == ONCE).then_some(Event::Ends { proc: places.anon.proc });
    let mut rng = Rng::new(mix(setup.seed ^ turn << 40 ^ (app as u64) << 20));
    let served = serves(&setup, &mut rng);
    let way = wanders(&setup, places, turn + 1, rng);
    let launch = touches(setup.clone(), app, places, 0).chain(served).chain([launched]);
    let used = touches(setup, app, places, turn + 1).chain(way).chain([idle]);
    starts.into_iter().chain(fill).chain(launch).chain(used).chain(ends)
}

/// Number of the mark at the end of a launch; the end of a turn counts as one more application.
fn mark(setup: &Setup, turn: u64, app: usize) -> u32 {
    (turn * (setup.apps.len() as u64 + 1)) as u32 + app as u32
}

fn turn(setup: Arc<Setup>, turn: u64, order: Vec<usize>) -> impl Iterator<Item = Event> + Send {
    let count = setup.apps.len();
    let ending = (!setup.stay() && setup.ends != ONCE) || (setup.stay() && turn + 1 == setup.turns);
    let ends = (0..if ending { count } else { 0 }).map({
        let setup = setup.clone();
        move |app| Event::Ends { proc: setup.proc(app, turn) }
    });
    let over = Event::Reaches { mark: mark(&setup, turn, count) };
    order.into_iter().flat_map(move |app| visit(setup.clone(), app, turn)).chain([over]).chain(ends)
}

fn cycle(setup: Setup, touch_ns: u64) -> Box<dyn Workload> {
    let setup = Arc::new(setup);
    let mut rng = Rng::new(setup.seed);
    let mut order: Vec<usize> = (0..setup.apps.len()).collect();
    let (turns, names) = (setup.turns, setup.clone());
    let mut cached: Vec<Event> = if setup.stay() {
        vec![]
    } else {
        (0..order.len()).flat_map(|app| setup.maps_file(app, setup.places(app, 0))).collect()
    };
    cached.extend(setup.starts_services());
    let all = (0..turns).flat_map(move |t| {
        let mut rng = part(&mut rng);
        if setup.shuffled {
            shuffle(&mut order, &mut rng);
        }
        turn(setup.clone(), t, order.clone())
    });
    let mark = move |mark: u32| {
        let (turn, app) = (mark as usize / (names.apps.len() + 1), mark as usize % (names.apps.len() + 1));
        match names.apps.get(app) {
            Some(app) => format!("turn {}: launch of {}", turn + 1, app.name),
            None => format!("turn {} ends", turn + 1),
        }
    };
    if cached.is_empty() {
        workload(all, touch_ns, mark)
    } else {
        workload(process(CACHE, cached, all), touch_ns, mark)
    }
}

/// Contents of an idle phone application: mostly zeros and well compressible pages.
const IDLE: &[(usize, &str)] = &[(4, "zero"), (3, "f=0.10"), (3, "f=0.28")];
/// Contents that zRAM compresses to about half.
const PHONE: &[(usize, &str)] = &[(1, "zero"), (3, "f=0.20"), (4, "f=0.40"), (1, "f=0.65"), (1, "f=0.80")];

/// Contents of mapped programs and libraries: a mean of 0.57 with LZO, and a fifth above 0.75.
const CODE: &[(usize, &str)] = &[(4, "f=0.28"), (4, "f=0.50"), (2, "f=0.80")];

/// Identical applications.
pub(super) fn launch(v: &Values<'_>) -> Box<dyn Workload> {
    let app = |i| App {
        name: format!("application {i}"),
        anon: v.count("anon"),
        code: v.count("code"),
        media: v.count("media"),
        media_mix: Mix::new(&[(10, "f=0.80")]),
    };
    let apps = (1..=v.count("apps")).map(app).collect();
    let setup = Setup {
        shuffled: v.choice("order") == "shuffled",
        code_kind: v.kind("code_contents"),
        ..Setup::new(v, apps, Mix::new(PHONE), v.count("repetitions"))
    };
    cycle(setup, v.count("touch_ns"))
}

/// Pages of `kib` KiB at the paper's size.
fn scaled(v: &Values<'_>, kib: u64) -> u64 {
    ((kib as f64 / 4.0 / v.real("scale")).round() as u64).max(BLOCK)
}

/// Pages of a parameter at the paper's size.
fn scaled_param(v: &Values<'_>, name: &str) -> u64 {
    scaled(v, v.count(name) * 4)
}

/// The launch cycle of ezswap.
pub(super) fn ezswap(v: &Values<'_>) -> Box<dyn Workload> {
    const UTILITY: &[(usize, &str)] = &[(10, "f=0.65")];
    const SOCIAL: &[(usize, &str)] = &[(10, "f=0.80")];
    const MEDIA: &[(usize, &str)] = &[(10, "random")];
    const GAME: &[(usize, &str)] = &[(5, "f=0.80"), (5, "random")];
    // In the order of the paper's list; only the series of 16 has the last two.
    const APPS: [(&str, &[(usize, &str)]); 16] = [
        ("Play Store", UTILITY),
        ("Google Calendar", UTILITY),
        ("Gmail", UTILITY),
        ("Wikipedia", UTILITY),
        ("Google Chrome", UTILITY),
        ("Facebook", SOCIAL),
        ("Twitter", SOCIAL),
        ("YouTube", MEDIA),
        ("Twitch", MEDIA),
        ("Amazon Kindle", MEDIA),
        ("TED", MEDIA),
        ("Angry Birds 2", GAME),
        ("Candy Crush Saga", GAME),
        ("PUBG Mobile", GAME),
        ("Microsoft Excel", UTILITY),
        ("2048", GAME),
    ];
    let app = |&(name, media): &(&str, &[(usize, &str)])| App {
        name: name.into(),
        anon: scaled_param(v, "anon"),
        code: scaled_param(v, "code"),
        media: scaled_param(v, "media"),
        media_mix: Mix::new(media),
    };
    let apps = APPS[..v.count("apps") as usize].iter().map(app).collect();
    let some = |name: &str| if v.count(name) == 0 { 0 } else { scaled_param(v, name) };
    let share = |pages: u64, name: &str| ((pages / BLOCK) as f64 * v.real(name) / 100.0).round() as u64;
    let (file, data) = (some("services_file"), some("services_data"));
    let services =
        Services { file, data, file_blocks: share(file, "file_uses"), data_blocks: share(data, "data_uses") };
    let setup = Setup {
        code_mix: Some(Mix::new(CODE)),
        uses: v.real("uses") / 100.0,
        services,
        ..Setup::new(v, apps, Mix::new(IDLE), v.count("repetitions"))
    };
    cycle(setup, v.count("touch_ns"))
}

/// The turns of hybrid18.
pub(super) fn hybrid18(v: &Values<'_>) -> Box<dyn Workload> {
    // KiB of data in the live runs, which have a scale of 36.
    const GAME: u64 = 6144;
    const MEDIA: u64 = 3584;
    const UTILITY: u64 = 2304;
    const BROWSER: u64 = 4096;
    const APPS: [(&str, u64); 16] = [
        ("Clash Royale", GAME),
        ("Lineage 2 Revolution", GAME),
        ("Asphalt 8", GAME),
        ("Raven", GAME),
        ("Anypang3", GAME),
        ("FIFA Online 4M", GAME),
        ("YouTube", MEDIA),
        ("Camera", MEDIA),
        ("Gallery", MEDIA),
        ("Music", MEDIA),
        ("Play Store", UTILITY),
        ("Google Map", UTILITY),
        ("Phone", UTILITY),
        ("Settings", UTILITY),
        ("Chrome", BROWSER),
        ("Naver", BROWSER),
    ];
    // Applications beyond 16 repeat the list, with data of their own.
    let app = |i: usize| App {
        name: match i / APPS.len() {
            0 => APPS[i].0.into(),
            again => format!("{} {}", APPS[i % APPS.len()].0, again + 1),
        },
        anon: scaled(v, APPS[i % APPS.len()].1 * 36),
        code: scaled(v, 512 * 36),
        media: 0,
        media_mix: Mix::new(PHONE),
    };
    let apps = (0..v.count("apps") as usize).map(app).collect();
    let code_kind = named("f=0.28");
    let setup = Setup { shuffled: true, code_kind, ..Setup::new(v, apps, Mix::new(PHONE), v.count("turns")) };
    cycle(setup, v.count("touch_ns"))
}
