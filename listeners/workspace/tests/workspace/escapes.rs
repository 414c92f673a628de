//! Tests that no path leads to a read or a write outside the workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{Room, action, insert, replace, shell, substring, value_in, verdict};

const SECRET: &str = "the secret canary\n";

/// Creates a workspace in which links, a pipe and a socket could lead out of the workspace. Secret
/// files lie beside the workspace.
fn trapped() -> Room {
    let room = Room::new();
    let outside = room.directory.path().canonicalize().unwrap();
    fs::create_dir(outside.join("outside")).unwrap();
    fs::write(outside.join("outside/secret"), SECRET).unwrap();

    // The name of this directory begins with the name of the workspace.
    fs::create_dir(outside.join("desk-other")).unwrap();
    fs::write(outside.join("desk-other/secret"), SECRET).unwrap();

    room.write("inside/file", "inside\n");
    room.write(".git/config", "[core]\n");
    room.write("plain", "plain\n");

    let link = |to: &std::path::Path, name: &str| symlink(to, room.path(name)).unwrap();
    link(&outside.join("outside/secret"), "to-secret");
    link(&outside.join("outside"), "to-outside");
    link("../outside/secret".as_ref(), "relative");
    link("..".as_ref(), "up");
    link("/".as_ref(), "slash");
    link("inside".as_ref(), "to-inside");
    link("plain".as_ref(), "to-plain");
    link("nowhere/at/all".as_ref(), "dangling");
    link("loop".as_ref(), "loop");
    link("/proc/self/root".as_ref(), "proc-root");
    link("/dev/stdout".as_ref(), "stdout");
    link(&outside.join("outside/new"), "inside/to-new");
    let made = std::process::Command::new("mkfifo").arg(room.path("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::net::UnixListener::bind(room.path("socket")).unwrap();

    room
}

/// Paths that lead out of the workspace, each with the code of its refusal. `{out}` is the
/// directory around the workspace.
const ESCAPES: [(&str, &str); 73] = [
    ("../outside/secret", "outside-workspace"),
    ("..", "outside-workspace"),
    ("../desk/plain", "outside-workspace"),
    ("inside/../../outside/secret", "outside-workspace"),
    ("inside/../plain", "outside-workspace"),
    ("./../outside/secret", "outside-workspace"),
    ("inside/..", "outside-workspace"),
    (".././outside//secret", "outside-workspace"),
    ("{out}/outside/secret", "outside-workspace"),
    ("{out}/desk/../outside/secret", "outside-workspace"),
    ("{out}/desk-other/secret", "outside-workspace"),
    ("{out}/deskplain", "outside-workspace"),
    ("//{out}/outside/secret", "outside-workspace"),
    ("/etc/passwd", "outside-workspace"),
    ("/", "outside-workspace"),
    ("/proc/self/environ", "outside-workspace"),
    ("/proc/self/{r}/etc/passwd", "outside-workspace"),
    ("/proc/self/cwd/plain", "outside-workspace"),
    ("/dev/null", "outside-workspace"),
    ("/dev/stdout", "outside-workspace"),
    ("to-secret", "link"),
    ("to-outside/secret", "link"),
    ("to-outside/new", "link"),
    ("relative", "link"),
    ("up/outside/secret", "link"),
    ("up/desk/plain", "link"),
    ("slash/etc/passwd", "link"),
    ("to-inside/file", "link"),
    ("to-inside/new", "link"),
    ("to-plain", "link"),
    ("dangling", "link"),
    ("dangling/new", "link"),
    ("loop", "link"),
    ("loop/loop", "link"),
    ("proc-root/etc/passwd", "link"),
    ("stdout", "link"),
    ("inside/to-new", "link"),
    ("./to-secret", "link"),
    ("{out}/desk/to-secret", "link"),
    ("pipe", "not-a-file"),
    ("socket", "not-a-file"),
    ("inside", "not-a-file"),
    ("inside/", "not-a-file"),
    ("plain/", "not-a-file"),
    (".", "not-a-file"),
    ("{out}/desk", "not-a-file"),
    ("plain/new", "not-a-directory"),
    ("pipe/new", "not-a-directory"),
    (".git/config", "protected"),
    (".git/hooks/pre-commit", "protected"),
    (".GIT/hooks/pre-commit", "protected"),
    (".Git./config", "protected"),
    ("inside/.git /config", "protected"),
    ("inside/.git", "protected"),
    (".g\u{200C}it/config", "protected"),
    ("git~1/config", "protected"),
    (".git::$INDEX_ALLOCATION/config", "protected"),
    ("inside/.git:stream", "protected"),
    (".gitmodules", "dangerous"),
    ("inside/./.GitModules", "dangerous"),
    ("{out}/desk/.envrc", "dangerous"),
    (".vscode/tasks.json", "dangerous"),
    ("inside/.VSCODE/new/tasks.json", "dangerous"),
    ("inside/pre-commit", "dangerous"),
    ("bare.git/hooks/x", "dangerous"),
    (".organism-1-0.tmp", "protected"),
    ("inside/.ORGANISM-9-9.tmp", "protected"),
    ("new&#10;line", "bad-path"),
    ("tab&#9;here", "bad-path"),
    ("del\u{7F}", "bad-path"),
    ("c1\u{85}", "bad-path"),
    ("{long}", "bad-path"),
    ("{deep}", "bad-path"),
];

fn filled(path: &str, room: &Room) -> String {
    let around = room.directory.path().canonicalize().unwrap();
    path.replace("{out}", around.to_str().unwrap())
        .replace("{long}", &"n".repeat(256))
        .replace("{r}", "root")
        .replace("{deep}", &"d/".repeat(65))
}

#[test]
fn no_path_leads_out_whatever_is_to_be_done_there() {
    let room = trapped();
    let before = room.files();
    let mut wrong = Vec::new();

    for (path, code) in ESCAPES {
        let path = filled(path, &room);
        let proposals = [
            replace(&path, "overwritten"),
            substring(&path, "canary", "overwritten"),
            insert(&path, "0", "overwritten"),
            action("create_file", &format!("path=\"{path}\""), "overwritten"),
        ];

        for proposal in proposals {
            let answer = room.ask(&proposal);
            if verdict(&answer) != code || answer.contains("canary") {
                wrong.push(format!("{path}: expected {code}, got {answer}"));
            }
        }
    }

    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(room.files(), before);
    let outside = room.directory.path().join("outside");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

const TASKS: &str = ".vscode/tasks.json";

/// Returns a payload that writes a file which other programs execute automatically. The pump holds
/// every payload of this kind until a person has approved it.
pub fn held(path: &str, body: &str) -> String {
    super::own("replace-dangerous-file", &format!("file_path=\"{path}\""))
        .replace("/>", &format!(">{body}</replace-dangerous-file>"))
}

#[test]
fn what_runs_by_itself_is_written_in_the_held_form_alone() {
    let room = Room::new();
    let refused = room.ask(&replace(TASKS, "{}"));
    assert_eq!(verdict(&refused), "dangerous");
    assert!(value_in(&refused, "message").contains("replace-dangerous-file"), "{refused}");
    assert!(!room.path(".vscode").exists());

    assert_eq!(verdict(&room.ask(&held(TASKS, "{}"))), "changes-applied");
    assert_eq!(room.read(TASKS), "{}");
    assert_eq!(verdict(&room.ask(&substring(TASKS, "{}", "[]"))), "dangerous");
    assert_eq!(verdict(&room.ask(&held(".git/config", "x"))), "protected");
    assert_eq!(verdict(&room.ask(&held("plain", "x"))), "changes-applied");
}

#[test]
fn one_dangerous_file_refuses_the_whole_set() {
    let room = Room::new();
    let set = super::set(&[replace("plain", "x"), replace(".envrc", "x")]);
    assert_eq!(verdict(&room.ask(&set)), "dangerous");
    assert!(!room.path("plain").exists());
}

#[test]
fn where_every_call_is_approved_such_a_file_is_written_like_any_other() {
    let room = Room::with(|options| options.approved = true);
    assert_eq!(verdict(&room.ask(&replace(TASKS, "{}"))), "changes-applied");
    assert_eq!(verdict(&room.ask(&replace(".git/config", "x"))), "protected");
}

#[test]
fn no_command_is_started_outside() {
    let room = trapped();
    for directory in ["..", "/", "/etc", "up", "to-outside", "to-inside", "inside/..", "plain"] {
        let command = action("shell", &format!("exec_dir=\"{directory}\""), "touch started");
        let failed = verdict(&room.ask(&command));
        let expected = ["outside-workspace", "link", "not-a-directory"];
        assert!(expected.contains(&failed.as_str()), "{directory}: {failed}");
    }
    assert_eq!(verdict(&room.ask(&action("shell", "exec_dir='none'", "pwd"))), "not-found");
    let found: Vec<_> = walk(&room).into_iter().filter(|name| name == "started").collect();
    assert!(found.is_empty());
    let inside =
        room.ask(&action("proposed_shell_command", "working_directory='inside'", "pwd -P"));
    assert_eq!(value_in(&inside, "stdout"), format!("{}\n", room.path("inside").display()));
}

/// Returns the names of all files in the directory around the workspace.
fn walk(room: &Room) -> Vec<String> {
    let mut found = Vec::new();
    super::gather(room.directory.path(), "", &mut found);
    found.into_iter().filter_map(|(path, _)| path.rsplit('/').next().map(str::to_owned)).collect()
}

#[test]
fn an_absolute_path_into_the_workspace_is_what_it_says() {
    let room = Room::new();
    let path = room.path("a/b");
    assert_eq!(verdict(&room.ask(&replace(path.to_str().unwrap(), "x"))), "changes-applied");
    assert_eq!(room.read("a/b"), "x");
}

#[test]
fn odd_names_are_names() {
    let room = Room::new();
    for path in
        ["-rf", "a b", "$(id)", "~", "~root/x", "ä", "...", "a\\..\\b", "*", ".gitignore", "'"]
    {
        let answer = room.ask(&replace(path, path));
        assert_eq!(verdict(&answer), "changes-applied", "{path}: {answer}");
        assert_eq!(room.read(path), path);
    }
}

#[test]
fn one_file_by_two_names_in_a_set_is_refused() {
    let room = Room::new();
    room.write("a", "1\n");
    fs::hard_link(room.path("a"), room.path("b")).unwrap();
    let answer = room.ask(&super::set(&[substring("a", "1", "2"), substring("b", "1", "3")]));
    assert_eq!(verdict(&answer), "same-file");
    assert_eq!(room.read("a"), "1\n");
}

#[test]
fn a_hard_link_is_cut_and_its_other_end_left_alone() {
    let room = trapped();
    let secret = room.directory.path().join("outside/secret");
    fs::hard_link(&secret, room.path("hard")).unwrap();
    assert_eq!(verdict(&room.ask(&replace("hard", "mine"))), "changes-applied");
    assert_eq!(
        (room.read("hard").as_str(), fs::read_to_string(secret).unwrap().as_str()),
        ("mine", SECRET)
    );
}

/// Changes a file in a directory while another thread repeatedly exchanges this directory with a
/// link to the outside. The files outside must stay unchanged.
#[test]
fn a_directory_that_becomes_a_link_in_the_middle_leads_nowhere() {
    let room = trapped();
    let outside = room.directory.path().canonicalize().unwrap().join("outside");
    room.write("swap/file", "x\n");
    symlink(&outside, room.path("evil")).unwrap();

    let over = AtomicBool::new(false);
    let verdicts = std::thread::scope(|scope| {
        let swap = room.path("swap");
        let evil = room.path("evil");
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &evil, RenameFlags::EXCHANGE).unwrap();
            }
        });

        let ask = |n: usize| verdict(&room.ask(&replace("swap/file", &format!("{n}\n"))));
        let verdicts: Vec<_> = (0..300).map(ask).collect();
        over.store(true, Ordering::Relaxed);
        verdicts
    });

    assert!(verdicts.iter().any(|verdict| verdict != "changes-applied"), "nobody raced");
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
}

#[test]
fn the_state_is_kept_out_of_the_agents_reach() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = super::options(directory.path());
    options.state = directory.path().join("inside/state");
    let refused = workspace::Workspace::open(directory.path(), options).unwrap_err();
    assert!(refused.to_string().contains("--state"), "{refused}");
    let mine = super::options(directory.path());
    for (name, good) in [("one", true), ("two", false), ("one", true)] {
        fs::create_dir_all(directory.path().join(name)).unwrap();
        let opened = workspace::Workspace::open(&directory.path().join(name), mine.clone());
        assert_eq!(opened.is_ok(), good, "{opened:?}");
    }
    let room = Room::new();
    room.ask(&shell("true"));
    let mode = std::os::unix::fs::MetadataExt::mode(
        &fs::metadata(room.directory.path().join("state/answers")).unwrap(),
    );
    assert_eq!(mode & 0o777, 0o700);
}
