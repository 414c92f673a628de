//! The extractor settles items while a turn streams, and its work is proportional to the length of
//! the turn.

use std::sync::Arc;
use std::time::Duration;

use organism::cli::debug::ExtractTurn;
use organism::xml::extract::{ActionGrammar, ExtractedItem, Extractor};

use super::chunks::extract;
use crate::processor::ProcessorTime;

fn known() -> Arc<ActionGrammar> {
    let turn: ExtractTurn = serde_json::from_str(
        r#"{"known_tags": {"search": {"query": "text"}, "code": "text"},
            "reasoning": ["thinking"], "reserved": ["tool_result"]}"#,
    )
    .unwrap();
    Arc::new(turn.grammar())
}

// T13
#[test]
fn items_settle_while_the_turn_still_streams() {
    let mut extractor = Extractor::new(known());
    let mut seen = Vec::new();
    let text = "<thinking>a</thinking>b<search><query>c</query></search> d";
    for (at, byte) in text.bytes().enumerate() {
        extractor.push(&[byte]);
        if extractor.settled().len() > seen.len() {
            seen.extend(extractor.settled()[seen.len()..].iter().map(|item| (at, item.clone())));
        }
    }
    let kinds: Vec<(usize, &str)> = seen
        .iter()
        .map(|(at, item)| match item {
            ExtractedItem::Text(_) => (*at, "text"),
            ExtractedItem::Reasoning { .. } => (*at, "reasoning"),
            ExtractedItem::Action(_) => (*at, "action"),
            _ => (*at, "other"),
        })
        .collect();
    let action_ends = text.find(" d").unwrap() - 1;
    assert_eq!(kinds, [(21, "reasoning"), (action_ends, "text"), (action_ends, "action")]);
    assert_eq!(extractor.finish().items.last(), Some(&ExtractedItem::Text(" d".to_owned())));
}

/// Texts that a naive parser would scan again and again.
fn hostile(size: usize) -> Vec<(&'static str, String)> {
    let fill = |unit: &str| unit.repeat(size / unit.len());
    vec![
        ("fake starts", fill("<searc ") + "<search><query>q</query></search>"),
        ("starts without an end", fill("<search ") + "<search><query>q</query></search>"),
        ("mentions", fill("<search> text ") + "</search>"),
        ("less-than signs", format!("<search><query>{}</query></search>", fill("<"))),
        ("open values", fill("<search><query>a")),
        ("open values, one close", fill("<search><query>") + "</query>x"),
        ("open text roots", fill("<code>")),
        ("unclosed values", fill("<search><query>a</search>")),
        ("unclosed values, one close", fill("<search><query>a</search>") + "</query>"),
        ("unbalanced values", fill("<search><query>a <query> b</query></search>")),
        ("unbalanced roots", fill("<code>a <code> b</code> text ")),
        ("text roots", fill("<code>a</code> text ")),
        ("closes", format!("<code>{}", fill("</code> a "))),
        ("open quotes", fill("<search a=\"<search b='")),
        ("open CDATA", fill("<code><![CDATA[a</code>")),
        ("open comments", fill("<search><!--")),
        (
            "backticks",
            (1..)
                .map(|n| "`".repeat(n) + " ")
                .take_while(|run| run.len() * run.len() < 2 * size)
                .collect(),
        ),
        (
            "prefixes",
            (0..size / 60)
                .map(|n| format!("<p{n}:search xmlns:p{n}='urn:x'><p{n}:query>"))
                .collect(),
        ),
        ("forged", fill("<tool_result>a")),
        ("reasoning", fill("<thinking>a")),
        ("lines in a long value", format!("<search><query>{}</query></search>", fill("a > b\n"))),
    ]
}

// R1: the work is bounded, whatever the text and the chunks
#[test]
fn hostile_turns_take_no_longer_than_their_length_allows() {
    let grammar = known();
    for (name, text) in hostile(50_000) {
        for step in [text.len(), 1] {
            let started = ProcessorTime::start();
            let cuts: Vec<usize> = (1..text.len()).filter(|at| at % step == 0).collect();
            let extraction = extract(&grammar, text.as_bytes(), &cuts);
            assert!(!extraction.items.is_empty(), "{name}");
            let took = started.elapsed();
            assert!(took < Duration::from_secs(5), "{name}, {step} at a time: {took:?}");
        }
    }
}
