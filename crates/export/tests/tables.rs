//! Reads tables back: each call is a row, in every format.

#[path = "../../../tests/blessed.rs"]
mod blessed;

use memfit_codec::CODECS;
use memfit_core::budget::{Level, Sizes};
use memfit_core::driver::Seen;
use memfit_core::trace::{Contents, Encoder, Note, Whose, CODECS_MAX};
use memfit_core::*;
use memfit_export::{
    export, Column, ExportError, Exported, Format, Parquet, Rows, Type, Value, COLUMNS, CONTENTS_COLUMNS, GROUP_ROWS,
    GROUP_TEXT_BYTES,
};
use memfit_trace::{Begins, Head, Reader, Reason, Writer};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

const P: ProcId = ProcId(3);
const OBJECT: ObjectId = ObjectId(77);
const SEEN: Seen = Seen {
    level: Level::Enough,
    gained: 9,
    blocked: false,
    unmanaged: 0,
    evicts: true,
    tier_writable: false,
    tier_has_space: true,
    tier_slow: false,
    tier_busy: false,
    cpus_full: false,
    answer_late: false,
    read_us: 80,
};

/// Calls of each kind and variant, and what their rows must have besides number, time and name.
#[expect(clippy::too_many_lines, reason = "a list")]
fn calls() -> Vec<(CoreCall<'static>, &'static str)> {
    let (page, range) = (Page(1 << 35), PageRange { first: Page(5), pages: 6 });
    let stored = Stored { extent: Extent { unit: 9 }, len: 1000, codec: 2 };
    let answer = Answer { moved: u64::MAX, dropped: 1 << 63, park: true, file: 5 };
    let most = u32::MAX;
    vec![
        (CoreCall::AddProcess { slots: 153 }, "slots=153"),
        (CoreCall::RemoveProcess { proc: P }, "process=3"),
        (CoreCall::Adopt { proc: P, page, zero: true }, "process=3 page=34359738368 flag=true"),
        (CoreCall::PickVictims { most: 4, tick: 8, free: &[P, ProcId(0)] }, "tick_ms=8 most=4 list=3 0"),
        (CoreCall::PickVictims { most: 4, tick: 8, free: &[] }, "tick_ms=8 most=4 list="),
        (CoreCall::ClaimRange { proc: P, range, most: 9, tick: 10 }, "process=3 page=5 pages=6 tick_ms=10 most=9"),
        (
            CoreCall::Evicted { proc: P, first: Page(5), pages: 64, answer, tick: 11 },
            "process=3 page=5 pages=64 tick_ms=11 moved=18446744073709551615 dropped=9223372036854775808 file=5 flag=true",
        ),
        (CoreCall::Pin { proc: P, pages: &[Page(7), Page(9)] }, "process=3 pages=2 list=7 9"),
        (CoreCall::Unpark { proc: P }, "process=3"),
        (
            CoreCall::Fault { proc: P, page: Page(8), limit: range, most: 16 },
            "process=3 page=8 mapping_page=5 mapping_pages=6 most=16",
        ),
        (CoreCall::Fault { proc: P, page: Page(8), limit: range, most }, "process=3 page=8 mapping_page=5 mapping_pages=6"),
        (CoreCall::SwappedAhead { proc: P, page: Page(8), most: 1 }, "process=3 page=8 most=1"),
        (CoreCall::ReadElsewhere { pages: 12 }, "pages=12"),
        (CoreCall::Loaded { proc: P, page: Page(8), filled: Filled::Done }, "process=3 page=8 result=done"),
        (CoreCall::Loaded { proc: P, page: Page(8), filled: Filled::Read }, "process=3 page=8 result=read"),
        (CoreCall::Loaded { proc: P, page: Page(8), filled: Filled::Exists }, "process=3 page=8 result=exists"),
        (CoreCall::Loaded { proc: P, page: Page(8), filled: Filled::Retry }, "process=3 page=8 result=retry"),
        (CoreCall::Removed { proc: P, range }, "process=3 page=5 pages=6"),
        (CoreCall::Unmapped { proc: P, range }, "process=3 page=5 pages=6"),
        (CoreCall::Disown { proc: P, range }, "process=3 page=5 pages=6"),
        (CoreCall::Remapped { proc: P, from: range, to: Page(0) }, "process=3 page=5 pages=6 to_page=0"),
        (CoreCall::Forked { parent: P, slots: 4, present: false }, "process=3 slots=4 flag=false"),
        (CoreCall::BeginProof { proc: P }, "process=3"),
        (CoreCall::EndZapPending { proc: P, epoch: 2 }, "process=3 epoch=2"),
        (
            CoreCall::EndQuarantine { proc: P, page: Page(8), epoch: 2, present: true },
            "process=3 page=8 epoch=2 flag=true",
        ),
        (CoreCall::PickCompress { most }, "most=4294967295"),
        (CoreCall::GoesOn { object: OBJECT }, "object=77"),
        (CoreCall::Offer { object: OBJECT, origin: Origin::Background, estimate: None }, "object=77 origin=background"),
        (
            CoreCall::Offer { object: OBJECT, origin: Origin::Direct, estimate: Some(0) },
            "object=77 origin=direct entropy=0",
        ),
        (
            CoreCall::Offer { object: OBJECT, origin: Origin::Process, estimate: Some(65536) },
            "object=77 origin=process entropy=65536",
        ),
        (CoreCall::Compressed { object: OBJECT, coded: Coded::Incompressible }, "object=77 result=incompressible"),
        (
            CoreCall::Compressed { object: OBJECT, coded: Coded::Bytes { codec: 255, len: 4095 } },
            "object=77 result=bytes codec=255 len=4095",
        ),
        (
            CoreCall::Compressed { object: OBJECT, coded: Coded::Word(u64::MAX) },
            "object=77 result=word word=18446744073709551615",
        ),
        (
            CoreCall::Compressed { object: OBJECT, coded: Coded::Stored(stored) },
            "object=77 result=stored codec=2 len=1000 unit=9",
        ),
        (CoreCall::Compact { most: 3 }, "most=3"),
        (
            CoreCall::NextStep { tick: 1 << 32, seen: Seen { level: Level::BelowLow, unmanaged: 4, ..SEEN } },
            "tick_ms=4294967296 level=below_low gained=9 unmanaged=4 facts=10 read_us=80",
        ),
        (CoreCall::SwapTakes { takes: true }, "flag=true"),
        (CoreCall::PickWriteback { pressed: true, most_bytes: 65536 }, "most=65536 flag=true"),
        (CoreCall::BlockOf { object: OBJECT }, "object=77"),
        (CoreCall::Written { object: OBJECT, extent: Some(Extent { unit: 0 }) }, "object=77 unit=0"),
        (CoreCall::Written { object: OBJECT, extent: None }, "object=77"),
        (
            CoreCall::Relocated { object: OBJECT, from: Extent { unit: 12 }, to: stored },
            "object=77 codec=2 len=1000 unit=9 from_unit=12",
        ),
        (CoreCall::Inherit { child: P, range }, "process=3 page=5 pages=6"),
        (CoreCall::NotCompressed { object: OBJECT }, "object=77"),
        (CoreCall::ReclaimProcess { proc: P }, "process=3"),
        (CoreCall::StopProcessReclaim { proc: P }, "process=3"),
        (CoreCall::SetHeld { proc: P, held: true }, "process=3 flag=true"),
        (CoreCall::CacheRead { extent: Extent { unit: 12 } }, "from_unit=12"),
        (CoreCall::SetBackground { proc: P, background: true }, "process=3 flag=true"),
        (CoreCall::Protect { proc: P, protected: true }, "process=3 flag=true"),
        (CoreCall::PickOomVictim { least_pages: 256 }, "most=256"),
        (
            CoreCall::Observed { proc: P, first: Page(16), looked_at: 32, accessed: &[Page(17)] },
            "process=3 page=16 pages=1 most=32 list=17",
        ),
        (CoreCall::Shares { proc: P, first: Page(16), shared: 0xffff }, "process=3 page=16 most=65535"),
        (CoreCall::SharesNothing { proc: P }, "process=3"),
        (CoreCall::ClaimShared { proc: P, range, tick: 12 }, "process=3 page=5 pages=6 tick_ms=12"),
        (CoreCall::PickShared { most: 4, tick: 8, free: &[P, ProcId(0)] }, "tick_ms=8 most=4 list=3 0"),
        (CoreCall::SameAs { object: OBJECT, hash: [1, 2, u32::MAX] }, "object=77 list=1 2 4294967295"),
        (CoreCall::Refused { object: OBJECT }, "object=77"),
    ]
}

fn head() -> Head {
    let scheme = memfit_scheme::preset("memfit", &[]).unwrap().unwrap();
    let tunables = Tunables {
        sizes: Sizes::new(1 << 30, &scheme),
        scheme: Arc::new(scheme),
        staging_slots: 48,
        pool_frames: 100,
        area_frames: 264,
        swap: true,
        blocks: Vec::new(),
    };
    Head::of(&tunables, 1 << 30, vec!["sort".into(), "a,\"b\n".into()], 1_700_000_000)
}

/// Repeats all calls up to `count`, in blocks of `in_block`.
fn recording(head: &Head, count: usize, in_block: usize) -> Vec<u8> {
    let all: Vec<CoreCall<'_>> = calls().into_iter().map(|(asked, _)| asked).cycle().take(count).collect();
    let mut writer = Writer::new(Vec::new(), head).unwrap();
    for (i, part) in all.chunks(in_block).enumerate() {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        part.iter().for_each(|asked| encoder.call(&mut bytes, asked));
        writer.block(begins(i * in_block), part.len() as u32, &bytes).unwrap();
    }
    writer.end(begins(count)).unwrap()
}

fn begins(before: usize) -> Begins {
    Begins { first: before as u64 + 1, decided: 0, at_ns: before as u64 * 1000 }
}

fn table(recording: &[u8], format: Format) -> (Vec<u8>, Result<Exported, ExportError>) {
    let mut out = Vec::new();
    let answer = export(&mut Reader::new(recording).unwrap(), Rows::Calls, format, &mut out);
    (out, answer)
}

fn names() -> String {
    COLUMNS.map(|column| column.name).join(",")
}

/// A Parquet row as a line of CSV.
fn line(row: &Row) -> String {
    let value = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bool(flag) => flag.to_string(),
        Field::Long(number) => number.to_string(),
        Field::ULong(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    row.get_column_iter().map(|(_, field)| value(field)).collect::<Vec<_>>().join(",")
}

#[test]
fn each_call_is_a_row_with_all_that_it_carries() {
    let calls = calls();
    let names_of_calls: BTreeSet<_> = calls.iter().map(|(asked, _)| asked.name()).collect();
    assert_eq!(names_of_calls.len(), CALL_NAMES.len(), "one is missing here");
    let (text, exported) = table(&recording(&head(), calls.len(), 10), Format::Csv);
    assert_eq!(exported.unwrap().rows, calls.len() as u64);
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(&*names()));
    for (i, (asked, expected)) in calls.iter().enumerate() {
        let line = lines.next().unwrap();
        // In CSV an empty list looks like a missing one.
        let cells = COLUMNS.iter().zip(line.split(',')).filter(|(_, cell)| !cell.is_empty());
        let found = cells.map(|(column, cell)| format!("{}={cell}", column.name)).collect::<Vec<_>>().join(" ");
        let (number, time, name) = (i + 1, i / 10 * 10_000, asked.name());
        let expected = format!("number={number} time_ns={time} call={name} {}", expected.trim_end_matches(" list="));
        assert_eq!(found, expected);
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn the_documentation_has_all_names() {
    let text = include_str!("../../../docs/trace.md");
    for name in COLUMNS.iter().chain(&*CONTENTS_COLUMNS).map(|column| column.name).chain(CALL_NAMES) {
        assert!(text.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{name}`"))), "{name}");
    }
}

/// The table of docs/trace.md is that of the codecs. `MEMFIT_BLESS=1` writes it anew.
#[test]
fn the_documentation_has_all_codecs() {
    let mut table = String::from("| Codec | Number | Column |\n|---|---|---|\n| uncompressed | 0 | |\n");
    let columns = CONTENTS_COLUMNS.iter().rev().take(CODECS.len()).rev();
    for (codec, column) in CODECS.iter().zip(columns) {
        let ids = codec.ids();
        let last = if ids.len() > 1 { format!(" to {}", ids.end - 1) } else { String::new() };
        table += &format!("| {} | {}{last} | `{}` |\n", codec.name, ids.start, column.name);
    }
    blessed::assert_part("docs/trace.md", "codecs", &table);
}

#[test]
fn contents_are_a_table_of_their_own() {
    let mut lens = [0; CODECS_MAX];
    [(1, 900), (6, 700), (3, 4096), (31, 5)].into_iter().for_each(|(codec, len)| lens[codec] = len);
    let (of_object, of_page) = (Whose::Object(OBJECT), Whose::Page { proc: P, page: Page(1 << 35), calls: 9 });
    let notes = [(of_object, None), (of_page, Some(u64::MAX))];
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for (whose, word) in notes {
        encoder.call(&mut bytes, &CoreCall::NextStep { tick: 1, seen: SEEN });
        let contents = Contents { whose, hash: 1 << 63, entropy: 5, word, lens };
        encoder.note(&mut bytes, Note::Contents(contents));
    }
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    writer.block(Begins { first: 1, decided: 0, at_ns: 7 }, 2, &bytes).unwrap();
    // A block of notes only.
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    encoder.note(&mut bytes, Note::Contents(Contents { whose: of_page, hash: 2, entropy: 0, word: None, lens }));
    writer.block(Begins { first: 3, decided: 0, at_ns: 8 }, 0, &bytes).unwrap();
    let recording = writer.end(Begins { first: 3, decided: 0, at_ns: 9 }).unwrap();
    let write = |of, format| {
        let mut out = Vec::new();
        let exported = export(&mut Reader::new(&recording[..]).unwrap(), of, format, &mut out).unwrap();
        (out, exported.rows)
    };
    let (text, rows) = write(Rows::Contents, Format::Csv);
    assert_eq!((rows, write(Rows::Calls, Format::Csv).1), (3, 2));
    let text = String::from_utf8(text).unwrap();
    let named = |line: &str| {
        let cells = CONTENTS_COLUMNS.iter().zip(line.split(',')).filter(|(_, cell)| !cell.is_empty());
        cells.map(|(column, cell)| format!("{}={cell}", column.name)).collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = text.lines().skip(1).map(named).collect();
    let (hash, lens) = (1u64 << 63, "lz4=900 zstd_trained=700 word_mask=4096");
    let page = "process=3 page=34359738368 calls_since=9";
    assert_eq!(
        lines,
        [
            format!("number=2 time_ns=7 object=77 hash={hash} entropy=5 {lens}"),
            format!("number=3 time_ns=7 {page} hash={hash} entropy=5 word={} {lens}", u64::MAX),
            format!("number=3 time_ns=8 {page} hash=2 entropy=0 {lens}"),
        ]
    );
    let reader = SerializedFileReader::new(bytes::Bytes::from(write(Rows::Contents, Format::Parquet).0)).unwrap();
    let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| line(&row.unwrap())).collect();
    assert_eq!(rows, text.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn parquet_has_the_same_rows_in_groups() {
    let count = 2 * GROUP_ROWS + 1000;
    let recording = recording(&head(), count, 9999);
    let ((text, _), (bytes, exported)) = (table(&recording, Format::Csv), table(&recording, Format::Parquet));
    let exported = exported.unwrap();
    assert!((exported.rows, exported.cut.is_none()) == (count as u64, true));
    assert!(bytes.len() < 12 * count, "{} bytes for {count} calls", bytes.len());
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let about = reader.metadata();
    assert_eq!(about.row_groups().iter().map(|group| group.num_rows()).collect::<Vec<_>>(), [1 << 17, 1 << 17, 1000]);
    let fields = about.file_metadata().schema().get_fields();
    assert_eq!(fields.iter().map(|field| field.name()).collect::<Vec<_>>().join(","), names());
    let known = about.file_metadata().key_value_metadata().unwrap();
    let about: Head = serde_json::from_str(known[0].value.as_ref().unwrap()).unwrap();
    assert_eq!((known[0].key.as_str(), about), ("memfit", head()));
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines().skip(1);
    for row in reader.get_row_iter(None).unwrap() {
        assert_eq!(Some(&*line(&row.unwrap())), lines.next());
    }
    assert_eq!(lines.next(), None);
}

/// A row can have 21 MB of text: rows alone do not bound the memory.
#[test]
fn a_group_ends_when_it_has_much_text() {
    let column = Column { name: "list", of: Type::Text, always: false };
    let mut bytes = Vec::new();
    let mut table = Parquet::new(&mut bytes, "call", &[column], "{}".into()).unwrap();
    let text = "7 ".repeat(GROUP_TEXT_BYTES / 8);
    for _ in 0..10 {
        table.row([Value::Text(&text)].into_iter()).unwrap();
    }
    table.finish().unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [4, 4, 2]);
}

#[test]
fn nothing_recorded_is_a_table_without_rows() {
    for format in [Format::Csv, Format::Parquet] {
        let (bytes, exported) = table(&recording(&head(), 0, 1), format);
        assert_eq!(exported.unwrap().rows, 0);
        match format {
            Format::Csv => assert_eq!(bytes, (names() + "\n").as_bytes()),
            Format::Parquet => {
                let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
                assert_eq!(reader.get_row_iter(None).unwrap().count(), 0);
            }
        }
    }
}

#[test]
fn cut_and_damaged_recordings() {
    let whole = recording(&head(), 40, 10);
    let blocks = Reader::new(&whole[..]).unwrap().offset();
    for format in [Format::Csv, Format::Parquet] {
        let cut = table(&whole[..whole.len() - 50], format).1.unwrap();
        assert_eq!(cut.rows, 30);
        let error = cut.cut.unwrap();
        assert!(matches!(error.reason, Reason::Truncated) && error.offset > blocks, "{error}");
        let mut damaged = whole.clone();
        damaged[blocks as usize + 45] ^= 1;
        let error = table(&damaged, format).1.unwrap_err();
        assert_eq!(error.to_string(), format!("the file is damaged, at byte {blocks}"));
        let other = Head { page_bytes: 16384, ..head() };
        let error = table(&recording(&other, 10, 10), format).1.unwrap_err();
        assert_eq!(error.to_string(), "it has pages of 16384 bytes, and this version knows 4096");
    }
}

/// Accepts a limited number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_place_that_is_full_is_told_as_it_is() {
    let recording = recording(&head(), 1000, 100);
    for format in [Format::Csv, Format::Parquet] {
        let length = table(&recording, format).0.len();
        for room in [0, 10, length / 2, length - 1] {
            match export(&mut Reader::new(&recording[..]).unwrap(), Rows::Calls, format, Full(room)) {
                Err(ExportError::Write(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}"),
                other => panic!("{format:?} into {room} bytes: {other:?}"),
            }
        }
        assert!(export(&mut Reader::new(&recording[..]).unwrap(), Rows::Calls, format, Full(length)).is_ok());
    }
}
