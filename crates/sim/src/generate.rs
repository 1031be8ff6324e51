//! Generated workloads, by name, each from a seed. docs/workloads.md describes what each one
//! imitates.

mod apps;
mod basic;
mod cervera;
mod hog;
mod spec;
mod stream;
mod tuduce;
mod zipf;

pub use spec::{Spec, SpecError, Values};

use crate::workload::Workload;

/// The unit of a parameter, which determines how its value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Pages of 4 KiB, or a size with the suffix K, M or G (binary), rounded to whole pages.
    Pages,
    /// A whole number.
    Count,
    /// Per cent, with decimals.
    Percent,
    /// A whole number of nanoseconds.
    Nanoseconds,
    /// A whole number of milliseconds.
    Milliseconds,
    /// A number with decimals.
    Real,
    /// Name of one of [`memfit_codec::generate::GENERATORS`].
    Content,
    /// One of these names.
    Choice(&'static [&'static str]),
}

/// A parameter of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Name.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Default, as it would be written.
    pub default: &'static str,
    /// Minimum, in its unit; 0 for what is not a number.
    pub min: f64,
    /// Maximum, in its unit; 0 for what is not a number.
    pub max: f64,
}

/// A workload that can be generated.
#[derive(Debug)]
pub struct WorkloadEntry {
    /// Name.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Parameters.
    pub params: &'static [Param],
    /// Makes the workload from values of its parameters.
    pub make: fn(&Values<'_>) -> Box<dyn Workload>,
}

/// 256 GiB.
const MAX_PAGES: f64 = (1u64 << 26) as f64;

const fn param(
    name: &'static str,
    about: &'static str,
    unit: Unit,
    default: &'static str,
    min: f64,
    max: f64,
) -> Param {
    Param { name, about, unit, default, min, max }
}

const fn pages(name: &'static str, about: &'static str, default: &'static str) -> Param {
    param(name, about, Unit::Pages, default, 1.0, MAX_PAGES)
}

const fn count(name: &'static str, about: &'static str, default: &'static str, min: f64, max: f64) -> Param {
    param(name, about, Unit::Count, default, min, max)
}

const fn percent(name: &'static str, about: &'static str, default: &'static str) -> Param {
    param(name, about, Unit::Percent, default, 0.0, 100.0)
}

const fn choice(name: &'static str, about: &'static str, of: &'static [&'static str], default: &'static str) -> Param {
    param(name, about, Unit::Choice(of), default, 0.0, 0.0)
}

const fn contents(default: &'static str) -> Param {
    param("contents", "what pages hold when they are written", Unit::Content, default, 0.0, 0.0)
}

const fn accesses(default: &'static str) -> Param {
    count("accesses", "touches after the fill", default, 0.0, 1e15)
}

const fn scale(default: &'static str) -> Param {
    param("scale", "the paper's sizes are divided by this", Unit::Real, default, 1.0, 1000.0)
}

const fn touch_ns(default: &'static str) -> Param {
    param("touch_ns", "the program's own time for each touch", Unit::Nanoseconds, default, 0.0, 1e9)
}

const fn slice(default: &'static str) -> Param {
    count("slice", "touches of a process until it is the next one's turn", default, 1.0, 1e9)
}

const fn warm(default: &'static str) -> Param {
    count("warm", "passes that read and write every page before the part that counts", default, 0.0, 100.0)
}

const PAGES: Param = pages("pages", "footprint", "154M");
const WRITES: Param = percent("writes", "touches that write", "50");
const SEED: Param = count("seed", "of all that is by chance", "1", 0.0, 1e15);

/// Every workload.
pub static WORKLOADS: &[WorkloadEntry] = &[
    WorkloadEntry {
        name: "scan",
        about: "all pages in order, again and again",
        params: &[
            PAGES,
            count("passes", "over all pages, after the fill", "5", 0.0, 1e9),
            WRITES,
            contents("f=0.40"),
            touch_ns("1000"),
            SEED,
        ],
        make: basic::scan,
    },
    WorkloadEntry {
        name: "uniform",
        about: "pages at random, each as likely as any other",
        params: &[PAGES, accesses("1000000"), WRITES, contents("f=0.40"), touch_ns("1000"), SEED],
        make: zipf::uniform,
    },
    WorkloadEntry {
        name: "zipf",
        about: "pages at random, the n-th most likely one in proportion to 1 / n^skew",
        params: &[
            PAGES,
            param("skew", "0: all alike", Unit::Real, "0.8", 0.0, 2.0),
            accesses("1000000"),
            WRITES,
            contents("f=0.40"),
            touch_ns("1000"),
            SEED,
        ],
        make: zipf::zipf,
    },
    WorkloadEntry {
        name: "phase",
        about: "a working set within a larger footprint, which moves from phase to phase",
        params: &[
            PAGES,
            param("set", "pages in the working set", Unit::Percent, "20", 0.001, 100.0),
            percent("share", "touches that go to the working set; the others go anywhere", "95"),
            count("phases", "after the fill", "8", 1.0, 1e9),
            count("accesses", "touches in a phase", "200000", 1.0, 1e15),
            percent("moves", "of the working set that is another one in the next phase", "100"),
            choice("lies", "where the pages of the working set lie", &["together", "scattered"], "together"),
            WRITES,
            contents("f=0.40"),
            touch_ns("1000"),
            SEED,
        ],
        make: basic::phase,
    },
    WorkloadEntry {
        name: "burst",
        about: "fresh memory is filled all at once, then nothing happens; old memory is freed",
        params: &[
            pages("pages", "in a burst", "16M"),
            count("bursts", "in all", "20", 1.0, 1e6),
            count("kept", "bursts whose memory is kept: the oldest is freed", "8", 1.0, 1e6),
            param("pause_ms", "between bursts", Unit::Milliseconds, "200", 0.0, 1e6),
            contents("f=0.40"),
            touch_ns("300"),
            SEED,
        ],
        make: basic::burst,
    },
    WorkloadEntry {
        name: "launch",
        about: "applications are launched and used in turn, with data of their own and clean pages of files",
        params: apps::LAUNCH,
        make: apps::launch,
    },
    WorkloadEntry {
        name: "hog",
        about: "programs that are idle in the background, and one that fills memory",
        params: hog::HOG,
        make: hog::hog,
    },
    WorkloadEntry {
        name: "fft",
        about: "cervera99: transform of a matrix in place, rows then columns",
        params: cervera::FFT,
        make: cervera::fft,
    },
    WorkloadEntry {
        name: "fft-x10",
        about: "cervera99: ten transforms of smaller matrices at once",
        params: cervera::FFT_X10,
        make: cervera::fft,
    },
    WorkloadEntry {
        name: "sort",
        about: "cervera99: the lines of a text are sorted in memory",
        params: cervera::SORT,
        make: cervera::sort,
    },
    WorkloadEntry {
        name: "sort-x6",
        about: "cervera99: six sorts of texts of a fifth at once",
        params: cervera::SORT_X6,
        make: cervera::sort,
    },
    WorkloadEntry {
        name: "simulator",
        about: "cervera99: events by time, in records that are taken from a queue of freed ones",
        params: cervera::SIMULATOR,
        make: cervera::simulator,
    },
    WorkloadEntry {
        name: "simulator-x5",
        about: "cervera99: five simulators at once, of whose records few are in use",
        params: cervera::SIMULATOR_X5,
        make: cervera::simulator,
    },
    WorkloadEntry {
        name: "xanim",
        about: "cervera99: a film is decoded into memory and shown from there",
        params: cervera::XANIM,
        make: cervera::xanim,
    },
    WorkloadEntry {
        name: "xanim-x4",
        about: "cervera99: four players of films of a quarter at once",
        params: cervera::XANIM_X4,
        make: cervera::xanim,
    },
    WorkloadEntry {
        name: "thrasher",
        about: "tuduce05: linear cycles that read and write every page",
        params: tuduce::THRASHER,
        make: tuduce::thrasher,
    },
    WorkloadEntry {
        name: "rand",
        about: "tuduce05: pages at random, in the three sizes of the paper",
        params: tuduce::RAND,
        make: tuduce::rand,
    },
    WorkloadEntry {
        name: "smv",
        about: "tuduce05: decision diagrams: hash tables that grow and are walked at random",
        params: tuduce::SMV,
        make: tuduce::smv,
    },
    WorkloadEntry {
        name: "ns2",
        about: "tuduce05: a network simulator, a small working set in a large footprint",
        params: tuduce::NS2,
        make: tuduce::ns2,
    },
    WorkloadEntry {
        name: "qsim",
        about: "tuduce05: a simulator of road traffic, whose agents wait in queues",
        params: tuduce::QSIM,
        make: tuduce::qsim,
    },
    WorkloadEntry {
        name: "hybrid18",
        about: "hybrid18: applications that stay, each triggered once a turn in a new order",
        params: apps::HYBRID18,
        make: apps::hybrid18,
    },
    WorkloadEntry {
        name: "ezswap",
        about: "ezswap: a cycle of launches, in which pages of files leave far more often than others",
        params: apps::EZSWAP,
        make: apps::ezswap,
    },
    WorkloadEntry {
        name: "zsmalloc-sr",
        about: "zsmalloc-sr: a browser, and a program that allocates most of memory",
        params: hog::ZSMALLOC_SR,
        make: hog::zsmalloc_sr,
    },
];

/// The workload of this name.
pub fn find(name: &str) -> Option<&'static WorkloadEntry> {
    WORKLOADS.iter().find(|entry| entry.name == name)
}
