//! Rules about names, about text that must not occur in code, and about tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{ItemKind, declared_items, members};
use crate::nothing;
use crate::source::{Function, line_of, without_text, words};
use crate::tree::{File, files, product, read, rust, rust_functions};

/// The module that binds libxml2. Its submodules belong to it.
const UNSAFE_MODULE: &str = "src/schema/libxml2";

const DUMPING_GROUNDS: &[&str] =
    &["utils", "util", "common", "helpers", "types", "manager", "misc"];

/// Files that may sleep, each with the reason. A test that polls another process has no event to
/// wait for. It must wait for an observed condition, never for a time.
const SLEEPERS: &[(&str, &str)] = &[
    ("tests/bench/floor.rs", "an idle disk is what it measures"),
    ("tests/data/listeners/obedient.py", "a listener under test that is to be slow"),
    ("tests/data/organism/booker.pl", "looks for the file that holds its answer"),
    ("tests/data/organism/forger.py", "looks for the file that names what it forges"),
    ("tests/data/organism/late.py", "looks for the file that lets it go on"),
    ("tests/data/organism/player.pl", "looks for the file that lets it go on"),
    ("tests/it/agent/turns.rs", "its time is simulated"),
    ("tests/it/model/router.rs", "its time is simulated"),
    ("tests/it/pump/slow_disk.rs", "a disk under test that is to be slow"),
    ("tests/it/organism.rs", "looks at another process until it sees what it waits for"),
    ("tests/it/nats.rs", "looks for the port of a server that starts"),
    ("tests/it/nats/cluster.rs", "looks at servers until they have what it waits for"),
    ("tests/it/organism/kill/clients.rs", "looks for the next process in place of a killed one"),
    ("tests/it/organism/partitions/load.rs", "sends at the pace of a load"),
];

/// Files that may name a path that exists only on one machine, each with the reason.
const MACHINE_PATHS: &[(&str, &str)] = &[
    ("tests/it/config/command.rs", "an environment made up by the test"),
    ("tests/it/config/good.rs", "an environment made up by the test"),
];

/// Addresses that may occur in the repository: namespaces and references.
const HOSTS: &[&str] = &[
    "generativelanguage.googleapis.com",
    "xml-pipeline.org",
    "www.w3.org",
    "github.com",
    "crates.io",
    "docs.rs",
    "rustup.rs",
    "brew.sh",
    "www.apache.org",
    "docs.oasis-open.org",
    "www.rfc-editor.org",
    "www.unicode.org",
    "json-schema.org",
    "opentelemetry.io",
    "api.openai.com",
    "api.anthropic.com",
    "openrouter.ai",
    "api.x.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.deepseek.com",
    "api.moonshot.ai",
    "localhost",
    "127.0.0.1",
];

/// Hosts that are reserved for examples by RFC 2606, RFC 5737 and RFC 6761.
const EXAMPLE_HOSTS: &[&str] = &[
    "example",
    "example.com",
    "example.org",
    "example.net",
    "test",
    "invalid",
    "192.0.2.1",
    "api.localhost",
    "127.9.9.9",
];

fn is_test_code(file: &File) -> bool {
    file.path.starts_with("tests/") || file.path.contains("/tests/")
}

#[test]
fn every_file_says_what_it_is_for() {
    let wrong = rust()
        .filter(|file| !file.path.starts_with("tests/data/") && !file.path.contains("/tests/data/"))
        .filter(|file| {
            let first = file.text.lines().next().unwrap_or_default();
            !first.starts_with("//! ") || first.to_lowercase().contains("placeholder.")
        })
        .map(|file| file.path.clone());
    nothing(wrong.collect(), "files without a word on what they are for");
}

#[test]
fn no_lint_is_switched_off_without_a_reason_and_nothing_is_left_to_do() {
    let mut wrong = Vec::new();
    for file in rust() {
        for banned in ["#[allow", "#![allow", "todo!", "unimplemented!", "dbg!"] {
            wrong.extend(
                file.code
                    .match_indices(banned)
                    .map(|(at, _)| format!("{}:{}: {banned}", file.path, line_of(&file.code, at))),
            );
        }
        for left in ["TODO", "FIXME", "XXX", "HACK"] {
            if file.path != "tests/tidy/names.rs" {
                wrong.extend(
                    words(&file.text, left)
                        .map(|at| format!("{}:{}: {left}", file.path, line_of(&file.text, at))),
                );
            }
        }
    }
    nothing(wrong, "use #[expect(…, reason = \"…\")], and finish");
}

#[test]
fn the_only_unsafe_code_is_the_binding_of_libxml2() {
    let unsafe_at = |file: &File| words(&file.code, "unsafe").count();
    let is_binding = |file: &&File| {
        let rest = file.path.strip_prefix(UNSAFE_MODULE);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let count: usize = rust().filter(is_binding).map(unsafe_at).sum();
    assert!(count > 0, "{UNSAFE_MODULE} is the binding");
    let wrong = rust().filter(|file| !is_binding(file) && unsafe_at(file) > 0);
    nothing(wrong.map(|file| file.path.clone()).collect(), "unsafe elsewhere");
}

#[test]
fn no_module_is_a_dumping_ground() {
    let wrong = files().iter().filter(|file| {
        let code = file.path.ends_with(".rs") || file.path.ends_with(".py");
        let mut parts = file.path.split(['/', '.']);
        code && parts.any(|part| DUMPING_GROUNDS.contains(&part))
    });
    nothing(wrong.map(|file| file.path.clone()).collect(), "say what is in these");
}

#[test]
fn every_file_is_part_of_a_crate() {
    let wrong = rust().filter(|file| {
        let Some((folder, name)) = file.path.rsplit_once('/') else { return false };
        let roots = ["lib.rs", "main.rs", "build.rs"];
        let is_root = roots.contains(&name) || folder.ends_with("tests") || folder == "tests";
        !is_root && !is_data(file) && !is_declared(folder, name)
    });
    nothing(wrong.map(|file| file.path.clone()).collect(), "files no module declares");
}

fn is_data(file: &File) -> bool {
    file.path.starts_with("tests/data/") || file.path.contains("/tests/data/")
}

fn is_declared(folder: &str, name: &str) -> bool {
    let (folder, module) = match name {
        "mod.rs" => folder.rsplit_once('/').unwrap_or(("", folder)),
        _ => (folder, name.trim_end_matches(".rs")),
    };
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|parent| format!("{folder}/{parent}"));
    let parents: Vec<_> = parents.into_iter().chain([format!("{folder}.rs")]).collect();
    let declares = |file: &&File| {
        let code = &file.code;
        words(code, "mod").any(|at| {
            let rest = code[at + 3..].trim_start();
            rest.strip_prefix(module).is_some_and(|rest| rest.trim_start().starts_with(';'))
        })
    };
    rust().filter(|file| parents.contains(&file.path)).any(|file| declares(&file))
}

/// The tests among the functions of a file.
fn tests<'a>(file: &File, functions: &'a [Function<'a>]) -> Vec<&'a Function<'a>> {
    let attributed = |function: &Function<'_>, mark: &str| {
        let before: Vec<_> = file.code[..function.start].lines().rev().take(6).collect();
        let own = before.iter().take_while(|line| !line.contains('}') && !line.contains(';'));
        let marks = [format!("#[{mark}"), format!("::{mark}")];
        own.into_iter().any(|line| marks.iter().any(|mark| line.contains(mark)))
    };
    // A test that another test runs in a separate process is marked as ignored, and its name claims
    // nothing.
    functions
        .iter()
        .filter(|function| attributed(function, "test") && !attributed(function, "ignore"))
        .collect()
}

#[test]
fn tests_are_named_as_claims() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (file, functions) in rust_functions() {
        for test in tests(file, functions) {
            seen += 1;
            let few_words = test.name.matches('_').count() < 2;
            if test.name.starts_with("test_") || test.name.ends_with("_works") || few_words {
                wrong.push(format!("{}:{}: {}", file.path, test.line, test.name));
            }
        }
    }
    assert!(seen > 100, "only {seen} tests were found");
    nothing(wrong, "say what each claims");
}

#[test]
fn every_test_can_fail() {
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for (file, functions) in rust_functions().filter(|(file, _)| is_test_code(file)) {
        for function in functions {
            let body = &file.code[function.start..function.end];
            if asserts(body, &BTreeSet::new()) {
                found.push(function.name);
            }
            for called in called_names(body).filter(|called| *called != function.name) {
                callers.entry(called).or_default().push(function.name);
            }
        }
    }
    let mut asserting: BTreeSet<&str> = BTreeSet::new();
    while let Some(name) = found.pop() {
        if asserting.insert(name) {
            found.extend(callers.get(name).into_iter().flatten());
        }
    }
    let mut wrong = Vec::new();
    for (file, functions) in rust_functions().filter(|(file, _)| is_test_code(file)) {
        for test in tests(file, functions) {
            let body = &file.code[test.start..test.end];
            let discarded = body.lines().any(|line| {
                line.trim_start().starts_with("matches!(") && line.trim_end().ends_with(';')
            });
            if !asserts(body, &asserting) || discarded {
                wrong.push(format!("{}:{}: {}", file.path, test.line, test.name));
            }
        }
    }
    nothing(wrong, "tests that assert nothing");
}

/// Whether a function asserts something, itself or through one of the functions `asserting`.
fn asserts(body: &str, asserting: &BTreeSet<&str>) -> bool {
    ["assert!", "assert_eq!", "assert_ne!", ".assert_eq(", "panic!", "unwrap_err()"]
        .iter()
        .any(|word| body.contains(word))
        || called_names(body).any(|name| asserting.contains(name))
}

/// Returns the names before each `(` and each `::<` of a function.
fn called_names(body: &str) -> impl Iterator<Item = &str> {
    let of = |mark| {
        let before = body.match_indices(mark).map(|(at, _)| &body[..at]);
        before.filter_map(|text| text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next())
    };
    of("(").chain(of("::<")).filter(|name| !name.is_empty())
}

#[test]
fn no_test_sleeps() {
    let sleeps = ["thread::sleep", "time::sleep", "time.sleep(", "select(undef"];
    let wrong = files()
        .iter()
        .filter(|file| is_test_code(file) && file.path != "tests/tidy/names.rs")
        .filter(|file| SLEEPERS.iter().all(|(path, _)| *path != file.path))
        .filter(|file| sleeps.iter().any(|sleep| file.text.contains(sleep)));
    nothing(wrong.map(|file| file.path.clone()).collect(), "wait for the thing, not for time");
}

#[test]
fn every_limit_bounds_something() {
    let files =
        ["src/limits.rs", "src/limits/index.rs", "src/limits/lease.rs", "src/limits/schema.rs"];
    let limits = files.map(read).concat();
    let names = limits.lines().filter_map(|line| line.strip_prefix("pub const "));
    let names: Vec<_> = names.filter_map(|line| line.split(':').next()).collect();
    assert!(names.len() > 50, "the limits were found");
    let used = |name: &str| {
        product().any(|file| {
            let count = words(&file.code, name).count();
            count > usize::from(file.path.starts_with("src/limits"))
        })
    };
    let idle = names.into_iter().filter(|name| !used(name)).map(str::to_owned);
    nothing(idle.collect(), "limits that limit nothing");
}

/// Codes of refusals and errors that the product does not produce yet, each with the planned cause.
const NOT_GIVEN_YET: &[(&str, &str)] =
    &[("ErrorCode::StorageFull", "work that cannot wait for room; today all of it waits")];

#[test]
fn every_code_is_given_by_something() {
    let lists = [("RefusalRule", "src/envelope/refusal.rs"), ("ErrorCode", "src/system/errors.rs")];
    let mut idle = Vec::new();
    for (list, path) in lists {
        let text = without_text(&read(path));
        let items = declared_items(&text).into_iter();
        let variants = items
            .filter(|item| item.kind == ItemKind::Enum && item.name == list)
            .flat_map(|item| members(&text, &item))
            .map(|variant| format!("{list}::{}", variant.item.name));
        let codes: Vec<_> = variants.collect();
        assert!(codes.len() > 15, "the codes of {list} were found");
        for code in codes {
            let given = product()
                .any(|file| file.path != path && words(&file.code, &code).next().is_some());
            if !given && NOT_GIVEN_YET.iter().all(|(listed, _)| *listed != code) {
                idle.push(code);
            }
        }
    }
    nothing(idle, "codes that nothing ever gives");
}

#[test]
fn nothing_refers_to_the_machine_it_was_written_on() {
    let marks = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("/tm", "p/"),
        concat!("../sh", "ared"),
    ];
    let mut wrong = Vec::new();
    for file in files() {
        let excepted = MACHINE_PATHS.iter().any(|(path, _)| *path == file.path);
        // A search in the whole file is faster than one in each of its lines.
        if excepted || !marks.iter().any(|mark| file.text.contains(mark)) {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            if let Some(mark) = marks.iter().find(|mark| line.contains(**mark)) {
                wrong.push(format!("{}:{}: {mark}", file.path, number + 1));
            }
        }
    }
    nothing(wrong, "paths that exist on one machine");
}

#[test]
fn every_address_is_one_that_readers_can_use() {
    let is_allowed = |host: &str| {
        let example =
            EXAMPLE_HOSTS.iter().any(|name| host == *name || host.ends_with(&format!(".{name}")));
        example || HOSTS.contains(&host)
    };
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !file.path.starts_with("tests/data/")) {
        for scheme in ["http://", "https://"] {
            for (at, _) in file.text.match_indices(scheme) {
                let rest = &file.text[at + scheme.len()..];
                let host: String = rest
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '.' || *c == '-')
                    .collect();
                let host = host.trim_end_matches('.');
                if host.contains('.') && !is_allowed(host) {
                    wrong.push(format!("{}:{}: {host}", file.path, line_of(&file.text, at)));
                }
            }
        }
    }
    nothing(wrong, "addresses not in HOSTS");
}

#[test]
fn every_dependency_comes_from_crates_io_at_a_pinned_version() {
    let lock = read("Cargo.lock");
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    let official = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let wrong: BTreeSet<_> = sources.filter(|line| *line != official).collect();
    nothing(wrong.into_iter().map(str::to_owned).collect(), "sources other than crates.io");
}
