//! Tests of sets of changes: made completely or not at all, shown, and taken back.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use workspace::Workspace;

use super::escapes::held;
use super::{Room, action, insert, options, own, replace, set, substring, value_in, verdict};

fn undo(room: &Room) -> String {
    room.ask(&own("undo-changes", ""))
}

// A6
#[test]
fn a_set_is_made_in_order_and_as_one() {
    let room = Room::new();
    room.write("a", "one\n");
    let proposals = [
        substring("a", "one", "two"),
        replace("new/b", "b\n"),
        substring("a", "two", "three"),
        insert("new/b", "1", "c\n"),
    ];
    let answer = room.ask(&set(&proposals));
    assert_eq!(
        (value_in(&answer, "@set").as_str(), value_in(&answer, "@summary").as_str()),
        ("1", "several")
    );
    let expected = [("a", "three\n"), ("new/b", "b\nc\n")];
    assert_eq!(room.files(), expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
}

// A6
#[test]
fn one_proposal_that_cannot_be_done_leaves_all_undone() {
    let room = Room::new();
    room.write("a", "one\n");
    room.write("z", "z\n");
    let before = room.files();
    let good = || vec![substring("a", "one", "two"), replace("new/b", "b\n"), replace("z", "y")];

    let bad = [
        substring("a", "none", "x"),
        substring("a", "one", "x"),
        insert("z", "9", "x"),
        replace("../x", "x"),
        action("create_file", "path='z'", "x"),
        replace("new/b/c", "x"),
        replace("a/b", "x"),
    ];

    for bad in bad {
        for at in 0..=3 {
            let mut proposals = good();
            proposals.insert(at, bad.clone());
            let verdict = verdict(&room.ask(&set(&proposals)));
            assert_ne!(verdict, "changes-applied", "{bad} at {at}");
            assert_eq!(room.files(), before, "{bad} at {at}");
        }
    }

    let many: Vec<_> = (0..101).map(|n| replace(&format!("f{n}"), "x")).collect();
    assert_eq!(verdict(&room.ask(&set(&many))), "too-many");
    assert_eq!(room.files(), before);
    assert!(!room.path("new").exists());
}

// A6
#[test]
fn a_summary_alone_shows_what_has_been_changed_so_far() {
    let room = Room::new();
    room.write("a", "1\n2\n");
    room.ask(&substring("a", "1", "one"));
    room.ask(&substring("a", "one", "uno"));
    room.ask(&replace("gone", "x"));
    undo(&room);
    let answer = room.ask(&action("proposed_actions", "summary='Count in Spanish'", ""));
    assert_eq!(verdict(&answer), "changes-applied");
    assert_eq!(value_in(&answer, "@summary"), "Count in Spanish");
    let expected = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-1\n+uno\n 2\n";
    assert_eq!(value_in(&answer, "diff"), expected);

    let shown = room.ask(&own("show-changes", ""));
    assert_eq!((value_in(&shown, "diff").as_str(), shown.matches("<set ").count()), (expected, 4));
    let shown = room.ask(&own("show-changes", "from_set='2'"));
    assert!(value_in(&shown, "diff").contains("-one\n+uno\n"), "{shown}");
    // The second number is larger than any that the program can represent.
    for unknown in ["9", "18446744073709551616"] {
        let payload = own("show-changes", &format!("from_set='{unknown}'"));
        assert_eq!(verdict(&room.ask(&payload)), "unknown-set", "{unknown}");
    }
}

#[test]
fn sets_are_taken_back_one_by_one_also_after_a_restart() {
    let room = Room::new();
    room.write("a", "1\r\n");
    room.ask(&substring("a", "1", "2"));
    room.ask(&set(&[replace("d/e/new", "x"), substring("a", "2", "3")]));
    let again = Workspace::open(&room.work(), options(room.directory.path())).unwrap();
    let room = Room { workspace: again, ..room };
    let answer = undo(&room);
    assert_eq!((value_in(&answer, "@undoes").as_str(), room.read("a").as_str()), ("2", "2\r\n"));
    assert!(!room.path("d").exists());
    assert_eq!(value_in(&undo(&room), "@undoes"), "1");
    assert_eq!(room.read("a"), "1\r\n");
    assert_eq!(verdict(&undo(&room)), "nothing-to-undo");
    room.ask(&substring("a", "1", "5"));
    assert_eq!(value_in(&undo(&room), "@undoes"), "5");
}

/// A process that dies while it deletes a set may leave its manifest without the contents.
#[test]
fn a_set_without_its_contents_does_not_hide_the_others() {
    let room = Room::new();
    room.write("a", "1\n");
    for (old, new) in [("1", "2"), ("2", "3"), ("3", "4")] {
        room.ask(&substring("a", old, new));
    }
    let stored = room.directory.path().join("state/sets");
    fs::remove_file(stored.join("2/0.after")).unwrap();

    let again = Workspace::open(&room.work(), options(room.directory.path())).unwrap();
    let room = Room { workspace: again, ..room };
    let shown = room.ask(&own("show-changes", ""));
    assert_eq!(verdict(&shown), "workspace-changes", "{shown}");
    assert_eq!(fs::read_dir(&stored).unwrap().count(), 1);
    assert_eq!(value_in(&undo(&room), "@undoes"), "3");
    assert_eq!(room.read("a"), "3\n");
}

#[test]
fn an_undo_keeps_the_mode_that_a_file_got_after_the_set() {
    let room = Room::new();
    room.write("a", "1\n");
    fs::set_permissions(room.path("a"), fs::Permissions::from_mode(0o600)).unwrap();
    room.ask(&substring("a", "1", "2"));
    fs::set_permissions(room.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(verdict(&undo(&room)), "changes-applied");
    assert_eq!(room.read("a"), "1\n");
    assert_eq!(fs::metadata(room.path("a")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_set_that_makes_one_path_a_file_and_a_directory_is_refused() {
    let room = Room::new();
    for paths in [["n1", "n1/n2"], ["d/n2", "d"], ["d/e/n2", "d"]] {
        let payload = set(&paths.map(|path| replace(path, "x")));
        let preview = room.workspace.preview(&payload).unwrap();
        assert!(format!("{preview:?}").contains("fail: not-a-directory"), "{preview:?}");
        let answer = room.ask(&payload);
        assert_eq!(verdict(&answer), "not-a-directory", "{answer}");
        let message = value_in(&answer, "message");
        assert!(paths.iter().all(|path| message.contains(&format!("`{path}`"))), "{message}");
    }
    assert!(room.files().is_empty());
    let payload = set(&[replace("d/n", "x"), replace("d/n2", "x")]);
    assert_eq!(verdict(&room.ask(&payload)), "changes-applied");
}

#[test]
fn a_set_is_not_taken_back_over_somebody_elses_change() {
    let room = Room::new();
    room.write("a", "1\n");
    room.write("b", "1\n");
    room.ask(&set(&[substring("a", "1", "2"), substring("b", "1", "2"), replace("c", "2\n")]));

    room.write("b", "mine\n");
    fs::remove_file(room.path("c")).unwrap();
    let before = room.files();

    let answer = undo(&room);
    assert_eq!(verdict(&answer), "changed-meanwhile");
    let message = value_in(&answer, "message");
    assert!(message.contains("`b`, `c`") && !message.contains("`a`"), "{message}");
    assert_eq!(room.files(), before);

    // Once the files have their content again, the set can be taken back.
    room.write("b", "2\n");
    room.write("c", "2\n");
    assert_eq!(verdict(&undo(&room)), "changes-applied");
    assert_eq!((room.read("a").as_str(), room.read("b").as_str()), ("1\n", "1\n"));

    // A directory that contains other files by now stays.
    room.ask(&replace("d/x", "x"));
    room.write("d/theirs", "y");
    assert_eq!(verdict(&undo(&room)), "changes-applied");
    assert_eq!(room.read("d/theirs"), "y");
}

/// Undoes a set that changed a file which other programs execute automatically. Without an
/// approval, the undo must fail and leave the file unchanged. If every call is approved, the undo
/// must succeed.
#[test]
fn a_set_with_a_file_that_runs_by_itself_is_not_taken_back_without_approval() {
    let room = Room::new();
    room.write(".envrc", "echo old\n");
    assert_eq!(verdict(&room.ask(&held(".envrc", "echo new"))), "changes-applied");
    let preview = room.workspace.preview(&own("undo-changes", "")).unwrap();
    assert!(format!("{preview:?}").contains("fail: dangerous"), "{preview:?}");
    let answer = undo(&room);
    assert_eq!(verdict(&answer), "dangerous");
    assert!(value_in(&answer, "message").contains("`.envrc`"), "{answer}");
    assert_eq!(room.read(".envrc"), "echo new");

    let mut options = options(room.directory.path());
    options.approved = true;
    let approved = Workspace::open(&room.work(), options).unwrap();
    let room = Room { workspace: approved, ..room };
    assert_eq!(verdict(&undo(&room)), "changes-applied");
    assert_eq!(room.read(".envrc"), "echo old\n");
}

/// Changes 100 files with long names in one set. The answer must fit into a payload, list only some
/// of the files, and state the number of all. The names contain `&`, which takes five bytes in an
/// answer.
#[test]
fn a_list_of_many_long_names_is_cut_visibly_so_that_the_answer_fits() {
    let room = Room::new();
    let directory = vec!["&amp;".repeat(200); 12].join("/");
    let long = |n: usize| replace(&format!("{directory}/{n}"), "x");
    let answer = room.ask(&set(&(0..100).map(long).collect::<Vec<_>>()));
    let shown = room.ask(&own("show-changes", ""));
    for answer in [answer, shown] {
        assert!(answer.len() < organism::limits::PAYLOAD_BYTES_MAX, "{}", answer.len());
        assert_eq!(value_in(&answer, "@files"), "100");
        let listed = answer.matches("<file ").count();
        assert!((1..100).contains(&listed), "{listed}");
    }
    assert_eq!(room.files().len(), 100);

    let answer = room.ask(&replace("short", "x"));
    assert_eq!(value_in(&answer, "@files"), "(none)");
}

/// Makes 30 sets, each with a summary of the maximum length of 1,000 characters. The answer must
/// list only some of the sets, and state the number of all.
#[test]
fn a_list_of_many_sets_is_cut_visibly() {
    let room = Room::new();
    let summary = "&amp;".repeat(1_000);
    for n in 1..=30 {
        let attributes = format!("file_path='a' change_summary='{summary}'");
        room.ask(&action("proposed_file_replace", &attributes, &n.to_string()));
    }
    let shown = room.ask(&own("show-changes", ""));
    assert_eq!(value_in(&shown, "@sets"), "30");
    let listed = shown.matches("<set ").count();
    assert!((1..30).contains(&listed), "{listed}");
}

#[test]
fn a_message_that_comes_again_is_answered_the_same_and_not_done_again() {
    let room = Room::new();
    room.write("a", "1\n");
    let proposal = insert("a", "0", "x\n");
    let first = room.deliver("m1", &proposal);
    let again = Workspace::open(&room.work(), options(room.directory.path())).unwrap();
    let room = Room { workspace: again, ..room };
    assert_eq!(room.deliver("m1", &proposal), first);
    assert_eq!(room.read("a"), "x\n1\n");
    assert_ne!(room.deliver("m2", &proposal), first);
    let undone = room.deliver("m3", &own("undo-changes", ""));
    assert_eq!(room.deliver("m3", &own("undo-changes", "")), undone);
    assert_eq!(room.read("a"), "x\n1\n");
}

#[test]
fn old_sets_are_forgotten_and_their_numbers_not_used_again() {
    let room = Room::new();
    let kept = workspace::limits::SETS_KEPT;
    for n in 1..=kept + 2 {
        assert_eq!(value_in(&room.ask(&replace("a", &n.to_string())), "@set"), n.to_string());
    }
    let shown = room.ask(&own("show-changes", ""));
    assert_eq!(shown.matches("<set ").count(), kept);
}

/// An earlier version of this listener may have allowed a name that is protected now.
#[test]
fn a_recorded_set_with_a_protected_name_is_shown_and_taken_back() {
    let room = Room::new();
    room.ask(&replace("notes", "1\n"));
    let state = room.directory.path().join("state");
    let manifest = state.join("sets/1/manifest.json");
    let recorded = fs::read_to_string(&manifest).unwrap();
    let renamed = recorded.replace("\"path\":\"notes\"", "\"path\":\".git/notes\"");
    assert_ne!(renamed, recorded);
    fs::write(&manifest, renamed).unwrap();
    fs::create_dir(room.path(".git")).unwrap();
    fs::rename(room.path("notes"), room.path(".git/notes")).unwrap();

    let shown = room.ask(&own("show-changes", ""));
    assert!(shown.contains(".git/notes"), "{shown}");

    // The set is unfinished, so the next one takes it back.
    fs::rename(state.join("sets/1"), state.join("open")).unwrap();
    room.ask(&replace("other", "2\n"));
    assert_eq!(room.files(), [("other".to_owned(), "2\n".to_owned())]);
}

#[test]
fn nothing_of_a_set_lies_about_when_it_is_done() {
    let room = Room::new();
    room.write("a", "1\n");
    room.ask(&set(&[substring("a", "1", "2"), replace("b/c", "x")]));
    undo(&room);
    assert_eq!(room.files(), [("a".to_owned(), "1\n".to_owned())]);
    assert!(!room.directory.path().join("state/open").exists());
}
