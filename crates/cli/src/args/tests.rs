//! Options and their values.

use super::*;

fn run(words: &[&str]) -> Result<RunArgs, clap::Error> {
    let words = ["memfit", "run"].iter().chain(words);
    match Cli::try_parse_from(words)?.command {
        Command::Run(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
}

#[test]
fn the_command_keeps_its_own_options() {
    for words in [&["-q", "--", "ls", "-q", "--json", "--"][..], &["-q", "ls", "-q", "--json", "--"]] {
        assert_eq!(run(words).unwrap().command, ["ls", "-q", "--json", "--"]);
    }
    assert!(run(&["--", "-weird"]).is_ok());
    assert!(run(&["--bogus", "ls"]).is_err());
    assert!(run(&[]).is_err());
    assert!(run(&["-q", "-v", "ls"]).is_err());
}

#[test]
fn accesses_are_a_part_of_a_recording() {
    let percent = |option: &str| run(&["--record", "f", option, "ls"]).map(|args| args.record_access);
    assert_eq!(
        (percent("--record-access").unwrap(), percent("--record-access=20").unwrap()),
        (Some(None), Some(Some(20)))
    );
    assert_eq!(run(&["--record", "f", "ls"]).unwrap().record_access, None);
    assert!(percent("--record-access=0").is_err() && percent("--record-access=101").is_err());
    assert!(run(&["--record-access", "ls"]).is_err());
}

#[test]
fn contents_are_a_part_of_a_recording() {
    let codecs = |words: &[&str]| {
        let args = run(&[&["--record", "f"], words, &["ls"]].concat()).unwrap();
        args.record_contents.map(|Codecs(codecs)| codecs.iter().map(|codec| codec.name).collect::<Vec<_>>().join(","))
    };
    assert_eq!(codecs(&[]), None);
    let usual = codecs(&["--record-contents"]).unwrap();
    let has = |name| usual.split(',').any(|codec| codec == name);
    assert!(has("lz4") && has("zstd-trained") && has("wk4x4") && !has("zstd-strong"), "{usual}");
    assert_eq!(codecs(&["--record-contents=zstd,lz4,zstd"]).as_deref(), Some("zstd,lz4"));
    let all = codecs(&["--record-contents=lz4,all"]).unwrap();
    assert_eq!(all.split(',').count(), CODECS.len(), "{all}");
    for words in [&["--record-contents", "ls"][..], &["--record", "f", "--record-contents=auto", "ls"]] {
        assert!(run(words).is_err(), "{words:?}");
    }
}

#[test]
fn advice_takes_a_file_but_not_the_command() {
    assert_eq!(run(&["--advise", "ls"]).unwrap().advise, Some(None));
    assert_eq!(run(&["--advise=a.toml", "ls"]).unwrap().advise, Some(Some("a.toml".into())));
    assert_eq!(run(&["ls"]).unwrap().advise, None);
}

#[test]
fn what_is_in_the_background_is_jobs_or_idle() {
    let of = |text: &str| run(&["--background", text, "ls"]).map(|args| args.background);
    let idle = |seconds: u64| Automatic { jobs: false, idle: Some(Duration::from_secs(seconds)) };
    assert_eq!(of("jobs,idle=30").unwrap(), [Automatic { jobs: true, idle: None }, idle(30)]);
    for text in ["", "idle", "idle=0", "idle=nan", "idle=1e9", "job"] {
        assert!(of(text).is_err(), "{text}");
    }
    assert!(of("idle=1e7").unwrap_err().to_string().contains("from 1 to 1000000 seconds"));
    assert_eq!(run(&["ls"]).unwrap().shortage.on_full, OnFullArg::Fail);
    assert!(run(&["--on-full", "silently", "ls"]).is_err());
}

#[test]
fn a_slowdown_is_a_percentage() {
    assert_eq!((parse_slowdown("10"), parse_slowdown("0.5%")), (Ok(10.0), Ok(0.5)));
    for text in ["10%%", "%", "0", "nan", "x", ""] {
        assert!(parse_slowdown(text).is_err(), "{text}");
    }
}

#[test]
fn intervals_are_sane() {
    assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
    for text in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
        assert!(parse_interval(text).is_err(), "{text}");
    }
}

#[test]
fn overrides_need_a_key() {
    assert_eq!(run(&["--set", "pool.max=3", "--set", "a=", "ls"]).unwrap().set, ["pool.max=3", "a="]);
    assert!(run(&["--set", "x", "ls"]).is_err());
    assert!(run(&["--set", "=3", "ls"]).is_err());
}
