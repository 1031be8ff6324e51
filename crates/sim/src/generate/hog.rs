//! Idle programs in the background and a program that fills memory.

use super::stream::{divisor, process, workload, Mix, Share, StreamRegion};
use super::{choice, count, pages, percent, scale, touch_ns, Param, Values, SEED};
use crate::workload::{Event, Workload};
use memfit_codec::generate::Rng;

const VARIANTS: &[&str] = &["mix", "word"];
const VARIANT: Param = choice("variant", "what the hog writes: pages of all sorts, or a word a page", VARIANTS, "mix");
const RANDOM_ABOUT: &str = "pages of background programs that do not compress";
const ACTIVE_ABOUT: &str = "touches of background programs for each 100 pages that the hog fills";

pub(super) const HOG: &[Param] = &[
    count("programs", "in the background", "3", 1.0, 1000.0),
    pages("background", "memory of each of them", "32M"),
    pages("hog", "memory that the hog fills", "256M"),
    percent("random", RANDOM_ABOUT, "20"),
    percent("active", ACTIVE_ABOUT, "5"),
    VARIANT,
    touch_ns("300"),
    SEED,
];

pub(super) const ZSMALLOC_SR: &[Param] = &[
    pages("browser", "memory of the browser, at the paper's size", "634M"),
    pages("hog", "memory that the hog fills, at the paper's size", "1500M"),
    scale("4"),
    percent("random", RANDOM_ABOUT, "9"),
    percent("active", ACTIVE_ABOUT, "0"),
    VARIANT,
    touch_ns("300"),
    SEED,
];

/// Contents of a browser without images, in eighths: objects and text.
const OBJECTS: [(usize, &str); 3] = [(1, "zero"), (5, "py-objects"), (2, "pointers")];
/// The hog's touches of background programs go to the first 1 / this of their memory.
const ACTIVE_PART: u64 = 10;

/// Contents of a browser of which so many percent do not compress, to a thousandth, in the fewest
/// parts.
fn browser(percent: f64) -> Vec<(usize, &'static str)> {
    let random = (percent * 1000.0).round() as usize;
    let eighths = OBJECTS.map(|(eighths, kind)| (eighths * (100_000 - random), kind));
    let parts = || eighths.into_iter().chain([(8 * random, "random")]);
    let common = parts().fold(0, |common, (part, _)| divisor(common, part as u64)) as usize;
    parts().map(|(part, kind)| (part / common, kind)).collect()
}

/// Several programs in the background.
pub(super) fn hog(v: &Values<'_>) -> Box<dyn Workload> {
    fills(v, v.count("programs") as u32, v.count("background"), v.count("hog"))
}

/// A browser in the background, sizes as in the paper.
pub(super) fn zsmalloc_sr(v: &Values<'_>) -> Box<dyn Workload> {
    let scaled = |name| ((v.real(name) / v.real("scale")).round() as u64).max(1);
    fills(v, 1, scaled("browser"), scaled("hog"))
}

/// Programs start and go idle (mark 0). The hog fills its memory (mark 1) and ends. Then the
/// programs are used again (mark 2).
fn fills(v: &Values<'_>, programs: u32, background: u64, hog: u64) -> Box<dyn Workload> {
    let mut rng = Rng::new(v.count("seed"));
    let contents = Mix::new(&browser(v.real("random")));
    let idle: Vec<(StreamRegion, Vec<Event>)> = (0..programs)
        .map(|proc| StreamRegion::new(proc, background))
        .map(|region| (region, contents.maps(region, &mut rng)))
        .collect();
    let regions: Vec<StreamRegion> = idle.iter().map(|(region, _)| *region).collect();
    let opens = idle
        .into_iter()
        .flat_map(|(region, maps)| [Event::Starts { proc: region.proc }].into_iter().chain(maps).chain(region.fill()));
    let data = StreamRegion::new(programs, hog);
    let maps = match v.choice("variant") {
        "word" => Mix::new(&[(10, "sparse")]),
        _ => Mix::new(&[(4, "f=0.20"), (4, "f=0.50"), (2, "random")]),
    }
    .maps(data, &mut rng);
    let (active, part) = (Share::percent(v.real("active")), background.div_ceil(ACTIVE_PART));
    let fill = data.fill().flat_map({
        let regions = regions.clone();
        move |write| {
            let touched = active.next(&mut rng).then(|| {
                let region = regions[rng.below(regions.len() as u64) as usize];
                region.read(rng.below(part))
            });
            [write].into_iter().chain(touched)
        }
    });
    let fills = process(data.proc, maps, fill.chain([Event::Reaches { mark: 1 }]));
    let back = regions.clone().into_iter().flat_map(StreamRegion::walk).chain([Event::Reaches { mark: 2 }]);
    let ends = regions.into_iter().map(|region| Event::Ends { proc: region.proc });
    let events = opens.chain([Event::Reaches { mark: 0 }]).chain(fills).chain(back).chain(ends);
    workload(events, v.count("touch_ns"), |mark| {
        let text = match mark {
            0 => "background programs are open",
            1 => "the hog has filled its memory",
            _ => "background programs were used again",
        };
        text.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_has_as_much_that_does_not_compress_as_it_is_told() {
        assert_eq!(browser(20.0), [(1, "zero"), (5, "py-objects"), (2, "pointers"), (2, "random")]);
        assert_eq!(browser(9.0), [(91, "zero"), (455, "py-objects"), (182, "pointers"), (72, "random")]);
        assert_eq!(browser(0.0), [(1, "zero"), (5, "py-objects"), (2, "pointers"), (0, "random")]);
        assert_eq!(browser(0.5), [(199, "zero"), (995, "py-objects"), (398, "pointers"), (8, "random")]);
        assert_eq!(browser(100.0), [(0, "zero"), (0, "py-objects"), (0, "pointers"), (1, "random")]);
    }
}
