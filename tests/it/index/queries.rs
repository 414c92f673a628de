//! `organism sql`: SQL statements that people write, on the index of a journal.

use std::process::Stdio;

use super::{command, organism, text};
use crate::journal::Place;
use crate::journal::script::{Script, research};
use crate::organism::until;

fn researched() -> Place {
    Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"))
}

fn sql(place: &Place, args: &[&str]) -> String {
    let output = organism(place, &[&["sql"], args].concat());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    text(&output.stdout)
}

/// Issue 17, 3.7: rows are written as a table, as CSV and as JSON.
#[test]
fn rows_are_written_as_a_table_as_csv_and_as_json() {
    let place = researched();
    let query = "SELECT thread, count(*) AS messages, max(seq) / 4.0 AS quarter, NULL AS absent \
                 FROM message GROUP BY thread ORDER BY thread";
    expect_test::expect![[r#"
        thread               messages  quarter  absent
        sess-abcdefgh               8        2       -
        sess-abcdefgh.depth         2      0.5       -
    "#]]
    .assert_eq(&sql(&place, &[query]));
    assert_eq!(
        sql(&place, &["--csv", query]),
        "thread,messages,quarter,absent\r\nsess-abcdefgh,8,2,\r\nsess-abcdefgh.depth,2,0.5,\r\n"
    );
    assert_eq!(
        sql(&place, &["--json", query]).lines().next(),
        Some(r#"{"thread":"sess-abcdefgh","messages":8,"quarter":2.0,"absent":null}"#)
    );
    assert_eq!(sql(&place, &["--csv", "SELECT 'a,\"b\"' AS x"]), "x\r\n\"a,\"\"b\"\"\"\r\n");
}

/// Issue 17, 3.7: no statement can write, or open another file.
#[test]
fn statements_that_do_anything_but_read_are_refused() {
    let place = researched();
    sql(&place, &["SELECT 1"]);
    let elsewhere = place.home.path().join("elsewhere.db");
    let attach = format!("ATTACH '{}' AS other", elsewhere.display());
    let statements = [
        "DELETE FROM message_row",
        "UPDATE meta SET value = 1",
        "CREATE TABLE x(y)",
        "CREATE TEMP TABLE x(y)",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = delete",
        "VACUUM",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('x')",
        &attach,
    ];
    for statement in statements {
        let output = organism(&place, &["sql", statement]);
        assert_eq!(output.status.code(), Some(2), "{statement}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{statement}");
        assert!(!text(&output.stderr).contains("it is empty"), "{statement}");
    }
    assert!(!elsewhere.exists());
    for empty in ["", " ", ";", "\n-- only a comment", "/* or this */ ;"] {
        let output = organism(&place, &["sql", empty]);
        assert_eq!(output.status.code(), Some(2), "{empty}");
        let error = text(&output.stderr);
        assert!(error.contains("it is empty; write a statement"), "{empty}: {error}");
    }
    let two = organism(&place, &["sql", "SELECT 1; SELECT 2"]);
    assert_eq!(two.status.code(), Some(2), "{}", text(&two.stderr));
    let wrong = organism(&place, &["sql", "SELECT colour FROM message"]);
    assert!(text(&wrong.stderr).contains("no such column: colour"), "{}", text(&wrong.stderr));
    assert_eq!(sql(&place, &["--csv", "SELECT count(*) FROM message"]), "count(*)\r\n10\r\n");
}

/// Issue 17, 3.7: a statement that would never end is stopped.
#[test]
fn a_statement_is_stopped_after_its_time() {
    let place = researched();
    let endless = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) \
                   SELECT count(*) FROM n";
    let stopped = command(&place, &["sql", "--timeout", "0", endless]).output().unwrap();
    assert_eq!(stopped.status.code(), Some(75));
    assert!(text(&stopped.stderr).contains("--timeout"), "{}", text(&stopped.stderr));
}

/// Control characters of a payload never reach a terminal.
#[test]
fn a_table_shows_no_control_characters() {
    let place = researched();
    let shown = sql(&place, &["SELECT char(27) || '[31mred' AS x"]);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// Issue 17, 3.7: the public schema of the index states its version.
#[test]
fn the_version_of_the_views_is_part_of_the_index() {
    let place = researched();
    let version = sql(&place, &["--csv", "SELECT schema_version, position FROM about"]);
    assert_eq!(
        version,
        format!("schema_version,position\r\n{},7\r\n", organism::index::SCHEMA_VERSION)
    );
}

/// A value with a line break cannot imitate a row.
#[test]
fn a_cell_of_a_table_is_one_line() {
    let place = researched();
    let shown = sql(&place, &["SELECT 'a' || char(10) || 'b' AS x"]);
    assert_eq!(shown, "x\na\\nb\n");
}

#[test]
fn bounds_of_a_query_are_errors_that_say_what_to_do() {
    let place = researched();
    let refused = |args: &[&str], part: &str| {
        let output = organism(&place, &[&["sql"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{error}");
    };
    refused(&[ENDLESS], "a table has at most 100000 rows; add LIMIT");
    refused(&["--json", "SELECT 1 AS id, 2 AS id"], "two columns are named `id`");
    let limitless = sql(&place, &["--timeout", &u64::MAX.to_string(), "SELECT 1 AS one"]);
    assert_eq!(limitless, "one\n  1\n");
}

/// The time limit of a query holds even if the reader of its output takes nothing. Otherwise, the
/// query would keep the write-ahead log of the index growing.
#[test]
fn a_query_whose_output_has_no_reader_ends_after_its_time_limit() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let sql = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 300000) \
               SELECT n FROM n";
    // The query has ended here before its rows are written.
    let short = sql.replace("300000", "17000");
    for (format, sql) in [("--csv", sql), ("--json", sql), ("--csv", short.as_str())] {
        let mut query = command(&place, &["sql", format, "--timeout", "1", sql]);
        let mut query = query.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = until("it ends", || query.try_wait().unwrap());
        assert_eq!(ended.code(), Some(75), "{format}");
        let output = query.wait_with_output().unwrap();
        assert!(text(&output.stderr).contains("pass a longer --timeout"), "{format}");
        assert!(!output.stdout.is_empty(), "{format}");
    }
}

/// A statement with a row for each number.
const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";

/// A query whose rows go nowhere ends at once, and not only at its time limit.
#[test]
fn a_query_ends_when_the_reader_of_its_output_goes_away() {
    let place = researched();
    for format in ["--csv", "--json"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut query = command(&place, &["sql", format, "--timeout", "3600", ENDLESS]);
        let mut query = query.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ended = until("it ends", || query.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{format}");
        let output = query.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{format}");
    }
}

/// A full disk under the output ends a query with an error about the output.
#[test]
#[cfg(target_os = "linux")]
fn a_query_whose_output_cannot_be_written_names_the_output() {
    let place = researched();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut query = command(&place, &["sql", "--csv", "--timeout", "3600", ENDLESS]);
    let mut query = query.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let ended = until("it ends", || query.try_wait().unwrap());
    assert_eq!(ended.code(), Some(69));
    let output = query.wait_with_output().unwrap();
    let error = text(&output.stderr);
    assert!(error.contains("standard output is incomplete"), "{error}");
}
