//! The stub needs no library: it runs beside any libc and must not pull one in.
fn main() {
    for arg in ["-nostdlib", "-nostartfiles", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
