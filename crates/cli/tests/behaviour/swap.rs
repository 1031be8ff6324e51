//! The swap tier with data that do not compress: refaults, the contents of the device, and injected
//! faults of every kind. A page is right or memfit ends the program with a reason: never wrong
//! data, never a silent hang.

use crate::support::contents::{assert_contents, assert_contents_eq};
use crate::support::process::{dies_with_this_thread, Ran};
use crate::support::tree::eventually;
use crate::support::{memfit_command, sized, skip, Bench};
use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BUDGET: &str = "48M";

struct Noise {
    bench: Bench,
}

impl Noise {
    fn new(name: &str) -> Option<Noise> {
        Noise::but(name, "")
    }

    /// With a line of C put first into the function that makes the words.
    fn but(name: &str, line: &str) -> Option<Noise> {
        let bench = Bench::new(name, &["gcc"])?;
        let head = "static uint64_t noise_word(uint64_t page, uint64_t version, uint64_t i) {";
        let source = include_str!("../workloads/noise.c");
        assert!(source.contains(head), "noise.c has its function still");
        bench.file("pages.h", include_str!("../workloads/pages.h"));
        bench.compile(&["gcc"], "noise", &source.replace(head, &format!("{head}\n{line}")))?;
        Some(Noise { bench })
    }

    fn command(&self, options: &[&str], faults: &str, noise: &str) -> Command {
        let mut command = memfit_command();
        command.args(["run", "-m", BUDGET, "--stats", "stats.json"]).args(options).arg("--");
        command.arg(self.bench.directory.join("noise")).args(noise.split(' ')).env("MEMFIT_SWAP_FAULTS", faults);
        command
    }

    /// Runs it with injected faults of the device.
    #[track_caller]
    fn run(&self, options: &[&str], faults: &str, noise: &str) -> Ran {
        let ran = self.bench.checked(self.command(options, faults, noise), noise);
        assert_contents!(!String::from_utf8_lossy(&ran.out).contains("MISMATCH"), "{faults}: wrong data: {}", ran.err);
        ran
    }

    #[track_caller]
    fn right(&self, options: &[&str], faults: &str, noise: &str) -> (Ran, Value) {
        let ran = self.run(options, faults, noise);
        assert_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{faults}: {}", ran.err);
        let text = fs::read(self.bench.directory.join("stats.json")).unwrap();
        (ran, serde_json::from_slice(&text).unwrap())
    }

    /// It ends with an error that says all of this.
    #[track_caller]
    fn ends(&self, options: &[&str], faults: &str, noise: &str, reasons: &[&str]) {
        let ran = self.run(options, faults, noise);
        assert_ne!(ran.code, Some(0), "{faults}: {}", ran.err);
        assert!(ran.out.is_empty(), "{faults}");
        for reason in reasons {
            assert!(ran.err.contains(reason), "{faults}: no {reason:?} in {}", ran.err);
        }
    }
}

fn number(stats: &Value, key: &str) -> u64 {
    stats.pointer(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("{key} is missing: {stats:#}"))
}

#[test]
fn what_does_not_compress_comes_back() {
    let Some(noise) = Noise::new("noise") else { return };
    for mode in ["72 1 seq", "60 1 rand", "72 1 seqw", "60 1 randw"] {
        let (ran, stats) = noise.right(&["--endurance", "9T"], "", mode);
        assert!(!ran.err.contains("warning"), "{}", ran.err);
        assert!(number(&stats, "/faults/swap") > 300, "{mode}: {stats:#}");
        assert_eq!(number(&stats, "/swap/errors"), 0);
        let (written, objects) = (number(&stats, "/swap/write_bytes"), number(&stats, "/swap/object_bytes"));
        assert!(
            written >= objects && written < objects * 5 / 4 + number(&stats, "/swap/cleaned_bytes"),
            "{mode}: {stats:#}"
        );
        assert!(stats["swap"]["endurance_days"].is_f64() && stats["swap"]["endurance_bytes"] == 9u64 << 40);
    }
    // Without io_uring, as in many containers.
    let mut command = noise.command(&[], "", "70 1 randw");
    command.env("MEMFIT_NO_IO_URING", "1");
    let ran = noise.bench.checked(command, "without io_uring");
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
}

#[test]
fn clean_pages_are_not_written_again() {
    let Some(noise) = Noise::new("clean_pages") else { return };
    let (_, stats) = noise.right(&[], "", "100 4 seq");
    let (clean, written) = (number(&stats, "/evictions/clean"), number(&stats, "/swap/write_bytes"));
    assert!(clean > 40_000 && written < 250 << 20, "five passes over 100 MiB that change nothing: {stats:#}");
}

/// As the kernel's swap cache does.
#[test]
fn clean_pages_keep_their_raw_slots() {
    let Some(noise) = Noise::new("clean_slots") else { return };
    for scheme in ["swap", "zswap-zbud"] {
        let (_, stats) = noise.right(&["--scheme", scheme], "", "100 4 seq");
        let (clean, written) = (number(&stats, "/evictions/clean"), number(&stats, "/swap/write_bytes"));
        assert!(clean > 40_000 && written < 250 << 20, "{scheme}: five passes that change nothing: {stats:#}");
        // The data are right also when half of them change, and with few slots.
        noise.right(&["--scheme", scheme], "", "100 3 seqw");
        noise.right(&["--scheme", scheme, "--swap-size", "112M"], "", "100 2 seqw");
    }
}

/// Pages that came back are evicted first again, from the program and from the pool.
const BIMODAL: [&str; 2] = ["reclaim=bimodal", "replacement=bimodal"];
/// The page that was used last is evicted last.
const OLDEST: [&str; 2] = ["reclaim=fifo", "replacement=fifo"];

#[test]
fn compressed_clean_pages_are_not_written_again() {
    // Every other word is zero: the data exceed the budget even when they are compressed.
    let Some(noise) = Noise::but("compressed_clean", "if (i % 2) return 0;") else { return };
    let written = |scheme: [&str; 2], mode: &str| {
        // Store them compressed also where other programs use the CPUs.
        let scheme = [scheme[0], scheme[1], "admission.busy_max_len=4096"].map(|set| ["--set", set]);
        let (_, stats) = noise.right(scheme.as_flattened(), "", mode);
        (number(&stats, "/swap/write_bytes") >> 20, number(&stats, "/evictions/clean"))
    };
    let mib = sized(120, 200);
    let (kept, clean) = written(BIMODAL, &format!("{mib} 5 seq"));
    let (lost, none) = written(OLDEST, &format!("{mib} 5 seq"));
    assert!(
        clean > mib * 300 && none == 0 && kept * 2 < lost,
        "{kept} of {lost} MiB written, {clean} and {none} clean"
    );
    // The data are right also when half of them change.
    written(BIMODAL, &format!("{mib} 3 seqw"));
}

#[test]
fn several_places_are_filled_in_order() {
    let Some(noise) = Noise::new("several_places") else { return };
    let places = ["first", "second", "third"].map(|name| noise.bench.directory.join(name));
    places.iter().for_each(|place| fs::create_dir(place).unwrap());
    let [a, b, c] = places.each_ref().map(|place| place.to_str().unwrap());
    let places = ["--swap", a, "--swap", b, "--swap", c];
    let (_, stats) = noise.right(&[&places[..], &["--swap-size", "50M"]].concat(), "", "115 1 randw");
    assert!(number(&stats, "/peak/swap_bytes") > 55 << 20, "the second one was used: {stats:#}");
    assert_eq!(fs::read_dir(a).unwrap().count(), 0, "the file has no name");
    // Places with names show how far each was filled.
    let places = ["one", "two", "three"].map(|name| noise.bench.file(name, ""));
    let [a, b, c] = places.each_ref().map(|place| place.to_str().unwrap());
    for scheme in ["memfit", "swap", "cervera99"] {
        let places = ["--swap", a, "--swap", b, "--swap", c, "--swap-overwrite", "--scheme", scheme];
        noise.right(&[&places[..], &["--swap-size", "50M"]].concat(), "", "115 1 randw");
        let [one, two, three] = [a, b, c].map(|place| fs::metadata(place).unwrap().len());
        assert!(one > 45 << 20 && two > 4 << 20, "{scheme}: {one} and {two} bytes");
        // The log grows before it is cleaned, and batches go where a run of free blocks is.
        assert!(scheme != "swap" || three < 1 << 20, "{scheme}: {three} bytes although the second has room");
        [a, b, c].iter().for_each(|place| fs::write(place, "").unwrap());
    }
}

/// A file of the user's keeps its first page, and its contents afterwards reveal nothing about the
/// program.
#[test]
fn the_device_has_nothing_to_read() {
    let Some(noise) = Noise::but("secrecy", "if (i < 2) return 0x7465726365732079ull;") else { return };
    let place = noise.bench.file("place", "");
    let (_, stats) = noise.right(&["--swap", place.to_str().unwrap()], "", "100 1 seq");
    assert!(number(&stats, "/swap/write_bytes") > 20 << 20);
    let bytes = fs::read(&place).unwrap();
    let mark = b"memfit swap tier\n";
    assert!(bytes.len() > 20 << 20 && bytes.starts_with(mark), "a place that was empty is marked");
    assert!(bytes[mark.len()..4096].iter().all(|&byte| byte == 0), "and nothing else is written there");
    let secret = b"y secrety secret";
    assert!(!bytes.windows(secret.len()).any(|window| window == secret), "the program's bytes are in the file");
    assert_eq!(fs::metadata(&place).unwrap().uid(), fs::metadata(&noise.bench.directory).unwrap().uid());
}

#[test]
fn a_device_that_stumbles() {
    let Some(noise) = Noise::new("stumbles") else { return };
    noise.right(&[], "seed=1,short=300", "60 1 randw");
    noise.right(&[], "seed=2,stall=10,stall-ms=100", "60 1 seqw");
    let (_, stats) = noise.right(&[], "seed=3,flip=5", "60 1 randw");
    assert!(number(&stats, "/swap/errors") > 0, "what was read wrong once is read again: {stats:#}");
}

#[test]
fn a_device_that_stops_for_long_is_reported() {
    let Some(noise) = Noise::new("stops") else { return };
    let (ran, _) = noise.right(&[], "seed=4,stall-at=20,stall-ms=6000", "80 1 seq");
    assert!(ran.err.contains("the swap tier does not answer"), "{}", ran.err);
}

/// A page is read alone if a read of several pages fails.
#[test]
fn a_device_that_fails_at_long_reads() {
    let Some(noise) = Noise::new("long_reads") else { return };
    for scheme in ["memfit", "swap"] {
        let (_, stats) = noise.right(&["--scheme", scheme], "long-eio=400", "60 1 seq");
        assert!(number(&stats, "/swap/errors") > 0, "{scheme}: no read was long: {stats:#}");
    }
}

/// The program never gets damaged data: it is killed, and memfit says why.
#[test]
fn a_device_that_loses_data() {
    let Some(noise) = Noise::new("loses") else { return };
    for (faults, reason) in
        [("seed=5,read-eio=1000", "Input/output error"), ("seed=6,flip=1000", "other bytes than were written")]
    {
        noise.ends(&[], faults, "70 1 rand", &["killed process", "noise", reason]);
    }
    for seed in 10..13 {
        let ran = noise.run(&[], &format!("seed={seed},read-eio=20,flip=20"), "70 1 rand");
        assert!(ran.code == Some(0) || ran.err.contains("killed process"), "{}", ran.err);
    }
}

/// What cannot be written stays in memory. If there is no room for that, memfit ends the run and
/// says so.
#[test]
fn a_device_that_takes_no_writes() {
    let Some(noise) = Noise::new("no_writes") else { return };
    for faults in ["seed=7,write-eio=1000", "seed=8,write-enospc=1000"] {
        let (ran, _) = noise.right(&[], faults, "48 2 seqw");
        assert!(ran.err.contains("the swap tier"), "{faults}: {}", ran.err);
        for scheme in ["memfit", "cervera99"] {
            let options = ["--scheme", scheme];
            noise.ends(&options, faults, "200 1 seqw", &["out of memory", "the swap tier", "-m"]);
        }
    }
    // Some writes before the first one that fails: the blocks that the device has are soon taken.
    for scheme in ["swap", "cervera99"] {
        let reasons = ["out of memory", "the swap tier is full: free space"];
        noise.ends(&["--scheme", scheme], "seed=9,write-enospc=20", "200 1 seqw", &reasons);
    }
    noise.ends(&["--swap", "none"], "", "200 1 seqw", &["out of memory", "--swap DIR"]);
    for scheme in ["memfit", "cervera99"] {
        let options = ["--scheme", scheme, "--swap-size", "20M"];
        noise.ends(&options, "", "200 1 seqw", &["out of memory", "raise --swap-size"]);
    }
}

/// Gives this thread, and what it starts from now on, mounts of its own: none is left when the test
/// is killed.
fn have_own_mounts() -> Result<(), String> {
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the path is a string, and the kernel reads none of the null pointers.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0 && libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) == 0
    };
    if done {
        return Ok(());
    }
    Err(format!("no mount namespace: {}", std::io::Error::last_os_error()))
}

/// A file system of the test's own, taken down whatever happens.
struct Mounted {
    place: PathBuf,
}

impl Mounted {
    fn new(directory: &Path, mib: u64) -> Result<Mounted, String> {
        let (image, place) = (directory.join("image"), directory.join("mounted"));
        fs::create_dir(&place).unwrap();
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        sh(&format!("mkfs.ext4 -q -F '{}'", image.display()))?;
        have_own_mounts()?;
        let device = sh(&format!("losetup --find --show '{}'", image.display()))?;
        // A loop device can still be read-only from an earlier use.
        let tried = sh(&format!("blockdev --setrw {device} && mount {device} '{}'", place.display()));
        // The kernel detaches it when it is not mounted any more.
        sh(&format!("losetup --detach {device}"))?;
        tried.map(|_| Mounted { place })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = sh(&format!("umount '{}'", self.place.display()));
    }
}

fn sh(line: &str) -> Result<String, String> {
    let got = Command::new("sh").args(["-c", line]).output().map_err(|error| error.to_string())?;
    match got.status.success() {
        true => Ok(String::from_utf8_lossy(&got.stdout).trim().to_owned()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&got.stderr).trim())),
    }
}

#[test]
fn a_real_file_system_that_is_full() {
    let Some(noise) = Noise::new("real_trouble") else { return };
    let mounted = match Mounted::new(&noise.bench.directory, 24) {
        Ok(mounted) => mounted,
        Err(reason) => return skip("real_trouble", &format!("no file system of its own here: {reason}")),
    };
    let place = mounted.place.to_str().unwrap();
    // More than the file system holds: what fits is written, the rest stays in memory.
    let options = ["--swap", place, "--swap-size", "1G"];
    let (ran, stats) = noise.right(&options, "", "60 2 seqw");
    assert!(number(&stats, "/swap/write_bytes") > 4 << 20, "{stats:#}");
    assert!(!ran.err.contains("killed"), "{}", ran.err);
    noise.ends(&options, "", "200 1 seqw", &["out of memory", "the swap tier"]);
}

/// The run goes on in the places that are left, and says which one was full.
#[test]
fn one_of_two_places_is_full() {
    let Some(noise) = Noise::new("one_full") else { return };
    let mounted = match Mounted::new(&noise.bench.directory, 24) {
        Ok(mounted) => mounted,
        Err(reason) => return skip("one_full", &format!("no file system of its own here: {reason}")),
    };
    let (first, second) = (mounted.place.to_str().unwrap(), noise.bench.directory.to_str().unwrap());
    for scheme in ["memfit", "swap", "cervera99"] {
        let options = ["--swap", first, "--swap", second, "--swap-size", "300M", "--scheme", scheme];
        let (ran, stats) = noise.right(&options, "", "110 2 seqw");
        let told = format!("the swap tier cannot grow at {first}: No space left on device; going on with the room");
        assert!(ran.err.contains(&told), "{scheme}: {}", ran.err);
        assert!(!ran.err.contains("out of memory"), "{scheme}: {}", ran.err);
        let peak = number(&stats, "/peak/total_bytes");
        assert!(peak < 60 << 20, "{scheme}: {peak} bytes in a budget of 48M");
    }
}

/// The same with a place that breaks.
#[test]
fn one_of_two_places_breaks() {
    let Some(noise) = Noise::new("one_breaks") else { return };
    let second = noise.bench.directory.to_str().unwrap().to_owned();
    for scheme in ["memfit", "swap", "cervera99"] {
        let directory = noise.bench.directory.join(scheme);
        fs::create_dir(&directory).unwrap();
        let mounted = match Mounted::new(&directory, 200) {
            Ok(mounted) => mounted,
            Err(reason) => return skip("one_breaks", &format!("no file system of its own here: {reason}")),
        };
        let first = mounted.place.to_str().unwrap().to_owned();
        let abort = std::thread::spawn({
            let (place, path) = (mounted.place.clone(), first.clone());
            let empty = used_blocks(&place);
            move || {
                eventually("the swap tier is written to", || used_blocks(&place) > empty + WRITTEN_BLOCKS);
                sh(&format!("mount -o remount,abort '{path}'"))
            }
        });
        let options = ["--swap", &first, "--swap", &second, "--swap-size", "300M", "--scheme", scheme];
        let (ran, stats) = noise.right(&options, "", "100 8 seqw");
        if let Err(reason) = abort.join().unwrap() {
            return skip("one_breaks", &format!("cannot be made to: {reason}"));
        }
        assert!(ran.err.contains(&format!("cannot write to the swap tier at {first}: ")), "{scheme}: {}", ran.err);
        assert!(ran.err.contains("going on with the other places"), "{scheme}: {}", ran.err);
        assert_eq!(ran.err.matches("cannot write").count(), 1, "{scheme}: {}", ran.err);
        let peak = number(&stats, "/peak/total_bytes");
        assert!(peak < 60 << 20, "{scheme}: {peak} bytes in a budget of 48M");
    }
}

/// Blocks of a file system that are in use.
fn used_blocks(place: &Path) -> u64 {
    let path = CString::new(place.as_os_str().as_bytes()).unwrap();
    // SAFETY: statfs is plain data; the path is a string, and the structure is ours.
    unsafe {
        let mut of: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(path.as_ptr(), &raw mut of), 0);
        of.f_blocks - of.f_bfree
    }
}

/// 2 MiB.
const WRITTEN_BLOCKS: u64 = 512;

/// Objects keep their memory until they are written, so a failed write loses nothing.
#[test]
fn a_real_file_system_that_becomes_read_only() {
    let Some(noise) = Noise::new("read_only") else { return };
    let mounted = match Mounted::new(&noise.bench.directory, 200) {
        Ok(mounted) => mounted,
        Err(reason) => return skip("read_only", &format!("no file system of its own here: {reason}")),
    };
    let place = mounted.place.to_str().unwrap().to_owned();
    // ext4 does this itself when it finds an error.
    if let Err(reason) = sh(&format!("mount -o remount,errors=remount-ro '{place}'")) {
        return skip("read_only", &format!("cannot be made to: {reason}"));
    }
    // Abort when something has been written; most passes of the program come after that.
    let empty = used_blocks(&mounted.place);
    let abort = std::thread::spawn({
        let place = mounted.place.clone();
        move || {
            eventually("the swap tier is written to", || used_blocks(&place) > empty + WRITTEN_BLOCKS);
            sh(&format!("mount -o remount,abort '{}'", place.display()))
        }
    });
    let (ran, _) = noise.right(&["--swap", &place], "", "48 15 seqw");
    if let Err(reason) = abort.join().unwrap() {
        return skip("read_only", &format!("cannot be made to: {reason}"));
    }
    let told = format!("cannot write to the swap tier at {place}: Read-only file system");
    assert!(ran.err.contains(&told) && ran.err.contains("going on without it"), "{}", ran.err);
    noise.ends(&["--swap", &place], "", "44 1 seqw", &["no file can be made in it", "Read-only file system"]);
}

/// A file system whose every answer comes from a program. Taken down whatever happens.
struct Fuse {
    place: PathBuf,
    server: Child,
}

impl Fuse {
    fn new(program: &Path, place: PathBuf, injected: Option<&str>) -> Result<Fuse, String> {
        fs::create_dir_all(&place).unwrap();
        have_own_mounts()?;
        let mut command = Command::new(program);
        command.arg(&place).arg("300").args(injected).stdout(Stdio::piped()).stderr(Stdio::piped());
        dies_with_this_thread(&mut command);
        let mut server = command.spawn().map_err(|error| error.to_string())?;
        let mut line = [0; 8];
        if server.stdout.take().unwrap().read_exact(&mut line).is_err() {
            let text = server.wait_with_output().map_err(|error| error.to_string())?.stderr;
            return Err(String::from_utf8_lossy(&text).trim().to_owned());
        }
        Ok(Fuse { place, server })
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = sh(&format!("umount -l '{}'", self.place.display()));
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_file_whose_file_system_is_a_program_that_fails() {
    let Some(noise) = Noise::new("fuse") else { return };
    let Some(program) = noise.bench.compile(&["gcc"], "fusefile", include_str!("../workloads/fusefile.c")) else {
        return;
    };
    let mount = |injected| match Fuse::new(&program, noise.bench.directory.join("mounted"), injected) {
        Ok(fuse) => Some(fuse),
        Err(reason) => {
            skip("fuse", &format!("no file system in user space here: {reason}"));
            None
        }
    };
    let swap = noise.bench.directory.join("mounted/swap");
    let options = ["--swap", swap.to_str().unwrap()];
    let Some(fuse) = mount(None) else { return };
    let (ran, stats) = noise.right(&options, "", "80 1 randwp");
    assert!(ran.err.contains("it is on fuse") && number(&stats, "/swap/read_bytes") > 8 << 20, "{}", ran.err);
    drop(fuse);
    let fuse = mount(Some("read-eio=600"));
    noise.ends(&options, "", "80 1 seqp", &["killed process", "noise", "Input/output error"]);
    drop(fuse);
    let fuse = mount(Some("write-eio=40"));
    let broken = "Input/output error; going on without it";
    noise.ends(&options, "", "80 1 seqw", &["out of memory", broken, "-m"]);
    drop(fuse);
    let fuse = mount(Some("flip=50"));
    let (_, stats) = noise.right(&options, "", "80 1 seqp");
    assert!(number(&stats, "/swap/errors") > 0, "what was read wrong once is read again: {stats:#}");
    drop(fuse);
    let fuse = mount(Some("stall=600"));
    let (ran, _) = noise.right(&options, "", "80 1 seqp");
    assert!(ran.err.contains("the swap tier does not answer"), "{}", ran.err);
    drop(fuse);
}

#[test]
fn the_pool_is_locked() {
    let Some(bench) = Bench::new("lock_pool", &["setpriv", "prlimit"]) else { return };
    let of_children = "for s in /proc/[0-9]*/status; do grep -q \"^PPid:.$PPID$\" $s && grep VmLck $s; done; true";
    let run = |options: &[&str]| {
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "64M"]).args(options).args(["--", "sh", "-c", of_children]);
        let said = command.current_dir(&bench.directory).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let text = String::from_utf8(said.stdout).unwrap();
        let kibibytes = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        kibibytes.max().expect("the pager is among the launcher's children")
    };
    let (plain, locked) = (run(&[]), run(&["--lock-pool"]));
    assert!(locked >= plain + (32 << 10), "{plain} KiB locked without --lock-pool, {locked} with it");
    if memfit_os::process::effective_uid() != 0 {
        return skip("lock_pool", "only root can give up CAP_IPC_LOCK");
    }
    let memfit = memfit_command().get_program().to_owned();
    let mut refused = Command::new("setpriv");
    refused.args(["--bounding-set", "-ipc_lock", "prlimit", "--memlock=65536"]).arg(memfit);
    let said = refused.args(["run", "-m", "64M", "--lock-pool", "--", "echo", "ran"]).output().unwrap();
    let error = String::from_utf8(said.stderr).unwrap();
    assert_eq!((said.status.code(), &*said.stdout), (Some(1), &b""[..]), "{error}");
    assert!(error.contains("--lock-pool: cannot lock the pool") && error.contains("ulimit -l"), "{error}");
}

/// When the allowance is spent, what is left goes to the pool, and the data are right; in a log as
/// well as in slots.
#[test]
fn no_more_is_written_than_may_be_in_a_day() {
    let Some(noise) = Noise::new("swap_writes") else { return };
    // The second one never gives as many pages as `p` waits for: it works for long enough instead.
    for (scheme, line) in [("memfit", "49 2 randwp"), ("zswap-zbud", "49 24 randw")] {
        // 4 MiB at once. With what does not compress the program is some percent over its budget.
        let (ran, stats) = noise.right(&["--swap-writes", "32M", "-s", scheme], "", line);
        let written = number(&stats, "/swap/write_bytes");
        assert!(written > 3 << 20 && written < 8 << 20, "{scheme}: {written} bytes were written");
        let told = ran.err.matches("--swap-writes allows").count();
        assert_eq!((number(&stats, "/swap/held_back"), told), (1, 1), "{scheme}: {}", ran.err);
    }
    // With more than that it does not fit, and says which limit it is.
    noise.ends(&["--swap-writes", "32M"], "", "90 1 randw", &["out of memory", "raise --swap-writes"]);
}

/// What is cleaned counts as written. A tier without free segments cleans all the time.
#[test]
fn cleaning_ends_when_nothing_may_be_written() {
    let Some(noise) = Noise::new("swap_writes_clean") else { return };
    let options = ["--swap-writes", "192M", "--swap-size", "16M", "--on-full", "reclaim"];
    let (_, stats) = noise.right(&options, "", "56 4 randw");
    let [written, cleaned] = ["write_bytes", "cleaned_bytes"].map(|key| number(&stats, &format!("/swap/{key}")));
    assert!(written < 28 << 20 && cleaned > 0, "{written} bytes were written, {cleaned} of them to clean");
    assert_eq!(number(&stats, "/swap/held_back"), 1);
}
