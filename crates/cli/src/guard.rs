//! Protects programs from wrong data after the launcher has ended.
//!
//! While the launcher lives, it holds every userfaultfd open, since it shares the pager's
//! descriptor table. If it ends before the last process of the tree, the pager serves on alone, and
//! its death would make evicted pages read as zeros. So the launcher leaves a guard, which shares
//! the table too. When the pager ends, the guard kills the processes that the pager still managed.
//!
//! After an orderly end of the pager no process is managed. The pager tells that last, and the
//! guard reads it in the launcher's place. The guard never kills programs without the stub.

use memfit_os::event::wait_readable;
use memfit_os::process::{self, Pid, PidFd};
use memfit_os::proctree::{self, ProcStat};
use memfit_os::{maps, procfs, seqpacket};
use memfit_pager::config::FromPager;
use memfit_pager::netns_fallback;
use std::collections::HashSet;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the guard tries to kill.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// What the guard watches over.
pub struct Watch {
    /// The pager.
    pub pager: Pid,
    /// The launcher's end of the socket between it and the pager.
    pub socket: RawFd,
    /// The tree at the end of the launcher.
    pub tree: Vec<ProcStat>,
    /// `MEMFIT_SOCKET=...` of the run, which identifies processes that were started later.
    pub environment_entry: String,
    /// Directory that the pager may have made.
    pub fallback_dir: PathBuf,
    /// File name of the stub.
    pub stub: String,
}

impl Watch {
    /// Waits for the end of the pager and kills the managed processes that it leaves.
    pub fn run(mut self) {
        if let Ok(pager) = PidFd::open(self.pager) {
            while !matches!(wait_readable([pager.as_fd()], None), Ok([true]) | Err(_)) {}
        }
        netns_fallback::remove(&self.fallback_dir);
        if self.ended_in_order() {
            return;
        }
        let deadline = Instant::now() + KILL_TIMEOUT;
        while Instant::now() < deadline {
            // Without a list of processes, nobody knows whether one is left.
            let managed = self.managed();
            if managed.as_ref().is_ok_and(Vec::is_empty) {
                return;
            }
            proctree::kill_all(&managed.unwrap_or_default());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether the pager's last messages say so.
    fn ended_in_order(&self) -> bool {
        let socket = process::lasting(self.socket);
        while let Ok(Some(packet)) = seqpacket::receive(socket) {
            if matches!(serde_json::from_slice(&packet.bytes), Ok(FromPager::Done)) {
                return true;
            }
        }
        false
    }

    /// Living members of the tree that have the stub loaded.
    fn managed(&mut self) -> io::Result<Vec<ProcStat>> {
        let all = proctree::snapshot()?;
        let known: HashSet<(Pid, u64)> = self.tree.iter().map(|p| (p.pid, p.start_ticks)).collect();
        let mut members: Vec<ProcStat> =
            all.iter().filter(|p| known.contains(&(p.pid, p.start_ticks))).cloned().collect();
        let roots: Vec<Pid> = members.iter().map(|p| p.pid).collect();
        for root in roots {
            members.extend(proctree::descendants_in(&all, root, &HashSet::new()).into_iter().cloned());
        }
        members.extend(proctree::with_environment(self.environment_entry.as_bytes())?);
        members.retain(|process| !process.is_dead() && has_mapped(process.pid, &self.stub));
        members.sort_unstable_by_key(|process| process.pid);
        members.dedup_by_key(|process| process.pid);
        // When a parent dies in this round, the next one knows its children from here.
        self.tree.clone_from(&members);
        Ok(members)
    }
}

fn has_mapped(pid: Pid, file: &str) -> bool {
    procfs::read_memory(pid, "maps").is_ok_and(|text| maps::has_file(&text, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::{Command, Stdio};

    #[test]
    fn kills_only_members_that_have_the_stub() {
        let mut pager = Command::new("sleep").arg("0.2").spawn().unwrap();
        let mut member = Command::new("sleep").arg("100").env("MEMFIT_SOCKET", "guard-test").spawn().unwrap();
        let mut other = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
        let stub = loop {
            // Until exec is done the maps are those of this test.
            let maps = procfs::read_memory(member.id() as Pid, "maps").unwrap();
            let library = maps.lines().find_map(|line| line.split_once("/").filter(|_| line.contains("libc.so")));
            match library {
                Some((_, rest)) if maps.contains("/sleep") || maps.contains("coreutils") => {
                    break rest.rsplit('/').next().unwrap().to_owned()
                }
                _ => std::thread::yield_now(),
            }
        };
        let (launchers, pagers) = seqpacket::pair().unwrap();
        let watch = |stub: &str| Watch {
            pager: pager.id() as Pid,
            socket: launchers.as_raw_fd(),
            tree: Vec::new(),
            environment_entry: "MEMFIT_SOCKET=guard-test".into(),
            stub: stub.into(),
            fallback_dir: "/nonexistent/fallback_dir".into(),
        };
        let (wrong, in_order, right) = (watch("libmemfit.so"), watch(&stub), watch(&stub));
        pager.wait().unwrap();
        wrong.run();
        assert!(member.try_wait().unwrap().is_none());
        // What the launcher has not read comes first.
        for message in [FromPager::Serves, FromPager::Done] {
            seqpacket::send(pagers.as_fd(), &serde_json::to_vec(&message).unwrap(), None).unwrap();
        }
        in_order.run();
        assert!(member.try_wait().unwrap().is_none(), "nobody was managed");
        right.run();
        assert!(member.wait().unwrap().code().is_none(), "killed");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
