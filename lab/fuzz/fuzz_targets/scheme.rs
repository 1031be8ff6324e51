//! Any text as a scheme, and as overrides: it is refused with a message, or it means the same when
//! it is written out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit_core::scheme::NUMBERS;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The scheme and overrides, with NULs between them.
    let mut parts = text.split('\0');
    let toml = parts.next().unwrap_or("");
    let overrides: Vec<String> = parts.map(str::to_owned).collect();
    match memfit_scheme::parse(toml, &overrides) {
        Ok(scheme) => {
            assert!(memfit_scheme::axes().all(|axis| axis.choices().any(|choice| choice == axis.chosen(&scheme))));
            let inside = |value: u32, min: u32, max: u32| (min..=max).contains(&value);
            assert!(NUMBERS.iter().all(|number| inside(number.value(&scheme), number.min, number.max)));
            let written = memfit_scheme::to_toml(&scheme);
            assert_eq!(memfit_scheme::parse(&written, &[]).as_ref(), Ok(&scheme), "{written}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
