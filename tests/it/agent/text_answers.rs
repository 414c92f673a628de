//! `final_by = "text"`: the text of a turn without an action, and without a finding, is the answer.

use organism::agent::{ActionTransport, FinalFormat, FinalMode};
use organism::model::StopReason;
use organism::thread::Closing;
use organism::xml::element::Element;

use super::scripted::{Reply, Says, Scripted, nonce, reply};
use super::stage::{Stage, researcher};

const WAYS: [ActionTransport; 3] =
    [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal];

/// Plays this turn and an empty second turn. Returns the result of the call, if the first turn
/// ended it, and the finding codes of the first turn.
fn answered(way: ActionTransport, by: FinalMode, turn: Reply) -> (Option<String>, Vec<String>) {
    let model = Scripted::new(way, vec![Says::Exactly(turn), Says::Exactly(reply(""))]);
    let mut options = researcher(way);
    options.final_by = by;
    options.final_format = FinalFormat::Markdown;
    options.max_iterations = 2;
    let mut stage = Stage::with(options, model.clone());
    stage.ask();
    let (how, texts) = &stage.results[0];
    let note = Element::read(&stage.notes()[0]).unwrap();
    let found = note.children().filter(|child| child.local_name() == "finding");
    let codes = found.map(|one| one.attribute("code").unwrap().to_owned()).collect();
    let ends = *how == Closing::Completed && model.requests().len() == 1;
    (ends.then(|| Element::read(&texts[0]).unwrap().text()), codes)
}

fn by_text(way: ActionTransport, text: &str) -> Option<String> {
    answered(way, FinalMode::Text, reply(text)).0
}

#[test]
fn the_text_of_a_turn_without_an_action_is_the_answer_on_each_transport() {
    let cases = [
        ("Ship it.", "Ship it."),
        ("<thinking>So.</thinking>\n\n# Yes\n\nShip it.\n", "# Yes\n\nShip it."),
        // The template of the prompt had opened the reasoning.
        ("So.\n</think>\n\nShip it.", "Ship it."),
        ("Or <search><query>q</query></search>?</think>Ship it.", "Ship it."),
        ("a < b && c > d \"e\"", "a < b && c > d \"e\""),
        ("Use `x`:\n\n```\nfn f() {}\n```", "Use `x`:\n\n```\nfn f() {}\n```"),
        ("One.<br>Two.", "One.<br>Two."),
        ("<p>One <b>bold</b> word.</p>", "<p>One <b>bold</b> word.</p>"),
        ("Then <em>ship</em> it.", "Then <em>ship</em> it."),
        ("It writes `<tool_call>{}</tool_call>`.", "It writes `<tool_call>{}</tool_call>`."),
        ("<actions>Ship it.</actions>", "<actions>Ship it.</actions>"),
    ];
    for way in WAYS {
        for (text, answer) in cases {
            assert_eq!(by_text(way, text).as_deref(), Some(answer), "{way:?}");
        }
    }
}

#[test]
fn a_text_with_an_action_in_any_state_is_no_answer() {
    let cases = [
        ("an action", "Look. <search><query>q</query></search>"),
        ("an invalid action", "Look. <search><qurey>q</qurey></search>"),
        ("an incomplete action", "Look. <search><query>q</query>"),
        ("a quoted action", "I would do\n```\n<search><query>q</query></search>\n```"),
        ("a near miss", "Look. <serach>q</serach>"),
        ("an action within HTML", "<p><search><query>q</query></search></p>"),
        ("an invalid note", "So far: <progress value=\"70\" max=\"100\">70%</progress>"),
        ("nothing", "  \n"),
        ("reasoning alone", "<thinking>So.</thinking>"),
    ];
    for (title, text) in cases {
        assert_eq!(by_text(ActionTransport::Xml, text), None, "{title}");
    }
}

// F2
#[test]
fn a_call_that_the_server_left_in_the_text_is_refused_and_explained() {
    let call = r#"{"name": "search", "arguments": {"query": "q"}}"#;
    let texts = [
        format!("<tool_call>\n{call}\n</tool_call>"),
        format!("So.</think>\nI look.\n<tool_call>{call}</tool_call>\n"),
        format!("<tool_call>\n{call}"),
        format!("<fc:function_calls>{call}</fc:function_calls>"),
        "<function=search>\n<parameter=query>\nq\n</parameter>\n</function>".to_owned(),
        "[TOOL_CALLS]search[ARGS]{\"query\": \"q\"}".to_owned(),
    ];
    for way in WAYS {
        for text in &texts {
            let (answer, codes) = answered(way, FinalMode::Text, reply(text));
            assert_eq!(answer, None, "{way:?} {text}");
            assert_eq!(codes[0], "unknown-action", "{way:?} {text}: {codes:?}");
            assert!(!codes.contains(&"no-action".to_owned()), "{way:?} {text}: {codes:?}");
        }

        let turns = [&*texts[0], "Ship it."].map(|text| Says::Exactly(reply(text)));
        let model = Scripted::new(way, turns.into());
        let mut options = researcher(way);
        options.final_by = FinalMode::Text;
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        let requests = model.requests();
        let shown = requests[1].messages.iter().flat_map(|message| message.texts());
        let shown: String = shown.collect();
        let expected = match way {
            ActionTransport::Xml => "call one tool (",
            _ => {
                "it may lack a tool parser for this model; the response did not contain a valid tool"
            }
        };
        assert!(shown.contains("`tool_call` is no action of yours"), "{way:?}: {shown}");
        assert!(shown.contains(expected), "{way:?}: {shown}");
    }
}

#[test]
fn a_text_that_did_not_end_normally_is_no_answer() {
    for way in WAYS {
        for stop in [StopReason::Length, StopReason::Refused, StopReason::Unknown] {
            let turn = reply("Ship it.").stop(stop);
            let (answer, codes) = answered(way, FinalMode::Text, turn);
            assert_eq!(answer, None, "{way:?} {stop:?}");
            let reason = if stop == StopReason::Refused { "answer-refused" } else { "truncated" };
            assert_eq!(codes, [reason, "no-action"], "{way:?} {stop:?}");
        }
    }
}

#[test]
fn html_that_is_no_answer_gets_the_feedback_that_text_gets() {
    let stops = [StopReason::Length, StopReason::Refused, StopReason::Calls, StopReason::Unknown];
    for way in WAYS {
        for stop in stops {
            let codes = |text: &str| answered(way, FinalMode::Text, reply(text).stop(stop)).1;
            let of_text = codes("<thinking>So.</thinking>Ship it.");
            let of_html = codes("<thinking>So.</thinking><p>Ship it.</p>");
            assert_eq!(of_html, of_text, "{way:?} {stop:?}");
            assert!(of_html.contains(&"no-action".to_owned()), "{way:?} {stop:?}: {of_html:?}");
        }
    }
}

#[test]
fn text_is_no_answer_of_an_agent_that_ends_by_an_action() {
    for way in WAYS {
        let (answer, codes) = answered(way, FinalMode::Action, reply("Ship it."));
        assert_eq!((answer, codes), (None, vec!["no-action".to_owned()]), "{way:?}");
    }
}

#[test]
fn the_final_as_an_action_is_accepted_beside_text() {
    let completion = "<attempt_completion><result>Ship it.</result></attempt_completion>";
    assert_eq!(by_text(ActionTransport::Xml, completion).as_deref(), Some("Ship it."));
    let called = reply("Done.").call("attempt_completion", r#"{"result":"Ship it."}"#);
    let (answer, _) = answered(ActionTransport::Native, FinalMode::Text, called);
    assert_eq!(answer.as_deref(), Some("Ship it."));
    let slot = "<NONCE-FINAL format=\"markdown\">Ship it.</NONCE-FINAL>";
    for by in [FinalMode::Action, FinalMode::Text] {
        let by_slot = answered(ActionTransport::XmlFinal, by, reply(slot)).0;
        assert_eq!(by_slot.as_deref(), Some("Ship it."), "{by:?}");
    }
}

#[test]
fn the_prompt_says_that_the_text_is_the_answer() {
    for way in WAYS {
        let model = Scripted::new(way, vec![Says::Exactly(reply("Ship it."))]);
        let mut options = researcher(way);
        options.final_by = FinalMode::Text;
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        let request = &model.requests()[0];
        assert!(request.system.contains("text of such a response is your answer"), "{way:?}");
        assert!(!request.system.contains("DO NOT respond with plain text"), "{way:?}");
        let notice = request.messages.last().unwrap().texts().last().unwrap().to_owned();
        assert!(notice.contains("in a response without any action"), "{notice}");
        assert_eq!(nonce(request).is_some(), way == ActionTransport::XmlFinal, "{notice}");
    }
}
