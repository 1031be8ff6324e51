//! Every codec that a scheme can name, end to end: a program in half of its memory reads back what
//! it wrote, and the statistics count its pages under the codec's name.

use crate::support::contents::assert_contents_eq;
use crate::support::{say, sized, Bench};

/// Words, text, sparse and random pages, each page verified against the order of writing.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { PAGES = %PAGES%, WORDS = 512 };
static uint64_t next(uint64_t *s) { *s ^= *s >> 12; *s ^= *s << 25; *s ^= *s >> 27; return *s * 0x2545f4914f6cdd1d; }
static void make(uint64_t *page, uint64_t n) {
    uint64_t s = n * 0x9e3779b97f4a7c15 + 1, r;
    char *text = (char *)page;
    memset(page, 0, 4096);
    switch (n % 8) {
    case 0: case 1: for (int i = 0; i < WORDS; i++) page[i] = 0x7f0012340000 + next(&s) % 4096 * 32; break;
    case 2: for (int i = 0; i < WORDS; i++) page[i] = next(&s) % 1000; break;
    case 3: for (int i = 0; i < WORDS; i += 64) page[i] = next(&s); break;
    case 4: for (int i = 0; i < WORDS; i++) page[i] = next(&s); break;
    default:
        for (int at = 0; at < 4096 - 32; at += (int)strlen(text + at)) {
            r = next(&s);
            sprintf(text + at, "line %u of %u: ", (unsigned)(r % 100), (unsigned)(r >> 40) % 50);
        }
    }
}
int main(void) {
    static uint64_t want[WORDS];
    uint64_t *memory = aligned_alloc(4096, PAGES * 4096ul);
    for (uint64_t n = 0; n < PAGES; n++) make(memory + n * WORDS, n);
    for (uint64_t n = PAGES; n-- > 0;) {
        make(want, n);
        if (memcmp(want, memory + n * WORDS, 4096)) { printf("page %lu differs\n", (unsigned long)n); return 1; }
    }
    puts("all pages are right");
    return 0;
}
"#;

/// Enough for dictionaries.
const BUDGET: u64 = 48 << 20;

#[test]
fn every_codec_brings_every_page_back() {
    let Some(bench) = Bench::new("codecs", &["cc"]) else { return };
    let source = PROGRAM.replace("%PAGES%", sized("16384", "24576"));
    let Some(program) = bench.compile(&["cc"], "pages", &source) else { return };
    let axis = memfit_scheme::axes().find(|axis| axis.name == "codec").expect("an axis of schemes");
    for choice in axis.choices() {
        // Compress also where other programs use the CPUs.
        let codec = format!("codec={}", choice.name);
        let options = ["--set", &codec, "--set", "admission.busy_max_len=4096"];
        let (ran, stats) = bench.managed_with(&options, &program.display().to_string(), BUDGET);
        let text = String::from_utf8_lossy(&ran.out).into_owned();
        assert_contents_eq!(
            (ran.code, text.as_str()),
            (Some(0), "all pages are right\n"),
            "{}: {}",
            choice.name,
            ran.err
        );
        let pages = |name: &str| stats.json.pointer(&format!("/codecs/{name}/pages")).and_then(|n| n.as_u64());
        let counted: Vec<String> =
            axis.choices().filter_map(|choice| pages(choice.name).map(|n| format!("{} {n}", choice.name))).collect();
        say(&format!("codec {}: {}", choice.name, counted.join(", ")));
        if choice.name == "auto" {
            continue;
        }
        assert!(pages(choice.name).is_some_and(|n| n > 4000), "{}: {}", choice.name, stats.json["codecs"]);
    }
}
