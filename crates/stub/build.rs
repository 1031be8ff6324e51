//! Link options of the stub. It runs beside any libc, so it links no library.
///
/// `initfirst` runs its constructor before all others. So its fork handlers are registered first:
/// before a fork they run last, and in the child they run before those of allocators, which touch
/// memory.
fn main() {
    for arg in ["-nostdlib", "-nostartfiles", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,initfirst", "-Wl,--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
