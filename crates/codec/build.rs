//! Sets `memfit_avx512` for compilers that have the AVX-512 intrinsics: Rust 1.89 and later, while
//! older compilers are supported, too.

use std::process::Command;

/// The minor version of the compiler; 0 if it is unknown.
fn minor() -> u32 {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let text = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = text.split(' ').nth(1).and_then(|version| version.split('.').nth(1)?.parse().ok());
    version.unwrap_or(0)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(memfit_avx512)");
    println!("cargo::rustc-check-cfg=cfg(memfit_avx512_model)");
    if minor() >= 89 {
        println!("cargo::rustc-cfg=memfit_avx512");
    }
}
