//! The kernel's userfaultfd interface (linux/userfaultfd.h), as far as memfit uses it. Addresses
//! and lengths are bytes.
#![allow(missing_docs)]

/// The version of the interface, for [`Api::api`].
pub const UFFD_API: u64 = 0xaa;

/// `struct uffdio_api`.
#[repr(C)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
pub struct Range {
    pub start: u64,
    pub len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
pub struct Register {
    pub range: Range,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
pub struct Copy {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    /// Bytes copied, or a negative errno.
    pub copied: i64,
}

/// `struct uffdio_move`.
#[repr(C)]
pub struct Move {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    /// Bytes moved, or a negative errno.
    pub moved: i64,
}

/// `struct uffdio_zeropage`.
#[repr(C)]
pub struct ZeroPage {
    pub range: Range,
    pub mode: u64,
    /// Bytes mapped, or a negative errno.
    pub mapped: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
pub struct WriteProtect {
    pub range: Range,
    pub mode: u64,
}

/// `struct uffdio_rwprotect` (Linux 7.3).
#[repr(C)]
pub struct ReadWriteProtect {
    pub range: Range,
    pub mode: u64,
}

/// `struct uffdio_continue`.
#[repr(C)]
pub struct Continue {
    pub range: Range,
    pub mode: u64,
    /// Bytes mapped, or a negative errno.
    pub mapped: i64,
}

pub const REGISTER_MODE_MISSING: u64 = 1;
pub const REGISTER_MODE_WP: u64 = 2;
/// Linux 7.3; not together with [`REGISTER_MODE_WP`].
pub const REGISTER_MODE_RWP: u64 = 8;
/// [`Move::mode`], [`Copy::mode`], [`ZeroPage::mode`]: no thread is woken.
pub const MODE_DONTWAKE: u64 = 1;
/// [`WriteProtect::mode`]: protect; 0 unprotects.
pub const WRITEPROTECT_MODE_WP: u64 = 1;
/// [`ReadWriteProtect::mode`]: protect; 0 unprotects.
pub const RWPROTECT_MODE_RWP: u64 = 1;

const READ: u64 = 2;
const READ_WRITE: u64 = 3;

/// `_IOC` of the asm-generic layout, with the type of userfaultfd and the size of `T`.
const fn request<T>(direction: u64, number: u64) -> u64 {
    direction << 30 | (size_of::<T>() as u64) << 16 | 0xaa << 8 | number
}

pub const UFFDIO_API: u64 = request::<Api>(READ_WRITE, 0x3f);
pub const UFFDIO_REGISTER: u64 = request::<Register>(READ_WRITE, 0x00);
pub const UFFDIO_UNREGISTER: u64 = request::<Range>(READ, 0x01);
pub const UFFDIO_WAKE: u64 = request::<Range>(READ, 0x02);
pub const UFFDIO_COPY: u64 = request::<Copy>(READ_WRITE, 0x03);
pub const UFFDIO_ZEROPAGE: u64 = request::<ZeroPage>(READ_WRITE, 0x04);
pub const UFFDIO_MOVE: u64 = request::<Move>(READ_WRITE, 0x05);
pub const UFFDIO_WRITEPROTECT: u64 = request::<WriteProtect>(READ_WRITE, 0x06);
pub const UFFDIO_CONTINUE: u64 = request::<Continue>(READ_WRITE, 0x07);
pub const UFFDIO_RWPROTECT: u64 = request::<ReadWriteProtect>(READ_WRITE, 0x09);
/// Of /dev/userfaultfd: a new userfaultfd, with its flags as the argument.
pub const USERFAULTFD_IOC_NEW: u64 = 0xaa << 8;

// The numbers of linux/userfaultfd.h on x86-64.
const _: () = assert!(
    UFFDIO_API == 0xc018_aa3f
        && UFFDIO_REGISTER == 0xc020_aa00
        && UFFDIO_UNREGISTER == 0x8010_aa01
        && UFFDIO_WAKE == 0x8010_aa02
        && UFFDIO_COPY == 0xc028_aa03
        && UFFDIO_ZEROPAGE == 0xc020_aa04
        && UFFDIO_MOVE == 0xc028_aa05
        && UFFDIO_WRITEPROTECT == 0xc018_aa06
        && UFFDIO_CONTINUE == 0xc020_aa07
        && UFFDIO_RWPROTECT == 0xc018_aa09
        && USERFAULTFD_IOC_NEW == 0xaa00
);
