//! Link options of the stub. It runs beside any libc, so it links no library.
///
/// `initfirst`: the constructor runs before all others, so the stub's fork handlers are the first.
/// Before a fork they run last; in the child they run before those of allocators, which touch
/// memory.
fn main() {
    for arg in ["-nostdlib", "-nostartfiles", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,initfirst", "-Wl,--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
