//! Generates page contents as programs leave them, from a seed: for tests, benchmarks and the
//! simulator.

/// xorshift64*: small, fast and the same everywhere. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with the sequence of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // endless, so no iterator
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 (inclusive) to 1 (exclusive).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One kind of page.
pub struct Generator {
    /// Short name for tables.
    pub name: &'static str,
    /// Fills a buffer of any length that is a multiple of 8 bytes.
    pub fill: fn(&mut Rng, &mut [u8]),
}

/// All kinds of pages.
pub static GENERATORS: &[Generator] = &[
    Generator { name: "zero", fill: |_, b| b.fill(0) },
    Generator { name: "sparse", fill: sparse },
    Generator { name: "f=0.05", fill: |r, b| interleaved(r, b, 0.05) },
    Generator { name: "f=0.10", fill: |r, b| interleaved(r, b, 0.10) },
    Generator { name: "f=0.20", fill: |r, b| interleaved(r, b, 0.20) },
    Generator { name: "f=0.28", fill: |r, b| interleaved(r, b, 0.28) },
    Generator { name: "f=0.375", fill: |r, b| interleaved(r, b, 0.375) },
    Generator { name: "f=0.40", fill: |r, b| interleaved(r, b, 0.40) },
    Generator { name: "f=0.50", fill: |r, b| interleaved(r, b, 0.50) },
    Generator { name: "f=0.65", fill: |r, b| interleaved(r, b, 0.65) },
    Generator { name: "f=0.80", fill: |r, b| interleaved(r, b, 0.80) },
    Generator { name: "random", fill: |r, b| interleaved(r, b, 1.0) },
    Generator { name: "half-random", fill: half_random },
    Generator { name: "bytes-0-255", fill: |_, b| b.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8) },
    Generator { name: "text", fill: text },
    Generator { name: "words-sorted", fill: words_sorted },
    Generator { name: "int64-small", fill: |r, b| words(b, |_| r.below(1000)) },
    Generator { name: "int32-small", fill: |r, b| words(b, |_| r.below(5000) | r.below(5000) << 32) },
    Generator { name: "int64-count", fill: counting },
    Generator { name: "int64-sorted", fill: sorted },
    Generator { name: "pointers", fill: |r, b| words(b, |_| HEAP + r.below(1 << 17) * 32) },
    Generator { name: "py-objects", fill: objects },
    Generator { name: "py-dict", fill: dict },
    Generator { name: "float64", fill: |r, b| words(b, |_| r.unit().to_bits()) },
    Generator { name: "float64-int", fill: |r, b| words(b, |_| (r.below(100_000) as f64).to_bits()) },
    Generator { name: "complex-real", fill: |r, b| words(b, |i| if i % 2 == 0 { r.unit().to_bits() } else { 0 }) },
];

/// A typical address of a heap from mmap.
const HEAP: u64 = 0x7f3a_1234_0000;

fn words(bytes: &mut [u8], mut word: impl FnMut(usize) -> u64) {
    for (i, w) in bytes.chunks_exact_mut(8).enumerate() {
        w.copy_from_slice(&word(i).to_le_bytes());
    }
}

/// One small word in every 512 bytes.
fn sparse(rng: &mut Rng, bytes: &mut [u8]) {
    words(bytes, |i| if i % 64 == 9 { rng.below(1 << 20) } else { 0 });
}

/// In every 64 bytes the first `round(64 f)` are random, the rest 0.
fn interleaved(rng: &mut Rng, bytes: &mut [u8], f: f64) {
    let n = (64.0 * f).round() as usize;
    for line in bytes.chunks_mut(64) {
        for (i, b) in line.iter_mut().enumerate() {
            *b = if i < n { rng.next() as u8 } else { 0 };
        }
    }
}

fn half_random(rng: &mut Rng, bytes: &mut [u8]) {
    let (random, zero) = bytes.split_at_mut(bytes.len() / 16 * 8);
    interleaved(rng, random, 1.0);
    zero.fill(0);
}

fn counting(rng: &mut Rng, bytes: &mut [u8]) {
    let start = rng.below(1 << 30);
    words(bytes, |i| start + i as u64);
}

fn sorted(rng: &mut Rng, bytes: &mut [u8]) {
    let mut value = rng.below(1 << 30);
    words(bytes, |_| {
        value += rng.below(10_000);
        value
    });
}

/// A small set of words made of syllables, with skewed frequencies; one line end in 12 separators.
fn text(rng: &mut Rng, bytes: &mut [u8]) {
    const PARTS: [&str; 24] = [
        "an", "ber", "con", "de", "er", "fol", "gra", "hou", "in", "jo", "ka", "lo", "men", "no", "or", "pre", "qui",
        "re", "st", "ti", "un", "ver", "wo", "ly",
    ];
    let mut out = Vec::with_capacity(bytes.len() + 32);
    while out.len() < bytes.len() {
        // Squaring favours low numbers; the number of a word determines its syllables.
        let mut word = Rng::new(1 + (rng.unit() * rng.unit() * 4000.0) as u64);
        for _ in 0..1 + word.below(4) {
            out.extend_from_slice(PARTS[word.below(24) as usize].as_bytes());
        }
        out.push(if rng.below(12) == 0 { b'\n' } else { b' ' });
    }
    bytes.copy_from_slice(&out[..bytes.len()]);
}

/// Words of such a text, sorted, each four times, one per line.
fn words_sorted(rng: &mut Rng, bytes: &mut [u8]) {
    let mut shuffled = vec![0; bytes.len() / 4 + 32];
    text(rng, &mut shuffled);
    let mut words: Vec<&[u8]> = shuffled.split(|b| b" \n".contains(b)).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    let lines: Vec<u8> = words.iter().flat_map(|word| [word, &b"\n"[..]].concat().repeat(4)).collect();
    bytes.iter_mut().zip(lines.iter().cycle()).for_each(|(b, line)| *b = *line);
}

/// CPython's small objects: ints, floats and tuples side by side, each 32 to 64 bytes.
fn objects(rng: &mut Rng, bytes: &mut [u8]) {
    const INT: u64 = 0x0000_55d1_8a3c_b2e0;
    const FLOAT: u64 = 0x0000_55d1_8a3c_9e40;
    const TUPLE: u64 = 0x0000_55d1_8a3c_f100;
    let kind = rng.below(3);
    let mut next = Vec::new();
    words(bytes, |_| {
        if next.is_empty() {
            let pointer = |r: &mut Rng| HEAP + r.below(1 << 16) * 16;
            next = match kind {
                0 => vec![1, INT, 1, rng.below(1 << 30)],
                1 => vec![1 + rng.below(3), FLOAT, rng.unit().to_bits()],
                _ => vec![pointer(rng), pointer(rng), 1, TUPLE, 2, pointer(rng), pointer(rng), 0],
            };
            next.reverse();
        }
        next.pop().unwrap_or(0)
    });
}

/// Entries of a dict with int keys: hash, key, value; or nothing.
fn dict(rng: &mut Rng, bytes: &mut [u8]) {
    let start = rng.below(1 << 20);
    words(bytes, |i| match i % 3 {
        0 => start + i as u64 / 3,
        1 => HEAP + (start + i as u64 / 3) * 32,
        _ => HEAP + 0x4000_0000 + rng.below(1 << 18) * 16,
    });
}

/// Pages of every kind in turn, as samples for a dictionary.
pub fn samples(seed: u64, pages: usize) -> Vec<u8> {
    let (mut rng, mut bytes) = (Rng::new(seed), vec![0; pages * crate::PAGE_BYTES]);
    for (page, generator) in bytes.chunks_mut(crate::PAGE_BYTES).zip(GENERATORS.iter().cycle()) {
        (generator.fill)(&mut rng, page);
    }
    bytes
}

/// A worker with a dictionary trained on such pages, so that every codec of the table works.
///
/// # Panics
/// If the training fails.
pub fn trained_worker() -> crate::Worker {
    let dictionaries = std::sync::Arc::new(crate::Dictionaries::new());
    assert!(dictionaries.train(&samples(5, crate::TRAINING_PAGES)), "no dictionary from the samples");
    crate::Worker::with(&dictionaries)
}
