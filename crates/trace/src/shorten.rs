//! Texts that must fit into a bounded JSON text.

/// Keeps the beginning of these words, so that they take at most about `room` bytes as a JSON list.
/// A cut ends in "...".
pub fn shorten_words(words: &mut Vec<String>, mut room: usize) {
    let cut = words.iter_mut().enumerate().find_map(|(i, word)| {
        let end = fitting(word, &mut room)?;
        word.truncate(end);
        word.push_str("...");
        Some(i + 1)
    });
    words.truncate(cut.unwrap_or(words.len()));
}

/// How much of a text fits into the room, as JSON in a list; `None`: all. Takes the room for it.
pub fn fitting(text: &str, room: &mut usize) -> Option<usize> {
    let cost = |c: char| match c {
        '"' | '\\' => 2,
        '\0'..' ' => r"\u0000".len(),
        _ => c.len_utf8(),
    };
    let Some(mut left) = room.checked_sub(r#""...","#.len()) else { return Some(0) };
    for (at, c) in text.char_indices() {
        let Some(rest) = left.checked_sub(cost(c)) else { return Some(at) };
        left = rest;
    }
    *room = left;
    None
}
