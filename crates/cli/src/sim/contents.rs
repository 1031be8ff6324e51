//! What a recording does not know about sizes.

use super::{Called, Known, Of};
use memfit_codec::{by_name, Aim, CodecId};
use memfit_core::scheme::{AdmissionKind, CodecKind};

/// Codecs that one of the schemes asks, and whose sizes were not recorded: what to say of them.
pub fn missing(known: &Known, called: &[Called]) -> Option<String> {
    let Of { scheme: own, noted, .. } = known.recorded.as_ref()?;
    // The machine has no dictionaries, so that it asks no trained one by itself.
    let asked = |kind: CodecKind| match by_name(kind.name()) {
        Some(codec) => vec![codec],
        None => Aim::all_codecs().into_iter().filter(|&codec| codec != CodecId::ZSTD_TRAINED).collect(),
    };
    let schemes = called.iter().filter(|called| !called.lru).map(|called| &called.setup.scheme);
    let mut missing: Vec<&str> = Vec::new();
    for scheme in schemes.filter(|scheme| scheme.admission.kind != AdmissionKind::Nothing) {
        let kind = scheme.codec.kind;
        // Without contents there is what the run's own codec has made of each page.
        let unknown = |codec: CodecId| if noted.pages == 0 { kind != own.codec.kind } else { !noted.has(codec) };
        let names = asked(kind).into_iter().filter(|&codec| unknown(codec)).filter_map(memfit_codec::name);
        for name in names {
            if !missing.contains(&name) {
                missing.push(name);
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let (names, list) = (missing.join(", "), missing.join(","));
    let (sizes, advice) = match noted.pages {
        0 => ("what the run's own codec made of them", "--record-contents".to_owned()),
        _ => ("the smallest that was recorded", format!("--record-contents={list}")),
    };
    Some(format!(
        "what {names} would make of the pages was not recorded: instead {sizes} is used; record it with {advice}"
    ))
}
