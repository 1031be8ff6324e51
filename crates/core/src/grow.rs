//! Tables that grow by eighths.

use alloc::vec::Vec;

/// Makes room for `extra` more entries, growing by an eighth instead of doubling: the slack of the
/// tables counts against the budget that they are meant to stretch.
pub(crate) fn reserve_tight<T>(table: &mut Vec<T>, extra: usize) {
    if table.capacity() - table.len() < extra {
        table.reserve_exact(extra.max(table.len() / 8));
    }
}
