//! Takes the terminal over, draws on it, and restores it, whatever ends the program.

use memfit_os::event::wait_readable;
use ratatui_core::backend::Backend;
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::Modifier;
use ratatui_termion::TermionBackend;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;
use termion::event::Key;
use termion::raw::{IntoRawMode, RawTerminal};
use termion::{cursor, screen, style};

/// The settings to restore, while the terminal is taken over. Static, so that a panic finds them.
static TAKEN: Mutex<Option<RawTerminal<File>>> = Mutex::new(None);

/// How long the rest of a key's escape sequence may take. If nothing comes, it was the Escape key.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(50);
/// The size that is assumed for a terminal that does not know its own.
const USUAL_SIZE: (usize, usize) = (80, 24);
/// Largest size that is drawn: a larger one must be a mistake.
const SIZE_MAX: u16 = 2000;

/// Whether standard output is a terminal on which a screen can be drawn.
#[must_use]
pub fn is_here() -> bool {
    let known = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    io::stdout().is_terminal() && known
}

/// The terminal, taken over.
pub struct Terminal {
    keys: File,
    /// The picture on it, if known.
    shown: Option<Buffer>,
}

impl Terminal {
    /// Takes it over: no echo, keys at once, the alternate screen.
    ///
    /// # Errors
    /// When there is no terminal to read from, or it cannot be set.
    pub fn take() -> io::Result<Self> {
        let input = io::stdin();
        let keys =
            if input.is_terminal() { File::from(input.as_fd().try_clone_to_owned()?) } else { termion::get_tty()? };
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enter()?;
        Ok(Self { keys, shown: None })
    }

    /// The file to poll for keys.
    #[must_use]
    pub fn keys(&self) -> &File {
        &self.keys
    }

    /// The keys that were pressed, once there are some. `None` when the terminal is gone.
    pub fn read_keys(&mut self) -> Option<Vec<Key>> {
        let mut bytes = [0; 512];
        let mut count = self.keys.read(&mut bytes).ok().filter(|count| *count > 0)?;
        // The sequence of a key can come in pieces, and the Escape key alone leaves memfit.
        if bytes[count - 1] == 0x1b && count < bytes.len() {
            if let Ok([true]) = wait_readable([self.keys.as_fd()], Some(ESCAPE_TIMEOUT)) {
                count += self.keys.read(&mut bytes[count..]).unwrap_or(0);
            }
        }
        Some(parse_keys(&bytes[..count]))
    }

    /// Draws a picture.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn show(&mut self, picture: Buffer) -> io::Result<()> {
        send(io::stdout().lock(), self.shown.as_ref(), &picture)?;
        self.shown = Some(picture);
        Ok(())
    }

    /// Forgets what is on the screen: the next picture is drawn whole.
    pub fn forget(&mut self) {
        self.shown = None;
    }

    /// Takes it over again after [`give_back`].
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn take_again(&mut self) -> io::Result<()> {
        self.forget();
        enter()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Columns and rows.
#[must_use]
pub fn size() -> (usize, usize) {
    match termion::terminal_size() {
        Ok((columns @ 1.., rows @ 1..)) => (columns.min(SIZE_MAX).into(), rows.min(SIZE_MAX).into()),
        _ => USUAL_SIZE,
    }
}

/// Whether we may use the terminal now: we are no job in the background, or it is not our
/// controlling terminal.
#[must_use]
pub fn is_ours() -> bool {
    let own = memfit_os::proctree::read_stat(std::process::id() as i32);
    own.is_none_or(|stat| stat.tty_nr == 0 || stat.in_foreground())
}

fn enter() -> io::Result<()> {
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Entering twice must not lose the former settings.
    if taken.is_none() {
        *taken = Some(File::from(io::stdout().as_fd().try_clone_to_owned()?).into_raw_mode()?);
    } else if let Some(terminal) = &*taken {
        terminal.activate_raw_mode()?;
    }
    drop(taken);
    write(&format!("{}{}", screen::ToAlternateScreen, cursor::Hide))
}

/// Restores the terminal. Does nothing if that has been done.
pub fn give_back() {
    // A panic inside of `enter` holds the lock.
    let Ok(Some(terminal)) = TAKEN.try_lock().map(|mut taken| taken.take()) else { return };
    let _ = write(&format!("{}{}{}", style::Reset, cursor::Show, screen::ToMainScreen));
    drop(terminal);
}

/// Sends the escape sequences that turn the picture on the screen into this one. `old` is `None` if
/// the contents of the screen are unknown.
fn send(out: impl Write, old: Option<&Buffer>, new: &Buffer) -> io::Result<()> {
    let mut backend = TermionBackend::new(out);
    let mut unlike_any = Cell::default();
    unlike_any.set_style(Modifier::HIDDEN);
    let unknown = Buffer::filled(new.area, unlike_any);
    let old = old.filter(|old| old.area == new.area);
    if old.is_none() {
        backend.clear()?;
    }
    let changes = old.unwrap_or(&unknown).diff(new);
    if changes.is_empty() {
        return Ok(());
    }
    backend.draw(changes.into_iter())?;
    Backend::flush(&mut backend)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Parses what terminals send for keys and skips everything else. (termion's own parser panics when
/// a sequence is cut off.)
fn parse_keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let key = match (first, tail) {
            (0x1b, [b'[' | b'O', sequence @ ..]) => {
                let Some(length) = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte)) else { break };
                rest = &sequence[length + 1..];
                sequence_key(&sequence[..length], sequence[length])
            }
            (0x1b, [] | [0x1b, ..]) => Some(Key::Esc),
            // A letter with Alt.
            (0x1b, [_, after @ ..]) => {
                rest = after;
                None
            }
            (b'\t', _) => Some(Key::Char('\t')),
            (1..=26, _) => Some(Key::Ctrl(char::from(first - 1 + b'a'))),
            (b' '..=b'~', _) => Some(Key::Char(char::from(*first))),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// The key of a sequence by its parameters and last byte.
fn sequence_key(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'P', _) | (b'~', b"11") => Key::F(1),
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::canvas::BOLD;
    use super::*;
    use ratatui_core::style::Color;

    #[test]
    fn only_changes_are_sent() {
        let picture = |lines: [&str; 3]| Buffer::with_lines(lines);
        let sent = |old: Option<&Buffer>, new: &Buffer| {
            let mut out = Vec::new();
            send(&mut out, old, new).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (old, mut new) = (picture(["same    ", "count 12", ""]), picture(["same    ", "count 13", ""]));
        assert_eq!(sent(Some(&old), &old), "");
        new[(7, 1)].set_fg(Color::Red);
        let changes = sent(Some(&old), &new);
        assert!(
            changes.starts_with("\u{1b}[2;8H") && changes.contains('3') && !changes.contains("same"),
            "{changes:?}"
        );
        assert!(changes.contains("\u{1b}[38;5;1m"), "{changes:?}");
        let all = sent(None, &new);
        assert!(all.contains("\u{1b}[2J") && all.contains("same"), "{all:?}");
        assert!(sent(Some(&picture(["same", "", ""])), &new).contains("same"), "another size draws everything");
        let wide = picture(["語", "", ""]);
        let mut styled = wide.clone();
        styled.set_style(styled.area, BOLD);
        assert!(sent(Some(&wide), &styled).contains('語'), "a character is drawn whole");
    }

    #[test]
    fn knows_keys() {
        let keys = parse_keys(b"q\t \x1b[A\x1b[5~\x1b[Z\x1bOP\x03\x1a+");
        let known = [
            Key::Char('q'),
            Key::Char('\t'),
            Key::Char(' '),
            Key::Up,
            Key::PageUp,
            Key::BackTab,
            Key::F(1),
            Key::Ctrl('c'),
            Key::Ctrl('z'),
            Key::Char('+'),
        ];
        assert_eq!(keys, known);
        assert_eq!(parse_keys(b"\x1b"), [Key::Esc]);
        assert_eq!(parse_keys(b"\x1b\x1b[B"), [Key::Esc, Key::Down]);
        assert_eq!(parse_keys(b"\x1bx\x1b[1;5H\x1b[6"), [Key::Home], "Alt-x, Ctrl-Home, and a piece of a sequence");
        assert_eq!(parse_keys(b""), []);
        // Whatever comes, it ends.
        for byte in 0..=255 {
            let _ = parse_keys(&[byte]);
            let _ = parse_keys(&[0x1b, b'[', byte, 0x1b, byte]);
        }
    }
}
