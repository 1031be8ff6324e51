//! Schemes: what is accepted, each kind of error with its message, overrides, and the conversion
//! back to TOML.

#[path = "../../../tests/blessed.rs"]
mod blessed;

use memfit_codec::{CodecId, CODECS};
use memfit_core::pool::POOLS;
use memfit_core::scheme::{Scheme, NUMBERS};
use memfit_scheme::{axes, is_switch, preset, to_toml, PRESETS};

fn parse(text: &str) -> Result<Scheme, String> {
    memfit_scheme::parse(text, &[]).map_err(|error| error.to_string())
}

fn set(overrides: &[&str]) -> Result<Scheme, String> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    preset("memfit", &overrides).unwrap().map_err(|error| error.to_string())
}

fn names<T>(table: &[T], name: fn(&T) -> &'static str) -> String {
    table.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn assert_error(result: Result<Scheme, String>, message: &str) {
    assert_eq!(result.unwrap_err(), message);
}

/// Run with `MEMFIT_BLESS=1` to write the file after a change of the tables.
#[test]
fn default_preset_is_the_tables() {
    let text = to_toml(&Scheme::default());
    if std::env::var_os("MEMFIT_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemes/memfit.toml"), &text).unwrap();
        return;
    }
    assert_eq!(PRESETS[0].text, text);
    assert_eq!(preset(PRESETS[0].name, &[]).unwrap().unwrap(), Scheme::default());
    assert!(preset("no-such", &[]).is_none());
}

/// The table of docs/schemes.md is that of the axes. `MEMFIT_BLESS=1` writes it anew.
#[test]
fn the_document_has_these_choices() {
    let mut table = String::from("| Axis | Decides | Choices | Numbers |\n|---|---|---|---|\n");
    let quoted = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    for axis in axes() {
        let (name, help, choices) = (axis.name, axis.help, axis.choices().map(|choice| choice.name));
        let numbers = NUMBERS.iter().filter_map(|number| number.key.strip_prefix(name)?.strip_prefix('.'));
        table += &format!("| `{name}` | {help} | {} | {} |\n", quoted(choices.collect()), quoted(numbers.collect()));
    }
    blessed::assert_part("docs/schemes.md", "axes", &table);
}

#[test]
fn presets_parse_under_their_names() {
    for preset in PRESETS {
        assert_eq!(parse(preset.text).unwrap().name, preset.name);
    }
}

/// In a preset, each number follows a comment with its unit, range and default, as `memfit schemes
/// NAME` prints them.
#[test]
fn presets_tell_units_and_defaults() {
    for preset in PRESETS {
        let (mut section, mut comment) = ("", String::new());
        for line in preset.text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                (section, comment) = (name.trim_end_matches(']'), String::new());
            } else if let Some(text) = line.strip_prefix('#') {
                comment += text;
            } else if let Some((key, _)) = line.split_once(" = ") {
                let key = format!("{section}.{key}");
                if let Some(number) = NUMBERS.iter().find(|number| number.key == key) {
                    let range = match is_switch(number.unit) {
                        true => format!("{}, default {}.", number.unit, number.default),
                        false => {
                            format!("{}, {} to {}, default {}.", number.unit, number.min, number.max, number.default)
                        }
                    };
                    assert!(comment.contains(&range), "{}: {key}: `{comment}` lacks `{range}`", preset.name);
                }
                comment.clear();
            }
        }
    }
}

#[test]
fn left_out_keys_have_defaults() {
    let scheme = parse("[codec]\nkind = \"zstd\"\n").unwrap();
    let mut expected = Scheme { name: "unnamed".into(), summary: String::new(), ..Scheme::default() };
    expected.codec.kind = Some(CodecId::ZSTD.0);
    assert_eq!(scheme, expected);
    assert_eq!(parse("codec = 'zstd'"), Ok(expected));
}

#[test]
fn round_trip_of_every_choice_and_bound() {
    let mut count = 0;
    for axis in axes() {
        for choice in axis.choices() {
            // Alone it may break a rule; then a preset has it.
            let own = set(&[&format!("{}={}", axis.name, choice.name)]).ok();
            let presets = PRESETS.iter().map(|preset| parse(preset.text).unwrap());
            let scheme = own.into_iter().chain(presets).find(|scheme| axis.chosen(scheme) == choice);
            let scheme = scheme.unwrap_or_else(|| panic!("no scheme has {} = {}", axis.name, choice.name));
            assert_eq!(parse(&to_toml(&scheme)), Ok(scheme));
            count += 1;
        }
    }
    assert!(count >= 40);
    for number in NUMBERS {
        for value in [number.min, number.max] {
            // Bounds may break a rule with the defaults of other keys.
            let Ok(scheme) = set(&[&format!("{}={value}", number.key)]) else { continue };
            assert_eq!(number.value(&scheme), value);
            assert_eq!(parse(&to_toml(&scheme)), Ok(scheme));
        }
    }
    let odd = set(&["name=a \"b\" \\ c\u{7}", "summary=Zürich\t= 1"]).unwrap();
    assert_eq!(parse(&to_toml(&odd)), Ok(odd));
}

#[test]
fn tables_are_sound() {
    for number in NUMBERS {
        assert!(number.min <= number.default && number.default <= number.max, "{}", number.key);
        assert_eq!(number.value(&Scheme::default()), number.default, "{}", number.key);
        assert!(!number.unit.is_empty() && !number.help.ends_with('.'), "{}", number.key);
    }
    for axis in axes() {
        let names: Vec<&str> = axis.choices().map(|choice| choice.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert!(!names.is_empty() && unique.len() == names.len(), "{}", axis.name);
    }
}

#[test]
fn syntax() {
    let error = parse("name = \"x\"\n[pool\n").unwrap_err();
    assert!(error.starts_with("line 2: "), "{error}");
    let error = parse("[pool]\nchain_frames = 1\nchain_frames = 2\n").unwrap_err();
    assert!(error.starts_with("line 3: duplicate key"), "{error}");
}

#[test]
fn unknown_keys() {
    assert_error(
        parse("\n[pool]\nframes = 4\n"),
        "line 3: unknown key `pool.frames`; allowed: pool.kind, pool.chain_frames, pool.block_bytes, pool.zone_kib, \
         pool.entries_per_frame, pool.header_chunks",
    );
    assert_error(
        parse("[fault]\nkind = 'x'"),
        "line 2: unknown key `fault.kind`; allowed: fault.around_pages, fault.zero_run_pages",
    );
    assert_error(
        parse("[swap]\n"),
        "line 1: unknown key `swap`; allowed: name, summary, classes, admission, pool, reclaim, replacement, \
         sizing, routing, swap_format, codec, fault",
    );
    // Deeper tables are unknown keys, too, and the first error in the file is reported.
    assert_error(parse("[routing.x]\n[codec]\ny = 1"), "line 1: unknown key `routing.x`; allowed: routing.kind");
    assert_error(
        set(&["pool.limit=3"]),
        "--set pool.limit=3: unknown key `pool.limit`; allowed: pool.kind, pool.chain_frames, pool.block_bytes, \
         pool.zone_kib, pool.entries_per_frame, pool.header_chunks",
    );
}

#[test]
fn wrong_types() {
    assert_error(
        parse("[pool]\nchain_frames = \"4\""),
        "line 2: `pool.chain_frames` must be a whole number (frames of 4 KiB, 1 to 8), not a string",
    );
    assert_error(
        parse("[sizing]\nlow_percent = 2.5"),
        "line 2: `sizing.low_percent` must be a whole number (percent of the budget, 1 to 20), \
         not a value of type float",
    );
    assert_error(
        parse("[codec]\nkind = 1"),
        &format!(
            "line 2: `codec.kind` must be one of the strings auto, {}, not a whole number",
            names(CODECS, |codec| codec.name)
        ),
    );
    assert_error(parse("name = true"), "line 1: `name` must be a string, not a value of type boolean");
    assert_error(parse("fault = 1"), "line 1: `fault` must be a table, not a whole number");
    assert_error(
        set(&["fault.around_pages=many"]),
        "--set fault.around_pages=many: `fault.around_pages` must be a whole number (pages, 1 to 16), not `many`",
    );
    assert_error(set(&["fault=1"]), "--set fault=1: `fault` must be a table, not `1`");
}

#[test]
fn out_of_range() {
    let message = "`pool.chain_frames` = 9 is out of range; allowed: 1 to 8 frames of 4 KiB (default 4)";
    assert_error(parse("[pool]\nchain_frames = 9"), &format!("line 2: {message}"));
    assert_error(parse("pool.chain_frames = 0x9"), &format!("line 1: {message}"));
    assert_error(set(&["pool.chain_frames=9"]), &format!("--set pool.chain_frames=9: {message}"));
    for value in ["0", "-1", "4294967300", "99999999999999999999"] {
        let error = parse(&format!("[pool]\nchain_frames = {value}")).unwrap_err();
        assert!(error.contains(&format!("= {value} is out of range")), "{error}");
    }
}

#[test]
fn unknown_choices() {
    assert_error(
        parse("[codec]\n\nkind = \"lz5\""),
        &format!("line 3: `codec.kind` has no choice `lz5`; allowed: auto, {}", names(CODECS, |codec| codec.name)),
    );
    assert_error(
        set(&["pool=zbudd"]),
        &format!("--set pool=zbudd: `pool.kind` has no choice `zbudd`; allowed: {}", names(POOLS, |pool| pool.name)),
    );
}

#[test]
fn old_names_are_taken_with_a_note() {
    let mut notes = Vec::new();
    let text = "[admission]\nkind = \"nothing\"\n[reclaim]\nkind = \"second-chance\"\n";
    let old = memfit_scheme::parse_noting(text, &["replacement=oldest".to_owned()], &mut notes).unwrap();
    let new = "[admission]\nkind = \"none\"\n[reclaim]\nkind = \"fifo\"\n[replacement]\nkind = \"fifo\"\n";
    assert_eq!(old, parse(new).unwrap());
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert_eq!(notes[1], "reclaim: `second-chance` is called `fifo` now; the old name goes with the next version");
    assert_error(set(&["reclaim=oldest"]), &set(&["reclaim=older"]).unwrap_err().replace("older", "oldest"));
}

#[test]
fn impossible_combinations() {
    assert_error(
        parse("[sizing]\nlow_percent = 4\n"),
        "line 2: `sizing.low_percent` = 4 must be less than `sizing.high_percent` = 4",
    );
    // The value given last is to blame, wherever it was given.
    assert_error(
        set(&["sizing.low_percent=5", "codec=lz4", "sizing.high_percent=3"]),
        "--set sizing.high_percent=3: `sizing.low_percent` = 5 must be less than `sizing.high_percent` = 3",
    );
    assert_error(
        set(&["sizing.resident_floor_percent=50", "sizing.high_percent=40"]),
        "--set sizing.high_percent=40: `sizing.resident_floor_percent` = 50, `sizing.high_percent` = 40 and \
         `reclaim.staging_percent` = 3 leave less than 10 percent of the budget for the pool",
    );
    for (overrides, message) in [
        (&["pool=z3fold", "replacement=round-robin"][..], "--set replacement=round-robin: `replacement` = round-robin needs one of the pools zsmalloc, not z3fold"),
        (&["replacement=none", "pool=buffers"], "--set pool=buffers: `pool` = buffers and `swap_format` = compressed-batches need each other: what is written is whole buffers"),
        (&["reclaim.accessed_bits=1", "reclaim=fifo"], "--set reclaim=fifo: `reclaim.accessed_bits` = 1 needs `reclaim` = bimodal or dueling, not fifo"),
        (&["reclaim.accessed_bits=1", "classes=file-dropped"], "--set classes=file-dropped: `reclaim.accessed_bits` = 1 needs `classes` = anonymous: pages of files are read-only memory, which it keeps"),
        (&["swap_format.cache_reads=1"], "--set swap_format.cache_reads=1: `swap_format.cache_reads` = 1 needs `swap_format` = compressed-batches: only there a block is a buffer"),
        (&["sizing=zones"], "--set sizing=zones: `sizing` = zones needs `pool` = zones, not zsmalloc"),
        (&["pool.block_bytes=100"], "--set pool.block_bytes=100: `pool.block_bytes` = 100 must be a power of two"),
        (&["pool.zone_kib=1001"], "--set pool.zone_kib=1001: `pool.zone_kib` = 1001 must be a multiple of 4"),
        (&["sizing.grow_below_zones=4"], "--set sizing.grow_below_zones=4: `sizing.grow_below_zones` = 4 must be less than `sizing.shrink_above_zones` = 4"),
    ] {
        assert_error(set(overrides), message);
    }
    for overrides in ["routing=by-origin", "admission.need_permille=1"] {
        let error = preset("cervera99", &[overrides.to_owned()]).unwrap().unwrap_err().to_string();
        assert!(error.contains("takes pages through the pool alone"), "{error}");
    }
}

#[test]
fn overrides() {
    // The last override wins, and an impossible combination in between is allowed.
    let scheme = set(&["sizing.low_percent=8", "sizing.low_percent = 9", "sizing.high_percent=10", "codec.kind=lz4"]);
    let scheme = scheme.unwrap();
    assert_eq!(
        (scheme.sizing.low_percent, scheme.sizing.high_percent, scheme.codec.kind),
        (9, 10, Some(CodecId::LZ4.0))
    );
    assert_error(set(&["codec"]), "--set codec: expected KEY=VALUE");
}

#[test]
fn a_scheme_makes_its_pool() {
    let scheme = set(&["pool.chain_frames=1"]).unwrap();
    let mut pool = scheme.pool.make(64, 2);
    assert!(pool.place(4096).is_ok() && pool.place(3000).is_ok() && pool.place(3000).is_err());
}
