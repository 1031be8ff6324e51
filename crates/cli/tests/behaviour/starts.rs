//! The start socket, with listeners that the tests make: how long a new process waits, and for
//! whom.

use crate::support::tree::eventually;
use crate::support::{may_wait_to_start, memfit, skip, Bench, PYTHON};
use memfit_wire::{SOCKET_VARIABLE, START_PREFIX};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that nobody accepts waits so long at least.
const WAIT: Duration = Duration::from_secs(10);

/// Binds a pager's name and its start socket, whose queue has one place. Takes that if `taken` is
/// not 0. Accepts nobody.
const LISTENS: &str = "import socket, sys
name, start, taken = sys.argv[1], sys.argv[2], int(sys.argv[3])
def bound(name, backlog):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind('\\0' + name)
    listener.listen(backlog)
    return listener
listeners = [bound(name, 100), bound(start, 0)]
if taken:
    own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.connect('\\0' + start)
print('listens', flush=True)
sys.stdin.read()
";

/// Two fork children wait. One of them gets a signal, and ends before the other goes on.
const FORKS: &str = "import os, signal
reads, writes = os.pipe()
os.set_blocking(reads, False)
def child():
    pid = os.fork()
    if pid == 0:
        os.write(writes, b'x')
        os._exit(0)
    return pid
one, two = child(), child()
os.kill(one, signal.SIGTERM)
print('signal', os.WTERMSIG(os.waitpid(one, 0)[1]))
print('waits', os.waitpid(two, os.WNOHANG)[0] == 0)
try:
    print('goes on', os.read(reads, 1))
except BlockingIOError:
    print('nobody goes on')
os.kill(two, signal.SIGKILL)
";

/// The listeners, and the name that programs know. They end with this.
struct Listeners {
    process: Child,
    name: String,
}

impl Listeners {
    fn new(uid: u32, full: bool) -> Listeners {
        // Tests of what memfit leaves behind look for its name.
        let name = format!("starts-test-{}-{uid}-{full}", std::process::id());
        let mut command = Command::new(PYTHON);
        command.args(["-c", LISTENS, &name, &format!("{START_PREFIX}{name}"), if full { "1" } else { "0" }]);
        let mut process = command.uid(uid).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "listens\n");
        Listeners { process, name }
    }

    /// A program with the stub, which takes these listeners for its pager.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", memfit().with_file_name("libmemfit.so")).env(SOCKET_VARIABLE, &self.name);
        command
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// `None`, with a message, where processes do not wait.
fn able(name: &str) -> Option<Bench> {
    if !may_wait_to_start() {
        skip(name, "this process has system call filters");
        return None;
    }
    Bench::new(name, &[PYTHON])
}

/// A pager that hangs holds nobody up for ever, and a listener of another user nobody at all.
#[test]
fn the_wait_at_the_start_socket_is_bounded() {
    let own = memfit_os::process::effective_uid();
    if own != 0 {
        return skip("the_wait_at_the_start_socket_is_bounded", "only root can become another user");
    }
    let Some(_bench) = able("start_socket") else { return };
    let (trusted, other) = (Listeners::new(own, true), Listeners::new(65534, true));
    let begun = Instant::now();
    let mut waits = trusted.command("true").spawn().unwrap();
    assert!(other.command("true").status().unwrap().success());
    assert!(waits.try_wait().unwrap().is_none(), "nobody accepts it, but it does not wait");
    eventually("it goes on", || waits.try_wait().unwrap().is_some());
    assert!(waits.wait().unwrap().success());
    assert!(begun.elapsed() >= WAIT, "it waited for {:?}", begun.elapsed());
}

/// A fork child that waits ends by a signal.
#[test]
fn a_fork_child_that_waits_to_start_obeys_signals() {
    let Some(_bench) = able("start_signal") else { return };
    // The parent takes the one place.
    let listeners = Listeners::new(memfit_os::process::effective_uid(), false);
    let ran = listeners.command(PYTHON).args(["-c", FORKS]).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(text, "signal 15\nwaits True\nnobody goes on\n", "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!((ran.status.code(), ran.status.signal()), (Some(0), None));
}
