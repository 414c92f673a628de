//! The configs of the tests of remote agents, and the texts of their models.

/// Recorded turns: a call to a tool, a refused payload, and the report.
pub const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<thinking>First.</thinking><ping xmlns="urn:example:talk"><n>1</n></ping>'
tokens_in = 1000
tokens_out = 100

[[turn]]
agent = "writer"
turn = 2
text = '<ping xmlns="urn:example:talk"><m>1</m></ping>'
tokens_in = 1000
tokens_out = 100

[[turn]]
agent = "writer"
turn = 3
text = '<said xmlns="urn:example:talk">done</said>'
tokens_in = 1000
tokens_out = 100

[[turn]]
agent = "writer"
thread = "part"
turn = 1
text = '<said xmlns="urn:example:talk">my part</said>'

[[turn]]
agent = "editor"
turn = 1
text = 'I ask the writer. <say xmlns="urn:example:talk">a part</say>'

[[turn]]
agent = "editor"
turn = 2
text = '<worked xmlns="urn:example:talk"><n>7</n></worked>'

[[turn]]
agent = "planner"
turn = 1
text = '<spawn-thread suggested_sub_id="part"><initial-payload><say xmlns="urn:example:talk">your part</say></initial-payload></spawn-thread>'

[[turn]]
agent = "planner"
turn = 2
text = '<wait for="all"/>'

[[turn]]
agent = "planner"
turn = 3
text = '<done xmlns="urn:example:talk"><n>7</n></done>'
"#;

/// Recorded turns with native calls: an accepted one, a refused one, and the report.
pub const NATIVE: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = "First."
[[turn.calls]]
id = "call_1"
name = "ping"
arguments = '{"n": "1"}'

[[turn]]
agent = "writer"
turn = 2
text = ""
[[turn.calls]]
id = "call_2"
name = "ping"
arguments = '{"m": "1"}'

[[turn]]
agent = "writer"
turn = 3
text = ""
[[turn.calls]]
id = "call_3"
name = "said"
arguments = '{"content": "done"}'
"#;
