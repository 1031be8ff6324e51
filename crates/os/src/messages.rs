//! Messages between pager and stub as bytes.

use memfit_wire::{Command, FromStub};

/// The bytes of a command.
pub fn bytes_of(command: &Command) -> &[u8] {
    // SAFETY: a command is plain integers without padding.
    unsafe { std::slice::from_raw_parts((&raw const *command).cast::<u8>(), size_of::<Command>()) }
}

/// The message of a stub with these bytes. `None` if their number is wrong.
pub fn from_stub(bytes: &[u8]) -> Option<FromStub> {
    // SAFETY: a message is plain integers, for which any bytes are valid; the length is right.
    (bytes.len() == size_of::<FromStub>()).then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
