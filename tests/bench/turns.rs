//! The model texts that the extraction figures parse, in classes by their content.

use std::sync::Arc;

use organism::cli::debug::ExtractTurn;
use organism::xml::extract::ActionGrammar;
use serde_json::Value as Json;

use super::plain;

const CASES: &str = include_str!("../data/llm_stream/cases.jsonl");
/// Approximate bytes of a turn.
const TURN_BYTES: usize = 200_000;

pub struct Class {
    pub name: &'static str,
    pub turns: Vec<(Arc<ActionGrammar>, String)>,
}

impl Class {
    pub fn bytes(&self) -> usize {
        self.turns.iter().map(|(_, text)| text.len()).sum()
    }

    /// Returns the speed of a plain loop over the bytes of the class's texts, in MB/s.
    pub fn plain(&self) -> f64 {
        plain::megabytes_per_second(self.bytes(), || {
            self.turns.iter().map(|(_, text)| plain::count(text.as_bytes())).sum()
        })
    }
}

/// The grammar of an agent with a dozen tools.
const TOOLS: &str = r#"{
    "known_tags": {
        "search": {"query": "text", "path": "text"},
        "read_file": {"path": "text", "start_line": "text", "end_line": "text"},
        "write_to_file": {"path": "text", "content": "text"},
        "execute_command": {"command": "text", "is_dangerous": "text"},
        "list_files": {"path": "text", "recursive": "text"},
        "str_replace": {"path": "text", "old_str": "text", "new_str": "text"},
        "fetch_page": {"url": "text"},
        "ask_question": {"question": "text", "option": "text"},
        "spawn-thread": {"initial-payload": "text", "@suggested_sub_id": "attr"},
        "wait": {"@for": "attr"},
        "progress": "text",
        "attempt_completion": "text"
    },
    "reasoning": ["thinking", "think"],
    "reserved": ["tool_result", "system-error", "huh", "ack"]
}"#;

const THINKING: &str = "<thinking>The user wants to know why the queue grows. If a < b holds for \
    every consumer, then the backlog can't be older than the slowest one; so look at the lag \
    first, then at what `drain()` does when nobody reads.</thinking>\n\n";
const PROSE: &str = "## What happened\n\nThe consumer fell behind at 10:42, when the third node \
    was restarted. Its lag grew by about 1,200 messages a minute, which is what a single \
    partition writes; so the other partitions were never affected. The **retry** setting (see \
    `retry_ms`) was 0 and not the default, and that's why nothing was tried again — the «silent» \
    case the handbook warns of.\n\n- first, the lease ran out\n- then the reader went on with \
    an old epoch & lost its place\n\n";
const CALLS: &str = "I'll look at the lease first.\n\n<read_file>\n<path>src/queue/lease.rs</path>\n\
    <start_line>120</start_line>\n<end_line>180</end_line>\n</read_file>\n\
    <search><query>fn renew(&amp;mut self</query><path>src/queue</path></search>\n\n\
    <execute_command>\n<command>cargo test lease -- --nocapture 2>&1 | head -40 && echo ok\
    </command>\n<is_dangerous>false</is_dangerous>\n</execute_command>\n\
    <list_files><path>tests</path><recursive>true</recursive></list_files>\n";
const FENCES: &str = "The fix is small:\n\n```rust\nfn renew<T: Clock>(&mut self, now: T) -> \
    Result<Option<Lease>, Error> {\n    if self.ends < now.get() { return Ok(None); }\n    \
    let held: Vec<Arc<Lease>> = self.all.iter().filter(|l| l.epoch <= 3).collect();\n    \
    Ok(held.last().map(|lease| lease.renewed(now)))\n}\n```\n\nand the page that shows it, with \
    `<search>` written as text:\n\n```html\n<ul class=\"leases\"><li><a href=\"/lease/1\">one</a>\
    </li></ul>\n```\n\n";
const WRITE: &str = "<write_to_file>\n<path>src/view/list.tsx</path>\n<content>\nexport function \
    List<T>({ items }: Props<T>) {\n  return (\n    <ul className=\"list\">\n      \
    {items.map((item) => <li key={item.id}><Row item={item} /></li>)}\n    </ul>\n  );\n}\n\n\
    if (a < b && c > d) { render(<List items={[]} />); }\n</content>\n</write_to_file>\n\n";
const ROW: &str = "<tr class=\"row\"><td>lease-17</td><td><b>held</b></td><td>12&nbsp;s</td>\
    <td><a href=\"/lease/17\">open</a></td><td></td></tr>\n";

fn fill(unit: &str) -> String {
    unit.repeat(TURN_BYTES / unit.len())
}

/// Returns the valid turns of the corpus, each with its grammar. The text of each turn is repeated
/// until the turn is long.
fn corpus() -> Vec<(Arc<ActionGrammar>, String)> {
    let cases = CASES.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let good = cases.filter(|case| {
        let unfinished = case["expect"]["notices"].as_array().is_some_and(|n| !n.is_empty());
        case["expect"]["mode"] == "exact" && case["text"].is_string() && !unfinished
    });
    let turns = good.map(|case| {
        let text = case["text"].as_str().unwrap().to_owned() + "\n\n";
        let turn: ExtractTurn = serde_json::from_value(case).unwrap();
        (Arc::new(turn.grammar()), text.repeat(TURN_BYTES / 10 / text.len()))
    });
    turns.collect()
}

/// Approximate characters of a token.
const TOKEN_CHARS: usize = 4;

/// Builds a reply of this number of tokens: thinking, then prose, then an action. Returns it in
/// chunks, with its grammar.
pub fn reply(tokens: usize) -> (Arc<ActionGrammar>, Vec<String>) {
    let room = tokens * TOKEN_CHARS - THINKING.len() - CALLS.len();
    let prose: String = PROSE.chars().cycle().take(room).collect();
    (tools(), in_tokens(&[THINKING, &prose, CALLS].concat()))
}

/// Builds a reply of this number of tokens, in chunks: thinking, then a report in prose.
pub fn report(tokens: usize, name: &str) -> Vec<String> {
    let room = tokens * TOKEN_CHARS - THINKING.len() - 2 * name.len() - "<></>".len();
    let prose = PROSE.replace('<', "&lt;").replace(" & ", " &amp; ");
    let prose: String = prose.chars().cycle().take(room).collect();
    in_tokens(&format!("{THINKING}<{name}>{prose}</{name}>"))
}

/// Splits a text into chunks of one token each, as a stream delivers it.
fn in_tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(TOKEN_CHARS).map(|token| token.iter().collect()).collect()
}

fn tools() -> Arc<ActionGrammar> {
    let tools: ExtractTurn = serde_json::from_str(TOOLS).unwrap();
    Arc::new(tools.grammar())
}

pub fn classes() -> Vec<Class> {
    let tools = tools();
    let one = |name, text| Class { name, turns: vec![(Arc::clone(&tools), text)] };
    let report =
        |inside: &str| format!("{THINKING}<attempt_completion>\n{inside}</attempt_completion>\n");
    vec![
        one("prose", fill(&[THINKING, PROSE, PROSE, PROSE].concat())),
        one("calls", fill(&[THINKING, CALLS].concat())),
        one("fences", fill(&[PROSE, FENCES].concat())),
        one("code in a value", fill(&[THINKING, WRITE].concat())),
        one("a report in HTML", report(&format!("<table>\n{}</table>\n", fill(ROW)))),
        one("HTML outside", format!("{THINKING}<table>\n{}</table>\n", fill(ROW))),
        one("all of it", {
            let some = [THINKING, PROSE, CALLS, FENCES, WRITE].concat();
            fill(&some) + &report(&format!("<table>\n{}</table>\n{PROSE}", ROW.repeat(400)))
        }),
        Class { name: "the corpus", turns: corpus() },
    ]
}
