//! Any text in place of /proc/PID/maps, smaps and stat, in which programs choose names: nothing
//! panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit_os::{maps, proctree};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mappings = maps::evictable(&text);
    assert!(mappings.len() <= text.lines().count());
    let _ = maps::not_inherited(&text);
    let _ = maps::registered(&text);
    if let Some(stat) = proctree::parse_stat(&text) {
        assert!(text.contains(&format!("({})", stat.comm)));
    }
});
