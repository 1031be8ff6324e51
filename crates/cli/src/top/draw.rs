//! The screen of `memfit top` as a picture. Pure.
//!
//! From the top: the tree, its budget as a bar, page faults by source, what became of the pages,
//! warnings, processes, keys. A small screen leaves out the less important parts; a wide one has
//! the facts beside the faults.

use super::canvas::{fit, of, width, wrap, Canvas, BOLD, PLAIN, REVERSE};
use super::help;
use super::sample::Rates;
use super::units::{age, byte_rate, bytes, count, interval, nanoseconds, percent};
use super::view::{Sort, View};
use memfit_stats::{Process, Rejected, Stats, SOURCES};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// From this width on the facts are drawn beside the faults.
const WIDE: usize = 120;
/// Most rows of the facts there, with their head.
const FACT_ROWS_MAX: usize = 12;
/// Columns of the table of faults without its history.
const FAULT_COLUMNS: usize = 50;
/// Rows of a usual terminal; below, warnings are cut.
const USUAL_ROWS: usize = 24;
/// Rates that are kept for the history.
const HISTORY_MAX: usize = 400;
/// Rows of processes that take precedence over everything but the budget.
const PROCESSES_MIN: usize = 2;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appearance {
    /// Colours are wanted.
    pub colours: bool,
    /// Block characters of Unicode can be shown.
    pub blocks: bool,
}

/// Everything about the tree on the screen.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The last answer.
    pub stats: Stats,
    /// Its difference from the one before.
    pub rates: Rates,
    /// Faults a second: all, and by source; the last one at the end.
    pub history: VecDeque<[f64; SOURCES.len() + 1]>,
    /// States of the processes, as in `ps`, by pid.
    pub states: HashMap<i32, char>,
    /// Which of how many trees this is, from 1.
    pub place: (usize, usize),
    /// What is wrong, if anything: the tree has ended, the pager does not answer.
    pub trouble: Option<String>,
}

impl Model {
    /// Takes the next answer.
    pub fn update(&mut self, stats: Stats, is_first: bool) {
        self.rates = Rates::between((!is_first).then_some(&self.stats), &stats);
        self.stats = stats;
        if !is_first {
            let [zero, staged, filled, pool, swap, file] = self.rates.by_source.values();
            self.history.push_back([self.rates.faults, zero, staged, filled, pool, swap, file]);
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
        }
    }
}

/// Draws everything, and stores in the view how many processes fit.
#[must_use]
pub fn draw(model: &Model, view: &mut View, appearance: Appearance, width: usize, height: usize) -> Buffer {
    let mut canvas = Buffer::empty(Rect::new(0, 0, width as u16, height as u16));
    if view.help {
        help::draw(&mut canvas, view);
        return canvas;
    }
    if model.stats.budget_bytes == 0 {
        // Nothing is known yet; zeros would be wrong.
        let trouble = model.trouble.as_deref().unwrap_or("has not answered yet");
        canvas.put(0, 0, &fit(&format!("tree {} {trouble}", model.stats.pid), width), BOLD);
        return canvas;
    }
    title(&mut canvas, model);
    budget(&mut canvas, model, view);
    bar(&mut canvas, &model.stats);
    legend(&mut canvas, &model.stats);
    let plan = Plan::new(width, height, model);
    let mut y = 4;
    if plan.faults {
        faults(&mut canvas, y, model, appearance, plan.facts_beside);
    } else if plan.fault_rows == 1 {
        faults_in_short(&mut canvas, y, model);
    }
    y += plan.fault_rows;
    let facts = facts(&model.stats, &model.rates);
    if plan.facts_beside {
        facts_beside(&mut canvas, y - plan.fault_rows, plan.fault_rows, &facts);
    }
    for (name, values) in facts.iter().take(plan.fact_rows) {
        let x = canvas.put(0, y, &format!("{name:<FACT_NAME_COLUMNS$}"), BOLD);
        canvas.put(x, y, &fit(&values.join("  "), width.saturating_sub(x)), PLAIN);
        y += 1;
    }
    for (i, row) in warning(&model.stats, width, plan.warning_rows).iter().enumerate() {
        let name = if i == 0 { "warning" } else { "" };
        canvas.put(0, y, name, of(Color::Yellow).add_modifier(Modifier::BOLD));
        canvas.put(FACT_NAME_COLUMNS, y, row, of(Color::Yellow));
        y += 1;
    }
    if height > y + 1 {
        processes(&mut canvas, y..height - 1, model, view, appearance);
    } else {
        view.rows = (0, model.stats.processes.len());
    }
    if height > 4 {
        footer(&mut canvas, model);
    }
    if !appearance.colours {
        canvas.content.iter_mut().for_each(|cell| cell.fg = Color::Reset);
    }
    canvas
}

/// The parts below the bar for which there is room.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// The table of faults, not only a line.
    faults: bool,
    fault_rows: usize,
    fact_rows: usize,
    facts_beside: bool,
    warning_rows: usize,
}

impl Plan {
    fn new(width: usize, height: usize, model: &Model) -> Self {
        let room = height.saturating_sub(5);
        // The end of a warning says what to do.
        let warning = warning(&model.stats, width, if height < USUAL_ROWS { 1 } else { 2 }).len();
        let fits = |faults: usize, facts: usize| room > faults + facts + warning + PROCESSES_MIN;
        let (table, facts) = (SOURCES.len() + 2, facts(&model.stats, &model.rates));
        let beside = width >= WIDE && fits(table, 0);
        let all = [(table, facts.len()), (1, facts.len()), (1, 0), (0, 0)];
        let fitting = all.into_iter().find(|(faults, facts)| fits(*faults, *facts));
        let (fault_rows, fact_rows) = if beside {
            let wanted = (facts_in_rows(&facts, facts_columns(width)).len() + 1).clamp(table, FACT_ROWS_MAX);
            (if fits(wanted, 0) { wanted } else { table }, 0)
        } else {
            fitting.unwrap_or((0, 0))
        };
        let warning_rows = if fits(fault_rows, fact_rows) { warning } else { 0 };
        Self { faults: fault_rows >= table, fault_rows, fact_rows, facts_beside: beside, warning_rows }
    }
}

/// The last warning, in so many rows at most.
fn warning(stats: &Stats, width: usize, rows: usize) -> Vec<String> {
    let text = stats.warnings.last().map_or("", String::as_str);
    wrap(text, width.saturating_sub(FACT_NAME_COLUMNS), rows)
}

fn title(canvas: &mut Buffer, model: &Model) {
    let stats = &model.stats;
    let tree = match model.place {
        (_, 0 | 1) => format!("tree {}", stats.pid),
        (place, all) => format!("tree {} ({place} of {all})", stats.pid),
    };
    let full = format!("{tree}   scheme {}   up {}", stats.scheme, age(stats.wall_ns));
    let right = if width(&full) + 20 <= canvas.width() { full } else { format!("up {}", age(stats.wall_ns)) };
    let room = canvas.width().saturating_sub(width(&right) + 2);
    canvas.put(0, 0, &fit(&stats.command.join(" "), room), BOLD);
    canvas.put_right(canvas.width(), 0, &right, PLAIN);
}

fn budget(canvas: &mut Buffer, model: &Model, view: &View) {
    let Stats { budget_bytes, now, peak, .. } = &model.stats;
    let (budget_bytes, total_bytes) = (*budget_bytes, now.memory.total_bytes);
    let over = total_bytes > budget_bytes;
    let style = if over { of(Color::Red).add_modifier(Modifier::BOLD) } else { BOLD };
    let used = format!("used {} {}", bytes(total_bytes), percent(total_bytes as f64, budget_bytes as f64));
    // What is used matters more.
    let whole = Some(format!("budget {}   ", bytes(budget_bytes)));
    let whole = whole.filter(|whole| width(whole) + width(&used) <= canvas.width()).unwrap_or_default();
    let x = canvas.put(0, 1, &whole, PLAIN);
    let x = canvas.put(x, 1, &used, style);
    let (text, style) = match &model.trouble {
        Some(trouble) => (trouble.clone(), of(Color::Red).add_modifier(Modifier::BOLD)),
        None if view.paused => ("PAUSED: space goes on".into(), REVERSE),
        None => (format!("every {}", interval(view.interval)), PLAIN),
    };
    let room = canvas.width().saturating_sub(x + 2);
    let text = fit(&text, room);
    let peak = format!("   peak {}", bytes(peak.total_bytes));
    if width(&peak) + width(&text) <= room {
        canvas.put(x, 1, &peak, PLAIN);
    }
    canvas.put_right(canvas.width(), 1, &text, style);
}

/// The parts of the budget: mark in the bar, name, bytes, colour.
fn parts(stats: &Stats) -> [(char, &'static str, u64, Style); 5] {
    let now = &stats.now.memory;
    [
        ('#', "resident", now.resident_bytes, of(Color::Green)),
        ('=', "other", stats.now.memory.unmanaged_bytes(), of(Color::Blue)),
        ('>', "staged", now.staged_bytes, of(Color::Yellow)),
        ('+', "pool", now.pool_bytes, of(Color::Cyan)),
        (':', "tables", now.metadata_bytes, of(Color::Magenta)),
    ]
}

/// Columns of each part. The ends of the parts are rounded and not their widths, so that together
/// they are as long as their sum.
fn columns(parts: &[u64], whole: u64, width: usize) -> Vec<usize> {
    let mut sum = 0u64;
    let mut done = 0;
    let mut next = |part: &u64| {
        sum = sum.saturating_add(*part);
        let end = ((sum as f64 / whole.max(1) as f64 * width as f64).round() as usize).min(width);
        let columns = end - done;
        done = end;
        columns
    };
    parts.iter().map(&mut next).collect()
}

/// The whole bar is the budget; when more is used, all that is used, with a mark where the budget
/// ends.
fn bar(canvas: &mut Buffer, stats: &Stats) {
    let Some(room) = canvas.width().checked_sub(2) else { return };
    let parts = parts(stats);
    let whole = stats.budget_bytes.max(stats.now.memory.total_bytes);
    // The pager measures the parts at different moments: they can be more than the total.
    let sizes = parts.map(|(_, _, size, _)| size);
    let widths = columns(&sizes, whole.max(sizes.iter().sum()), room);
    let budget_ends = columns(&[stats.budget_bytes], whole, room)[0];
    let over = stats.now.memory.total_bytes > stats.budget_bytes;
    canvas.put(0, 2, "[", BOLD);
    let mut x = 0;
    for ((mark, _, _, style), width) in parts.into_iter().zip(widths) {
        for _ in 0..width {
            let beyond = over && x >= budget_ends;
            let style = if beyond { of(Color::Red).add_modifier(Modifier::REVERSED) } else { style };
            let mark = if over && x == budget_ends { '!' } else { mark };
            x = canvas.put(x + 1, 2, mark.encode_utf8(&mut [0; 4]), style) - 1;
        }
    }
    canvas.put(room + 1, 2, "]", BOLD);
}

fn legend(canvas: &mut Buffer, stats: &Stats) {
    let over = stats.now.memory.total_bytes.saturating_sub(stats.budget_bytes);
    let free = stats.budget_bytes.saturating_sub(stats.now.memory.total_bytes);
    let last = match over {
        0 => (' ', "free", free, PLAIN),
        _ => ('!', "OVER", over, of(Color::Red).add_modifier(Modifier::BOLD)),
    };
    let mut all: Vec<_> = parts(stats).into_iter().chain([last]).collect();
    let text = |(mark, name, size, _): &(char, &str, u64, Style)| format!("{mark}{name} {}", bytes(*size));
    let mut texts: Vec<String> = all.iter().map(text).collect();
    let long = |gap: usize, texts: &[String]| texts.iter().map(|text| width(text) + gap).sum::<usize>() - gap;
    let gap = if long(2, &texts) <= canvas.width() { 2 } else { 1 };
    if long(gap, &texts) > canvas.width() {
        // The marks say as much.
        texts = all.iter().map(|(mark, _, size, _)| format!("{mark}{}", bytes(*size))).collect();
        texts[5].insert_str(1, if over > 0 { "OVER " } else { "free " });
        texts.rotate_right(1);
        all.rotate_right(1);
    }
    let mut x = 0;
    for (text, (.., style)) in texts.iter().zip(&all) {
        x = canvas.put(x, 3, text.trim_start(), *style) + gap;
    }
}

fn faults(canvas: &mut Buffer, y: usize, model: &Model, appearance: Appearance, facts_beside: bool) {
    let line = |cells: [&str; 6]| {
        let [name, rate, share, p50, p99, max] = cells;
        format!("{name:<8}{rate:>8}{share:>7}{p50:>9}{p99:>9}{max:>8}")
    };
    let end = canvas.width() - if facts_beside { facts_columns(canvas.width()) + 2 } else { 0 };
    let room = end.saturating_sub(FAULT_COLUMNS + 2);
    let head = line(["FAULTS", "per s", "share", "p50", "p99", "max"]);
    canvas.put(0, y, &format!("{:end$}", fit(&head, end)), REVERSE);
    if let Some(text) = ["faults/s, the newest right", "faults/s"].into_iter().find(|text| text.len() <= room) {
        canvas.put(FAULT_COLUMNS + 2, y, text, REVERSE);
    }
    let (stats, rates) = (&model.stats, &model.rates);
    let all = ("all", rates.faults, &stats.fault_latency_ns.all);
    let sources = SOURCES.iter().enumerate();
    let (by_source, latencies) = (rates.by_source.values(), stats.fault_latency_ns.by_source.values());
    let rows = sources.map(|(i, source)| (*source, by_source[i], &latencies[i]));
    let highest = model.history.iter().rev().take(room).map(|rates| rates[0]).fold(0.0, f64::max);
    for (i, (name, rate, latency)) in [all].into_iter().chain(rows).enumerate() {
        let times = [latency.p50, latency.p99, latency.max].map(nanoseconds);
        let [p50, p99, max] = [&times[0], &times[1], &times[2]];
        let style = if i == 0 { BOLD } else { PLAIN };
        let y = y + 1 + i;
        canvas.put(0, y, &fit(&line([name, &count(rate), &percent(rate, rates.faults), p50, p99, max]), end), style);
        let values: Vec<f64> = model.history.iter().rev().take(room).rev().map(|rates| rates[i]).collect();
        let text: String = values.iter().map(|value| level(*value, highest, appearance.blocks)).collect();
        if room > 0 {
            canvas.put(end - values.len(), y, &text, of(Color::Cyan));
        }
    }
}

/// One value of a history as a character. A value above 0 is always visible.
fn level(value: f64, highest: f64, blocks: bool) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];
    if value <= 0.0 || highest <= 0.0 {
        return ' ';
    }
    let step = ((value / highest * 8.0).ceil() as usize).clamp(1, 8);
    if blocks {
        BLOCKS[step]
    } else {
        PLAIN[step]
    }
}

fn faults_in_short(canvas: &mut Buffer, y: usize, model: &Model) {
    let x = canvas.put(0, y, &format!("faults {}/s", count(model.rates.faults)), BOLD);
    let sources = SOURCES.iter().zip(model.rates.by_source.values()).filter(|(_, rate)| *rate > 0.0);
    let text: String = sources.map(|(source, rate)| format!("  {source} {}", count(rate))).collect();
    canvas.put(x, y, &fit(&text, canvas.width().saturating_sub(x)), PLAIN);
}

/// Names, and values that make sense one by one.
type Facts = [(&'static str, Vec<String>); 4];
/// Columns of a name.
const FACT_NAME_COLUMNS: usize = 9;

/// What becomes of the pages.
fn facts(stats: &Stats, rates: &Rates) -> Facts {
    let stored = stats.pool.zpages * 4096;
    let pool = match stats.pool_ratio() {
        None => vec!["empty".into()],
        Some(ratio) => vec![
            format!("{} in {}", bytes(stored), bytes(stats.now.memory.pool_bytes)),
            format!("ratio {ratio:.1}x"),
            format!("{} pages", count(stats.pool.zpages as f64)),
        ],
    };
    let pages: u64 = stats.codecs.values().map(|codec| codec.pages).sum();
    let mut codecs: Vec<String> = stats
        .codecs_by_pages()
        .into_iter()
        .map(|(name, codec)| {
            let ratio = codec.in_bytes as f64 / codec.out_bytes.max(1) as f64;
            format!("{name} {} {ratio:.1}x", percent(codec.pages as f64, pages as f64))
        })
        .collect();
    if codecs.is_empty() {
        codecs.push("nothing compressed".into());
    }
    let errors = match stats.swap.errors {
        0 => "no errors".into(),
        1 => "1 ERROR".into(),
        n => format!("{n} ERRORS"),
    };
    let swap = if !stats.swap.enabled {
        vec!["none".into()]
    } else {
        vec![
            format!("{} used", bytes(stats.now.memory.swap_bytes)),
            format!("read {}", byte_rate(rates.swap_read_bytes)),
            format!("write {}", byte_rate(rates.swap_write_bytes)),
            errors,
        ]
    };
    let back = rates.by_source.values()[1..].iter().sum::<f64>() + rates.around_pages + rates.brought_pages;
    let mut out =
        vec![format!("{} out", byte_rate(rates.evicted_pages * 4096.0)), format!("{} in", byte_rate(back * 4096.0))];
    let reasons = Rejected::<f64>::KEYS.iter().zip(rates.rejected.values()).filter(|(_, rate)| *rate > 0.0);
    out.extend(reasons.enumerate().map(|(i, (reason, rate))| {
        // Shorter, for 80 columns.
        let reason = if *reason == "refaulted" { "wanted back".into() } else { reason.replace('_', " ") };
        // Bytes are before it, and pages from there on.
        let unit = if i == 0 { "pages/s: " } else { "" };
        format!("{unit}{} {reason}", count(rate))
    }));
    [("paging", out), ("pool", pool), ("codecs", codecs), ("swap", swap)]
}

/// Columns of the facts beside the faults.
fn facts_columns(width: usize) -> usize {
    (width / 2).saturating_sub(10).min(80)
}

/// The facts in rows of that width: values share a row as far as they fit.
fn facts_in_rows(facts: &Facts, columns: usize) -> Vec<(&'static str, String)> {
    let room = columns.saturating_sub(FACT_NAME_COLUMNS);
    let mut rows: Vec<(&str, String)> = Vec::new();
    for (name, values) in facts {
        let mut name = *name;
        let mut row = String::new();
        for value in values {
            if !row.is_empty() && width(&row) + 2 + width(value) > room {
                rows.push((std::mem::take(&mut name), std::mem::take(&mut row)));
            }
            row += if row.is_empty() { "" } else { "  " };
            row += value;
        }
        rows.push((name, row));
    }
    rows
}

fn facts_beside(canvas: &mut Buffer, y: usize, rows: usize, facts: &Facts) {
    let columns = facts_columns(canvas.width());
    let x = canvas.width() - columns;
    canvas.put(x, y, &format!("{:columns$}", "MEMORY"), REVERSE);
    for (i, (name, row)) in facts_in_rows(facts, columns).iter().take(rows - 1).enumerate() {
        canvas.put(x, y + 1 + i, name, BOLD);
        canvas.put(x + FACT_NAME_COLUMNS, y + 1 + i, &fit(row, columns - FACT_NAME_COLUMNS), PLAIN);
    }
}

/// A column of the table of processes.
struct Column {
    sort: Sort,
    head: &'static str,
    width: usize,
    /// Width of the screen from which on it is shown.
    from: usize,
}

const COLUMNS: [Column; 6] = [
    Column { sort: Sort::Pid, head: "PID", width: 7, from: 0 },
    Column { sort: Sort::Resident, head: "RESIDENT", width: 10, from: 0 },
    Column { sort: Sort::Peak, head: "PEAK", width: 8, from: 76 },
    Column { sort: Sort::Evicted, head: "EVICTED", width: 9, from: 52 },
    Column { sort: Sort::Faults, head: "FAULTS", width: 8, from: 68 },
    Column { sort: Sort::Rate, head: "FAULTS/S", width: 10, from: 36 },
];

fn cell(sort: Sort, process: &Process, model: &Model) -> String {
    let dash = |text: String| if process.paged { text } else { "-".into() };
    match sort {
        Sort::Pid => process.pid.to_string(),
        Sort::Resident => bytes(process.resident_bytes),
        Sort::Peak => bytes(process.peak_total_bytes),
        Sort::Evicted => dash(bytes(process.evicted_pages * 4096)),
        Sort::Faults => dash(count(process.faults as f64)),
        Sort::Rate => dash(count(model.rates.processes.get(&process.pid).map_or(0.0, |(faults, _)| *faults))),
        Sort::State => model.states.get(&process.pid).map_or_else(|| "?".into(), char::to_string),
        Sort::Command => process.title(),
    }
}

fn processes(canvas: &mut Buffer, rows: Range<usize>, model: &Model, view: &mut View, appearance: Appearance) {
    let (y, rows) = (rows.start, rows.len());
    let all = &model.stats.processes;
    view.rows = (rows - 1, all.len());
    view.scrolled = view.scrolled.min(all.len().saturating_sub(rows - 1));
    canvas.paint(y, REVERSE);
    let mark = [["v", "^"], ["▼", "▲"]][usize::from(appearance.blocks)][usize::from(view.reversed)];
    let head = |sort: Sort, text: &str| if sort == view.sort { format!("{text}{mark}") } else { text.to_owned() };
    // The column that the processes are sorted by stands out.
    let style = |sort: Sort| if sort == view.sort { BOLD } else { REVERSE };
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| canvas.width() >= column.from).collect();
    let mut x = 0;
    for column in &columns {
        x += column.width;
        canvas.put_right(x, y, &head(column.sort, column.head), style(column.sort));
    }
    let state = x + 2;
    canvas.put(state, y, &head(Sort::State, "S"), style(Sort::State));
    let command = canvas.put(state + 3, y, &head(Sort::Command, "COMMAND"), style(Sort::Command));
    if all.len() > rows - 1 {
        let last = (view.scrolled + rows - 1).min(all.len());
        let (first, all) = (view.scrolled + 1, all.len());
        let (more, plus) = match model.stats.processes_left_out.unwrap_or(0) {
            0 => (String::new(), ""),
            n => (format!(" (and {n} smaller)"), "+"),
        };
        let texts = [format!(" {first} to {last} of {all}{more} "), format!(" {first}-{last}/{all}{plus}")];
        let fits = |text: &&String| command + width(text) <= canvas.width();
        if let Some(text) = texts.iter().find(fits) {
            canvas.put_right(canvas.width(), y, text, REVERSE);
        }
    }
    for (i, process) in all.iter().skip(view.scrolled).take(rows - 1).enumerate() {
        let y = y + 1 + i;
        let mut x = 0;
        for column in &columns {
            x += column.width;
            canvas.put_right(x, y, &cell(column.sort, process, model), PLAIN);
        }
        canvas.put(state, y, &cell(Sort::State, process, model), PLAIN);
        let room = canvas.width().saturating_sub(state + 3);
        canvas.put(state + 3, y, &fit(&process.title(), room), PLAIN);
    }
}

fn footer(canvas: &mut Buffer, model: &Model) {
    let y = canvas.height() - 1;
    let mut keys = vec![("q", "quit"), ("?", "help"), ("space", "pause"), ("+-", "interval")];
    if model.place.1 > 1 {
        keys.push(("tab", "tree"));
    }
    let mut x = 0;
    for (key, text) in keys {
        x = canvas.put(x, y, key, BOLD);
        x = canvas.put(x + 1, y, text, PLAIN) + 2;
    }
    let x = canvas.put(x, y, "sort:", PLAIN) + 1;
    let names = ["pid", "resident", "peak", "evicted", "faults", "faults/s", "state", "command"];
    let long: usize = names.iter().map(|name| name.len() + 4).sum();
    let full = x + long <= canvas.width() + 2;
    let mut x = x;
    for (sort, name) in Sort::ALL.into_iter().zip(names) {
        x = canvas.put(x, y, &sort.key().to_string(), BOLD) + 1;
        if full {
            x = canvas.put(x, y, name, PLAIN) + 2;
        }
    }
    if !full {
        canvas.put(x, y, "< >", BOLD);
    }
}

#[cfg(test)]
mod tests;
