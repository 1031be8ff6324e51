//! The stub needs no library: it runs beside any libc and must not pull one in.
///
/// Its constructor runs before all others (initfirst), and its fork handlers are the first: before
/// the fork they run last, and in the child before those of allocators, which touch their memory.
fn main() {
    for arg in ["-nostdlib", "-nostartfiles", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,initfirst", "-Wl,--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
