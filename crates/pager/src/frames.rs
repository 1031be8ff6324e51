//! Which frames of the pool are backed by memory, and when free frames are given back to the
//! kernel.

use memfit_core::pool::Span;
use memfit_os::memory::Frames;

/// Free frames that stay backed: one in so many of the area, within these bounds. To give them back
/// and touch them again costs more than so little memory is worth.
const SPARE_SHARE: u32 = 1024;
const SPARE_FRAMES: [u32; 2] = [32, 512];

/// State of the frames. The core lock protects it, but not the bytes in the frames.
#[derive(Debug)]
pub struct FrameBook {
    in_use: Vec<u64>,
    backed: Vec<u64>,
    /// Frames that hold memory.
    pub backed_frames: u32,
    spare: u32,
    spare_max: u32,
}

fn get(bits: &[u64], i: u32) -> bool {
    bits[i as usize / 64] >> (i % 64) & 1 == 1
}

fn set(bits: &mut [u64], i: u32, on: bool) {
    let bit = 1 << (i % 64);
    if on {
        bits[i as usize / 64] |= bit;
    } else {
        bits[i as usize / 64] &= !bit;
    }
}

impl FrameBook {
    /// An area of so many frames, none of them backed.
    pub fn new(frames: u32) -> FrameBook {
        let words = (frames as usize).div_ceil(64);
        let spare_max = (frames / SPARE_SHARE).clamp(SPARE_FRAMES[0], SPARE_FRAMES[1]);
        FrameBook { in_use: vec![0; words], backed: vec![0; words], backed_frames: 0, spare: 0, spare_max }
    }

    /// Frames came into use.
    pub fn grew(&mut self, span: Span) {
        for frame in span.iter().map(|f| f.0) {
            set(&mut self.in_use, frame, true);
            if get(&self.backed, frame) {
                self.spare -= 1;
            } else {
                set(&mut self.backed, frame, true);
                self.backed_frames += 1;
            }
        }
    }

    /// Frames became free.
    pub fn freed(&mut self, spans: &[Span], frames: &Frames) {
        for frame in spans.iter().flat_map(|s| s.iter()).map(|f| f.0) {
            set(&mut self.in_use, frame, false);
            self.spare += 1;
        }
        if self.spare > self.spare_max {
            self.give_back(frames);
        }
    }

    fn give_back(&mut self, frames: &Frames) {
        let mut run: Option<std::ops::Range<u32>> = None;
        for word in 0..self.in_use.len() {
            // Most words have no such frame: this runs during faults.
            let mut idle = self.backed[word] & !self.in_use[word];
            self.backed[word] &= !idle;
            self.backed_frames -= idle.count_ones();
            while idle != 0 {
                let frame = word as u32 * 64 + idle.trailing_zeros();
                idle &= idle - 1;
                match &mut run {
                    Some(run) if run.end == frame => run.end += 1,
                    _ => release(frames, run.replace(frame..frame + 1)),
                }
            }
        }
        release(frames, run);
        self.spare = 0;
    }

    /// Bytes of the bit sets.
    pub fn metadata_bytes(&self) -> u64 {
        (self.in_use.len() + self.backed.len()) as u64 * 8
    }
}

fn release(frames: &Frames, run: Option<std::ops::Range<u32>>) {
    let Some(run) = run else { return };
    // The pool has no object in these frames, and the core's lock is held.
    frames.release(u64::from(run.start) * 4096, u64::from(run.end - run.start) * 4096);
}
