//! Reads files that are complete, cut at each byte, and damaged at each byte.

use memfit_core::budget::Sizes;
use memfit_core::sample::Sampled;
use memfit_core::trace::{Decoder, Encoder, Item, Note};
use memfit_core::{CoreCall, Page, PageRange, ProcId, Tunables};
use memfit_trace::{Begins, Block, Head, HeadError, ReadError, Reader, Reason, Tape, Writer};
use std::sync::Arc;

fn tunables(preset: &str) -> Tunables {
    let scheme = memfit_scheme::preset(preset, &["fault.around_pages=4".into()]).unwrap().unwrap();
    Tunables {
        sizes: Sizes::new(1 << 30, &scheme),
        scheme: Arc::new(scheme),
        staging_slots: 48,
        pool_frames: 100,
        area_frames: 264,
        swap: true,
        blocks: vec![0..30, 6400..6500],
    }
}

fn head(preset: &str) -> Head {
    Head::of(&tunables(preset), 1 << 30, vec!["sort".into(), "a b\n".into()], 1_700_000_000)
}

const BLOCKS: u64 = 3;
const CALLS: u64 = 40;

fn begins(block: u64) -> Begins {
    Begins { first: block * CALLS + 1, decided: block * 77, at_ns: block << 40 }
}

fn calls(block: u64) -> Vec<u8> {
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for i in 0..CALLS {
        let limit = PageRange { first: Page(0), pages: 1 << 20 };
        let page = Page(block * 1000 + i * i % 91);
        encoder.call(&mut bytes, &CoreCall::Fault { proc: ProcId(1), page, limit, most: 16 });
    }
    bytes
}

#[test]
fn a_head_cannot_control_the_terminal() {
    let head = Head { memfit: "0.1\u{1b}]0;title\u{7}".into(), ..head("ezswap") };
    let file = Writer::new(Vec::new(), &head).unwrap().end(begins(0)).unwrap();
    assert_eq!(Reader::new(&file[..]).unwrap().head().memfit, "0.1 ]0;title ");
}

#[test]
fn a_recording_of_a_long_command_can_be_read() {
    for command in [vec!["x".repeat(100_000); 12], vec!["\u{1}".repeat(300_000); 2], vec![String::new(); 500_000]] {
        let head = Head::of(&tunables("ezswap"), 1 << 30, command.clone(), 1);
        let file = Writer::new(Vec::new(), &head).unwrap().end(begins(0)).unwrap();
        let read = Reader::new(&file[..]).unwrap().head().command.clone();
        let (last, whole) = read.split_last().unwrap();
        assert!(command.starts_with(whole) && last.ends_with("..."), "{} of {} words", read.len(), command.len());
        assert!(last.len() + whole.iter().map(|word| word.len() + 6).sum::<usize>() > 80_000);
    }
}

#[test]
fn a_head_that_nobody_could_read_is_not_written() {
    let head = Head { command: vec!["x".repeat(memfit_trace::HEAD_MAX as usize)], ..head("ezswap") };
    let mut out = Vec::new();
    assert_eq!(Writer::new(&mut out, &head).err().unwrap().kind(), std::io::ErrorKind::InvalidInput);
    assert!(out.is_empty());
}

fn file() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &head("ezswap")).unwrap();
    (0..BLOCKS).for_each(|block| writer.block(begins(block), CALLS as u32, &calls(block)).unwrap());
    let before = writer.written;
    let bytes = writer.end(begins(BLOCKS)).unwrap();
    assert_eq!(bytes.len() as u64, before + 44);
    bytes
}

/// Number of blocks of calls, whether the end was read, and the error.
fn read(bytes: &[u8]) -> (u64, bool, Option<ReadError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, false, Some(error)),
    };
    let (mut blocks, mut ended) = (0, false);
    loop {
        match reader.block() {
            Ok(Some(Block::Calls { begins: b, calls: count, bytes })) => {
                assert_eq!(
                    (b, u64::from(count), bytes),
                    (begins(blocks), CALLS, &calls(blocks)[..]),
                    "never wrong calls"
                );
                blocks += 1;
            }
            Ok(Some(Block::End(b))) => {
                assert_eq!(b, begins(BLOCKS));
                ended = true;
            }
            Ok(None) => return (blocks, ended, None),
            Err(error) => return (blocks, ended, Some(error)),
        }
    }
}

#[test]
fn what_was_written_comes_back() {
    let bytes = file();
    let reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.head(), head("ezswap"));
    assert!(matches!(read(&bytes), (BLOCKS, true, None)));
    let calls = calls(2);
    let mut decoder = Decoder::new(&calls);
    assert!(matches!(decoder.call(), Ok(Some(CoreCall::Fault { page: Page(2000), .. }))));
}

/// A file that is cut anywhere gives all blocks before the cut, and the offset of the next one.
#[test]
fn a_file_that_was_cut() {
    let bytes = file();
    let mut borders = vec![Reader::new(&bytes[..]).unwrap().offset() as usize];
    let mut reader = Reader::new(&bytes[..]).unwrap();
    while let Some(Block::Calls { .. }) = reader.block().unwrap() {
        borders.push(reader.offset() as usize);
    }
    for end in 0..bytes.len() {
        let (blocks, ended, error) = read(&bytes[..end]);
        let error = error.expect("the end is missing");
        let whole = borders.iter().filter(|&&border| border <= end).count();
        assert_eq!((blocks, ended), (whole.saturating_sub(1) as u64, false), "cut at {end}");
        let offset = borders.iter().rfind(|&&border| border <= end).copied().unwrap_or(0);
        assert_eq!(error.offset, offset as u64, "cut at {end}");
        let right =
            if end == 0 { matches!(error.reason, Reason::Empty) } else { matches!(error.reason, Reason::Truncated) };
        assert!(right, "cut at {end}: {error}");
    }
}

/// The reader finds each changed byte before it uses it.
#[test]
fn a_file_that_is_damaged() {
    let bytes = file();
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let (blocks, _, error) = read(&bytes);
            let error = error.unwrap_or_else(|| panic!("byte {at} is another one"));
            assert!(blocks <= BLOCKS && error.offset as usize <= at, "byte {at}: {error}");
        }
    }
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        read(&bytes).2.unwrap().to_string()
    };
    assert!(with(0, b'M').contains("no recorded run") && with(8, 9).contains("version 9 of the format"));
    let longer = [&bytes[..], b"x"].concat();
    assert!(read(&longer)
        .2
        .unwrap()
        .to_string()
        .contains(&format!("behind the end of the run, at byte {}", bytes.len())));
    assert!(read(b"#!/bin/sh\n").2.unwrap().to_string().contains("no recorded run"));
}

#[test]
fn the_head_makes_the_same_core() {
    for preset in ["memfit", "ezswap", "cervera99"] {
        let (before, after) = (tunables(preset), head(preset).tunables().unwrap());
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }
    let wrong = |change: fn(&mut Head)| {
        let mut head = head("memfit");
        change(&mut head);
        head.tunables().unwrap_err()
    };
    assert_eq!(wrong(|head| head.page_bytes = 16384), HeadError::PageBytes(16384));
    assert_eq!(wrong(|head| head.pool_frames = 1000), HeadError::Sizes);
    assert!(matches!(wrong(|head| head.scheme = "what = 1".into()), HeadError::Scheme(why) if why.contains("what")));
}

/// Notes are in the block of the next call, or in a block without calls, and are not counted.
#[test]
fn notes_are_not_counted() {
    let note = |threshold| Note::Sampled(Sampled { threshold, period_ms: 100 });
    let mut tape = Tape::default();
    tape.note(|| begins(3), note(7));
    tape.call(|| begins(4), &CoreCall::SwapTakes { takes: true });
    tape.note(|| begins(5), note(6));
    let mut writer = Writer::new(Vec::new(), &head("memfit")).unwrap();
    let filled = tape.take().unwrap();
    assert_eq!((filled.begins, filled.calls), (begins(3), 1));
    writer.block(filled.begins, filled.calls, &filled.bytes).unwrap();
    tape.note(|| begins(6), note(5));
    let filled = tape.take().unwrap();
    assert_eq!((filled.begins, filled.calls), (begins(6), 0));
    writer.block(filled.begins, filled.calls, &filled.bytes).unwrap();
    assert!(tape.take().is_none());
    let bytes = writer.end(begins(7)).unwrap();
    let (mut reader, mut found) = (Reader::new(&bytes[..]).unwrap(), Vec::new());
    while let Ok(Some(Block::Calls { bytes, .. })) = reader.block() {
        let mut decoder = Decoder::new(bytes);
        while let Some(item) = decoder.item().unwrap() {
            found.extend(match item {
                Item::Note(Note::Sampled(sampled)) => Some(sampled.threshold),
                _ => None,
            });
        }
    }
    assert_eq!(found, [7, 6, 5]);
}
