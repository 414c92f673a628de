//! Lets the executables of debug builds start with less work for the dynamic linker. The tests start
//! tens of thousands of processes. Release builds are not changed.

use std::env::var;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries of the C library, which stay shared.
const SHARED_LIBRARIES: [&str; 5] = ["c", "dl", "m", "pthread", "rt"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let is_gnu_like = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !is("PROFILE", "debug") || !is_gnu_like {
        return;
    }

    // In a position-independent executable of this size, the dynamic linker rewrites a quarter of a
    // million addresses at each start.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    if let Some(libraries) = static_libraries() {
        link_statically(&libraries);
    }
}

/// Returns the paths of the static libraries of libxml2, and of all libraries that it needs. Of these,
/// ICU and the library of C++ take the dynamic linker most time. Returns `None` if the system lacks
/// one of them, or if the program is built for another machine.
fn static_libraries() -> Option<Vec<PathBuf>> {
    if var("HOST") != var("TARGET") {
        return None;
    }
    let flags = output_of("pkg-config", &["--static", "--libs", "libxml-2.0"])?;
    let names = flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-l"));
    let names = names.filter(|name| !SHARED_LIBRARIES.contains(name));
    let path_of = |name: &str| {
        let path = output_of("cc", &[&format!("-print-file-name=lib{name}.a")])?;
        let path = PathBuf::from(path.trim_end());
        // The compiler returns the name itself for a library that it does not find.
        path.is_absolute().then_some(path)
    };
    names.chain(["stdc++"]).map(path_of).collect()
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    String::from_utf8(text).ok()
}

/// Links `libraries` in place of the shared libxml2. The linker looks here for `-lxml2` first, and
/// takes a text file for a script.
fn link_statically(libraries: &[PathBuf]) {
    let directory = var("OUT_DIR").expect("cargo sets OUT_DIR");
    let inputs: Vec<_> = libraries.iter().map(|path| format!("\"{}\"", path.display())).collect();
    let script = format!("GROUP({} -lm)\n", inputs.join(" "));
    std::fs::write(Path::new(&directory).join("libxml2.so"), script)
        .expect("the directory of the build can be written");
    println!("cargo::rustc-link-search=native={directory}");
}
