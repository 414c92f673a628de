//! The kits as the packages that their users install.

use std::process::{Command, Output};
use std::sync::Arc;

use organism::bus::process::{Options, ProcessHost};
use tokio::runtime::Handle;

use super::harness::{HostHarness, name, repository, script};
use super::remote::python;

fn text(output: Output) -> String {
    let [out, log] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{out}{log}");
    out
}

/// Builds a wheel of the Python kit in this folder, without a network. Returns its path.
fn wheel(folder: &std::path::Path) -> String {
    // Builders write beside the sources.
    let source = folder.join("source");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(repository().join("listeners/python")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, source.join(path.file_name().unwrap())).unwrap();
        }
    }
    let mut build = python();
    build.args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]);
    build.args(["--no-deps", "--no-build-isolation", "--wheel-dir"]).arg(folder).arg(&source);
    build.env("PYTHONPATH", repository().join("target/pip/packages"));
    text(build.output().unwrap());
    let version = env!("CARGO_PKG_VERSION");
    let path = folder.join(format!("organism_listener-{version}-py3-none-any.whl"));
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_python_kit_is_a_wheel_that_needs_nats_py_only_on_nats() {
    let folder = tempfile::TempDir::new().unwrap();
    let wheel = wheel(folder.path());
    let mut command = Command::new("python3");
    let metadata = "import importlib.metadata as m; print(*m.requires('organism-listener'))";
    command.args(["-S", "-c", metadata]).env("PYTHONPATH", &wheel);
    let required = text(command.output().unwrap());
    assert_eq!(required.trim(), "nats-py[nkeys]>=2.16; extra == \"nats\"");

    // Python imports from a wheel as from a folder.
    let modules = "import organism_listener as l; print(l.__file__)";
    command = Command::new("python3");
    command.args(["-S", "-c", modules]).env("PYTHONPATH", &wheel);
    assert!(text(command.output().unwrap()).starts_with(&wheel));
    let listener = vec!["python3".to_owned(), script("obedient.py")];
    let mut options = Options::new(name("tested"), listener);
    options.env = vec![("PYTHONPATH".to_owned(), wheel)];
    let mut ear = HostHarness::hosting(|sink| {
        Arc::new(ProcessHost::start(options, sink, &Handle::current()))
    });
    assert_eq!(ear.ask("echo from a wheel").await, "from a wheel");
}

#[test]
fn each_kit_has_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let quoted = format!("\"{version}\"");
    for (file, line) in [
        ("listeners/python/pyproject.toml", format!("version = {quoted}")),
        ("listeners/python/organism_bus.py", format!("_VERSION = {quoted}")),
        ("listeners/typescript/package.json", format!("\"version\": {quoted},")),
        ("listeners/typescript/src/version.ts", format!("export const VERSION = {quoted};")),
    ] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        assert!(text.lines().any(|found| found.trim() == line), "{file} has no line `{line}`");
    }
}
