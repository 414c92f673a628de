//! Links the executables of debug builds at a fixed address.
//!
//! The tests start tens of thousands of processes. In a position-independent executable of this
//! size, the dynamic linker rewrites a quarter of a million addresses at each start. This work
//! takes about half of the processor time of a start. Release builds are not changed.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let is_gnu_like = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "debug") && is_gnu_like {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
