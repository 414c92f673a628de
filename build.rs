//! Links the commands of a debug build at a fixed address.
//!
//! The tests start tens of thousands of processes. In a position-independent program of this size, the
//! dynamic linker rewrites a quarter of a million addresses at each start, which takes about half of the
//! start's processor time. Builds of a release are not changed.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let is_gnu_like = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "debug") && is_gnu_like {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
