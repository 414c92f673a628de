//! The floors: a module uses only modules on lower floors.

use std::collections::BTreeSet;

use crate::nothing;
use crate::source::words;
use crate::tree::{File, product, root};

/// Each module of `src/` with its floor. On a floor with `Neighbours::Earlier`, a module may also
/// use the modules that are listed before it on that floor.
const FLOORS: &[(&str, &[&str], Neighbours)] = &[
    (
        "ground",
        &[
            "limits",
            "locks",
            "clock",
            "thread_priority",
            "failpoint",
            "mutant",
            "hex",
            "ids",
            "io_reason",
            "metrics",
            "trace",
            "accept_failures",
            "blocking_work",
            "bounded_cache",
            "children",
            "durable_file",
            "file_limit",
            "file_lock",
            "owned_tasks",
            "plural",
            "shipped",
            "shorten",
            "word_enum",
        ],
        Neighbours::Earlier,
    ),
    ("language", &["xml"], Neighbours::None),
    ("law", &["schema"], Neighbours::None),
    ("words", &["envelope", "system", "contract"], Neighbours::Earlier),
    ("state", &["thread"], Neighbours::None),
    ("wires", &["nats"], Neighbours::None),
    ("edges", &["journal", "bus", "model"], Neighbours::None),
    ("memory", &["index", "memory"], Neighbours::None),
    ("heart", &["pump"], Neighbours::None),
    ("guests", &["listener", "agent", "workflow"], Neighbours::None),
    ("house", &["config", "audit", "telemetry", "service", "organism"], Neighbours::Earlier),
    ("roof", &["web", "cli"], Neighbours::Earlier),
    ("main", &["lib", "main"], Neighbours::Earlier),
];

#[derive(PartialEq)]
enum Neighbours {
    Earlier,
    None,
}

/// Modules of lower floors that a module must not use, each with the reason.
const STRANGERS: &[(&str, &str, &str)] = &[
    ("agent", "pump", "guests meet the pump only over the bus"),
    ("listener", "pump", "guests meet the pump only over the bus"),
    ("workflow", "pump", "guests meet the pump only over the bus"),
    ("audit", "pump", "what is proved is proved from the journal alone"),
    ("audit", "bus", "what is proved is proved from the journal alone"),
];

/// Folders, each with words that must not occur in it, and with the invariant of
/// `docs/ARCHITECTURE.md` that forbids them.
const ABSENT: &[(&str, &[&str], &str)] = &[
    ("src/xml/", &["tokio", "async", "libxml"], "the language is pure and synchronous"),
    ("src/thread/", &["std::fs", "std::net", "tokio", "async"], "state is plain"),
    (
        "src/pump/core/",
        &[
            "tokio",
            "async",
            "std::fs",
            "std::net",
            "std::time::Instant",
            "SystemTime",
            "Time::now",
            "now_v7",
            "new_v4",
            "getrandom",
            "mpsc",
            "Mutex",
        ],
        "the step is pure",
    ),
    ("src/pump/", &["serde_json", "toml", "println", "stdout", "rusqlite"], "no JSON, no terminal"),
    ("src/bus/", &["quick_xml", "crate::schema"], "hosts move frames and never judge payloads"),
    (
        "src/journal/",
        &["tokio", "async", "async_nats", "crate::xml::scan"],
        "records go in and come out",
    ),
    ("src/model/", &["crate::thread", "crate::contract"], "a provider knows no threads"),
    ("src/audit/", &["println", "stdout", "INSERT", "UPDATE"], "reads, and knows no terminal"),
    ("src/config/", &["println", "stdout", "tokio"], "problems are data"),
    ("src/organism/", &["println", "miette", "clap"], "the house knows no terminal"),
];

/// Modules that the commands of the command line share. No command uses the module of another
/// command.
const SHARED_BY_VERBS: &[&str] = &[
    "action_text",
    "all_from",
    "command_organism",
    "diff",
    "thread_query",
    "threads",
    "exit",
    "startup",
    "stderr_queue",
    "output",
    "output_file",
    "passphrase",
    "journal_target",
    "web_view",
    "indexed",
    "config_error_carets",
    "confirmation",
    "render",
    "decision",
    "held_page",
    "organism_reach",
    "pause_action",
    "named_config",
    "new_files",
    "past_time",
    "past_prompt",
    "permitted_names",
    "waiting_message",
    "message_lookup",
    "missing_partitions",
    "money",
    "stop_signals",
    "submit_output",
];

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|(_, modules, _)| modules.contains(&module))
}

/// Returns the path of modules that a file's path states: `["pump", "core"]` for
/// `src/pump/core/mod.rs`.
fn module_path(path: &str) -> Vec<&str> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|part| *part != "mod").collect()
}

/// First segment of each path that starts at the crate's root, with the offset of the path.
fn used(file: &File) -> Vec<(String, usize)> {
    let code = &file.code;
    let mut found = Vec::new();
    for at in words(code, "crate") {
        if let Some(rest) = code[at + 5..].strip_prefix("::") {
            found.extend(first_segments(rest).into_iter().map(|name| (name, at)));
        }
    }
    let depth = module_path(&file.path).len();
    let up = "super::".repeat(depth);
    for (at, _) in code.match_indices(&up) {
        let before = &code[..at];
        if !before.ends_with("super::") && !before.ends_with(|c: char| c.is_alphanumeric()) {
            let rest = &code[at + up.len()..];
            found.extend(first_segments(rest).into_iter().map(|name| (name, at)));
        }
    }
    found
}

/// Returns the first segment of each path in `rest`: `a` for `a::b`, and `a` and `c` for
/// `{a::b, c::{d, e}}`.
fn first_segments(rest: &str) -> Vec<String> {
    let word = |text: &str| {
        let text = text.trim_start();
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let mut depth = 1;
    let mut starts = vec![0];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => starts.push(at + 1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    starts.into_iter().map(|at| word(&group[at..])).filter(|name| !name.is_empty()).collect()
}

fn may_use(module: &str, other: &str) -> Result<(), String> {
    let (Some(own), Some(floor)) = (floor_of(module), floor_of(other)) else { return Ok(()) };
    if let Some((.., why)) = STRANGERS.iter().find(|(a, b, _)| (*a, *b) == (module, other)) {
        return Err((*why).to_owned());
    }
    let (name, modules, neighbours) = &FLOORS[own];
    if floor < own || module == other {
        return Ok(());
    }
    let index = |m: &str| modules.iter().position(|one| *one == m);
    if floor == own && *neighbours == Neighbours::Earlier && index(other) < index(module) {
        return Ok(());
    }
    Err(format!("`{module}` is on floor {own} ({name}), `{other}` on floor {floor}"))
}

#[test]
fn every_module_has_a_floor() {
    let modules: BTreeSet<_> = product()
        .filter_map(|file| file.path.strip_prefix("src/"))
        .filter_map(|path| path.split(['/', '.']).next())
        .collect();
    assert!(modules.len() > 15, "the modules were found");
    let homeless = modules.into_iter().filter(|module| floor_of(module).is_none());
    nothing(homeless.map(str::to_owned).collect(), "modules that stand on no floor");
}

#[test]
fn a_module_uses_only_what_stands_beneath_it() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in product().filter(|file| file.path.starts_with("src/")) {
        let path = module_path(&file.path);
        for (name, at) in used(file) {
            seen += usize::from(floor_of(&name).is_some());
            if let Err(why) = may_use(path[0], &name) {
                let line = crate::source::line_of(&file.code, at);
                wrong.push(format!("{}:{line}: uses `{name}`: {why}", file.path));
            }
        }
    }
    assert!(seen > 300, "only {seen} uses were found");
    nothing(wrong, "uses that go up or sideways");
}

#[test]
fn uses_are_found_however_they_are_written() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: String::new(),
        code: crate::source::code(text),
    };
    let names = |file: &File| used(file).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let grouped = file("src/bus/mod.rs", "use crate::{pump::Gate, journal::{Error, x}, ids};");
    assert_eq!(names(&grouped), ["pump", "journal", "ids"]);
    let climbing = file("src/bus/native_host.rs", "use super::super::pump::Gate; use super::Sink;");
    assert_eq!(names(&climbing), ["pump"]);
    let inline = file("src/bus/mod.rs", "fn f() -> crate::pump::Gate { crate::model::x() }");
    assert_eq!(names(&inline), ["pump", "model"]);
    let silent = file("src/bus/mod.rs", "// crate::pump\nlet a = \"crate::pump\";");
    assert!(names(&silent).is_empty());
    assert!(may_use("bus", "pump").is_err() && may_use("journal", "bus").is_err());
    assert!(may_use("agent", "pump").is_err() && may_use("pump", "bus").is_ok());
}

#[test]
fn what_a_folder_must_not_know_is_absent() {
    let mut wrong = Vec::new();
    for (folder, absent, why) in ABSENT {
        assert!(root().join(folder).is_dir(), "{folder} exists");
        for file in product().filter(|file| file.path.starts_with(folder)) {
            for word in *absent {
                wrong.extend(words(&file.code, word).map(|at| {
                    let line = crate::source::line_of(&file.code, at);
                    format!("{}:{line}: `{word}`: {why}", file.path)
                }));
            }
        }
    }
    nothing(wrong, "invariants broken");
}

#[test]
fn no_verb_of_the_command_line_knows_another() {
    let module = |file: &File| module_path(&file.path).get(1).map(|name| (*name).to_owned());
    let files: Vec<_> = product().filter(|file| file.path.starts_with("src/cli/")).collect();
    let modules: BTreeSet<_> = files.iter().filter_map(|file| module(file)).collect();
    assert!(modules.len() > 12, "the verbs were found");
    let is_verb = |name: &str| modules.contains(name) && !SHARED_BY_VERBS.contains(&name);
    let mut wrong = Vec::new();
    for file in files {
        let Some(own) = module(file) else { continue };
        let path = module_path(&file.path);
        let up = "super::".repeat(path.len() - 1);
        for prefix in ["crate::cli::", &up] {
            for (at, _) in file.code.match_indices(prefix) {
                for name in first_segments(&file.code[at + prefix.len()..]) {
                    if is_verb(&name) && name != own {
                        wrong.push(format!("{}: uses `{name}`", file.path));
                    }
                }
            }
        }
    }
    nothing(wrong, "verbs that know one another; shared things are in SHARED_BY_VERBS");
}
