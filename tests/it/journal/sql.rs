//! Plain SQL queries by a person while the pump runs.

use organism::journal::Journal as _;
use organism::journal::sqlite::DATABASE;
use rusqlite::{Connection, OpenFlags};

use super::Place;
use super::script::{Script, research};
use crate::docs::blocks::block;

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
fn messages_threads_and_refusals_are_readable_while_a_pump_holds_the_journal() {
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
    // The second payload of a record begins after the first, counted in bytes.
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

#[test]
fn the_queries_of_the_operations_page_run_while_a_pump_holds_the_journal() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut research(&mut Script::default(), "sess-k3v9t2m8")).unwrap();
    let db =
        Connection::open_with_flags(place.data().join(DATABASE), OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();

    let page = block("docs/OPERATIONS.md", "$ sqlite3 -readonly data/journal.db");
    let queries = page.lines().filter_map(|line| line.strip_prefix("sqlite> "));
    let answers: Vec<_> = queries.map(|query| rows(&db, query)).collect();
    let [messages, refusals] = answers.as_slice() else { panic!("{page}") };
    assert_eq!(messages.len(), 8, "{messages:?}");
    assert_eq!(refusals, &["schema-invalid | 1"]);
}

/// The text of a record stays the same byte for byte, because the text is hashed. The text leaves
/// out the values that stand in other columns of the record.
#[test]
fn the_text_of_a_record_leaves_out_what_the_record_says_elsewhere() {
    let records = research(&mut Script::default(), "sess-abcdefgh");
    let texts = records.iter().take(5).map(|record| {
        let mut text = Vec::new();
        record.write_text(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    expect_test::expect![[r#"
        {"input":{"submitted":{"id":"a6045f9f-8d83-50a5-af51-71c59b59be3b","client":"operator","verdict":{"passed":"0000000000000000000000000000000000000000000000000000000000000000"}}},"facts":[{"thread-opened":{"thread":"sess-abcdefgh","by":"operator"}},{"accepted":{"id":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","kind":"call","from":"operator","to":"researcher","seq":1,"name":"{https://example.org/ns/desk/v1}question","digest":"d6e2c90898a621255ccf9537600310f8c89fc87e74372f23e61b485de3de2ca2","length":96,"opening":{"by":"client"}}}]}
        {"input":{"outcome":{"listener":"researcher","call":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","attempt":"1.1","verdicts":[]}},"facts":[{"heard":{}},{"accepted":{"id":"a08bd137-2a21-5fc0-b695-b7bbce75b420","kind":"note","from":"researcher","to":"researcher","seq":2,"cause":"input","call":"cause","name":"{https://xml-pipeline.org/ns/core/v1}thinking","digest":"72c862a8cd014820463c7f8c55b0bda0720b00eb421da8d2dc7b18491f6393c8","length":101}},{"disposed":{}},{"disposed":{"message":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","how":"handled"}},{"accepted":{"id":"81253b6a-dc74-5df6-a527-8f073056d781","to":"code-search","seq":3,"cause":null,"name":"{https://example.org/ns/desk/v1}search","digest":"92b6dfa6c85750d60c41d403bea5ae092b08cf41f90755e7a4538eccd1b07674","length":92,"opening":{"by":"client"}}}]}
        {"input":{"outcome":{"listener":"code-search","call":"81253b6a-dc74-5df6-a527-8f073056d781","attempt":"1.1","verdicts":[]}},"facts":[{"heard":{}},{"accepted":{"id":"00fbb34c-75b8-56d3-a1d9-ebe997c946ef","kind":"reply","to":"researcher","seq":4,"cause":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","call":"cause","name":"{https://example.org/ns/desk/v1}results","digest":"737c082bc002c7fd9ea2cbb668c5957f8641fd39442c5b513e36a8fc5d499267","length":124}},{"disposed":{"message":"81253b6a-dc74-5df6-a527-8f073056d781","how":"handled"}},{"call-closed":{}}]}
        {"input":{"outcome":{"listener":"researcher","call":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","attempt":"1.1","verdicts":[],"turn":{"tokens_in":0,"tokens_out":0,"findings":[{"code":"unclosed-element","place":{"line":3,"column":14,"offset":40},"message":"`<search>` was never closed"}]}}},"facts":[{"heard":{}},{"disposed":{"message":"00fbb34c-75b8-56d3-a1d9-ebe997c946ef"}},{"refused":{"sender":"researcher","thread":"sess-abcdefgh","refusal":{"rule":"schema-invalid","message":"`sum` is not an expression","length":36,"digest":"283b5226dd1fbf19f1679055f6b663ad9d5465123697651844b813c09913e1e4","head":"<calculate><sum>1+</sum></calculate>"}}},{"accepted":{"id":"f405b345-ba9f-5c73-9684-009586dbbed1","kind":"system","seq":5,"call":"cause","name":"{https://xml-pipeline.org/ns/core/v1}huh","digest":"9184fbe00dcfc4853ebf7dbd315573108306f259d68ac21f54c72307c617616e","length":103}}]}
        {"input":{"outcome":{"listener":"researcher","call":"a4ec9680-354a-5dc5-b3c1-f31eccc21965","attempt":"1.1","verdicts":[]}},"facts":[{"heard":{}},{"disposed":{"message":"f405b345-ba9f-5c73-9684-009586dbbed1"}},{"thread-opened":{"thread":"sess-abcdefgh.depth","by":"researcher"}},{"accepted":{"id":"2e019692-703b-5b23-b334-09d0536e4542","kind":"system","seq":6,"call":"cause","name":"{https://xml-pipeline.org/ns/core/v1}thread-spawned","digest":"3b7e1891a7907a558efc340c32dd3b8e22f50b9367a460515601d4ed5ddff5f5","length":160}},{"accepted":{"id":"36ed1737-7ffb-5bcd-8be8-437b9ee55d56","thread":"sess-abcdefgh.depth","seq":1,"cause":null,"name":"{https://example.org/ns/desk/v1}question","digest":"6c5de84ac5a55733af185263247c3c578d5b2aa74afd5c075f68464813b53908","length":83,"opening":{"by":"client"}}}]}"#]].assert_eq(&texts.collect::<Vec<_>>().join("\n"));
    assert_eq!(organism::journal::FORMAT, 4);
}
