//! The choice and the words.

use super::choice::{at_most, of_two, scheme, swap_size, whole};
use super::files::command_line;
use super::words::{headline, of_all, size_of_tier, text, waiting};
use super::*;
use memfit_core::scheme::SwapFormat;

fn found(budgets: &[Option<u64>]) -> Vec<Found> {
    let found = |&budget| Found { workload: "w".into(), scheme: "s".into(), set: String::new(), budget, fails: None };
    budgets.iter().map(found).collect()
}

fn chosen(all: &[&[Option<u64>]]) -> usize {
    let found: Vec<Vec<Found>> = all.iter().map(|budgets| found(budgets)).collect();
    scheme(&found.iter().map(|found| &**found).collect::<Vec<_>>(), &[true; 3])
}

#[test]
fn the_smaller_a_sample_is_the_more_there_can_be() {
    // Four regions, of hardly anything and of all; less than one.
    assert_eq!([at_most(1000, 64, 0.0), at_most(1000, 64, 1.0), at_most(1000, 3, 0.0)], [2000, 1000, 3000]);
    assert_eq!([at_most(1000, 64, 0.75), at_most(1000, 6400, 0.0), at_most(0, 0, 0.1)], [1500, 1100, 0]);
}

#[test]
fn the_first_scheme_is_taken_unless_another_is_clearly_better() {
    let mib = |n: u64| Some(n << 20);
    assert_eq!(chosen(&[&[mib(100), mib(86), mib(120)]]), 0, "not clearly");
    assert_eq!(chosen(&[&[mib(100), mib(84), mib(80)]]), 2);
    assert_eq!(chosen(&[&[None, mib(200)]]), 1, "the first one never keeps the bound");
    assert_eq!(chosen(&[&[None, None]]), 0);
    let unjudged = found(&[mib(100), mib(50), mib(60)]);
    assert_eq!(scheme(&[&unjudged], &[true, false, true]), 2, "by the sizes of another codec");
    assert_eq!(scheme(&[&unjudged], &[false; 3]), 0, "of no scheme the sizes are known");
    // What counts is the workload that wants most of the scheme.
    assert_eq!(chosen(&[&[mib(100), mib(50)], &[mib(100), mib(99)]]), 0);
    assert_eq!(chosen(&[&[mib(100), mib(50)], &[mib(60), None]]), 0, "it must do for all of them");
}

/// A small sample can want more than its pages seem to take.
#[test]
fn room_for_all_pages_is_advised_only_where_it_keeps_the_bound() {
    let mib = |n: u64| n << 20;
    let chosen = |in_all, in_wants| of_two(mib(60), mib(57), (Some(in_all), Some(in_wants)), 1.1);
    assert_eq!([chosen(1.05, 1.02), chosen(1.85, 1.09)], [mib(57), mib(60)]);
    // None keeps it.
    assert_eq!([chosen(1.41, 1.41), chosen(1.41, 1.2)], [mib(57), mib(60)]);
    assert_eq!(of_two(2, 1, (None, None), 1.1), 1);
}

#[test]
fn a_budget_is_a_share_of_the_memory_or_more() {
    let mib = |n: u64| n << 20;
    assert_eq!(of_all(mib(45), mib(60)), "75 % of the 60 MiB that it has at most");
    assert_eq!(of_all(mib(62), mib(60)), "a little more than the 60 MiB that it has at most");
    assert_eq!(of_all(mib(131), mib(131) + (400 << 10)), "nearly all of the 131.4 MiB that it has at most");
    assert_eq!(of_all(mib(60), mib(60)), "all that it has at most");
}

#[test]
fn sizes_are_whole_and_leave_the_log_room() {
    assert_eq!((whole(1), whole(1 << 20), whole((1 << 20) + 1)), (1 << 20, 1 << 20, 2 << 20));
    let log = |bytes| swap_size(bytes, SwapFormat::CompressedExtents);
    assert_eq!((log(0), log(1), log(100 << 20)), (None, Some(4 << 20), Some(125 << 20)));
    assert_eq!(swap_size(100 << 20, SwapFormat::RawSlots), Some(101 << 20), "slots need no free segments");
}

#[test]
fn the_smallest_swap_tier_is_not_one_with_a_quarter_more() {
    let words = |peak, format| size_of_tier(swap_size(peak, format).unwrap(), format);
    for format in [SwapFormat::CompressedExtents, SwapFormat::RawSlots] {
        assert_eq!(words(20 << 10, format), "; 4 MiB is the smallest tier");
    }
    assert!(words(100 << 20, SwapFormat::CompressedExtents).starts_with("; 125 MiB leave it a quarter more"));
    assert_eq!(words(100 << 20, SwapFormat::RawSlots), "");
}

#[test]
fn a_program_that_mostly_waited_computed_for_a_time_that_is_hardly_known() {
    assert_eq!((waiting(1.0), waiting(0.5)), (None, None));
    assert!(waiting(0.2).unwrap().contains("waited for pages 80 % of the recorded time"));
}

fn of(workloads: &[&str], slowdown: f64, schemes: &[&str], toml: Option<&Path>) -> (String, String, Advice) {
    let schemes: Vec<String> = schemes.iter().map(|name| (*name).to_owned()).collect();
    let simulated = Simulated { slowdown, quiet: true, ..Simulated::default() };
    let options = Options::new(&simulated, &schemes, toml).unwrap();
    let subjects = workloads.iter().map(|name| Subject::examine(name, &options).unwrap()).collect();
    let advice = advise(subjects, &options).unwrap();
    // Lines are broken anywhere.
    let words = text(&advice, &options).split_whitespace().collect::<Vec<_>>().join(" ");
    (words, command_line(&advice, &options), advice)
}

#[test]
fn the_words_say_what_was_found() {
    let random = "uniform:pages=40M,accesses=100000,contents=f=0.50,touch_ns=20000";
    let (words, line, advice) = of(&[random], 10.0, &["memfit"], None);
    assert!(words.starts_with(&headline(&advice)) && words.contains("at random"), "{words}");
    assert!(words.contains("touches and contents are known") && words.contains("compresses to"), "{words}");
    let budget = advice.budget >> 20;
    assert!(words.contains(&format!("give it {budget} MiB")) && line.contains(&format!("-m {budget}M")), "{words}");
    assert!(advice.saves() && line.ends_with(" -- COMMAND") && !line.contains(" -s "), "{line}");
    let slowdowns: Vec<f64> = advice.costs.iter().map(|cost| cost.outcome.slowdown().unwrap()).collect();
    assert!(slowdowns.is_sorted() && slowdowns[1] <= 1.1 && *slowdowns.last().unwrap() > 1.1, "{slowdowns:?}");
    // A bound that nothing keeps.
    let (words, _, advice) = of(&["scan:pages=30M,passes=3"], 0.1, &["memfit"], None);
    assert!(!advice.saves() && words.contains("room for all that it has"), "{words}");
    assert!(words.contains("in sequence"), "{words}");
    // Too small to be limited.
    let (words, ..) = of(&["uniform:pages=2M,accesses=1000"], 10.0, &["memfit"], None);
    assert!(words.contains("no budget of memfit is less than 16 MiB"), "{words}");
}

/// The window is one of the run, of which the program computes in a part only.
#[test]
fn the_working_set_is_that_of_a_window_of_the_run() {
    let simulated = Simulated { device: "hdd-2005".into(), quiet: true, ..Simulated::default() };
    let options = Options::new(&simulated, &["memfit".to_owned()], None).unwrap();
    let setup = memfit_sim::Setup {
        scheme: Arc::clone(&options.schemes[0]),
        budget: 4 << 20,
        swap_bytes: 1 << 30,
        residents: memfit_sim::Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::clone(&options.costs),
        device: Arc::clone(&options.device),
    };
    let path = std::env::temp_dir().join(format!("memfit-advise-window-{}", std::process::id()));
    let mut machine = memfit_sim::Machine::new(&setup, memfit_sim::Contents::new());
    let file = std::fs::File::create(&path).unwrap();
    let recorder = memfit_sim::Recorder::start(&mut machine, file, Vec::new()).unwrap();
    let workload = "uniform:pages=8M,accesses=8000,contents=random,touch_ns=1000000";
    for event in memfit_sim::generate::Spec::parse(workload).unwrap().make() {
        machine.event(event);
        recorder.now(machine.times().program);
    }
    recorder.finish(&mut machine).unwrap();
    let subject = Subject::examine(path.to_str().unwrap(), &options).unwrap();
    let window = subject.window_ns();
    let in_window = |computing| {
        let mut source = crate::sim::source::open(&subject.known.source, computing, None).unwrap();
        memfit_sim::WorkingSet::of(&mut *source, window).unwrap().most_pages()
    };
    let computing = subject.known.recorded.as_ref().unwrap().computing;
    let (told, of_run, of_computing) = (subject.working_set.most_pages(), in_window(1.0), in_window(computing));
    std::fs::remove_file(&path).unwrap();
    assert!(computing < 0.5 && of_computing > of_run * 3 / 2, "{computing}: {of_run} {of_computing}");
    assert!(told.abs_diff(of_run) <= of_run / 10, "{told}, and {of_run} in a window of the run");
}

#[test]
fn command_lines_name_what_is_not_the_default() {
    let small = "uniform:pages=40M,accesses=20000,contents=random,touch_ns=50000";
    let (words, line, advice) = of(&[small], 10.0, &["swap"], None);
    let swap = advice.swap_size().unwrap() >> 20;
    assert!(line.contains(&format!(" -s swap --swap-size {swap}M -- ")), "{line}");
    // Of a swap tier of slots nothing stays free.
    assert!(advice.swap_size() == Some(whole(advice.swap + (256 << 10))), "{} {}", advice.swap, line);
    assert!(words.contains("are in the swap tier at once") && !words.contains("it is a log"), "{words}");
    let (_, line, _) = of(&[small], 10.0, &["memfit"], Some(Path::new("my file")));
    assert!(line.contains(" -s './my file' "), "{line}");
    // A file that was made of a preset.
    let file = std::env::temp_dir().join(format!("memfit-advise-{}.toml", std::process::id()));
    std::fs::write(&file, memfit_scheme::PRESETS.iter().find(|preset| preset.name == "memfit").unwrap().text).unwrap();
    let (_, line, _) = of(&[small], 10.0, &[file.to_str().unwrap()], None);
    std::fs::remove_file(&file).unwrap();
    assert!(line.contains(&format!(" -s {} ", file.display())), "{line}");
    // Under this scheme each page has a place in the swap tier; these stay in the pool.
    let compressed = "uniform:pages=40M,accesses=20000,contents=f=0.50,touch_ns=50000";
    let (_, line, advice) = of(&[compressed], 10.0, &["zram"], None);
    assert!(line.contains(" -s zram -- ") && advice.worst().outcome.tally.peak_swap_bytes > 0, "{line}");
}
