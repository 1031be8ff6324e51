//! Pictures of several sizes.

use super::super::canvas::tests::text;
use super::super::sample::tests::answer;
use super::*;
use std::time::Duration;

const APPEARANCE: Appearance = Appearance { colours: true, blocks: true };

fn model() -> Model {
    let mut model = Model { place: (1, 1), ..Model::default() };
    model.update(answer(10, 1), true);
    model.update(answer(11, 3), false);
    model.update(answer(12, 4), false);
    model
}

fn view() -> View {
    View::new(Sort::Resident, Duration::from_secs(1))
}

fn picture(model: &Model, view: &mut View, columns: usize, rows: usize) -> String {
    let text = text(&draw(model, view, APPEARANCE, columns, rows));
    for line in text.lines() {
        assert!(width(line) <= columns, "{line}");
    }
    assert_eq!(text.lines().count(), rows);
    text
}

#[track_caller]
fn holds(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
}

#[test]
fn what_is_used_comes_before_the_budget() {
    let text = picture(&model(), &mut view(), 20, 24);
    assert!(text.lines().nth(1).unwrap().starts_with("used 127M 99%"), "{text}");
}

#[test]
fn all_of_it_on_a_usual_terminal() {
    let mut view = view();
    let text = picture(&model(), &mut view, 80, 24);
    holds(&text, &["python3 big.py", "tree 4242   scheme memfit   up 0:12", "budget 128M   used 127M 99%   peak 129M"]);
    holds(
        &text,
        &["#resident 70.0M", "=other 15.0M", ">staged 4.0M", "+pool 36.0M", ":tables 2.0M", "free 1.0M", "every 1 s"],
    );
    holds(
        &text,
        &[
            "all          100",
            "pool          60    60%   11.0us   70.0us   900us",
            "zero          10    10%",
            "file           2     2%",
        ],
    );
    holds(
        &text,
        &["117M in 36.0M  ratio 3.3x", "zstd 90% 4.0x", "read 1.0M/s", "write 2.0M/s", "no errors", "2 not moved"],
    );
    holds(
        &text,
        &[
            "warning  the swap file has its full size",
            "RESIDENT▼",
            "FAULTS/S",
            "90.0M    120M",
            "python3",
            "sort: p r k e",
        ],
    );
    assert!(!text.contains("wanted back"), "no page was kept for that");
    holds(&text, &["paging   ", "M/s out  ", "/s in  pages/s: 2 not moved"]);
    let row = text.lines().find(|line| line.trim_start().starts_with('8')).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["8", "1.0M", "1.0M", "-", "-", "-", "?", "sh"]);
    assert_eq!(view.rows, (5, 2));
}

#[test]
fn a_large_one_has_the_facts_beside() {
    let text = picture(&model(), &mut view(), 200, 50);
    let all = text.lines().find(|line| line.starts_with("all ")).unwrap();
    assert!(all.contains("paging"), "{text}");
    holds(&text, &["MEMORY", "p pid  r resident", "c command", "117M in 36.0M", "▄", "█"]);
}

#[test]
fn a_small_one_keeps_what_matters() {
    let text = picture(&model(), &mut view(), 40, 10);
    holds(&text, &["python3 big.py", "budget 128M", "#70.0M", "faults 100/s", "PID", "RESIDENT", "COMMAND", "quit"]);
    for (columns, rows) in [(20, 5), (10, 3), (3, 2), (1, 1), (1, 100), (300, 1), (79, 23), (121, 11), (0, 0)] {
        let mut view = view();
        let _ = draw(&model(), &mut view, APPEARANCE, columns, rows);
        view.help = true;
        let _ = draw(&model(), &mut view, APPEARANCE, columns, rows);
        let _ = draw(&Model::default(), &mut self::view(), APPEARANCE, columns, rows);
    }
}

#[test]
fn the_help_fits_on_a_usual_terminal() {
    let mut view = view();
    view.help = true;
    let text = picture(&model(), &mut view, 80, 24);
    holds(&text, &["KEYS", "leave", "sort: pid", "WHAT THE NUMBERS MEAN", "evicted", "any key: back"]);
    assert!(!text.contains('~'), "{text}");
}

#[test]
fn the_help_of_a_small_terminal_is_scrolled() {
    for (columns, rows) in [(79, 12), (40, 20), (30, 10)] {
        let mut view = view();
        view.help = true;
        let mut seen = picture(&model(), &mut view, columns, rows);
        holds(&seen, &["KEYS", "scroll"]);
        while view.help_scrolled + view.help_rows.0 < view.help_rows.1 {
            view.help_scrolled += view.help_rows.0;
            seen += &picture(&model(), &mut view, columns, rows);
        }
        assert!(!seen.contains('~'), "{seen}");
        let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        holds(&seen, &["leave", "faults/s state command", "WHAT THE NUMBERS", "since its start; - : not paged"]);
    }
}

#[test]
fn more_than_the_budget_is_seen_without_colours() {
    let mut model = model();
    model.stats.now.memory.total_bytes = 160 << 20;
    model.stats.now.memory.resident_bytes = 103 << 20;
    let text = picture(&model, &mut view(), 80, 24);
    holds(&text, &["used 160M 125%", "!OVER 32.0M"]);
    let bar = text.lines().nth(2).unwrap();
    assert_eq!(bar.find('!'), Some(1 + 78 * 128 / 160), "{bar}");
    assert!(bar.ends_with(']') && width(bar) == 80, "{bar}");
}

#[test]
fn colours_are_there_only_when_they_are_wanted() {
    let coloured = |colours| {
        let picture = draw(&model(), &mut view(), Appearance { colours, ..APPEARANCE }, 80, 24);
        picture.content.iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}

#[test]
fn parts_are_as_long_as_their_sum() {
    assert_eq!(columns(&[10, 10, 10], 30, 10), [3, 4, 3]);
    assert_eq!(columns(&[1, 1, 1, 97], 100, 10), [0, 0, 0, 10]);
    assert_eq!(columns(&[5, 5], 0, 10), [10, 0]);
    assert_eq!(columns(&[u64::MAX, u64::MAX], u64::MAX, 10), [10, 0]);
}

#[test]
fn troubles_and_pauses_are_told() {
    let mut model = model();
    let mut view = view();
    view.paused = true;
    holds(&picture(&model, &mut view, 80, 24), &["PAUSED"]);
    let nothing = Model { trouble: Some("ended".into()), ..Model::default() };
    holds(&picture(&nothing, &mut view, 80, 24), &["tree 0 ended"]);
    model.trouble = Some("ended with exit status 3".into());
    model.place = (2, 3);
    holds(&picture(&model, &mut view, 80, 24), &["ended with exit status 3", "tree 4242 (2 of 3)", "tab tree"]);
}

#[test]
fn a_long_warning_has_two_rows_and_no_swap_is_told() {
    let mut model = model();
    model.stats.swap.enabled = false;
    model.stats.warnings =
        vec!["the budget is too small for what cannot be taken away; raise -m, or allow a swap tier".into()];
    let text = picture(&model, &mut view(), 80, 24);
    holds(&text, &["swap     none", "warning  the budget is", "allow a swap tier\n"]);
    holds(&picture(&model, &mut view(), 80, 20), &["or al~\n"]);
}

#[test]
fn many_processes_are_scrolled() {
    let mut model = model();
    let process = |pid| Process { pid, comm: format!("worker-{pid}"), ..Process::default() };
    model.stats.processes = (1..=50).map(process).collect();
    let mut view = view();
    holds(&picture(&model, &mut view, 80, 24), &["1 to 5 of 50", "worker-1", "worker-5"]);
    model.stats.processes_left_out = Some(9);
    holds(&picture(&model, &mut view, 80, 24), &["1-5/50+"]);
    holds(&picture(&model, &mut view, 100, 24), &["1 to 5 of 50 (and 9 smaller)"]);
    model.stats.processes_left_out = None;
    view.scrolled = 48;
    holds(&picture(&model, &mut view, 80, 24), &["46 to 50 of 50", "worker-50"]);
}

#[test]
fn a_history_has_a_scale_of_its_own() {
    let all: String = (0..=8).map(|n| level(f64::from(n), 8.0, true)).collect();
    assert_eq!(all, " ▁▂▃▄▅▆▇█");
    assert_eq!([level(0.1, 8000.0, false), level(8.0, 8.0, false), level(1.0, 0.0, false)], ['.', '#', ' ']);
}
