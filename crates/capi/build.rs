//! Gives the shared library its SONAME, which cargo does not.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if is_linux {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtiled.so.0");
        // threads of a pool end a moment after it is freed, so that their code must not be unloaded
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
