//! What a person can ask with plain SQL while the pump runs.

use organism::journal::sqlite::DATABASE;
use rusqlite::{Connection, OpenFlags};

use super::Place;
use super::script::{Script, research};

fn rows(db: &Connection, sql: &str) -> Vec<String> {
    let mut query = db.prepare(sql).unwrap();
    let width = query.column_count();
    let text = |row: &rusqlite::Row<'_>, at| -> rusqlite::Result<String> {
        Ok(match row.get::<_, rusqlite::types::Value>(at)? {
            rusqlite::types::Value::Null => "-".to_owned(),
            rusqlite::types::Value::Integer(n) => n.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        })
    };
    let line = |row: &rusqlite::Row<'_>| {
        Ok((0..width).map(|at| text(row, at).unwrap()).collect::<Vec<_>>().join(" | "))
    };
    query.query_map([], line).unwrap().map(Result::unwrap).collect()
}

#[test]
fn messages_threads_and_refusals_can_be_asked_for_while_a_pump_holds_the_journal() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut research(&mut Script::default(), "sess-abcdefgh")).unwrap();
    let db =
        Connection::open_with_flags(place.data().join(DATABASE), OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    expect_test::expect![[r#"
        sess-abcdefgh | 1 | call | operator | researcher | 2026-11-20T10:00:00.137Z | handled | 1
        sess-abcdefgh | 2 | note | researcher | researcher | 2026-11-20T10:00:00.274Z | recorded | 2
        sess-abcdefgh | 3 | call | researcher | code-search | 2026-11-20T10:00:00.274Z | handled | 2
        sess-abcdefgh | 4 | reply | code-search | researcher | 2026-11-20T10:00:00.411Z | handled | 3
        sess-abcdefgh | 5 | system | core | researcher | 2026-11-20T10:00:00.548Z | handled | 4
        sess-abcdefgh | 6 | system | core | researcher | 2026-11-20T10:00:00.685Z | handled | 5
        sess-abcdefgh.depth | 1 | call | researcher | researcher | 2026-11-20T10:00:00.685Z | handled | 5
        sess-abcdefgh.depth | 2 | reply | researcher | researcher | 2026-11-20T10:00:00.822Z | recorded | 6
        sess-abcdefgh | 7 | system | core | researcher | 2026-11-20T10:00:00.822Z | handled | 6
        sess-abcdefgh | 8 | reply | researcher | operator | 2026-11-20T10:00:00.959Z | recorded | 7"#]]
    .assert_eq(
        &rows(
            &db,
            "SELECT thread, seq, kind, sender, recipient, time, disposition, position FROM message",
        )
        .join("\n"),
    );
    // The second payload of a record starts behind the first, counted in bytes.
    expect_test::expect![[r#"<search xmlns="https://example.org/ns/desk/v1"><query>login</query><path>src</path></search>"#]]
        .assert_eq(&rows(&db, "SELECT payload FROM message WHERE seq = 3").join("\n"));
    expect_test::expect![[r#"
        sess-abcdefgh | sess-abcdefgh | - | 8 | 0
        sess-abcdefgh.depth | sess-abcdefgh | sess-abcdefgh | 2 | 0"#]]
    .assert_eq(
        &rows(&db, "SELECT id, root, parent, messages, in_flight FROM thread ORDER BY id")
            .join("\n"),
    );
    expect_test::expect![[
        r#"4 | researcher | sess-abcdefgh | schema-invalid | `sum` is not an expression | 36"#
    ]]
    .assert_eq(
        &rows(&db, "SELECT position, sender, thread, rule, text, length FROM refusal").join("\n"),
    );
}
