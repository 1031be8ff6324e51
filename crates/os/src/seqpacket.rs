//! Unix sockets that keep message boundaries (`SOCK_SEQPACKET`): between launcher and pager, and
//! for clients of a pager through a name in the abstract namespace, which leaves nothing in the
//! file system.

use crate::process::{self, PidFd};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// Largest packet that is accepted, bytes: near the kernel's default limit of a send buffer.
pub const PACKET_BYTES_MAX: usize = 256 << 10;

/// How many connections of a new listener may wait to be accepted.
pub const BACKLOG: libc::c_int = 4096;

const TYPE: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: called only with descriptors that a system call has just made.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Two connected sockets.
///
/// # Errors
/// As `socketpair` gives them.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array is valid for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, TYPE, 0, ends.as_mut_ptr()) })?;
    Ok((own(ends[0]), own(ends[1])))
}

/// The address of a name in the abstract namespace (given without its leading NUL).
fn address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid address struct.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.is_empty() || name.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "socket name is empty or too long"));
    }
    for (target, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *target = byte as libc::c_char;
    }
    let size = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, size as libc::socklen_t))
}

/// A listening socket at a path that does not exist yet.
///
/// # Errors
/// When the path is too long, and as the system calls give them.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let (address, size) = address_at(path)?;
    listen(&address, size)
}

/// The next connection of a listener; reads from it wait only if `waits`.
///
/// # Errors
/// As `accept4` gives them: `WouldBlock` if nobody waits.
pub fn accept(listener: RawFd, waits: bool) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | if waits { 0 } else { libc::SOCK_NONBLOCK };
    // SAFETY: takes numbers; no address is wanted.
    Ok(own(check(unsafe { libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), flags) })?))
}

/// Sets how many connections of a listener may wait to be accepted: one more than `backlog`.
/// Further calls of `connect` wait. If there may be more than before, those try again.
pub fn set_backlog(listener: RawFd, backlog: libc::c_int) {
    // SAFETY: takes numbers.
    unsafe { libc::listen(listener, backlog) };
}

/// From here on nobody can connect. Those who wait can still be accepted.
pub fn close_to_others(listener: RawFd) {
    // SAFETY: takes numbers.
    unsafe { libc::shutdown(listener, libc::SHUT_RD) };
}

/// Connects to the socket at a path. As [`connect_abstract`].
///
/// # Errors
/// When nobody listens, and as the system calls give them.
pub fn connect_at(path: &Path) -> io::Result<OwnedFd> {
    let (address, size) = address_at(path)?;
    connect(&address, size)
}

fn address_at(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros is a valid address struct.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "socket path is empty or too long"));
    }
    for (target, byte) in address.sun_path.iter_mut().zip(bytes) {
        *target = *byte as libc::c_char;
    }
    Ok((address, size_of_val(&address) as libc::socklen_t))
}

/// A listening, nonblocking socket with that name.
///
/// # Errors
/// When the name is taken or too long, and as the system calls give them.
pub fn listen_abstract(name: &str) -> io::Result<OwnedFd> {
    let (address, size) = address(name)?;
    listen(&address, size)
}

fn listen(address: &libc::sockaddr_un, size: libc::socklen_t) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let socket = own(check(unsafe { libc::socket(libc::AF_UNIX, TYPE | libc::SOCK_NONBLOCK, 0) })?);
    // SAFETY: `address` is valid for `size` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(address).cast(), size) })?;
    // SAFETY: an own descriptor and a number.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// Connects to the socket with that name. Nonblocking: gives `WouldBlock` if the queue of the
/// listener is full.
///
/// # Errors
/// When nobody listens, and as the system calls give them.
pub fn connect_abstract(name: &str) -> io::Result<OwnedFd> {
    let (address, size) = address(name)?;
    connect(&address, size)
}

fn connect(address: &libc::sockaddr_un, size: libc::socklen_t) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let socket = own(check(unsafe { libc::socket(libc::AF_UNIX, TYPE | libc::SOCK_NONBLOCK, 0) })?);
    // SAFETY: `address` is valid for `size` bytes.
    check(unsafe { libc::connect(socket.as_raw_fd(), ptr::from_ref(address).cast(), size) })?;
    Ok(socket)
}

/// User id and pid of the other end, as of its connect or listen.
///
/// # Errors
/// As `getsockopt` gives them.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<(u32, i32)> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&credentials) as libc::socklen_t;
    let target = (&raw mut credentials).cast();
    // SAFETY: the buffer is valid for `size` bytes.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, target, &mut size) })?;
    Ok((credentials.uid, credentials.pid))
}

/// A pidfd of the process that connected.
///
/// # Errors
/// As `getsockopt` gives them. When it has ended and its pid is free: `ESRCH`, or `EINVAL` in Linux
/// 6.8 to 6.14. Later kernels give the descriptor then, too.
pub fn peer_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut pidfd: RawFd = -1;
    let mut size = size_of_val(&pidfd) as libc::socklen_t;
    let target = (&raw mut pidfd).cast();
    // SAFETY: the buffer is valid for `size` bytes.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, target, &mut size) })?;
    Ok(own(pidfd))
}

/// Whether the process that connected is alive: until it ends, no other process can have its pid.
pub fn peer_lives(socket: BorrowedFd<'_>) -> bool {
    match peer_descriptor(socket) {
        Ok(pidfd) => {
            let ended = crate::event::wait_readable([std::os::fd::AsFd::as_fd(&pidfd)], Some(Duration::ZERO));
            matches!(ended, Ok([false]))
        }
        // If no descriptor is left, the process is connected and counts as alive.
        Err(error) => !has_no_pid(&error),
    }
}

/// Whether this error of [`peer_descriptor`] says that the pid of the process is free.
fn has_no_pid(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))
}

/// Kills the process that connected, and no other process that has its pid by now.
pub fn kill_peer(socket: BorrowedFd<'_>) {
    match peer_descriptor(socket) {
        Ok(pidfd) => {
            let _ = PidFd::from(pidfd).signal(libc::SIGKILL);
        }
        Err(error) if has_no_pid(&error) => {}
        // No descriptor is left.
        Err(_) => peer(socket).map_or((), |(_, pid)| process::kill(pid)),
    }
}

/// Room for one descriptor in a control message, with the kernel's alignment.
#[repr(C, align(8))]
struct Control([u8; 24]);

const FD_BYTES: libc::c_uint = size_of::<RawFd>() as libc::c_uint;

/// Sends one packet without blocking and without SIGPIPE, with a descriptor if there is one.
///
/// # Errors
/// `WouldBlock` when the receiver does not keep up, and as `sendmsg` gives them.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut data = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    let mut control = Control([0; 24]);
    // SAFETY: all zeros is a valid header: no name, no data, no control.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &mut data;
    header.msg_iovlen = 1;
    if let Some(fd) = fd {
        header.msg_control = (&raw mut control).cast();
        // SAFETY: computes sizes from numbers.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(FD_BYTES) } as _;
        // SAFETY: the control buffer is aligned and has room for one message of one descriptor.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(FD_BYTES) as _;
            ptr::write_unaligned(libc::CMSG_DATA(message).cast(), fd.as_raw_fd());
        }
    }
    // SAFETY: the header points to live buffers of the given sizes; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A packet that arrived.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes, at most [`PACKET_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
}

/// Takes the next packet without blocking; `None` when the other end is closed.
///
/// # Errors
/// `WouldBlock` when there is none, `InvalidData` when it was cut or has several descriptors, and
/// as `recvmsg` gives them.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 24]);
    // SAFETY: all zeros is a valid header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &mut data;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to live buffers of the given sizes.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut fds = received_fds(&header);
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 || fds.len() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the packet is too large, or has more than one descriptor",
        ));
    }
    if count == 0 && fds.is_empty() {
        return Ok(None);
    }
    bytes.truncate(count as usize);
    Ok(Some(Packet { bytes, fd: fds.pop() }))
}

/// All descriptors of a message, so that none is leaked.
fn received_fds(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the header was filled by recvmsg and its control buffer is alive; the macros stay
    // within the length that the kernel has set, and every descriptor in it is new and ours.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message);
                let each = (0..bytes / size_of::<RawFd>()).map(|i| i * size_of::<RawFd>());
                fds.extend(each.map(|at| own(ptr::read_unaligned(data.add(at).cast()))));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    fds
}

/// Waits for the next packet, at most `timeout`.
///
/// # Errors
/// `TimedOut`, and as [`receive`] gives them.
pub fn receive_within(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<Option<Packet>> {
    let [ready] = crate::event::wait_readable([socket], Some(timeout))?;
    if !ready {
        return Err(io::ErrorKind::TimedOut.into());
    }
    receive(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn carries_packets_and_a_descriptor() {
        let (left, right) = pair().unwrap();
        send(left.as_fd(), b"one", None).unwrap();
        send(left.as_fd(), b"two", Some(left.as_fd())).unwrap();
        let one = receive(right.as_fd()).unwrap().unwrap();
        assert_eq!((one.bytes.as_slice(), one.fd.is_none()), (&b"one"[..], true));
        let two = receive(right.as_fd()).unwrap().unwrap();
        assert_eq!(two.bytes, b"two");
        let copy = two.fd.unwrap();
        send(copy.as_fd(), b"through the copy", None).unwrap();
        assert_eq!(receive(right.as_fd()).unwrap().unwrap().bytes, b"through the copy");
        assert_eq!(receive(right.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((left, copy));
        // A child of another test may hold a copy until its exec.
        let end = receive_within(right.as_fd(), Duration::from_secs(120)).unwrap();
        assert!(end.is_none());
        assert!(send(right.as_fd(), b"x", None).is_err(), "an error and no SIGPIPE");
    }

    #[test]
    fn refuses_a_packet_over_the_bound() {
        let (left, right) = pair().unwrap();
        // The kernel doubles it, and without rights it is at most net.core.wmem_max.
        let size: libc::c_int = 1 << 20;
        for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            // SAFETY: the option value is a valid int.
            unsafe {
                let value = (&raw const size).cast();
                libc::setsockopt(left.as_raw_fd(), libc::SOL_SOCKET, option, value, 4)
            };
        }
        if let Err(error) = send(left.as_fd(), &vec![1; PACKET_BYTES_MAX + 1], None) {
            assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
            return crate::skip::skip("refuses_a_packet_over_the_bound", "net.core.wmem_max is too small for one");
        }
        assert_eq!(receive(right.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn listens_under_an_abstract_name() {
        let name = format!("memfit-test-{}", std::process::id());
        assert!(connect_abstract(&name).is_err());
        let listener = listen_abstract(&name).unwrap();
        assert!(listen_abstract(&name).is_err(), "the name is taken");
        let client = connect_abstract(&name).unwrap();
        let (uid, pid) = peer(client.as_fd()).unwrap();
        assert_eq!((uid, pid), (crate::process::effective_uid(), std::process::id() as i32));
        assert!(peer_lives(client.as_fd()));
        drop(listener);
        assert!(connect_abstract(&name).is_err());
        assert!(connect_abstract("").is_err() && connect_abstract(&"x".repeat(200)).is_err());
    }

    #[test]
    fn a_peer_that_ended_is_dead_and_a_living_one_is_killed() {
        let name = format!("memfit-test-peer-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        let (address, size) = address(&name).unwrap();
        // SAFETY: the child makes system calls only, and ends.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let socket = libc::socket(libc::AF_UNIX, TYPE, 0);
                    libc::connect(socket, (&raw const address).cast(), size);
                    loop {
                        libc::pause();
                    }
                }
                pid => pid,
            }
        };
        crate::event::wait_readable([listener.as_fd()], None).unwrap();
        let socket = accept(listener.as_raw_fd(), false).unwrap();
        assert_eq!(peer(socket.as_fd()).unwrap().1, pid);
        assert!(peer_lives(socket.as_fd()));
        kill_peer(socket.as_fd());
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
        assert!(!peer_lives(socket.as_fd()));
        kill_peer(socket.as_fd());
    }

    #[test]
    fn errors_tell_whether_a_pid_is_free() {
        let free = |errno| has_no_pid(&io::Error::from_raw_os_error(errno));
        assert_eq!([libc::ESRCH, libc::EINVAL, libc::EMFILE].map(free), [true, true, false]);
    }

    #[test]
    fn descriptors_that_nobody_asked_for_are_closed() {
        let (left, right) = pair().unwrap();
        for sent in [2usize, 3, 200] {
            let (mut first, rest) = std::os::unix::net::UnixStream::pair().unwrap();
            let fds: Vec<RawFd> = (0..sent).map(|_| rest.as_raw_fd()).collect();
            let bytes = sent * size_of::<RawFd>();
            let mut control = vec![0u64; 4 + bytes.div_ceil(8)];
            let mut data = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
            // SAFETY: all zeros is a valid header; the control buffer is aligned and has room for
            // the descriptors.
            unsafe {
                let mut header: libc::msghdr = mem::zeroed();
                (header.msg_iov, header.msg_iovlen) = (&mut data, 1);
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
                let message = libc::CMSG_FIRSTHDR(&header);
                ((*message).cmsg_level, (*message).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
                (*message).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
                ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(message), bytes);
                assert_eq!(libc::sendmsg(left.as_raw_fd(), &header, 0), 1);
            }
            assert_eq!(receive(right.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData, "{sent} descriptors");
            // No other process has the other end: this shows that no descriptor of it was kept.
            drop(rest);
            let mut byte = [0];
            assert_eq!(io::Read::read(&mut first, &mut byte).unwrap(), 0, "a descriptor of {sent} was left open");
        }
    }

    #[test]
    fn a_full_queue_lets_nobody_connect() {
        let name = format!("memfit-test-full-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        let come = || connect_abstract(&name);
        let accept = || drop(super::accept(listener.as_raw_fd(), false).unwrap());
        let two = [come().unwrap(), come().unwrap()];
        accept();
        accept();
        set_backlog(listener.as_raw_fd(), 0);
        let one = come().unwrap();
        assert_eq!(come().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert!(come().is_err(), "it is still in the queue");
        accept();
        let next = come().unwrap();
        assert!(come().is_err());
        set_backlog(listener.as_raw_fd(), BACKLOG);
        drop((two, next, come().unwrap()));
    }

    #[test]
    fn waiting_ends() {
        let (left, _right) = pair().unwrap();
        let error = receive_within(left.as_fd(), Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
