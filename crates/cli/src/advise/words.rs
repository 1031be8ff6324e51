//! Advice as text for the user.

use super::choice::{is_log, Contents};
use super::files::{command_line, stands_for};
use super::subject::{Basis, Subject};
use super::{Advice, Cost, Options};
use crate::layout::wrapped;
use crate::run::BUDGET_MIN_BYTES;
use crate::size_parsing::{human, human_apart};
use crate::swap::SWAP_BYTES_MIN;
use memfit_core::scheme::SwapFormat;
use std::fmt::Write;

/// A sample of fewer pages is called small.
const SAMPLE_LEAST: u64 = 1024;
/// Below this share of computing time the time without waiting is hardly known.
const COMPUTING_LEAST: f64 = 0.5;
/// Shares of touches in sequence, percent: below the first, accesses are called random; from the
/// second on, sequential.
const SEQUENCE_PERCENT: (f64, f64) = (25.0, 75.0);

/// The whole text.
pub fn text(advice: &Advice, options: &Options<'_>) -> String {
    let mut out = format!("{}\n\n", wrapped(&headline(advice), 0));
    let _ = writeln!(out, "  {}\n", command_line(advice, options));
    out.push_str(&table(advice));
    for (title, points) in [("Why", why(advice)), ("How sure", how_sure(advice, options))] {
        let _ = writeln!(out, "\n{title}:");
        points.iter().for_each(|point| {
            let _ = writeln!(out, "- {}", wrapped(point, 2));
        });
    }
    out
}

/// The advice in one sentence.
pub fn headline(advice: &Advice) -> String {
    let what = advice.worst().subject.what();
    let (budget, has) = (human(advice.budget), human(advice.has()));
    let bound = percent(advice.slowdown);
    let slower =
        advice.worst().outcome.slowdown().map_or_else(String::new, |slowdown| {
            format!(", and it is about {} slower", percent((slowdown - 1.0) * 100.0))
        });
    match advice.worst().subject.basis {
        _ if advice.all() <= BUDGET_MIN_BYTES => {
            format!("{what}: it has {has} at most, and no budget of memfit is less than {budget}.")
        }
        Basis::Faults { .. } if advice.worst().by_bound.is_some() => {
            format!("{what}: the {budget} that it had will do{slower}.")
        }
        Basis::Faults { budget: had } => {
            format!("{what}: more than the {} that it had{slower}; {budget} have room for everything.", human(had))
        }
        _ if advice.worst().outcome.slowdown().is_some_and(|slowdown| slowdown > 1.0 + advice.slowdown / 100.0) => {
            let room = if advice.saves() { "is the best of them" } else { "are room for all that it has" };
            format!("{what}: no budget that was tried keeps it at most {bound} slower. {budget} {room}{slower}.")
        }
        _ if !advice.saves() && advice.worst().by_bound.is_some() => {
            format!("{what}: give it {budget}, room for all that it has: it uses nearly all of it again and again.")
        }
        _ if !advice.saves() => {
            format!("{what}: give it {budget}, room for all that it has: with less it is more than {bound} slower.")
        }
        _ => {
            format!("{what}: give it {budget}, {}{slower}.", of_all(advice.budget, advice.has()))
        }
    }
}

/// A budget in terms of what the program has at most. With watermarks it can be more than that.
pub fn of_all(budget: u64, has: u64) -> String {
    let [_, all] = human_apart([budget, has]);
    match (budget as f64 * 100.0 / has as f64).round() {
        share @ ..=99.0 => format!("{share:.0} % of the {all} that it has at most"),
        _ if budget < has => format!("nearly all of the {all} that it has at most"),
        _ if budget == has => "all that it has at most".into(),
        _ => format!("a little more than the {all} that it has at most"),
    }
}

fn percent(percent: f64) -> String {
    match percent {
        ..0.05 => "0 %".into(),
        ..9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

fn slower(cost: &Cost) -> String {
    cost.outcome.slowdown().map_or_else(|| "?".into(), |slowdown| percent((slowdown - 1.0) * 100.0))
}

/// A table of budgets and their costs.
fn table(advice: &Advice) -> String {
    let days = advice.costs.iter().any(|cost| cost.outcome.days_to_rated_writes.is_some());
    let mut rows = vec![vec!["", "budget", "slower by", "faults", "from swap", "written"]
        .into_iter()
        .map(String::from)
        .collect::<Vec<_>>()];
    if days {
        rows[0].push("rated writes last".into());
    }
    for cost in &advice.costs {
        let name = match cost.percent {
            None => "room for all".into(),
            Some(100) if matches!(advice.worst().subject.basis, Basis::Faults { .. }) => "as it was run".into(),
            Some(100) => "advised".into(),
            Some(percent) => format!("{percent} % of that"),
        };
        let tally = &cost.outcome.tally;
        // Below the working set, pages are used more often than the recording can tell.
        let more =
            if cost.percent.is_some_and(|percent| percent < 100) && !raised(advice).is_empty() { "> " } else { "" };
        let (slower, faults) = (slower(cost), tally.faults.major());
        let mut row = vec![name, human(cost.budget), format!("{more}{slower}"), format!("{more}{faults}")];
        row.extend([tally.faults.swap.to_string(), human(tally.writes.bytes)]);
        if days {
            row.push(cost.outcome.days_to_rated_writes.map_or_else(|| "-".into(), lasts));
        }
        rows.push(row);
    }
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    out
}

/// Time until the device has taken its rated writes, if the program runs all the time.
fn lasts(days: f64) -> String {
    match days {
        ..2.0 => format!("{:.0} hours", days * 24.0),
        ..730.0 => format!("{days:.0} days"),
        _ => format!("{:.0} years", days / 365.25),
    }
}

fn why(advice: &Advice) -> Vec<String> {
    let mut points = Vec::new();
    if advice.needs.len() > 1 {
        let others = advice.needs.iter().map(|need| format!("{} {}", need.subject.known.name, human(need.budget)));
        points.push(format!(
            "Of {} workloads {} wants most, and the others fit into that: {}.",
            advice.needs.len(),
            advice.worst().subject.known.name,
            others.collect::<Vec<_>>().join(", ")
        ));
    }
    points.extend(bound(advice));
    points.extend(working_set(advice));
    points.extend(sequence(advice));
    points.push(holds(&advice.contents, advice));
    points.push(pool(advice));
    points.push(swap(advice));
    points.extend(others(advice));
    points
}

fn bound(advice: &Advice) -> Option<String> {
    let need = advice.worst();
    let limit = percent(advice.slowdown);
    let found = need.found.iter().find(|found| found.scheme == advice.scheme.name)?;
    let least = match (need.subject.basis, found.budget, found.fails) {
        (Basis::Faults { .. }, ..) => return None,
        (_, Some(keeps), Some(fails)) => {
            let [keeps, fails] = human_apart([keeps, fails]);
            format!("{keeps} of its own memory keep it at most {limit} slower, {fails} do not")
        }
        (_, Some(keeps), None) => format!("{} of its own memory keep it at most {limit} slower", human(keeps)),
        (_, None, _) => format!("in no budget is it at most {limit} slower"),
    };
    Some(format!("By the simulation {least}.{}{}", raised(advice), besides(advice)))
}

/// Says that the working set decides and not the bound; empty if the bound decides.
fn raised(advice: &Advice) -> String {
    let need = advice.worst();
    match need.raised && matches!(need.subject.basis, Basis::Accesses { .. }) {
        true => format!(
            " But it uses {} again within {} s, how often the recording cannot tell: these shall stay in memory, and so it gets more.",
            at_most(&need.subject),
            need.subject.window_ns() as f64 / 1e9
        ),
        false => String::new(),
    }
}

/// The working set, and its upper bound if the sample is small.
fn at_most(subject: &Subject) -> String {
    let (set, most) = (subject.working_set().min(subject.footprint()), subject.working_set_at_most());
    match most > set + set / 10 {
        true => format!("{} (by so small a sample up to {})", human(set), human(most)),
        false => human(set),
    }
}

fn besides(advice: &Advice) -> String {
    let need = advice.worst();
    match (need.besides(), need.subject.besides) {
        (0, _) => String::new(),
        (bytes, Some(_)) => {
            format!(" {} that it had besides are for memfit itself and what is not paged.", human(bytes))
        }
        (bytes, None) => format!(" {} are for memfit itself and what is not paged.", human(bytes)),
    }
}

fn working_set(advice: &Advice) -> Option<String> {
    let subject = &advice.worst().subject;
    let (set, all) = (subject.working_set().min(subject.footprint()), subject.footprint());
    if set == 0 || matches!(subject.basis, Basis::Faults { .. }) || !raised(advice).is_empty() {
        return None;
    }
    let share = set as f64 * 100.0 / all.max(1) as f64;
    let within = subject.window_ns() as f64 / 1e9;
    Some(format!("Within {within} s it uses {} again, {share:.0} % of its {}.", at_most(subject), human(all)))
}

fn sequence(advice: &Advice) -> Option<String> {
    let working_set = &advice.worst().subject.working_set;
    if working_set.again == 0 || matches!(advice.worst().subject.basis, Basis::Faults { .. }) {
        return None;
    }
    let share = working_set.in_sequence as f64 * 100.0 / working_set.again as f64;
    Some(match share {
        _ if share >= SEQUENCE_PERCENT.1 => {
            format!("It goes through its memory in sequence ({share:.0} % of the pages used follow another): one fault brings several.")
        }
        _ if share < SEQUENCE_PERCENT.0 => {
            format!("It uses its memory at random ({share:.0} % of the pages used follow another): each page is a fault of its own.")
        }
        _ => format!("It uses its memory partly in sequence: {share:.0} % of the pages used follow another."),
    })
}

fn holds(contents: &Contents, advice: &Advice) -> String {
    if !advice.worst().subject.contents_are_known() {
        return "What its pages hold is not known, and they count as if they did not compress: if they do, it is quicker, and less is \
                written."
            .into();
    }
    let mut parts = Vec::new();
    if let Some(ratio) = contents.ratio {
        parts.push(format!("what leaves memory compresses to {:.0} %", ratio * 100.0));
    }
    for (share, what) in [(contents.one_word, "repeat one word and take nothing"), (contents.raw, "do not compress")] {
        if share >= 0.005 {
            parts.push(format!("{:.0} % of the pages {what}", share * 100.0));
        }
    }
    match parts.is_empty() {
        true if most_compress_nothing(advice) => "No page was evicted, so nothing had to be compressed.".into(),
        true => format!("Nothing is compressed by the scheme {}.", advice.scheme.name),
        false => {
            let mut text = parts.join(", ");
            text[..1].make_ascii_uppercase();
            format!("{text}.")
        }
    }
}

fn most_compress_nothing(advice: &Advice) -> bool {
    advice.worst().rows.iter().all(|row| row.outcome.tally.evicted == 0)
}

fn pool(advice: &Advice) -> String {
    match advice.pool {
        0 => "No compressed page stays in RAM in this budget.".into(),
        bytes => format!(
            "Compressed pages take up to {} of the budget; {}.",
            human(bytes),
            match advice.scheme.sizing.kind {
                memfit_core::scheme::SizingKind::Adaptive =>
                    "the pool grows and shrinks by itself, there is nothing to set",
                _ => "the pool may take a fixed share, see sizing.pool_permille",
            }
        ),
    }
}

fn swap(advice: &Advice) -> String {
    let none = advice.without_swap.map(|slowdown| {
        let slower = percent((slowdown - 1.0) * 100.0);
        format!("--swap none would do, and make it {slower} slower; but other data might not compress as well")
    });
    match (advice.swap_size(), none) {
        (None, None) => "Nothing is written to the swap tier.".into(),
        (None, Some(_)) => {
            "Nothing is written to the swap tier: --swap none would do, but other data might not compress as well."
                .into()
        }
        (Some(size), none) => {
            let size = size_of_tier(size, advice.scheme.swap_format.kind);
            let none = none.map_or_else(String::new, |none| format!(". {none}"));
            format!("At most {} are in the swap tier at once{size}{none}.", human(advice.swap))
        }
    }
}

/// Why the swap tier has that size.
pub(super) fn size_of_tier(bytes: u64, format: SwapFormat) -> String {
    let size = human(bytes);
    match is_log(format) {
        _ if bytes == SWAP_BYTES_MIN => format!("; {size} is the smallest tier"),
        true => format!("; {size} leave it a quarter more, as it is a log that has to make room"),
        false => String::new(),
    }
}

fn others(advice: &Advice) -> Option<String> {
    let need = advice.worst();
    if !need.subject.contents_are_known() {
        return None;
    }
    let others = need.found.iter().filter(|found| found.scheme != advice.scheme.name);
    let parts: Vec<String> = match need.subject.basis {
        Basis::Faults { .. } => {
            let rows = need.rows.iter().filter(|row| row.scheme != advice.scheme.name);
            let slower = rows.filter_map(|row| Some((row, row.outcome.slowdown()?)));
            slower.map(|(row, s)| format!("{} {} slower", row.scheme, percent((s - 1.0) * 100.0))).collect()
        }
        _ => others
            .map(|found| match found.budget {
                Some(budget) => format!("{} {}", found.scheme, human(budget)),
                None => format!("{} more than all", found.scheme),
            })
            .collect(),
    };
    let verb = if matches!(need.subject.basis, Basis::Faults { .. }) {
        "In that budget others are"
    } else {
        "By the same bound others want"
    };
    (!parts.is_empty()).then(|| format!("{verb}: {}.", parts.join(", ")))
}

/// Names schemes that are simulated with the sizes of codecs other than their own.
fn other_codecs(advice: &Advice, options: &Options<'_>) -> Option<String> {
    let (mut codecs, mut schemes): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (scheme, subject) in
        options.schemes.iter().flat_map(|scheme| advice.needs.iter().map(move |need| (scheme, &need.subject)))
    {
        let unknown = subject.unknown_codecs(scheme);
        if !unknown.is_empty() && !schemes.contains(&&*scheme.name) {
            schemes.push(&scheme.name);
        }
        codecs.extend(unknown);
    }
    codecs.sort_unstable();
    codecs.dedup();
    (!codecs.is_empty()).then(|| {
        format!(
            "What {} would make of the pages was not recorded: {} are simulated with what other codecs made of them, and only the \
             first scheme to choose from is advised in spite of that. Record with --record-contents={} to know.",
            codecs.join(", "),
            schemes.join(", "),
            codecs.join(",")
        )
    })
}

/// A caution where a program waited most of its time: the time in which it computed is what is left
/// of the run, so a small error of the waiting is a large one of the rest.
pub(super) fn waiting(computing: f64) -> Option<String> {
    (computing < COMPUTING_LEAST).then(|| {
        format!(
            "By these costs it waited for pages {:.0} % of the recorded time. How long it computed is only the rest, so \
             that slowdowns can be wrong by a factor of two.",
            (1.0 - computing) * 100.0
        )
    })
}

fn how_sure(advice: &Advice, options: &Options<'_>) -> Vec<String> {
    let need = advice.worst();
    let mut points =
        vec![format!("All of this is simulated with costs of {}, not measured on this machine.", advice.device.name)];
    match need.subject.basis {
        Basis::Made => points.push("The workload is made up: all of its touches and contents are known.".into()),
        Basis::Accesses { part, pages, period_ms } => {
            let sample = match part {
                0.995.. => "all of its pages".to_owned(),
                _ => format!("{:.0} % of its pages ({})", part * 100.0, human(pages * memfit_core::PAGE_BYTES)),
            };
            points.push(format!(
                "The recording has touches of {sample}, each page once in {period_ms} ms at most. In smaller budgets than the \
                 advised one a program that uses pages more often than that is slower than told here."
            ));
            if pages < SAMPLE_LEAST {
                points.push(format!("{pages} pages are a small sample: another run may want something else."));
            }
        }
        Basis::Faults { budget } => points.push(format!(
            "The recording has no touches of pages that were in memory, and so tells of its own budget of {} alone. For others \
             record with memfit run --record FILE --record-access, or use memfit run --advise.",
            human(budget)
        )),
    }
    points.extend(waiting(need.subject.computing()));
    points.extend(other_codecs(advice, options));
    if !need.subject.contents_are_known() && advice.saves() {
        points.push("Run it once as advised: the summary tells how well it compresses.".into());
    }
    if advice.needs.iter().any(|need| need.subject.known.recorded.as_ref().is_some_and(|of| of.cut)) {
        points.push("A recording ends early, and what came later is not known.".into());
    }
    let what = stands_for(advice);
    if what.len() > 1 {
        points.push(format!("These are recordings of different commands: {}.", what.join("; ")));
    }
    points
}
