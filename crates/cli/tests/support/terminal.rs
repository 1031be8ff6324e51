//! A terminal of the test's own, and what is typed into it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub struct Terminal {
    keys: File,
    /// Its other end, until it is given to a program.
    slave: Option<OwnedFd>,
    text: Vec<u8>,
    /// Rows and columns.
    size: (u16, u16),
}

impl Terminal {
    /// An error says why there can be none here.
    pub fn open() -> Result<Terminal, String> {
        let (mut master, mut slave) = (-1, -1);
        let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        // SAFETY: two valid numbers to write to; the rest is left to the defaults.
        if unsafe { libc::openpty(&raw mut master, &raw mut slave, name, settings, size) } != 0 {
            return Err(format!("no pseudo terminal: {}", std::io::Error::last_os_error()));
        }
        for fd in [master, slave] {
            // SAFETY: new descriptors; other programs must not hold the terminal open.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: a new descriptor; without this flag a read of the output would wait.
        unsafe { libc::fcntl(master, libc::F_SETFL, libc::O_NONBLOCK) };
        // SAFETY: new descriptors that nobody else owns.
        let (keys, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        Ok(Terminal { keys, slave: Some(slave), text: Vec::new(), size: (24, 80) })
    }

    /// Makes the command lead a session with this as its terminal.
    pub fn give_to(&mut self, command: &mut Command) {
        let slave = self.slave.take().expect("given once");
        let dup = || slave.try_clone().unwrap();
        command.stdin(dup()).stdout(dup()).stderr(dup());
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                // A test may run under nohup.
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                if libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All output so far.
    pub fn text(&mut self) -> String {
        let mut bytes = [0; 4096];
        // An error means the end, or no output for now.
        while let Ok(count @ 1..) = self.keys.read(&mut bytes) {
            self.text.extend(&bytes[..count]);
        }
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// How often the word was shown.
    pub fn count(&mut self, word: &str) -> usize {
        self.text().matches(word).count()
    }

    /// Whether the word is on the screen now. Rows end with a newline, without trailing blanks.
    pub fn shows(&mut self, word: &str) -> bool {
        let _ = self.text();
        let [rows, columns] = [self.size.0, self.size.1].map(|size| NonZeroU16::new(size).expect("a size"));
        let mut screen = vt100::Parser::new(rows, columns, 0);
        screen.process(&self.text);
        let rows = screen.screen().contents();
        rows.lines().map(|row| row.trim_end().to_owned() + "\n").collect::<String>().contains(word)
    }

    /// Its settings of input and output, as `stty -g` prints them.
    pub fn settings(&self) -> String {
        // SAFETY: all zeros is a valid value of this struct of numbers, which the call fills.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: an open terminal and a struct to write to.
        assert_eq!(unsafe { libc::tcgetattr(self.keys.as_raw_fd(), &raw mut settings) }, 0);
        let libc::termios { c_iflag, c_oflag, c_cflag, c_lflag, c_cc, .. } = settings;
        format!("{c_iflag:x}:{c_oflag:x}:{c_cflag:x}:{c_lflag:x}:{c_cc:x?}")
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.size = (rows, columns);
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: an open terminal and a live struct.
        assert_eq!(unsafe { libc::ioctl(self.keys.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    pub fn hang_up(self) {
        drop(self.keys);
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "terminal {}", self.keys.as_raw_fd())
    }
}
