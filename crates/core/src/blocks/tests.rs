//! Rules checked by hand, and random calls against a model that looks at every block.

// A device is one range, not a list of its numbers.
#![allow(clippy::single_range_in_vec_init)]

use super::region::LEAF;
use super::*;
use proptest::prelude::*;

#[test]
fn addresses_in_blocks() {
    let place = extent(BLOCKS_MAX - 1, 4088);
    assert_eq!((block_of(place), byte_in_block(place)), (BLOCKS_MAX - 1, 4088));
    assert_eq!((block_of(extent(7, 0)), byte_in_block(extent(7, 8))), (7, 8));
}

/// Next fit: freed blocks are used again only after all blocks behind the last one.
#[test]
fn single_blocks_are_neighbours() {
    let mut map = BlockMap::new(&[10..14, 20..22]);
    assert_eq!([map.alloc(), map.alloc(), map.alloc()], [Some(10), Some(11), Some(12)]);
    assert!(map.release(10) && map.release(11));
    assert_eq!([map.alloc(), map.alloc(), map.alloc()], [Some(13), Some(10), Some(11)]);
    // The second device is used only when the first is full, and the first again as soon as it is
    // not.
    assert_eq!(map.alloc(), Some(20));
    map.release(12);
    assert_eq!([map.alloc(), map.alloc(), map.alloc()], [Some(12), Some(21), None]);
    assert_eq!((map.total, map.free_blocks(), map.used_blocks()), (6, 0, 6));
    map.check();
}

/// Cervera rule 8: the buffers of one cleaning go to contiguous blocks.
#[test]
fn rule_8_contiguous_blocks_first_fit_from_the_lowest() {
    let mut map = BlockMap::new(&[0..100]);
    assert_eq!(map.alloc_run(100), [0..100]);
    (10..14).chain(40..50).chain(60..90).for_each(|block| assert!(map.release(block)));
    assert_eq!(map.alloc_run(8), [40..48]);
    assert_eq!(map.alloc_run(2), [10..12]);
    assert_eq!(map.alloc_run(3), [60..63]);
    assert_eq!(map.alloc_run(0), []);
    assert_eq!(map.splits(), 0);
}

/// Cervera 5.8: if no run is long enough, the fewest runs are used, and they are counted.
#[test]
fn rule_5_8_fewest_runs() {
    let mut map = BlockMap::new(&[0..100]);
    map.alloc_run(100);
    (5..8).chain(10..14).chain(40..45).chain(60..66).chain(70..75).for_each(|block| assert!(map.release(block)));
    // The run of 6 and the lowest of 5; the lowest run takes the last block.
    assert_eq!(map.alloc_run(12), [5..6, 40..45, 60..66]);
    assert_eq!(map.splits(), 2);
    // Two runs are enough: the longest (70..75), and the lowest that takes the other 2 (6..8), not
    // the next longest (10..14).
    assert_eq!(map.alloc_run(7), [6..8, 70..75]);
    assert_eq!((map.splits(), map.free_blocks()), (3, 4));
    // All blocks or none.
    assert_eq!(map.alloc_run(5), []);
    assert_eq!((map.splits(), map.free_blocks()), (3, 4));
    map.check();
}

#[test]
fn runs_do_not_cross_devices() {
    let mut map = BlockMap::new(&[0..4, 4..8]);
    assert_eq!(map.alloc_run(3), [0..3]);
    assert_eq!(map.alloc_run(2), [4..6]);
    assert_eq!(map.alloc_run(3), [3..4, 6..8]);
    assert_eq!(map.splits(), 1);
    // The device given first comes first, whatever its numbers.
    let mut map = BlockMap::new(&[4..8, 0..4]);
    assert_eq!(map.alloc_run(3), [4..7]);
    assert_eq!([map.alloc(), map.alloc()], [Some(7), Some(0)]);
    assert_eq!(map.alloc_run(3), [1..4]);
}

/// Cervera rules 16 and 17, and the check of 2.5: three of four pages free nothing, the fourth
/// frees the block.
#[test]
fn rule_16_17_a_block_is_free_with_its_last_page() {
    let mut map = BlockMap::new(&[0..4]);
    assert_eq!(map.alloc_run(1), [0..1]);
    map.take(0, 4);
    assert!(!map.release(0), "the write has ended");
    assert_eq!(map.objects(0), 4);
    for left in [3, 2, 1] {
        assert!(!map.release(0));
        assert_eq!((map.objects(0), map.free_blocks()), (left, 3));
    }
    assert!(map.release(0));
    assert_eq!((map.objects(0), map.free_blocks()), (0, 4));
    // As many objects as a block can hold, and the writer's.
    assert_eq!(map.alloc_run(1), [0..1]);
    map.take(0, UNITS as u16);
    assert_eq!((0..=UNITS).filter(|_| map.release(0)).count(), 1);
    map.check();
}

/// Cervera rule 3 and 5.14: a reserved block for the worst case, or none.
#[test]
fn rule_3_reservations_are_kept() {
    let mut map = BlockMap::new(&[0..3]);
    assert!(map.reserve() && map.reserve());
    assert_eq!(map.alloc(), Some(0));
    assert_eq!((map.free_blocks(), map.reserved), (2, 2));
    assert!(!map.reserve(), "out of swap");
    assert_eq!((map.alloc(), map.alloc_run(1)), (None, vec![]), "what is promised is not handed out");
    map.unreserve();
    assert_eq!(map.alloc_run(2), [], "one of the two is promised still");
    assert_eq!(map.alloc_run(1), [1..2]);
    assert!(!map.reserve());
    assert!(map.release(0) && map.reserve());
    map.check();
}

#[test]
fn a_lost_block_is_not_free_again_and_its_device_does_not_grow() {
    let mut map = BlockMap::new(&[0..2000, 5000..5010]);
    (0..600).for_each(|i| assert_eq!(map.alloc(), Some(i)));
    assert!(map.release(3));
    assert_eq!(map.lose(7), 0);
    map.check();
    assert_eq!((map.used_blocks(), map.free_blocks()), (598, 11));
    assert_eq!([map.alloc(), map.alloc()], [Some(3), Some(5000)], "the next device has space");
    assert_eq!(map.lose(5000), 0);
    map.check();
    assert_eq!(map.alloc(), None);
    assert!(map.release(599));
    assert_eq!([map.alloc(), map.alloc()], [Some(599), None]);
    map.check();
}

#[test]
fn reservations_of_lost_blocks_end() {
    let mut map = BlockMap::new(&[0..10]);
    assert_eq!(map.alloc_run(4), [0..4]);
    (0..5).for_each(|_| assert!(map.reserve()));
    assert!(map.release(2), "one that the device has");
    assert_eq!(map.lose(3), 4, "for one of the five");
    (0..4).for_each(|_| map.unreserve());
    map.check();
    assert!(!map.reserve() && map.alloc().is_none());
    map.unreserve();
    assert_eq!((map.alloc_run(1), map.free_blocks()), (vec![2..3], 0));
}

/// Tables of unused blocks take no memory.
#[test]
fn memory_grows_with_use() {
    let mut map = BlockMap::new(&[64..BLOCKS_MAX]);
    assert!(map.metadata_bytes() < 1000, "{} bytes", map.metadata_bytes());
    for i in 0..100_000 {
        assert_eq!(map.alloc(), Some(64 + i));
    }
    let bytes = map.metadata_bytes();
    assert!((200_000..300_000).contains(&bytes), "{bytes} bytes for 100 000 blocks");
    assert_eq!(map.alloc_run(300_000), [100_064..400_064]);
    map.check();
    // All blocks: 2 bytes of count, an eighth for the bit, the tree, and at most an eighth of
    // slack.
    let all = map.alloc_run(map.free_blocks());
    assert_eq!(all.len(), 1);
    assert!(map.metadata_bytes() < u64::from(BLOCKS_MAX) * 5 / 2, "{} bytes", map.metadata_bytes());
}

#[test]
#[should_panic(expected = "block 1 is free")]
fn releasing_a_free_block() {
    let mut map = BlockMap::new(&[0..4]);
    map.alloc();
    map.release(1);
}

#[test]
#[should_panic(expected = "overlap")]
fn overlapping_devices() {
    BlockMap::new(&[0..10, 20..30, 9..12]);
}

#[derive(Debug, Clone)]
enum Op {
    Alloc,
    Run(u32),
    Take(usize, u16),
    Release(usize),
    /// All objects of the block at this rank and of this many blocks behind it.
    Drop(usize, usize),
    Reserve,
    Unreserve,
}

/// Objects of each block, by device.
struct Model {
    devices: Vec<(Range<u32>, Vec<u16>)>,
    cursors: Vec<usize>,
    reserved: u32,
    splits: u64,
}

impl Model {
    fn new(ranges: &[Range<u32>]) -> Model {
        let devices: Vec<_> = ranges.iter().map(|range| (range.clone(), vec![0; range.len()])).collect();
        Model { cursors: vec![0; devices.len()], devices, reserved: 0, splits: 0 }
    }

    fn used(&self) -> Vec<u32> {
        let blocks = self.devices.iter().flat_map(|(range, counts)| range.clone().zip(counts));
        blocks.filter(|(_, count)| **count > 0).map(|(block, _)| block).collect()
    }

    fn count(&mut self, block: u32) -> &mut u16 {
        let (range, counts) = self.devices.iter_mut().find(|(range, _)| range.contains(&block)).unwrap();
        &mut counts[(block - range.start) as usize]
    }

    fn room(&self) -> u32 {
        self.devices.iter().map(|(range, _)| range.len() as u32).sum::<u32>() - self.used().len() as u32 - self.reserved
    }

    fn alloc(&mut self) -> Option<u32> {
        if self.room() == 0 {
            return None;
        }
        for ((range, counts), cursor) in self.devices.iter_mut().zip(&mut self.cursors) {
            let order = (*cursor..counts.len()).chain(0..*cursor);
            if let Some(index) = { order }.find(|&index| counts[index] == 0) {
                counts[index] = 1;
                *cursor = index + 1;
                return Some(range.start + index as u32);
            }
        }
        unreachable!("a block is free");
    }

    fn free_runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (range, counts) in &self.devices {
            let mut open = None;
            for (block, &count) in range.clone().zip(counts) {
                match (count, &mut open) {
                    (0, None) => open = Some(block..block + 1),
                    (0, Some(run)) => run.end += 1,
                    _ => runs.extend(open.take()),
                }
            }
            runs.extend(open);
        }
        runs
    }

    fn alloc_run(&mut self, blocks: u32) -> Vec<Range<u32>> {
        let (mut left, mut out) = (blocks, Vec::new());
        if self.room() < blocks {
            return out;
        }
        while left > 0 {
            let runs = self.free_runs();
            let most = runs.iter().map(|run| run.len()).max().unwrap().min(left as usize);
            let run = runs.iter().find(|run| run.len() >= most).unwrap();
            let run = run.start..run.start + most as u32;
            run.clone().for_each(|block| *self.count(block) = 1);
            left -= most as u32;
            out.push(run);
        }
        self.splits += out.len().saturating_sub(1) as u64;
        let device = |run: &Range<u32>| self.devices.iter().position(|(range, _)| range.contains(&run.start));
        out.sort_by_key(|run| (device(run), run.start));
        out
    }
}

fn step(map: &mut BlockMap, model: &mut Model, op: &Op) {
    let used = model.used();
    let at = |rank: usize| (!used.is_empty()).then(|| used[rank % used.len()]);
    match *op {
        Op::Alloc => assert_eq!(map.alloc(), model.alloc()),
        Op::Run(blocks) => assert_eq!(map.alloc_run(blocks), model.alloc_run(blocks)),
        Op::Take(rank, objects) => at(rank).into_iter().for_each(|block| {
            map.take(block, objects);
            *model.count(block) += objects;
        }),
        Op::Release(rank) => at(rank).into_iter().for_each(|block| {
            *model.count(block) -= 1;
            assert_eq!(map.release(block), *model.count(block) == 0);
        }),
        Op::Drop(rank, more) => used.iter().skip(rank % used.len().max(1)).take(more).for_each(|&block| {
            (1..std::mem::take(model.count(block))).for_each(|_| assert!(!map.release(block)));
            assert!(map.release(block));
        }),
        Op::Reserve => {
            assert_eq!(map.reserve(), model.room() > 0);
            model.reserved += u32::from(model.room() > 0);
        }
        Op::Unreserve if model.reserved > 0 => {
            map.unreserve();
            model.reserved -= 1;
        }
        Op::Unreserve => {}
    }
    map.check();
    let used = model.used();
    assert_eq!((map.used_blocks(), map.reserved, map.splits()), (used.len() as u32, model.reserved, model.splits));
    assert_eq!(map.free_blocks() - map.reserved, model.room());
    assert!(used.iter().all(|&block| map.objects(block) == *model.count(block)));
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Alloc),
        3 => (0..40u32).prop_map(Op::Run),
        1 => (0..1500u32).prop_map(Op::Run),
        2 => (any::<usize>(), 0..5u16).prop_map(|(rank, objects)| Op::Take(rank, objects)),
        3 => any::<usize>().prop_map(Op::Release),
        2 => (any::<usize>(), 0..300usize).prop_map(|(rank, more)| Op::Drop(rank, more)),
        1 => Just(Op::Reserve),
        1 => Just(Op::Unreserve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_calls(
        lens in prop::collection::vec(prop_oneof![0..100u32, 400..3 * LEAF], 1..4),
        gap in 0..2u32,
        backwards: bool,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let ends: Vec<u32> = lens.iter().scan(0, |end, len| { *end += len + gap; Some(*end) }).collect();
        let mut ranges: Vec<Range<u32>> = ends.iter().zip(&lens).map(|(end, len)| end - len..*end).collect();
        if backwards {
            ranges.reverse();
        }
        let (mut map, mut model) = (BlockMap::new(&ranges), Model::new(&ranges));
        ops.iter().for_each(|op| step(&mut map, &mut model, op));
    }
}
