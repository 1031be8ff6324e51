//! Checks of contents in tests of behaviour. Such a test is run again when it fails. But if a
//! program got a wrong byte, or ended in another way than without memfit, the failure is noted in a
//! file, and `make test` fails even if the test passes then.

use std::fs::File;
use std::io::Write;

/// Notes wrong contents, and ends the test.
#[track_caller]
pub fn wrong(text: &str) -> ! {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    if let Some(path) = std::env::var_os("MEMFIT_TEST_WRONG") {
        let line = text.lines().next().unwrap_or_default();
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{test}: {line}")).expect("the failure can be noted");
    }
    panic!("WRONG CONTENTS: {text}");
}

/// As `assert!`, for what a program read or computed.
macro_rules! assert_contents {
    ($right:expr, $($text:tt)+) => {
        if !$right {
            $crate::support::contents::wrong(&format!($($text)+));
        }
    };
}

/// As `assert_eq!`, for what a program read or computed.
macro_rules! assert_contents_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            $crate::support::contents::wrong(&format!("{left:?} is not {right:?}: {}", format_args!($($text)+)));
        }
    }};
}

pub(crate) use {assert_contents, assert_contents_eq};
