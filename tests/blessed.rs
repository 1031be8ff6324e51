//! Parts of documents that tests write from tables of the code, between `<!-- NAME: begin -->` and
//! `<!-- NAME: end -->`.

use std::path::Path;

/// Fails unless the part `name` of the document has this text. The path of the document begins at
/// the root of the workspace. With `MEMFIT_BLESS` in the environment, writes the part instead.
pub fn assert_part(document: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let old = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (start, stop) = (old.find(&begin).unwrap() + begin.len(), old.find(&end).unwrap());
    if std::env::var_os("MEMFIT_BLESS").is_some() {
        std::fs::write(&path, [&old[..start], text, &old[stop..]].concat()).unwrap();
    } else {
        assert!(&old[start..stop] == text, "{document}: {name} must be as below; MEMFIT_BLESS=1 writes it\n{text}");
    }
}
