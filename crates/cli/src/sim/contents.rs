//! Compressed sizes that a recording does not have.

use super::{KnownWorkload, NamedSetup, RecordingInfo};
use memfit_codec::{CodecId, CodecSelector};
use memfit_core::scheme::{AdmissionKind, Scheme};

/// Codecs that a scheme uses and whose sizes this recording does not have.
pub fn unknown(of: &RecordingInfo, scheme: &Scheme) -> Vec<&'static str> {
    if scheme.admission.kind == AdmissionKind::None {
        return Vec::new();
    }
    let kind = scheme.codec.kind;
    // The machine has no dictionaries, so that it asks no trained one by itself.
    let asked = match kind {
        Some(codec) => vec![CodecId(codec)],
        None => CodecSelector::all_codecs().into_iter().filter(|&codec| codec != CodecId::ZSTD_TRAINED).collect(),
    };
    // A recording without contents has the sizes of the run's own codec alone.
    let is_unknown =
        |codec: CodecId| if of.noted.pages == 0 { kind != of.scheme.codec.kind } else { !of.noted.has(codec) };
    asked.into_iter().filter(|&codec| is_unknown(codec)).filter_map(CodecId::name).collect()
}

/// The message about missing sizes, for all schemes.
pub(super) fn missing(known: &KnownWorkload, called: &[NamedSetup]) -> Option<String> {
    let of = known.recorded.as_ref()?;
    let schemes = called.iter().filter(|called| called.yardstick.is_none()).map(|called| &called.setup.scheme);
    let mut missing: Vec<&str> = Vec::new();
    for name in schemes.flat_map(|scheme| unknown(of, scheme)) {
        if !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let (names, list) = (missing.join(", "), missing.join(","));
    let (sizes, advice) = match of.noted.pages {
        0 => ("what the run's own codec made of them", "--record-contents".to_owned()),
        _ => ("the smallest that was recorded", format!("--record-contents={list}")),
    };
    Some(format!(
        "what {names} would make of the pages was not recorded: instead {sizes} is used; record it with {advice}"
    ))
}
