//! The table of operations. An entry has weight, help text and function of an operation.

use crate::ctx::Ctx;
use crate::{ops_advise, ops_fork, ops_heap, ops_io, ops_map, ops_mem, ops_thread, race, shared};

/// Upper bound of the table's length, for arrays in shared memory.
pub const MAX_OPS: usize = 40;

/// One kind of operation.
pub struct Op {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Default weight.
    pub weight: u32,
    /// Help text.
    pub help: &'static str,
    /// Performs the operation.
    pub run: fn(&mut Ctx),
}

const fn op(name: &'static str, weight: u32, help: &'static str, run: fn(&mut Ctx)) -> Op {
    Op { name, weight, help, run }
}

/// All operations.
pub static OPS: [Op; 31] = [
    op("read", 3000, "compare a page or a run of pages", ops_mem::read),
    op("write", 2000, "write whole pages with a new version", ops_mem::write),
    op("patch", 2000, "write a few bytes of a page", ops_mem::patch),
    op("sweep", 40, "compare a region from end to end", ops_mem::sweep),
    op("mmap", 200, "new mapping: anywhere, adjacent, over another, PROT_NONE first", ops_map::mmap),
    op("munmap", 150, "unmap all, head, tail or middle", ops_map::munmap),
    op("mremap", 200, "grow, shrink, move, move to a fixed place, DONTUNMAP", ops_map::mremap),
    op("dontneed", 150, "MADV_DONTNEED, also across regions: must read as zero", ops_advise::dontneed),
    op("free", 100, "MADV_FREE: old bytes or zero until written", ops_advise::free),
    op("advise", 100, "harmless advice and mlock", ops_advise::advise),
    op("guard", 60, "guard pages: not accessible, and zeros after them", ops_advise::guard),
    op("protect", 150, "mprotect to R, NONE, RWX; system calls must then fail with EFAULT", ops_advise::protect),
    op("heap", 600, "malloc, realloc, free of all sizes", ops_heap::heap),
    op("pipe", 150, "through a pipe or socket from and to pages", ops_io::pipe),
    op("file", 150, "through a file", ops_io::file),
    op("direct", 30, "through a file with O_DIRECT", ops_io::direct),
    op("procmem", 60, "through /proc/self/mem", ops_io::procmem),
    op("vmio", 100, "process_vm_readv and writev of itself", ops_io::vmio),
    op("futex", 100, "futex calls whose word lies in a page", ops_thread::futex),
    op("signal", 60, "signal handlers, on the stack and on the alternate stack", ops_thread::signal),
    op("mutex", 200, "a pthread mutex and the counter it guards, shared by threads", race::mutex),
    op("thread", 40, "short threads that compare regions", ops_thread::threads),
    op("stack", 40, "deep recursion with known frames", ops_thread::stack),
    op("shared", 300, "regions shared by threads under a lock", shared::shared),
    op("race_read", 600, "read pages that another thread drops and writes", race::read),
    op("race_write", 300, "write and drop pages that others read", race::write),
    op("neighbour", 150, "change mappings next to pages that others read", race::neighbour),
    op("counter", 1000, "atomic counters in pages shared by threads; totals must match", race::counter),
    op("sleep", 2, "let pages grow cold", ops_thread::sleep),
    op("fork", 0, "a child checks and changes what it inherits", ops_fork::fork),
    op("spawn", 1, "start a program that exits at once", ops_fork::spawn),
];

/// Index of the first operation with this name.
pub fn index_of(name: &str) -> usize {
    OPS.iter().position(|op| op.name == name).unwrap_or(OPS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_and_names_are_unique() {
        assert!(OPS.len() <= MAX_OPS);
        for (i, op) in OPS.iter().enumerate() {
            assert_eq!(index_of(op.name), i);
        }
    }
}
