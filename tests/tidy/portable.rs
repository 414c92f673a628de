//! Uses of names and files that exist only on Linux stand behind a `cfg`, so that the workspace
//! compiles on macOS.

use crate::nothing;
use crate::source::without_text;
use crate::tree::{product, rust};

/// Names of the crate rustix that do not exist on macOS.
const LINUX_NAMES: [&str; 10] = [
    "DumpableBehavior",
    "PidfdFlags",
    "mkfifoat",
    "mknodat",
    "pidfd_open",
    "pidfd_send_signal",
    "set_child_subreaper",
    "set_dumpable_behavior",
    "set_parent_process_death_signal",
    "tcp_user_timeout",
];

/// Files that read `/proc` without a `cfg`, each with what they do on a system without it.
const WITHOUT_PROC: &[(&str, &str)] = &[
    ("src/bus/process/launch.rs", "takes the path by which this program was started"),
    ("src/cli/stop_signals.rs", "takes no signal for an ignored one"),
    ("src/durable_file.rs", "compares names of files, and reads nothing"),
    ("src/journal/jetstream/lease.rs", "names no host"),
    ("src/journal/sqlite/directory_lock.rs", "reads the note of the holder"),
    ("src/organism/access/ancestry.rs", "looks only if the system is Linux"),
    ("src/organism/access/host_presence.rs", "finds no hosts"),
    ("src/organism/access/loopback_peer.rs", "looks only if the system is Linux"),
    ("src/schema/trial_compile.rs", "measures the time that has passed, and no memory"),
    ("src/service/socket_transport.rs", "refuses a path that is too long"),
];

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether line `at` belongs to an item that is compiled on Linux alone.
fn is_gated(lines: &[&str], at: usize) -> bool {
    (0..at).any(|gate| {
        let indent = indent_of(lines[gate]);
        let ends = |line: &&str| {
            indent_of(line) <= indent && (line.trim().starts_with('}') || line.ends_with(';'))
        };
        let is_gate = ["#[cfg(target_os = \"linux\")]", "#![cfg(target_os = \"linux\")]"]
            .contains(&lines[gate].trim());
        let is_file = lines[gate].starts_with("#![");
        is_gate && (is_file || !lines[gate + 1..at].iter().any(ends))
    })
}

/// Lines of `text` that contain one of `names` and are compiled on every system.
fn open_uses(text: &str, names: &[&str]) -> Vec<usize> {
    let is_used = |line: &str| names.iter().any(|name| line.contains(name));
    if !is_used(text) {
        return Vec::new();
    }

    let code = without_text(text);
    let lines: Vec<_> = text.lines().collect();
    let used = code.lines().enumerate().filter(|(_, line)| is_used(line));
    used.map(|(at, _)| at).filter(|at| !is_gated(&lines, *at)).collect()
}

/// Lines of `text`, without comments, that contain a path in `/proc` and are compiled on every
/// system.
fn open_paths(text: &str) -> Vec<usize> {
    let lines: Vec<_> = text.lines().collect();
    let is_path = |line: &str| line.contains("\"/proc") && !line.trim().starts_with("//");
    (0..lines.len()).filter(|at| is_path(lines[*at]) && !is_gated(&lines, *at)).collect()
}

#[test]
fn names_that_only_linux_has_stand_behind_a_cfg() {
    let uses = rust().flat_map(|file| {
        let lines = open_uses(&file.text, &LINUX_NAMES);
        lines.into_iter().map(|at| format!("{}:{}", file.path, at + 1))
    });
    nothing(uses.collect(), "put it behind #[cfg(target_os = \"linux\")]");
}

#[test]
fn files_that_read_proc_on_every_system_are_known() {
    let files = product().filter(|file| !open_paths(&file.text).is_empty());
    let found: Vec<_> = files.map(|file| file.path.as_str()).collect();
    let known: Vec<_> = WITHOUT_PROC.iter().map(|(path, _)| *path).collect();
    assert_eq!(found, known, "put it behind a cfg, or state what it does without /proc");
}

#[test]
fn a_name_behind_no_cfg_or_behind_a_closed_one_is_found() {
    let text = "#[cfg(target_os = \"linux\")]\nmod a {\n    use mknodat;\n}\nuse mknodat;\n\
        #[cfg(target_os = \"linux\")]\nuse mknodat;\nuse mknodat; // mknodat\n";
    assert_eq!(open_uses(text, &LINUX_NAMES), [4, 7]);
}
