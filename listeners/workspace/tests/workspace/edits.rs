//! Tests of the effect that each proposal has on a file.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use expect_test::expect;

use super::{Room, action, insert, replace, substring, value_in, verdict};

// A1 A8
#[test]
fn a_text_that_is_there_once_is_replaced_whatever_it_holds() {
    let cases = [
        ("const A = 1;\n", "1", "2", "const A = 2;\n"),
        ("a && b => c\n", "a && b => c", "<d e=\"f\">'g'</d>", "<d e=\"f\">'g'</d>\n"),
        ("x\ny\nz", "\ny\n", "\n", "x\nz"),
        ("keep drop keep", " drop", "", "keep keep"),
        ("$1 \\1 {}", "\\1", "$0 \\0 {{x}}", "$1 $0 \\0 {{x}} {}"),
        ("größer\n", "öß", "oss", "grosser\n"),
        ("  indented\n", "  indented", "\tindented", "\tindented\n"),
        ("a&amp;b", "&amp;", "&", "a&b"),
    ];

    for (before, old, new, after) in cases {
        let room = Room::new();
        room.write("f", before);
        assert_eq!(verdict(&room.ask(&substring("f", old, new))), "changes-applied");
        assert_eq!(room.read("f"), after);
    }

    let proposed = action(
        "proposed_file_replace_substring",
        "file_path='f' change_summary='why'",
        "<old_str>b</old_str><!-- between --><new_str><![CDATA[<c>&&]]></new_str>",
    );

    let room = Room::new();
    room.write("f", "abc");
    let answer = room.ask(&proposed);
    assert_eq!(
        (value_in(&answer, "@summary").as_str(), room.read("f").as_str()),
        ("why", "a<c>&&c")
    );
}

// A15
#[test]
fn a_text_that_is_not_there_once_is_an_error_and_nothing_is_written() {
    let room = Room::new();
    room.write("f", "one\ntwo two\n  three\naaa\n");
    let before = fs::metadata(room.path("f")).unwrap();
    let text = |old: &str| {
        let answer = room.ask(&substring("f", old, "new"));
        format!("{}: {}\n", verdict(&answer), value_in(&answer, "message"))
    };

    let all: String = ["two", "four", "\tthree", "aa", "e", "One"].map(text).concat();
    expect![[r#"
        several-matches: old_str is in `f` 2 times, in lines 2, 2; take in more of what is around the one you mean
        no-match: old_str is not in `f`; read the file again and copy the text as it is there
        no-match: old_str is not in `f`; but for white space around it, it is in line 3
        several-matches: old_str is in `f` 2 times, in lines 4, 4; take in more of what is around the one you mean
        several-matches: old_str is in `f` 3 times, in lines 1, 3, 3; take in more of what is around the one you mean
        no-match: old_str is not in `f`; read the file again and copy the text as it is there
    "#]]
    .assert_eq(&all);

    let after = fs::metadata(room.path("f")).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));

    room.write("many", "ab".repeat(5_000));
    let text = value_in(&room.ask(&substring("many", "ab", "c")), "message");
    assert!(text.contains("at least 1000 times, in lines 1, 1"), "{text}");
}

// A2 A9
#[test]
fn a_body_is_the_file_but_for_the_line_end_after_its_tag() {
    let room = Room::new();
    let create =
        |path: &str, body: &str| room.ask(&action("create_file", &format!("path='{path}'"), body));
    let cases = [
        ("a", "text", "text"),
        ("b", "\nline\n", "line\n"),
        ("c", "\n\nline", "\nline"),
        ("d", "  { &quot;a&quot;: 1 &amp;&amp; 2 }\n", "  { \"a\": 1 && 2 }\n"),
        ("e", "", ""),
        ("f", "<![CDATA[<b>]]>", "<b>"),
        ("new/dir/g", "x", "x"),
    ];

    for (path, body, content) in cases {
        assert_eq!(verdict(&create(path, body)), "changes-applied", "{path}");
        assert_eq!(room.read(path), content, "{path}");
    }

    assert_eq!(verdict(&create("a", "again")), "exists");
    assert_eq!(room.read("a"), "text");
    assert_eq!(verdict(&room.ask(&replace("a", "again"))), "changes-applied");
    assert_eq!(verdict(&room.ask(&replace("new/h", "h"))), "changes-applied");
    assert_eq!((room.read("a").as_str(), room.read("new/h").as_str()), ("again", "h"));
}

// A3
#[test]
fn lines_are_inserted_after_the_line_of_that_number() {
    let cases = [
        ("1\n2\n", "0", "x\n", "x\n1\n2\n"),
        ("1\n2\n", "1", "\nx\n", "1\nx\n2\n"),
        ("1\n2\n", "2", "x", "1\n2\nx\n"),
        ("1\n2", "2", "x\n", "1\n2\nx"),
        ("1\n2", "1", "x", "1\nx\n2"),
        ("", "0", "x\n", "x\n"),
        ("1\n", " +1 ", "x\ny", "1\nx\ny\n"),
        ("\u{FEFF}1\n", "0", "x", "\u{FEFF}x\n1\n"),
        ("1\r\n2\r\n", "1", "x\ny", "1\r\nx\r\ny\r\n2\r\n"),
    ];

    for (before, line, body, after) in cases {
        let room = Room::new();
        room.write("f", before);
        assert_eq!(verdict(&room.ask(&insert("f", line, body))), "changes-applied", "{before:?}");
        assert_eq!(room.read("f"), after, "{before:?} after {line}");
    }

    let room = Room::new();
    room.write("f", "1\n2\n");

    for line in ["3", "99999999999999999999999999"] {
        let answer = room.ask(&insert("f", line, "x"));
        assert_eq!(verdict(&answer), "bad-line");
        assert!(value_in(&answer, "message").contains("has 2 lines"), "{answer}");
    }
    assert_eq!(verdict(&room.ask(&insert("none", "0", "x"))), "not-found");
}

#[test]
fn a_file_keeps_its_line_ends_and_its_mode() {
    let room = Room::new();
    room.write("crlf", "a\r\nb\r\nc\r\n");
    fs::set_permissions(room.path("crlf"), fs::Permissions::from_mode(0o750)).unwrap();
    room.ask(&substring("crlf", "a\nb", "x\ny\nz"));
    assert_eq!(room.read("crlf"), "x\r\ny\r\nz\r\nc\r\n");
    room.ask(&replace("crlf", "1\n2\n"));
    assert_eq!(room.read("crlf"), "1\r\n2\r\n");
    assert_eq!(fs::metadata(room.path("crlf")).unwrap().mode() & 0o7777, 0o750);

    // If a file has both line ends, an inserted text gets the line ends around it.
    room.write("mixed", "a\nb\r\nc\nd\n");
    room.ask(&substring("mixed", "b\n", "x\ny\n"));
    assert_eq!(room.read("mixed"), "a\nx\r\ny\r\nc\nd\n");
    // If the replaced text has both, it gets the line end of most lines of the file.
    room.write("mixed", "a\r\nb\nc\r\nd\r\n");
    room.ask(&substring("mixed", "a\nb\nc", "1\n2\n3"));
    assert_eq!(room.read("mixed"), "1\r\n2\r\n3\r\nd\r\n");
    // If the replaced text ends before a line end, the line end stays.
    room.write("end", "a\r\nb\r\n");
    room.ask(&substring("end", "a", "x"));
    assert_eq!(room.read("end"), "x\r\nb\r\n");
}

#[test]
fn bytes_that_are_no_text_are_kept_and_not_shown() {
    let room = Room::new();
    room.write("f", b"\xFF\xFE key=1 \xFF\0");
    let answer = room.ask(&substring("f", "key=1", "key=2"));
    assert_eq!(value_in(&answer, "diff"), "Binary files a/f and b/f differ\n");
    assert_eq!(fs::read(room.path("f")).unwrap(), b"\xFF\xFE key=2 \xFF\0");
    room.write("g", "a\u{1}\u{7}b\n");
    let answer = room.ask(&substring("g", "a", "c"));
    assert!(value_in(&answer, "diff").contains("+c\u{FFFD}\u{FFFD}b"), "{answer}");
}

#[test]
fn changes_are_reported_as_a_diff() {
    let room = Room::new();
    room.write("src/a.rs", "fn a() {\n    1\n}\n");
    let answer = room.ask(&substring("src/a.rs", "1", "2 < 3"));
    expect![[r#"
        <changes-applied xmlns="https://xml-pipeline.org/ns/actions/v1" set="1"><file path="src/a.rs" change="changed" added="1" removed="1"/><diff>--- a/src/a.rs
        +++ b/src/a.rs
        @@ -1,3 +1,3 @@
         fn a() {
        -    1
        +    2 &lt; 3
         }
        </diff></changes-applied>"#]]
    .assert_eq(&answer);
    let same = room.ask(&substring("src/a.rs", "2", "2"));
    assert_eq!(
        (value_in(&same, "@set").as_str(), value_in(&same, "diff").as_str()),
        ("(none)", "")
    );
}

#[test]
fn a_file_beyond_the_limit_is_left_alone_and_a_long_diff_is_cut_visibly() {
    let room = Room::new();
    let most = workspace::limits::FILE_BYTES_MAX;
    room.write("large", "x".repeat(most + 1));
    assert_eq!(verdict(&room.ask(&substring("large", "x", "y"))), "too-large");
    room.write("full", format!("a{}", "x".repeat(most - 1)));
    assert_eq!(verdict(&room.ask(&substring("full", "a", "bb"))), "too-large");
    let lines: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let answer = room.ask(&replace("long", &lines));
    let diff = organism::xml::element::Element::read(&answer).unwrap();
    let diff = diff.child("diff").unwrap();
    assert_eq!(diff.attribute("truncated"), Some("true"));
    assert!(diff.text().len() <= workspace::limits::DIFF_BYTES_MAX && diff.text().ends_with('\n'));
    assert_eq!(room.read("long"), lines);
}
