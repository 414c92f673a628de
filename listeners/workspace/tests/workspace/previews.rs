//! Tests of previews: a preview changes nothing, and a call does nothing if the approved preview is
//! out of date.

use std::fs;
use std::path::Path;

use super::{Room, action, own, replace, set, shell, substring};

/// Returns all files of the workspace and of its state directory, with their contents.
fn everything(room: &Room) -> Vec<(String, Vec<u8>)> {
    fn walk(directory: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.push((path.display().to_string(), Vec::new()));
                walk(&path, found);
            } else {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }

    let mut found = Vec::new();
    walk(room.directory.path(), &mut found);
    found.sort();
    found
}

/// Creates a workspace with one file, one set that can be undone, and one proposed installation.
fn room() -> Room {
    let room = Room::new();
    room.write("kept.txt", "one\ntwo\n");
    room.ask(&replace("made.txt", "made\n"));
    room.ask(&action("proposed_package_install", "language='python' package_list='left-pad'", ""));
    room
}

#[test]
fn a_preview_of_any_payload_changes_nothing() {
    let room = room();
    let payloads = [
        replace("kept.txt", "other\n"),
        replace("new/deep/file.txt", "x"),
        replace("../outside.txt", "x"),
        substring("kept.txt", "two", "2"),
        substring("kept.txt", "absent", "x"),
        shell("touch ran; echo > kept.txt"),
        set(&[substring("kept.txt", "one", "1"), shell("rm kept.txt")]),
        action("proposed_package_install", "language='rust' package_list='serde'", ""),
        own("show-changes", ""),
        own("undo-changes", ""),
        own("install-packages", "proposal='unknown'"),
        action("replace-dangerous-file", "is_dangerous='true' file_path='.envrc'", "x"),
    ];
    let before = everything(&room);
    for payload in &payloads {
        room.workspace.preview(payload).unwrap();
        assert_eq!(everything(&room), before, "{payload}");
    }
}

#[test]
fn a_preview_shows_the_diff_and_changes_with_every_byte_of_the_base() {
    let room = room();
    let payload = substring("kept.txt", "two", "2");
    let first = room.workspace.preview(&payload).unwrap();
    assert_eq!(room.workspace.preview(&payload).unwrap(), first, "the same base");
    let text = format!("{first:?}");
    assert!(text.contains("--- a/kept.txt"), "{text}");
    assert!(text.contains("-two"), "{text}");
    assert!(text.contains("+2"), "{text}");

    // Outside the lines that the diff shows.
    let lines: String = (0..100).map(|n| format!("{n}\n")).collect();
    room.write("kept.txt", format!("{lines}two\n"));
    let second = room.workspace.preview(&payload).unwrap();
    room.write("kept.txt", format!("{}two\n", lines.replacen('0', "zero", 1)));
    assert_ne!(room.workspace.preview(&payload).unwrap(), second);
}

/// Returns the text of the preview of a payload.
fn preview_text(room: &Room, payload: &str) -> String {
    let preview = room.workspace.preview(payload).unwrap();
    format!("{preview:?}")
}

fn assert_fits(preview: &str) {
    let bytes = preview.replace("\\n", "\n").len();
    assert!(bytes <= organism::limits::PREVIEW_BYTES_MAX, "{bytes}");
}

#[test]
fn the_preview_of_a_call_that_cannot_succeed_states_the_failure() {
    let room = room();
    let in_directory = |directory: &str| {
        action("proposed_shell_command", &format!("working_directory='{directory}'"), "true")
    };
    let unknown = || action("proposed_package_install", "language='perl' package_list='x'", "");
    let long = shell(&"x".repeat(workspace::limits::COMMAND_BYTES_MAX + 1));
    let many: Vec<_> = (0..=workspace::limits::SET_COMMANDS_MAX).map(|_| shell("true")).collect();
    for (payload, code) in [
        (in_directory("../.."), "outside-workspace"),
        (unknown(), "unknown-language"),
        (long, "too-large"),
        (set(&many), "too-many"),
    ] {
        let text = preview_text(&room, &payload);
        assert!(text.contains(&format!("would change nothing and fail: {code}: ")), "{text}");
    }

    let later = preview_text(&room, &set(&[shell("echo one"), unknown(), shell("echo three")]));
    assert!(later.contains("would fail then, and run nothing more: unknown-language"), "{later}");
    assert!(later.contains("echo one") && !later.contains("echo three"), "{later}");
}

/// Another program may make the directory between the comparison of the preview and the start of
/// the command. So a preview must show the command, and those after it.
#[test]
fn a_preview_shows_a_command_whose_directory_is_missing() {
    let room = room();
    let in_directory = |directory: &str| {
        action("proposed_shell_command", &format!("working_directory='{directory}'"), "echo one")
    };
    for (directory, code) in [("missing", "not-found"), ("kept.txt", "not-a-directory")] {
        let payload = set(&[in_directory(directory), shell("echo two")]);
        let text = preview_text(&room, &payload);
        assert!(text.contains(&format!("would fail now, and run nothing: {code}: ")), "{text}");
        assert!(text.contains("echo one") && text.contains("echo two"), "{text}");
    }

    // A file system that folds names takes the directory of `Missing/file` for `missing`.
    let earlier = [replace("missing/file", "x"), replace("Missing/file", "x"), shell("true")];
    for earlier in earlier {
        let text = preview_text(&room, &set(&[earlier, in_directory("missing")]));
        assert!(text.contains("would run in `missing`"), "{text}");
        assert!(!text.contains("would fail"), "{text}");
    }
}

/// A set of large changes and long commands, which escaping makes longer still. The preview must
/// fit into its payload, show the beginning of each part, and change with every byte.
#[test]
fn a_preview_that_is_too_long_is_cut_and_changes_with_every_byte() {
    let room = room();
    let command = |end: &str| shell(&format!("echo '{}{end}'", "&".repeat(60_000)));
    let payload = |last: &str| {
        set(&[
            replace("kept.txt", &"&&&&&&&&&\n".repeat(9_000)),
            command("one"),
            command(last),
            shell("echo short"),
        ])
    };

    let preview = room.workspace.preview(&payload("two")).unwrap();
    let text = format!("{preview:?}");
    assert_fits(&text);
    assert!(text.contains("this preview is cut: it has "), "{text}");
    assert_eq!(text.matches("[cut: ").count(), 3, "the diff and two commands");
    assert_eq!(text.matches("would run in `.`").count(), 3);
    assert!(text.contains("echo short"));
    assert_ne!(room.workspace.preview(&payload("three")).unwrap(), preview);
    let answer = room.deliver_approved("long", &payload("two"), Some(&preview));
    assert!(answer.contains("<changes-applied "), "{answer}");

    room.write("kept.txt", "other\n");
    let answer = room.deliver_approved("stale", &payload("two"), Some(&preview));
    assert!(answer.contains("<stale-preview "));

    let directory = vec!["&amp;".repeat(200); 12].join("/");
    let many: Vec<_> = (0..100).map(|n| replace(&format!("{directory}/{n}"), "x")).collect();
    let text = preview_text(&room, &set(&many));
    assert!(text.contains("this preview is cut: it has "));
    assert_fits(&text);
}

#[test]
fn a_call_whose_base_changed_since_its_preview_does_nothing() {
    let room = room();
    let payload = substring("kept.txt", "two", "2");
    let preview = room.workspace.preview(&payload).unwrap();
    room.write("kept.txt", "zero\none\ntwo\n");
    let before = everything(&room);
    let answer = room.deliver_approved("stale", &payload, Some(&preview));
    assert!(answer.contains("<stale-preview "), "{answer}");
    assert_eq!(everything(&room), before);

    let preview = room.workspace.preview(&payload).unwrap();
    let answer = room.deliver_approved("fresh", &payload, Some(&preview));
    assert!(answer.contains("<changes-applied "), "{answer}");
    assert_eq!(room.read("kept.txt"), "zero\none\n2\n");

    let again = room.deliver_approved("fresh", &payload, Some(&preview));
    assert_eq!(again, answer, "a repeated delivery is answered the same, though its base is gone");
}

#[test]
fn undo_and_commands_are_bound_to_their_previews() {
    let room = room();
    let undo = own("undo-changes", "");
    let preview = room.workspace.preview(&undo).unwrap();
    room.ask(&replace("second.txt", "second\n"));
    let answer = room.deliver_approved("undo", &undo, Some(&preview));
    assert!(answer.contains("<stale-preview "), "another set is the last one now: {answer}");
    assert_eq!(room.read("second.txt"), "second\n");

    let command = shell("echo ran > ran.txt");
    let preview = room.workspace.preview(&command).unwrap();
    let other = room.workspace.preview(&shell("echo other")).unwrap();
    let answer = room.deliver_approved("other", &command, Some(&other));
    assert!(answer.contains("<stale-preview "), "{answer}");
    assert!(!room.path("ran.txt").exists());
    let answer = room.deliver_approved("right", &command, Some(&preview));
    assert!(answer.contains("<command-result "), "{answer}");
    assert_eq!(room.read("ran.txt"), "ran\n");
}
