//! Finals with more than one text. Such a final ends the call on every transport: as XML, as a
//! native call, and in the slot of `xml-final` as one element.

use organism::agent::{ActionTransport, FinalFormat};
use organism::ids::PayloadName;
use organism::model::StopReason;
use organism::thread::Closing;

use super::scripted::{Reply, Says, Scripted, reply};
use super::setup::TOOLS;
use super::stage::{Stage, researcher};
use crate::docs::blocks::block;

const JUDGEMENT: &str =
    "<judgement><decision>ship</decision><reason>a &lt; b, c > d</reason></judgement>";

/// Plays this turn and an empty second turn. Returns how the call ended, its result, and the
/// finding codes of the first turn.
fn judged(way: ActionTransport, turn: Reply) -> (Closing, String, Vec<String>) {
    let model = Scripted::new(way, vec![Says::Exactly(turn), Says::Exactly(reply("stop"))]);
    let mut options = researcher(way);
    options.contract.replies = vec![PayloadName::new(TOOLS, "judgement")];
    options.max_iterations = 2;
    let mut stage = Stage::with(options, model);
    stage.ask();
    let (how, texts) = &stage.results[0];
    let note = organism::xml::element::Element::read(&stage.notes()[0]).unwrap();
    let found = note.children().filter(|child| child.local_name() == "finding");
    let codes = found.map(|one| one.attribute("code").unwrap().to_owned()).collect();
    (*how, texts.concat(), codes)
}

/// Plays a turn of `xml-final` that has this text in its slot.
fn slotted(inner: &str) -> (Closing, String, Vec<String>) {
    let text = format!("<NONCE-FINAL format=\"xml\">{inner}</NONCE-FINAL>");
    judged(ActionTransport::XmlFinal, reply(&text))
}

fn ends_with_the_judgement((how, text, codes): (Closing, String, Vec<String>)) {
    assert_eq!(how, Closing::Completed, "{text} {codes:?}");
    let payload = organism::xml::element::Element::read(&text).unwrap();
    assert_eq!(payload.name.namespace.as_deref(), Some(TOOLS));
    assert_eq!(payload.child("decision").unwrap().text(), "ship");
    assert_eq!(payload.child("reason").unwrap().text(), "a < b, c > d");
    assert!(!codes.iter().any(|code| code.starts_with("final")), "{codes:?}");
}

#[test]
fn a_structured_final_ends_the_call_on_each_transport() {
    ends_with_the_judgement(judged(ActionTransport::Xml, reply(JUDGEMENT)));
    let arguments = r#"{"decision":"ship","reason":"a < b, c > d"}"#;
    let called = reply("").call("judgement", arguments);
    ends_with_the_judgement(judged(ActionTransport::Native, called));
    ends_with_the_judgement(slotted(JUDGEMENT));
    ends_with_the_judgement(slotted(&format!("\n  {JUDGEMENT}\n")));
    let namespaced =
        JUDGEMENT.replacen("<judgement>", &format!("<judgement xmlns=\"{TOOLS}\">"), 1);
    ends_with_the_judgement(slotted(&namespaced));
}

// The nonce on the page stands for that of the turn.
#[test]
fn the_slots_of_the_page_are_accepted() {
    let slot = |start: &str| block("docs/AGENTS.md", start).replace("k3f9a01c2", "NONCE");
    let judgement = slot("<k3f9a01c2-FINAL format=\"xml\">");
    let (how, text, codes) = judged(ActionTransport::XmlFinal, reply(&judgement));
    assert_eq!((how, codes.len()), (Closing::Completed, 0), "{text} {codes:?}");

    let markdown = slot("<k3f9a01c2-FINAL format=\"markdown\">");
    let mut options = researcher(ActionTransport::XmlFinal);
    options.final_format = FinalFormat::Markdown;
    options.max_iterations = 1;
    let turn = Says::Exactly(reply(&markdown));
    let mut stage = Stage::with(options, Scripted::new(ActionTransport::XmlFinal, vec![turn]));
    stage.ask();
    let (how, texts) = &stage.results[0];
    assert_eq!(*how, Closing::Completed, "{texts:?}");
    assert!(texts[0].contains(">...<"), "{texts:?}");
}

#[test]
fn a_slot_with_anything_but_one_valid_final_is_refused_with_the_reason() {
    let unclosed = JUDGEMENT.trim_end_matches("</judgement>");
    let cases = [
        ("text", "ship it".to_owned()),
        ("nothing", String::new()),
        ("two", format!("{JUDGEMENT}{JUDGEMENT}")),
        ("text beside", format!("{JUDGEMENT} and so on")),
        ("another element", "<verdict>ship</verdict>".to_owned()),
        ("a tool", "<query>q</query>".to_owned()),
        ("an invalid one", JUDGEMENT.replace("ship", "perhaps")),
        ("one without a child", "<judgement><decision>ship</decision></judgement>".to_owned()),
        ("an unclosed one", unclosed.to_owned()),
    ];
    for (title, inner) in cases {
        let (how, text, codes) = slotted(&inner);
        assert_eq!(how, Closing::Failed, "{title}: {text}");
        assert!(codes.iter().any(|code| code == "final-invalid"), "{title}: {codes:?}");
    }
}

#[test]
fn a_structured_final_in_another_format_is_refused() {
    let text = format!("<NONCE-FINAL format=\"text\">{JUDGEMENT}</NONCE-FINAL>");
    let (how, _, codes) = judged(ActionTransport::XmlFinal, reply(&text));
    assert_eq!(how, Closing::Failed);
    assert!(codes.iter().any(|code| code == "final-format"), "{codes:?}");
}

#[test]
fn an_unclosed_slot_with_a_structured_final_is_judged_as_one_with_json() {
    let cut = |inner: &str, stop| {
        let text = format!("<NONCE-FINAL format=\"xml\">{inner}");
        judged(ActionTransport::XmlFinal, reply(&text).stop(stop))
    };
    assert_eq!(cut(JUDGEMENT, StopReason::Length).0, Closing::Failed);
    assert_eq!(cut(JUDGEMENT, StopReason::Refused).0, Closing::Failed);
    assert_eq!(cut(JUDGEMENT, StopReason::Normal).0, Closing::Completed);
    let unclosed = JUDGEMENT.trim_end_matches("</judgement>");
    assert_eq!(cut(unclosed, StopReason::Normal).0, Closing::Failed);
    assert_eq!(cut(unclosed, StopReason::Length).0, Closing::Failed);
}

#[test]
fn the_prompt_of_xml_final_shows_the_structured_final_in_its_slot() {
    let way = ActionTransport::XmlFinal;
    let model = Scripted::new(way, vec![Says::Exactly(reply("stop"))]);
    let mut options = researcher(way);
    options.contract.replies = vec![PayloadName::new(TOOLS, "judgement")];
    options.max_iterations = 1;
    let mut stage = Stage::with(options, model.clone());
    stage.ask();
    let request = &model.requests()[0];
    let system = &request.system;
    assert!(system.contains("<NONCE-FINAL format=\"xml\"><judgement>"), "{system}");
    assert!(system.contains("</judgement></NONCE-FINAL>"), "{system}");
    let notice = request.messages.last().unwrap().texts().last().unwrap().to_owned();
    assert!(notice.contains("-FINAL format=\"xml\">"), "{notice}");
}
