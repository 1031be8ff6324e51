//! Compression by region of the programs' memory.

use super::words::{factor, list, percent, size};
use super::{Run, POOL};
use memfit_core::PAGE_BYTES;
use memfit_pager::regions::{Region, Use};
use memfit_report::{Axis, Cell, Column, Figure, Kind, Mark, Section, Series, Table, Unit};
use std::collections::HashMap;

/// With fewer compressed pages there is no ratio.
const RATIO_PAGES: u64 = 16;
/// Most codecs that are named per region.
const CODECS_MAX: usize = 3;

fn ratio(region: &Region) -> Option<f64> {
    let (pages, bytes) = region.compressed();
    (pages >= RATIO_PAGES).then(|| (pages * PAGE_BYTES) as f64 / bytes.max(1) as f64)
}

/// The regions with their names, process by process and by address. The process with the most
/// compressed pages comes first.
fn named(regions: &[Region]) -> Vec<(String, &Region)> {
    let mut processes: Vec<(i32, &str)> = Vec::new();
    for region in regions {
        if !processes.contains(&(region.pid, &region.comm)) {
            processes.push((region.pid, &region.comm));
        }
    }
    let several = processes.iter().filter(|process| process.0 != 0).count() > 1;
    let place = |region: &Region| processes.iter().position(|process| *process == (region.pid, region.comm.as_str()));
    let mut sorted: Vec<&Region> = regions.iter().collect();
    sorted.sort_by_key(|region| (region.used == Use::Others, place(region), region.start));
    let key = |region: &Region| (region.pid, region.comm.clone(), region.used);
    let mut alike: HashMap<_, usize> = HashMap::new();
    sorted.iter().for_each(|region| *alike.entry(key(region)).or_default() += 1);
    let mut seen: HashMap<_, usize> = HashMap::new();
    let name = |region: &Region| {
        if region.used == Use::Others {
            return "all others".to_owned();
        }
        let number = seen.entry(key(region)).or_default();
        *number += 1;
        let mut name = word(region.used).to_owned();
        if alike[&key(region)] > 1 {
            name += &format!("\u{a0}{number}");
        }
        if several {
            name += &format!(", {}", region.pid);
        }
        name
    };
    let names: Vec<String> = sorted.iter().copied().map(name).collect();
    names.into_iter().zip(sorted).collect()
}

fn word(used: Use) -> &'static str {
    match used {
        Use::Heap => "heap",
        Use::Stack => "stack",
        Use::File => "file",
        Use::Anonymous => "anon",
        Use::Others => "others",
    }
}

/// The most frequent codecs, by their share of the pages.
fn codecs(region: &Region) -> String {
    let all = region.compressed().0;
    let mut codecs: Vec<(&str, u64)> = region.codecs.iter().map(|(name, row)| (name.as_str(), row.0)).collect();
    codecs.sort_by_key(|codec| std::cmp::Reverse(codec.1));
    let texts = codecs.iter().take(CODECS_MAX).map(|(name, pages)| match codecs.len() {
        1 => (*name).to_owned(),
        _ => format!("{name}\u{a0}{}", percent(*pages, all)),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The part of the page with all regions; [`figure`] is beside that of the codecs.
pub(super) fn section(run: &Run<'_>) -> Option<Section> {
    let regions = &run.course.regions;
    let section = || Section { title: "Regions".into(), tables: vec![table(regions)], ..Section::default() };
    (!regions.is_empty()).then(section)
}

fn table(regions: &[Region]) -> Table {
    let columns = [
        ("Region", Unit::Count),
        ("Process", Unit::Count),
        ("Addresses", Unit::Count),
        ("Pages", Unit::Count),
        ("Before", Unit::Bytes),
        ("After", Unit::Bytes),
        ("Ratio", Unit::Ratio),
        ("Not compressible", Unit::Count),
        ("One word", Unit::Count),
        ("Codec", Unit::Count),
    ];
    let row = |(name, region): &(String, &Region)| -> Vec<Cell> {
        let [process, addresses] = match region.used {
            Use::Others => [Cell::Missing, Cell::Missing],
            _ => [format!("{} {}", region.comm, region.pid), format!("{:x}–{:x}", region.start, region.end)]
                .map(Cell::Text),
        };
        let (pages, bytes) = region.compressed();
        let [pages, before, after, not, filled] =
            [pages, pages * PAGE_BYTES, bytes, region.incompressible, region.filled]
                .map(|number| Cell::from(number as f64));
        let ratio = ratio(region).into();
        vec![
            name.as_str().into(),
            process,
            addresses,
            pages,
            before,
            after,
            ratio,
            not,
            filled,
            codecs(region).as_str().into(),
        ]
    };
    Table {
        title: "Regions of memory".into(),
        says: "Equal parts of each process's address space, by use (anon: private memory that is neither heap nor stack nor \
               of a file), of which pages were taken out; one that leaves again counts again. Pages that did not compress, and those \
               that repeat one word, are counted beside those that did."
            .into(),
        columns: columns.map(|(name, unit)| Column::new(name, unit)).into(),
        rows: named(regions).iter().map(row).collect(),
    }
}

/// The ratio of each region with enough pages, if there are several.
pub(super) fn figure(run: &Run<'_>) -> Option<Figure> {
    let all = named(&run.course.regions);
    let drawn: Vec<(&str, &Region, f64)> =
        all.iter().filter_map(|(name, region)| Some((name.as_str(), *region, ratio(region)?))).collect();
    if drawn.len() < 2 {
        return None;
    }
    let by_ratio = |a: &&(&str, &Region, f64), b: &&(&str, &Region, f64)| a.2.total_cmp(&b.2);
    let (best, worst) = (drawn.iter().max_by(by_ratio)?, drawn.iter().min_by(by_ratio)?);
    let ends = [best, worst].map(|(name, region, ratio)| {
        format!("{name} by {} ({} of pages)", factor(*ratio), size(region.compressed().0 * PAGE_BYTES))
    });
    let says = format!("From low addresses to high ones. Best and worst: {}.", list(&ends));
    let y = Axis::new("Original size / compressed size", Unit::Ratio);
    let mut figure = Figure::of_names(Kind::Bars, "Ratio by region", &says, "Region", y, drawn.iter().map(|row| row.0));
    figure.series = vec![Series::new("ratio", drawn.iter().map(|row| row.2)).colour(POOL)];
    figure.levels = vec![Mark::new(1.0, "no gain")];
    Some(figure)
}
