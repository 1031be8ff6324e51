//! A part of the tests of several crates.

use std::fs::File;
use std::io::Write;

/// Reports a test that cannot run here: on standard error, past the capture of the test harness,
/// and in a file that `make test` shows at the end.
pub(crate) fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("MEMFIT_TEST_SKIPPED") {
        let file = File::options().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{test}: {reason}"));
    }
}
