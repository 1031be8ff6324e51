//! Runs memfit as an ordinary user whose only right is access to `/dev/userfaultfd`: uid 65534, no
//! capabilities, in a mount namespace of its own where that device is open to all. Needs root to
//! set that up.

use super::{memfit, remove_left_by_killed, skip, Bench};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Mounts the device, becomes the user (uid `TEST_UID`, if that is set) with the options of
/// `setpriv` that follow, and executes the other words.
const BECOME: &str = "mount -t tmpfs none \"$0\" && mknod -m 666 \"$0/userfaultfd\" c 10 \"$1\" && \
                      mount --bind \"$0/userfaultfd\" /dev/userfaultfd && shift && exec setpriv --reuid=\"${TEST_UID:-65534}\" \
                      --regid=65534 --clear-groups --inh-caps=-all \"$@\"";
/// No program gives such a user a right.
const NO_RIGHTS: [&str; 2] = ["--bounding-set=-all", "--no-new-privs"];

/// Beginning of the names of our directories; the pid of the test follows.
const PREFIX: &str = "memfit-ordinary-";

/// Copies of the programs that such a user runs: the directory of the build may be closed to him.
pub struct Ordinary {
    place: PathBuf,
    /// The minor number of the device; `None`: the user of the tests himself.
    minor: Option<u32>,
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// A directory for temporary files that all users can reach.
fn directory_for_all() -> PathBuf {
    let reached = |path: &Path| fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 1 == 1);
    let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let open = |place: &&PathBuf| place.ancestors().all(reached);
    places.iter().find(open).cloned().unwrap_or_else(std::env::temp_dir)
}

impl Ordinary {
    /// An error says why that cannot be done here.
    fn new() -> Result<Ordinary, String> {
        if memfit_os::process::effective_uid() != 0 {
            return Err("only root can become another user".into());
        }
        let misc = fs::read_to_string("/proc/misc").unwrap_or_default();
        let minor = misc.lines().find_map(|line| line.trim().strip_suffix(" userfaultfd")?.trim().parse().ok());
        let minor: u32 = minor.ok_or("the kernel has no /dev/userfaultfd")?;
        let ordinary = Ordinary::publish(Some(minor))?;
        let doctor = ordinary.command(&["doctor"]).stdin(Stdio::null()).output();
        let outcome = doctor.map_err(|error| format!("{}: {error}", ordinary.place.display()))?;
        if outcome.status.code() != Some(0) {
            let said = [outcome.stdout, outcome.stderr].concat();
            return Err(format!("memfit cannot run as an ordinary user here: {}", String::from_utf8_lossy(&said)));
        }
        Ok(ordinary)
    }

    /// Copies memfit to where all users can read it.
    fn publish(minor: Option<u32>) -> Result<Ordinary, String> {
        let all = directory_for_all();
        remove_left_by_killed(&all, PREFIX);
        let place = all.join(format!("{PREFIX}{}", std::process::id()));
        let ordinary = Ordinary { place, minor };
        let text = |error: std::io::Error| format!("{}: {error}", ordinary.place.display());
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(text);
        let _ = fs::remove_dir_all(&ordinary.place);
        for (name, mode) in [("", 0o755), ("work", 0o777), ("dev", 0o755)] {
            let directory = ordinary.place.join(name);
            fs::create_dir(&directory).map_err(text)?;
            open(&directory, mode)?;
        }
        for name in ["memfit", "libmemfit.so", "memfit-torture"] {
            let copy = ordinary.place.join(name);
            fs::copy(memfit().with_file_name(name), &copy).map_err(text)?;
            open(&copy, 0o755)?;
        }
        Ok(ordinary)
    }

    /// memfit with these arguments.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_in(&[], words)
    }

    /// As `command`, started by the command line `around`.
    pub fn command_in(&self, around: &[&str], words: &[&str]) -> Command {
        let memfit = self.place.join("memfit");
        let memfit = memfit.to_str().expect("the place is UTF-8");
        let all = [around, &[memfit], words].concat();
        if self.minor.is_some() {
            return self.becoming(&NO_RIGHTS, &all);
        }
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command
    }

    /// The user with these options of `setpriv` and no others executes a command line.
    pub fn becoming(&self, options: &[&str], line: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", BECOME]).arg(self.place.join("dev"));
        command.arg(self.minor.unwrap_or_default().to_string()).args(options).args(line);
        command
    }

    /// Where the user's programs are.
    pub fn place(&self) -> &Path {
        &self.place
    }
}

impl Bench {
    /// As `new`; the programs run under memfit as an ordinary user.
    pub fn ordinary(name: &str, programs: &[&str]) -> Option<Bench> {
        Bench::elsewhere(name, programs, Ordinary::new)
    }

    /// As `new`, in a place that is open to all: for programs that become another user.
    pub fn open_to_all(name: &str, programs: &[&str]) -> Option<Bench> {
        Bench::elsewhere(name, programs, || Ordinary::publish(None))
    }

    fn elsewhere(name: &str, programs: &[&str], make: impl Fn() -> Result<Ordinary, String>) -> Option<Bench> {
        let mut bench = Bench::new(name, programs)?;
        match make() {
            Ok(ordinary) => {
                let _ = fs::remove_dir_all(&bench.directory);
                bench.directory = ordinary.place.join("work");
                bench.user = Some(ordinary);
                Some(bench)
            }
            Err(reason) => {
                skip(name, &reason);
                None
            }
        }
    }
}
