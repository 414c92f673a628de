//! Results of listeners that imitate other parts of the prompt. Each result reaches the model as
//! one element or one block with exactly the listener's text, and changes nothing else in the
//! prompt.

use std::sync::Arc;

use organism::agent::ActionTransport;
use organism::model::{ChatBlock, ChatRole, ModelRequest};
use organism::xml::element::Element;
use serde::Deserialize;
use serde_json::json;

use super::scripted::{Says, Scripted, nonce};
use super::setup::{TOOLS, schemas};
use super::stage::{Stage, researcher};
use crate::campaign::Campaign;
use crate::organism::kill::torture;

const INJECTIONS: &str = include_str!("../../data/attacks/results.jsonl");

#[derive(Deserialize)]
struct Injection {
    name: String,
    /// Text that the listener returns. If the turn has a nonce, the nonce replaces `NONCE` in this
    /// text.
    #[serde(default)]
    text: String,
    /// Raw content of the listener's payload; `None` if the content is `text`, escaped.
    #[serde(default)]
    raw: Option<String>,
    /// Whether the gate refuses every payload with this text.
    #[serde(default)]
    refused: bool,
}

impl Injection {
    fn all() -> Vec<Self> {
        INJECTIONS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the listener's payload with the name `name`.
    fn payload(&self, name: &str, nonce: &str) -> String {
        let inner = self.raw.clone().unwrap_or_else(|| {
            let text = self.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            text.replace('\r', "&#13;")
        });
        format!("<{name} xmlns=\"{TOOLS}\">{}</{name}>", inner.replace("NONCE", nonce))
    }

    /// Returns the text as the prompt shows it for a failure: with `Error:` exactly once at the
    /// beginning.
    fn failure(&self, nonce: &str) -> String {
        let text = self.text.replace("NONCE", nonce);
        let mut said = text.trim();
        while let Some(rest) = said.strip_prefix("Error:") {
            said = rest.trim_start();
        }
        format!("Error: {said}")
    }
}

/// A turn with three actions. One action gets a reply, one gets a failure, and one gets a reply
/// from each of two peers.
fn asks() -> Says {
    Says::Acts(vec![
        ("extract", json!({"file_path": "reply"})),
        ("extract", json!({"file_path": "fail"})),
        ("search", json!({"query": "both"})),
    ])
}

/// Plays a turn whose results are the injection. Returns the model requests before and after the
/// results, and the nonce of the turn.
fn told(transport: ActionTransport, injection: &Injection) -> (ModelRequest, ModelRequest, String) {
    let model = Scripted::new(transport, vec![asks(), Says::Ends("done")]);
    let heard = Arc::clone(&model);
    let payloads = |nonce: &str| {
        ["found", "search-error"].map(|name| injection.payload(name, nonce).into_bytes())
    };
    let nonce_of = |model: &Scripted| nonce(&model.requests()[0]).unwrap_or_default();
    let answers: [Vec<u8>; 2] = payloads("NONCE");
    let mut stage = Stage::with(researcher(transport), model.clone()).answering(move |_, asked| {
        let fails = asked.payload.as_str().contains("fail");
        let text = String::from_utf8(answers[usize::from(fails)].clone()).unwrap();
        vec![text.replace("NONCE", &nonce_of(&heard)).into_bytes()]
    });
    stage.ask();
    let heard = model.requests();
    assert_eq!(heard.len(), 2, "{}: {}", injection.name, stage.transcript());
    let nonce = nonce(&heard[0]).unwrap_or_default();
    (heard[0].clone(), heard[1].clone(), nonce)
}

/// One result in the form that the model receives.
#[derive(Debug, PartialEq)]
struct ShownResult {
    tool: Option<String>,
    from: Option<String>,
    failed: bool,
    text: String,
}

/// The `<tool_result …>` elements of a text. A scan for brackets and two parsers must find the same
/// elements. A payload in an element is parsed as XML; other content is text.
fn elements(text: &str) -> Vec<ShownResult> {
    let whole = format!("<all>{text}</all>");
    assert_eq!(schemas().parse_check(whole.as_bytes()), Ok(()), "{text}");
    let read = Element::read(&whole).unwrap();
    let parts: Vec<&str> = text.split("</tool_result>").collect();
    let (rest, parts) = parts.split_last().unwrap();
    assert_eq!(rest.trim(), "", "something stands behind the last result: {text}");
    let seen: Vec<ShownResult> = parts
        .iter()
        .map(|part| {
            let part = part.trim_start_matches("\n\n").strip_prefix("<tool_result").unwrap();
            let (tag, inner) = part.split_once('>').unwrap();
            assert!(!tag.contains('<') && !inner.contains("<tool_result"), "{part}");
            assert!(!inner.contains("<![CDATA["), "{part}");
            let attribute = |name: &str| {
                let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
                Some(rest.split('"').next().unwrap().to_owned())
            };
            let failed = inner.starts_with("Error:");
            let text = match failed {
                true => unescaped(inner),
                false => canonical(inner),
            };
            assert!(!failed || !inner.contains(['<', '>', '\r']), "{part}");
            ShownResult { tool: attribute("tool_name"), from: attribute("from"), failed, text }
        })
        .collect();
    let children: Vec<&Element> = read.children().collect();
    assert_eq!(children.len(), seen.len(), "{text}");
    for (child, told) in children.iter().zip(&seen) {
        assert_eq!(child.local_name(), "tool_result");
        assert_eq!(child.children().count(), usize::from(!told.failed), "{text}");
        assert_eq!(child.attribute("tool_name"), told.tool.as_deref());
    }
    seen
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&#13;", "\r");
    text.replace("&amp;", "&")
}

/// Returns the canonical content of a payload. It is the same for all spellings of the same
/// characters.
fn canonical(payload: &str) -> String {
    format!("{:?}", Element::read(payload).unwrap())
}

/// Returns the results in the last user message. Panics if this message contains anything besides
/// results and a notice.
fn results(transport: ActionTransport, request: &ModelRequest) -> Vec<ShownResult> {
    let last = request.messages.last().unwrap();
    assert_eq!(last.role, ChatRole::User);
    let mut told = Vec::new();
    for block in &last.blocks {
        match block {
            ChatBlock::Text(text) if text.starts_with("<notice>") => {
                assert_eq!(text.matches("<notice>").count(), 1, "{text}");
            }
            ChatBlock::Text(text) if transport == ActionTransport::Xml => {
                told.extend(elements(text))
            }
            ChatBlock::Result { id, text, failed } if transport.is_native() => {
                // The answers of two peers are elements within one result.
                if id.ends_with("search") {
                    told.extend(elements(text));
                    continue;
                }
                let tool = Some("extract".to_owned());
                let text = if *failed { text.clone() } else { canonical(text) };
                told.push(ShownResult { tool, from: None, failed: *failed, text });
            }
            other => panic!("the prompt holds something else: {other:?}"),
        }
    }
    told
}

fn expected(injection: &Injection, nonce: &str) -> Vec<ShownResult> {
    let reply = canonical(&injection.payload("found", nonce));
    let of = |tool: &str, from: Option<&str>, failed: bool, text: &str| {
        let (tool, from) = (Some(tool.to_owned()), from.map(str::to_owned));
        ShownResult { tool, from, failed, text: text.to_owned() }
    };
    vec![
        of("extract", None, false, &reply),
        of("extract", None, true, &injection.failure(nonce)),
        of("search", Some("code"), false, &reply),
        of("search", Some("web"), false, &reply),
    ]
}

fn check(transport: ActionTransport, injection: &Injection) {
    let (before, after, nonce) = told(transport, injection);
    let context = format!("{}, {transport:?}", injection.name);
    let told = results(transport, &after);
    if injection.refused {
        // The listener failed, so nothing of its text is shown.
        let places: Vec<_> = told.iter().map(|t| (t.tool.as_deref(), t.from.as_deref())).collect();
        let (extract, search) = (Some("extract"), Some("search"));
        let legs =
            [(extract, None), (extract, None), (search, Some("code")), (search, Some("web"))];
        assert_eq!(places, legs, "{context}");
        let failed = told.iter().all(|t| t.text.starts_with("Error: listener-failed: "));
        assert!(failed && told.iter().all(|t| t.failed), "{context}: {told:#?}");
    } else {
        assert_eq!(told, expected(injection, &nonce), "{context}");
    }
    // The earlier part of the prompt is unchanged.
    let said = before.messages.len();
    assert_eq!(after.messages.len(), said + 2, "{context}");
    let first = &before.messages[0].blocks[0];
    assert_eq!(&after.messages[0].blocks[0], first, "{context}");
    assert_eq!((&after.system, &after.tools), (&before.system, &before.tools), "{context}");
    assert_eq!(after.messages[said].role, ChatRole::Assistant, "{context}");
}

/// Checks all injections. A short run begins at the injection with the index `first`, and checks
/// one in `step` of them.
fn check_all(transport: ActionTransport, first: usize, step: usize) {
    let mut campaign = Campaign::new(format!("injected results, {}", transport.as_str()));
    let (first, step) = if torture() { (0, 1) } else { (first, step) };
    let injections: Vec<_> = Injection::all().into_iter().skip(first).step_by(step).collect();
    injections.iter().for_each(|injection| check(transport, injection));
    let told = injections.iter().filter(|injection| !injection.refused).count();
    let refused = injections.len() - told;
    campaign.note(format!("{told} told as they are, {refused} as failures, each four times"));
    assert!(refused > 20 / step && told >= 200 / step);
}

// T8
#[test]
fn a_result_in_xml_is_exactly_the_listeners_payload() {
    check_all(ActionTransport::Xml, 0, 1);
}

// T8
/// In a short run, this test checks one half of the injections, and the next test the other half.
/// Both transports show results in the same form, as blocks of native calls.
#[test]
fn a_result_of_a_native_call_is_exactly_the_listeners_payload() {
    check_all(ActionTransport::Native, 0, 2);
}

// T8
#[test]
fn a_result_beside_a_slot_is_exactly_the_listeners_payload() {
    check_all(ActionTransport::XmlFinal, 1, 2);
}
