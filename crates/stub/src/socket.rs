//! The stub's connection to the pager: one message per packet, with at most one descriptor.

use crate::forbidden::forbids_here;
use crate::sys::{self, syscall, Iovec};
use core::mem::{size_of, zeroed, MaybeUninit};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use memfit_wire::{Command, FromStub, MAGIC, PLACE_SOCKET, SOCKET_NAME_MAX, START_PREFIX, VERSION};

static mut SOCKET_NAME: [u8; SOCKET_NAME_MAX] = [0; SOCKET_NAME_MAX];
static SOCKET_NAME_LEN: AtomicUsize = AtomicUsize::new(0);
/// Directory of the socket for processes in other network namespaces, with a null; 0 bytes: none.
static mut PLACE: [u8; PLACE_ROOM] = [0; PLACE_ROOM];
static PLACE_LEN: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the longest path of that socket, with a null.
const PLACE_ROOM: usize = SOCKET_NAME_MAX + PLACE_SOCKET.len() + 1;

/// Sets the name of the pager's socket. Called once, before the stub thread exists.
pub fn set_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > SOCKET_NAME_MAX {
        return false;
    }
    // SAFETY: the constructor is the only writer and runs before the first reader.
    unsafe {
        let target = &raw mut SOCKET_NAME;
        sys::copy(target as usize, name.as_ptr() as usize, name.len());
    }
    SOCKET_NAME_LEN.store(name.len(), Relaxed);
    true
}

/// Sets the directory. As [`set_name`].
pub fn set_place(name: &[u8]) {
    if !name.is_empty() && name.len() <= SOCKET_NAME_MAX {
        // SAFETY: as in `set_name`.
        unsafe { sys::copy(&raw mut PLACE as usize, name.as_ptr() as usize, name.len()) };
        PLACE_LEN.store(name.len(), Relaxed);
    }
}

/// The path of the socket in the directory, with a null.
fn place_socket() -> Option<[u8; PLACE_ROOM]> {
    let len = PLACE_LEN.load(Relaxed);
    if len == 0 {
        return None;
    }
    let mut path = [0; PLACE_ROOM];
    // SAFETY: the name was written before this thread started; both fit.
    unsafe {
        sys::copy(path.as_mut_ptr() as usize, &raw const PLACE as usize, len);
        sys::copy(path.as_mut_ptr() as usize + len, PLACE_SOCKET.as_ptr() as usize, PLACE_SOCKET.len());
    }
    Some(path)
}

/// Pager and launcher are dead, so nobody else removes the socket. A program of the tree can have
/// made the directory, or a link to another one.
pub fn remove_place() {
    const AT_FDCWD: usize = -100i32 as usize;
    // O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC.
    const DIRECTORY: usize = 0o12600000;
    if let Some(mut path) = place_socket() {
        let name = PLACE_LEN.load(Relaxed) + 1;
        path[name - 1] = 0;
        // SAFETY: names that end with a null.
        unsafe {
            let directory = syscall!(sys::OPENAT, AT_FDCWD, path.as_ptr(), DIRECTORY);
            if directory < 0 {
                return;
            }
            syscall!(sys::UNLINKAT, directory, path.as_ptr().add(name), 0);
            syscall!(sys::CLOSE, directory);
            syscall!(sys::RMDIR, path.as_ptr());
        }
    }
}

/// Sends a request with these flags and this token on a connection of its own, without the stub
/// thread. Returns the kind of the answer, 0 if there is none.
pub fn ask(kind: u32, flags: u32, token: u64) -> u32 {
    // SAFETY: all-zero is a valid message.
    let mut request: FromStub = unsafe { zeroed() };
    request.kind = kind;
    request.flags = flags;
    request.token = token;
    match by_name(b"", WAITING) {
        Ok(socket) => answer(socket, &mut request, None, &mut -1),
        Err(sys::EMFILE) => ask_without_room(request),
        Err(_) => by_path(WAITING).map_or(0, |socket| answer(socket, &mut request, None, &mut -1)),
    }
}

/// The process has no descriptor free: a thread asks that has a copy of the table, and closes one
/// there.
fn ask_without_room(request: FromStub) -> u32 {
    extern "C" fn body(question: *mut u8) {
        // SAFETY: the caller waits meanwhile. The descriptor is closed in this thread's table only.
        unsafe {
            let (request, kind) = &mut *question.cast::<(FromStub, u32)>();
            syscall!(sys::CLOSE, 0);
            *kind = ask_with(request, None);
        }
    }
    let mut question = (request, 0u32);
    // SAFETY: nothing here uses thread-local variables.
    unsafe { sys::with_own_descriptors(body, (&raw mut question).cast()) };
    question.1
}

/// The same with a full message, and perhaps a descriptor.
pub fn ask_with(request: &mut FromStub, fd: Option<i32>) -> u32 {
    ask_for(request, fd, &mut -1)
}

/// The same. `got`: the descriptor in the answer, if there is one.
pub fn ask_for(request: &mut FromStub, fd: Option<i32>, got: &mut i32) -> u32 {
    connect().map_or(0, |socket| answer(socket, request, fd, got))
}

fn answer(socket: i32, request: &mut FromStub, fd: Option<i32>, got: &mut i32) -> u32 {
    // SAFETY: all-zero is a valid message.
    let mut answer: Command = unsafe { zeroed() };
    let answered = send(socket, request, fd) && receive(socket, &mut answer, got) == size_of::<Command>() as isize;
    close(socket);
    *got = above_standard(*got);
    if answered {
        answer.kind
    } else {
        0
    }
}

/// Whether there is a pager.
pub fn is_known() -> bool {
    SOCKET_NAME_LEN.load(Relaxed) != 0
}

const SOL_SOCKET: usize = 1;

#[repr(C)]
struct SockaddrUn {
    family: u16,
    path: [u8; 108],
}

/// How to connect: wait as long as needed; not at all (SOCK_NONBLOCK); for [`ROUND`] at most.
const WAITING: usize = 0;
const NOW: usize = 0o4000;
const FOR_A_ROUND: usize = 1;
/// A wait at the start socket takes so many rounds at most, or up to twice as many, by the pid: 10
/// to 20 s, so that not all give up at the same time. A round is a `timeval`.
const ROUNDS: usize = 40;
const ROUND: [i64; 2] = [0, 250_000];

/// A new connection by the abstract name or, in another network namespace, by the path.
pub fn connect() -> Option<i32> {
    by_name(b"", WAITING).ok().or_else(|| by_path(WAITING))
}

/// The same, but `None` instead of a wait.
pub fn connect_now() -> Option<i32> {
    by_name(b"", NOW).ok().or_else(|| by_path(NOW))
}

/// A new connection to the start socket, and whether it had to wait: the pager closes that socket
/// while little memory is free and other processes are new. No connection if there is no such
/// socket, or if this process must not wait, or no longer. `interrupted`: whether it must end its
/// wait, asked now and then.
pub fn start(may_wait: bool, interrupted: impl Fn() -> bool) -> (Option<i32>, bool) {
    let connect = |how| by_name(START_PREFIX.as_bytes(), how);
    match connect(NOW) {
        Ok(socket) => return (Some(socket), false),
        Err(sys::EAGAIN) if may_wait => {}
        Err(_) => return (None, false),
    }
    // Any user can have bound the names of a pager that has ended, and would let us wait.
    let Some(trusted) = connect_now() else { return (None, false) };
    close(trusted);
    // SAFETY: asks for a number.
    let rounds = ROUNDS + unsafe { syscall!(sys::GETPID) } as usize % ROUNDS;
    for _ in 0..rounds {
        match connect(FOR_A_ROUND) {
            Ok(socket) => return (Some(socket), true),
            Err(sys::EAGAIN) if !interrupted() => {}
            Err(_) => break,
        }
    }
    (None, true)
}

fn by_path(how: usize) -> Option<i32> {
    let path = place_socket()?;
    let mut address = SockaddrUn { family: 1, path: [0; 108] };
    // SAFETY: PLACE_ROOM < 108.
    unsafe { sys::copy(address.path.as_mut_ptr() as usize, path.as_ptr() as usize, PLACE_ROOM) };
    connect_to(&address, 2 + PLACE_ROOM, how).ok()
}

const _: () = assert!(START_PREFIX.len() + SOCKET_NAME_MAX < 107);

/// `prefix`: nothing, or [`START_PREFIX`]. The error is an errno, or 0.
fn by_name(prefix: &[u8], how: usize) -> Result<i32, i32> {
    let len = SOCKET_NAME_LEN.load(Relaxed);
    let mut address = SockaddrUn { family: 1, path: [0; 108] };
    // SAFETY: both fit into 107 bytes; the name was written before this thread started.
    unsafe {
        let at = address.path.as_mut_ptr().add(1) as usize;
        sys::copy(at, prefix.as_ptr() as usize, prefix.len());
        sys::copy(at + prefix.len(), &raw const SOCKET_NAME as usize, len);
    }
    connect_to(&address, 2 + 1 + prefix.len() + len, how)
}

fn connect_to(address: &SockaddrUn, bytes: usize, how: usize) -> Result<i32, i32> {
    const SO_SNDTIMEO: usize = 21;
    if [sys::SOCKET, sys::CONNECT, sys::SENDMSG, sys::RECVMSG].into_iter().any(forbids_here) {
        return Err(sys::EPERM as i32);
    }
    // SAFETY: the address has at least `bytes` bytes, the time its own. The socket is
    // SOCK_SEQPACKET | SOCK_CLOEXEC.
    unsafe {
        let socket = syscall!(sys::SOCKET, 1, 5 | 0o2000000 | (how & NOW), 0);
        if socket < 0 {
            return Err(-socket as i32);
        }
        let socket = above_standard(socket as i32);
        if how == FOR_A_ROUND {
            syscall!(sys::SETSOCKOPT, socket, SOL_SOCKET, SO_SNDTIMEO, ROUND.as_ptr(), size_of_val(&ROUND));
        }
        let result = syscall!(sys::CONNECT, socket, address as *const SockaddrUn, bytes);
        if result < 0 || !is_trusted(socket) {
            close(socket);
            return Err(-result as i32);
        }
        Ok(socket)
    }
}

/// A new descriptor at another number if the program has closed a standard one and this has its
/// place: another thread may write there, and expects EBADF. It stays where it is if there is no
/// other number.
fn above_standard(fd: i32) -> i32 {
    if !(0..sys::STANDARD as i32).contains(&fd) || forbids_here(sys::FCNTL) {
        return fd;
    }
    // SAFETY: our own descriptor.
    let other = unsafe { syscall!(sys::FCNTL, fd, sys::DUP_CLOEXEC, sys::STANDARD) };
    if other < 0 {
        return fd;
    }
    close(fd);
    other as i32
}

/// Closes a connection.
pub fn close(socket: i32) {
    // SAFETY: our own descriptor.
    unsafe { syscall!(sys::CLOSE, socket) };
}

/// Whether the other end belongs to root or to the only user of this process: a program with a
/// saved user of more rights is not the user's that it has for a moment. Any user can bind the name
/// of a pager that has ended, or make its directory, and whoever listens there gets the memory of
/// this process.
fn is_trusted(socket: i32) -> bool {
    const SO_PEERCRED: usize = 17;
    // Pid, uid, gid.
    let mut peer = [u32::MAX; 3];
    let mut bytes = size_of::<[u32; 3]>() as u32;
    let (mut real, mut effective, mut saved) = (u32::MAX, u32::MAX, u32::MAX);
    // SAFETY: the kernel writes at most that many bytes, and the three numbers.
    let failed = unsafe {
        let peer = peer.as_mut_ptr();
        syscall!(sys::GETSOCKOPT, socket, SOL_SOCKET, SO_PEERCRED, peer, &raw mut bytes) != 0
            || syscall!(sys::GETRESUID, &raw mut real, &raw mut effective, &raw mut saved) != 0
    };
    !failed && (peer[1] == 0 || [real, effective, saved] == [peer[1]; 3])
}

#[repr(C)]
struct Msghdr {
    name: *mut u8,
    name_len: u32,
    iov: *mut Iovec,
    iov_len: usize,
    control: *mut u8,
    control_len: usize,
    flags: i32,
}

/// A control message with one descriptor: cmsghdr (16 bytes) and data, padded.
#[repr(C, align(8))]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fd: i32,
    padding: i32,
}

/// Sends a message with the tid of the calling thread, and a descriptor if there is one.
pub fn send(socket: i32, message: &mut FromStub, fd: Option<i32>) -> bool {
    message.magic = MAGIC;
    message.version = VERSION;
    // SAFETY: message, control and header live through the calls; SCM_RIGHTS = 1 at SOL_SOCKET = 1;
    // MSG_NOSIGNAL = 0x4000.
    unsafe {
        message.tid = syscall!(sys::GETTID) as u32;
        let mut control = Control { len: 20, level: 1, kind: 1, fd: fd.unwrap_or(-1), padding: 0 };
        let mut iov = Iovec { base: message as *mut FromStub as usize, bytes: size_of::<FromStub>() };
        let mut header: Msghdr = zeroed();
        header.iov = &raw mut iov;
        header.iov_len = 1;
        if fd.is_some() {
            header.control = (&raw mut control).cast();
            header.control_len = 24;
        }
        syscall!(sys::SENDMSG, socket, &raw const header, 0x4000) == size_of::<FromStub>() as isize
    }
}

/// Waits for a message. Returns its bytes, 0 at the end, or `-errno`. `fd`: its descriptor, if any.
pub fn receive(socket: i32, command: &mut Command, fd: &mut i32) -> isize {
    let mut control = MaybeUninit::<Control>::zeroed();
    // SAFETY: as in `send`; the kernel writes at most the sizes given. MSG_CMSG_CLOEXEC =
    // 0x40000000.
    unsafe {
        loop {
            let mut iov = Iovec { base: command as *mut Command as usize, bytes: size_of::<Command>() };
            let mut header: Msghdr = zeroed();
            header.iov = &raw mut iov;
            header.iov_len = 1;
            header.control = control.as_mut_ptr().cast();
            header.control_len = size_of::<Control>();
            let got = syscall!(sys::RECVMSG, socket, &raw mut header, 0x4000_0000);
            // ECONNRESET (104) comes once, before the last messages of the other end, if that end
            // left something unread.
            if got == -(sys::EINTR as isize) || got == -104 {
                continue;
            }
            if header.control_len >= 20 && got > 0 {
                *fd = control.assume_init_ref().fd;
            }
            return got;
        }
    }
}
