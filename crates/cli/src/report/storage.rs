//! Where pages went: compression and the swap tier.

use super::regions;
use super::words::{factor, list, percent, size, times};
use super::{seconds, stretch_words, stretches, time, Run, POOL, SWAP};
use memfit_pager::timeline::Sample;
use memfit_report::{Axis, Cell, Column, Figure, Kind, Mark, Section, Series, Table, Unit};
use memfit_stats::Codec;

/// With fewer pages there is no ratio.
const RATIO_PAGES: u64 = 16;
/// In figures with fewer points each point is marked, to show what lies between.
const MARKED: usize = 60;

fn ratio(codec: &Codec) -> f64 {
    codec.in_bytes as f64 / codec.out_bytes.max(1) as f64
}

/// The part of the page.
pub(super) fn compression(run: &Run<'_>) -> Section {
    let all = run.stats.codecs_by_pages();
    let mut section = Section { title: "Compression".into(), tables: vec![left(run)], ..Section::default() };
    if all.is_empty() {
        section.text = vec!["No page was compressed.".into()];
        return section;
    }
    section.tables.push(table(&all));
    section.figures = [by_codec(&all)].into_iter().chain(regions::figure(run)).chain(ratio_over_time(run)).collect();
    section
}

fn table(all: &[(&str, &Codec)]) -> Table {
    let columns = [
        ("Codec", Unit::Count),
        ("Pages", Unit::Count),
        ("Before", Unit::Bytes),
        ("After", Unit::Bytes),
        ("Ratio", Unit::Ratio),
    ];
    let row = |&(name, codec): &(&str, &Codec)| -> Vec<Cell> {
        let [pages, before, after] = [codec.pages, codec.in_bytes, codec.out_bytes].map(|n| Cell::from(n as f64));
        vec![name.into(), pages, before, after, ratio(codec).into()]
    };
    Table {
        title: "Codecs".into(),
        says: String::new(),
        columns: columns.map(|(name, unit)| Column::new(name, unit)).into(),
        rows: all.iter().map(row).collect(),
    }
}

/// What became of evicted pages.
fn left(run: &Run<'_>) -> Table {
    let evictions = &run.stats.evictions;
    let rejected = &evictions.rejected;
    let rows = [
        ("compressed", evictions.compressed),
        ("kept as the one word that they repeat", evictions.filled),
        ("equal to what fork relatives have in store", evictions.same),
        ("not compressible", rejected.incompressible),
        ("kept in the pool without compression", evictions.stored_raw),
        ("worth less than what the pool had", rejected.by_entropy),
        ("not compressed, as their process needs little memory", rejected.by_need),
        ("not compressed, as they were taken in advance", rejected.in_advance),
        ("not compressed, as the pool was full", rejected.pool_full),
        ("wanted back before they were compressed", run.stats.faults.by_source.staged),
        ("accessed or freed while they were compressed", rejected.refaulted),
        ("left without a write, as swap had them still", evictions.clean),
        ("dropped, as their file has them", evictions.file_dropped),
        ("thrown away by the program", evictions.dropped),
        ("written to swap, at once or later", evictions.to_swap),
    ];
    let rows = rows.into_iter().filter(|(_, pages)| *pages > 0);
    let evicted = evictions.pages;
    Table {
        title: "What became of pages that left".into(),
        says: format!(
            "{} left, {}; one that leaves again counts again, and one can be in several rows.",
            times(evicted, "page"),
            size(evicted * 4096)
        ),
        columns: vec![Column::new("They were", Unit::Count), Column::new("Pages", Unit::Count)],
        rows: rows.map(|(name, pages)| vec![name.into(), Cell::from(pages as f64)]).collect(),
    }
}

fn by_codec(all: &[(&str, &Codec)]) -> Figure {
    let sum = |of: fn(&Codec) -> u64| all.iter().map(|(_, codec)| of(codec)).sum::<u64>();
    let (pages, before, after) = (sum(|codec| codec.pages), sum(|codec| codec.in_bytes), sum(|codec| codec.out_bytes));
    let share = |(name, codec): &(&str, &Codec)| format!("{} by {name}", percent(codec.pages, pages));
    let says = format!(
        "{} became {}, {} times smaller: {} of the pages.",
        size(before),
        size(after),
        factor(before as f64 / after.max(1) as f64),
        list(&all.iter().take(3).map(share).collect::<Vec<_>>())
    );
    let names = all.iter().map(|(name, _)| *name);
    let y = Axis::new("Original size / compressed size", Unit::Ratio);
    let mut figure = Figure::of_names(Kind::Bars, "Ratio by codec", &says, "Codec", y, names);
    figure.series = vec![Series::new("ratio", all.iter().map(|(_, codec)| ratio(codec))).colour(POOL)];
    figure.levels = vec![Mark::new(1.0, "no gain")];
    figure
}

fn ratio_over_time(run: &Run<'_>) -> Option<Figure> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut from = Sample::default();
    for stretch in stretches(run.samples()) {
        let (then, now) = (from.counts, stretch.to.counts);
        if now.compressed >= then.compressed + RATIO_PAGES {
            let (before, after) = (now.in_bytes - then.in_bytes, now.out_bytes - then.out_bytes);
            points.push((seconds(stretch.to.at_ns), before as f64 / after.max(1) as f64));
            from = stretch.to;
        }
    }
    if points.len() < 3 {
        return None;
    }
    let lowest = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let highest = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let says =
        format!("Of what was compressed since the point before; between {} and {}.", factor(lowest), factor(highest));
    let (x, y) = (time(), Axis::new("Original size / compressed size", Unit::Ratio));
    let places = points.iter().map(|point| point.0).collect();
    let kind = if points.len() < MARKED { Kind::Curves } else { Kind::Lines };
    let mut figure = Figure::new(kind, "Ratio over time", &says, x, y, places);
    figure.series = vec![Series::new("ratio", points.iter().map(|point| point.1)).colour(POOL)];
    Some(figure)
}

/// The part of the page.
pub(super) fn swap(run: &Run<'_>) -> Section {
    let mut section = Section { title: "Swap".into(), ..Section::default() };
    let (read, written) = (run.stats.swap.read_bytes, run.stats.swap.write_bytes);
    if !run.stats.swap.enabled {
        section.text = vec!["This run had no swap tier: all pages stayed in RAM.".into()];
        return section;
    }
    if written == 0 && read == 0 {
        section.text = vec!["Nothing was written to the swap tier: all pages stayed in RAM.".into()];
        return section;
    }
    let mut text = format!(
        "{} were written and {} read back; up to {} of the tier were in use, with the holes in it.",
        size(written),
        size(read),
        size(run.stats.peak.swap_bytes)
    );
    if let Some(days) = run.stats.swap.endurance_days {
        text += &format!(" At this pace the device's rated endurance lasts {days} days.");
    }
    section.text = vec![text];
    section.figures = rates(run).into_iter().chain(sums(run)).collect();
    section
}

fn rates(run: &Run<'_>) -> Option<Figure> {
    let all = stretches(run.samples());
    let written = |stretch: &super::Stretch| stretch.rate(|sample| sample.counts.swap_written);
    let read = |stretch: &super::Stretch| stretch.rate(|sample| sample.counts.swap_read);
    let most = |of: &dyn Fn(&super::Stretch) -> f64| size(all.iter().map(of).fold(0.0, f64::max) as u64);
    if all.is_empty() {
        return None;
    }
    let says =
        format!("Up to {} a second were written, and {} read. {}", most(&written), most(&read), stretch_words(&all));
    let (x, y) = (time(), Axis::new("Traffic", Unit::BytesPerSecond));
    let places = all.iter().map(super::Stretch::middle).collect();
    let mut figure = Figure::new(Kind::Lines, "Swap traffic", &says, x, y, places);
    figure.series = vec![
        Series::new("written", all.iter().map(written)).colour(SWAP),
        Series::new("read", all.iter().map(read)).colour(1),
    ];
    Some(figure)
}

fn sums(run: &Run<'_>) -> Option<Figure> {
    let samples = run.samples();
    if samples.is_empty() {
        return None;
    }
    let (read, written) = (run.stats.swap.read_bytes, run.stats.swap.write_bytes);
    let says = match read {
        0 => "Nothing of what was written was needed again.".to_owned(),
        _ => format!("For each byte that was written {} were read.", factor(read as f64 / written.max(1) as f64)),
    };
    let (x, y) = (time(), Axis::new("Bytes", Unit::Bytes));
    let places = samples.iter().map(|sample| seconds(sample.at_ns)).collect();
    let mut figure = Figure::new(Kind::Lines, "Swap since the start", &says, x, y, places);
    let line = |name: &str, of: fn(&Sample) -> u64| Series::new(name, samples.iter().map(|sample| of(sample) as f64));
    figure.series = vec![
        line("written so far", |sample| sample.counts.swap_written).colour(SWAP),
        line("read so far", |sample| sample.counts.swap_read).colour(1),
        line("in use", |sample| sample.bytes.swap).colour(2),
    ];
    Some(figure)
}
