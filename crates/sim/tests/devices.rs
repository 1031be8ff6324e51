//! The built-in tables, users' tables, and docs/devices.md.

#[path = "../../../tests/blessed.rs"]
mod blessed;

use memfit_codec::CODECS;
use memfit_sim::cost::{CostTable, COSTS};
use memfit_sim::device::{Costs, Device, DEVICES, TRANSFER_BYTES};
use memfit_sim::Embedded;
use std::fmt::Write;
use std::path::Path;

const DEVICE: &str = "\
name = 'mine'
summary = 'a device'
source = 'assumed, because it is an example'
[read]
random_ns = 1
sequential_ns = 2
transfer_4k_ns = 3
[write]
random_ns = 4
sequential_ns = 5
transfer_4k_ns = 6
";

/// The message about `DEVICE` with `from` replaced by `to`, or with `to` appended.
fn device_error(from: &str, to: &str) -> String {
    assert!(DEVICE.contains(from));
    let text = if from.is_empty() { format!("{DEVICE}{to}") } else { DEVICE.replacen(from, to, 1) };
    Device::parse(&text).unwrap_err().to_string()
}

#[test]
fn a_users_device_and_its_defaults() {
    let device = Device::parse(DEVICE).unwrap();
    assert_eq!((device.name.as_str(), device.summary.as_str()), ("mine", "a device"));
    assert_eq!(device.read, Costs { random_ns: 1, sequential_ns: 2, transfer_4k_ns: 3 });
    assert_eq!(device.write, Costs { random_ns: 4, sequential_ns: 5, transfer_4k_ns: 6 });
    assert_eq!((device.unit_bytes, device.queue_depth), (512, 1));
    assert_eq!((device.energy, device.rated_bytes, device.amplification_percent), (None, None, 100));
    let all = format!("queue_depth = 8\n{DEVICE}[wear]\nrated_bytes = 7_000\namplification_percent = 250\n");
    let device = Device::parse(&all).unwrap();
    assert_eq!((device.queue_depth, device.rated_bytes, device.amplification_percent), (8, Some(7000), 250));
}

#[test]
fn errors_in_a_users_device() {
    let top = "expected one of `name`, `summary`, `source`, `unit_bytes`, `queue_depth`, `read`, `write`, `wear`";
    let of_read = "expected one of `random_ns`, `sequential_ns`, `transfer_4k_ns`, `operation_nj`, `byte_pj`";
    let range = "expected a whole number from 0 to 86400000000000";
    let number = |value, what: &str| format!("line 5, `random_ns = {value}`: {what}, {range}");
    let read = "[read]\nrandom_ns = 1\nsequential_ns = 2\ntransfer_4k_ns = 3\n";
    let cases = [
        ("", "[wear", "line 12, `[wear`: unclosed table, expected `]`".to_owned()),
        ("summary", "colour", format!("line 2, `colour = 'a device'`: unknown field `colour`, {top}")),
        ("[write]", "[written]", format!("line 8, `[written]`: unknown field `written`, {top}")),
        ("random_ns = 1", "seek_ns = 1", format!("line 5, `seek_ns = 1`: unknown field `seek_ns`, {of_read}")),
        ("random_ns = 1", "random_ns = 1.5", number("1.5", "invalid type: floating point `1.5`")),
        ("random_ns = 1", "random_ns = '1'", number("'1'", "invalid type: string \"1\"")),
        ("random_ns = 1", "random_ns = -1", number("-1", "invalid value: integer `-1`")),
        (
            "random_ns = 1",
            "random_ns = 86400000000001",
            number("86400000000001", "invalid value: integer `86400000000001`"),
        ),
        (
            "random_ns = 1",
            "random_ns = 99999999999999999999",
            number("99999999999999999999", "invalid value: integer `99999999999999999999`"),
        ),
        ("random_ns = 1\n", "", "line 4, `[read]`: missing field `random_ns`".into()),
        (read, "read = 3\n", "line 4, `read = 3`: invalid type: integer `3`, expected a table".into()),
        ("'mine'", "7", "line 1, `name = 7`: invalid type: integer `7`, expected a string".into()),
        (
            "'a device'",
            "' '",
            "line 2, `summary = ' '`: invalid value: string \" \", expected a text that is not empty".into(),
        ),
        ("summary = 'a device'\n", "", "missing field `summary`".into()),
        (
            "[read]",
            "queue_depth = 0\n[read]",
            "line 4, `queue_depth = 0`: invalid value: integer `0`, expected a whole number from 1 to 65536".into(),
        ),
        (
            "",
            "byte_pj = 1",
            "energy takes `operation_nj` and `byte_pj` in both `read` and `write`, or none of them".into(),
        ),
    ];
    for (from, to, message) in cases {
        assert_eq!(device_error(from, to), message, "{from} -> {to}");
    }
}

#[test]
fn errors_in_a_users_costs() {
    let han18 = COSTS.iter().find(|table| table.name == "han18").unwrap().text;
    let error = |from: &str, to: &str| {
        assert!(han18.contains(from));
        CostTable::parse(&han18.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(error("fault_ns = 0\n", ""), "missing field `fault_ns`");
    let codecs: Vec<&str> = CODECS.iter().map(|codec| codec.name).collect();
    assert_eq!(
        error("[codec.any]", "[codec.lz5]"),
        format!("line 17, `[codec.lz5]`: unknown codec `lz5`; allowed: any, {}", codecs.join(", "))
    );
    assert_eq!(
        error("[codec.any]", "[codec.lz4]"),
        "line 17, `[codec.lz4]`: no times for the codec `lz4hc`: give `codec.lz4hc`, or `codec.any` for all others"
    );
    assert_eq!(error("decompress_ns = 39_000\n", ""), "line 17, `[codec.any]`: missing field `decompress_ns`");
    assert_eq!(
        error("decompress_ns = 39_000\n", "ratio = 2\n"),
        "line 19, `ratio = 2`: unknown field `ratio`, expected `compress_ns` or `decompress_ns`"
    );
}

#[test]
fn names_and_paths() {
    let unknown = Device::find("floppy").unwrap_err().to_string();
    let names: Vec<_> = DEVICES.iter().map(|device| device.name).collect();
    let all = names.join(", ");
    assert_eq!(unknown, format!("there is no device `floppy`; there are {all}; the path of a file ends in .toml"));
    assert!(CostTable::find("floppy").unwrap_err().to_string().starts_with("there is no table of costs `floppy`"));

    let missing = Device::find("no/such.toml").unwrap_err().to_string();
    assert!(missing.starts_with("no/such.toml: No such file"), "{missing}");

    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mine.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, DEVICE).unwrap();
    assert_eq!(Device::find(path).unwrap(), Device::parse(DEVICE).unwrap());
    std::fs::write(&file, DEVICE.replace("name", "nmae")).unwrap();
    let wrong = Device::find(path).unwrap_err().to_string();
    assert!(
        wrong.starts_with(&format!("{path}: line 1, `nmae = 'mine'`: unknown field `nmae`, expected one of `name`, ")),
        "{wrong}"
    );
}

/// Each file of the folder has its line in the table, with its own name.
fn check_embedded(folder: &str, table: &[Embedded], name: fn(&str) -> (String, String)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let mut names: Vec<_> = table.iter().map(|entry| format!("{}.toml", entry.name)).collect();
    names.sort();
    assert_eq!(files, names);
    for entry in table {
        let (name, source) = name(entry.text);
        assert_eq!(name, entry.name);
        assert!(source.len() > 40, "{name}: {source}");
    }
}

#[test]
fn what_is_built_in_parses_has_a_source_and_is_in_its_table() {
    check_embedded("devices", DEVICES, |text| {
        let device = Device::parse(text).unwrap();
        (device.name, device.source)
    });
    check_embedded("costs", COSTS, |text| {
        let costs = CostTable::parse(text).unwrap();
        (costs.name, costs.source)
    });
}

/// Three digits, without an exponent.
fn short(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".into(),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn us(ns: u64) -> String {
    short(ns as f64 / 1000.0)
}

fn megabytes_a_second(costs: &Costs) -> String {
    short(TRANSFER_BYTES as f64 * 1000.0 / costs.transfer_4k_ns as f64)
}

fn device_table() -> String {
    let mut table =
        "| device | read: random, us | sequential, us | MB/s | write: random, us | sequential, us | MB/s |".to_owned();
    table += " unit, B | at once | rated, TB |\n";
    table += "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    let mut sources = String::new();
    for entry in DEVICES {
        let device = Device::parse(entry.text).unwrap();
        let Device { name, summary, source, read, write, unit_bytes, queue_depth, .. } = &device;
        let row = |costs: &Costs| {
            format!("{} | {} | {}", us(costs.random_ns), us(costs.sequential_ns), megabytes_a_second(costs))
        };
        let rated = device.rated_bytes.map_or(String::new(), |bytes| short(bytes as f64 / 1e12));
        let (read, write) = (row(read), row(write));
        writeln!(table, "| `{name}` | {read} | {write} | {unit_bytes} | {queue_depth} | {rated} |").unwrap();
        writeln!(sources, "- `{name}`: {summary}. {source}.").unwrap();
    }
    format!("{table}\n{sources}")
}

fn cost_table() -> String {
    let tables: Vec<_> = COSTS.iter().map(|entry| CostTable::parse(entry.text).unwrap()).collect();
    let names: Vec<_> = tables.iter().map(|table| format!("`{}`", table.name)).collect();
    let mut text = format!("| us | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(tables.len()));
    let mut row = |what: &str, of: &dyn Fn(&CostTable) -> String| {
        let cells: Vec<_> = tables.iter().map(of).collect();
        writeln!(text, "| {what} | {} |", cells.join(" | ")).unwrap();
    };
    row("a fault without its work", &|table| us(table.fault_ns));
    row("a page copied into place", &|table| us(table.copy_ns));
    row("a page that comes along", &|table| us(table.around_ns));
    row("a page of zeros", &|table| us(table.zero_ns));
    row("a page of one repeated word", &|table| us(table.fill_ns));
    row("a page taken out: moved", &|table| us(table.move_ns));
    row("copied to staging", &|table| us(table.stage_ns));
    row("its memory given back", &|table| us(table.drop_ns));
    row("an estimate of entropy", &|table| us(table.entropy_ns));
    for (i, (name, _)) in tables[0].codecs().enumerate() {
        row(&format!("{name}: compress, decompress"), &|table| {
            let (_, costs) = table.codecs().nth(i).unwrap();
            format!("{}, {}", us(costs.compress_ns), us(costs.decompress_ns))
        });
    }
    text.push('\n');
    for table in &tables {
        writeln!(text, "- `{}`: {}. {}.", table.name, table.summary, table.source).unwrap();
    }
    text
}

/// The tables of docs/devices.md match the files. `MEMFIT_BLESS=1` rewrites them.
#[test]
fn the_document_has_these_numbers() {
    blessed::assert_part("docs/devices.md", "devices", &device_table());
    blessed::assert_part("docs/devices.md", "costs", &cost_table());
}

/// The example of the document is a valid device.
#[test]
fn the_example_of_the_document() {
    let text = include_str!("../../../docs/devices.md");
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let device = Device::parse(example).unwrap();
    assert!(device.energy.is_some() && device.rated_bytes.is_some(), "it shows all keys");
}
