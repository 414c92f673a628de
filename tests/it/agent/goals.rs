//! Goals of workflows: the prompt contains their documents unchanged, and the text of a turn is the
//! answer.

use organism::agent::{ActionTransport, AgentOptions, FinalFormat, FinalMode};
use organism::ids::PayloadName;
use organism::model::{StopReason, ToolChoice};
use organism::thread::Closing;
use organism::xml::element::Element;

use super::scripted::{Reply, Says, Scripted, reply};
use super::setup::RESEARCH_NAMESPACE;
use super::stage::{Stage, researcher};

const WAYS: [ActionTransport; 3] =
    [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal];

const DOCUMENT: &str = "<workflow name=\"w\">\n\n<current-goal id=\"a\">\nIs &lt;/goal&gt; \
                        &amp;amp; ok?\t\r\n]]>\n</current-goal>\n\n</workflow>";

/// Plays these turns of a goal. Returns how the run ended, and the text of its result.
fn answered(options: AgentOptions, turns: Vec<Reply>) -> (Closing, String) {
    let mut options = options;
    options.max_iterations = u32::try_from(turns.len()).unwrap();
    let says = turns.into_iter().map(Says::Exactly).collect();
    let model = Scripted::new(options.transport, says);
    let mut stage = Stage::with_goal(DOCUMENT, options, model);
    stage.start_workflow();
    let (how, texts) = stage.results[0].clone();
    (how, Element::read(&texts[0]).unwrap().text())
}

fn completed(text: &str) -> (Closing, String) {
    (Closing::Completed, format!("attempt_completion: {text}"))
}

// C7
#[test]
fn the_prompt_shows_the_document_of_a_goal_alone_and_unescaped() {
    for way in WAYS {
        let model = Scripted::new(way, vec![Says::Exactly(reply("Yes."))]);
        let mut options = researcher(way);
        options.notice = false;
        let mut stage = Stage::with_goal(DOCUMENT, options, model.clone());
        stage.start_workflow();
        let messages = &model.requests()[0].messages;
        assert_eq!(messages.len(), 1, "{way:?}");
        // The goal was delivered in the workflow's thread, after the request to the workflow.
        let shown: Vec<_> = messages[0].texts().collect();
        assert!(shown[0].ends_with(DOCUMENT), "{way:?}: {shown:?}");
        assert!(!shown[0].contains("<goal"), "{way:?}: {shown:?}");
    }
}

#[test]
fn the_text_of_a_turn_answers_a_goal_whatever_ends_the_agents_other_calls() {
    let text = "# Yes\n\na < b && <b>c</b>";
    for way in WAYS {
        for by in [FinalMode::Action, FinalMode::Text] {
            let mut options = researcher(way);
            options.final_by = by;
            let goal = |text| answered(options.clone(), vec![reply(text)]);
            assert_eq!(goal(text), completed(text), "{way:?} {by:?}");
            assert_eq!(goal("So.\n</think>\n\nYes."), completed("Yes."), "{way:?} {by:?}");
        }
    }
}

#[test]
fn a_declared_final_and_a_format_are_for_other_calls_than_goals() {
    for way in WAYS {
        let mut options = researcher(way);
        options.contract.replies = vec![PayloadName::new(RESEARCH_NAMESPACE, "answer")];
        options.final_format = FinalFormat::Xml;
        options.tool_choice = (way == ActionTransport::Native).then_some(ToolChoice::Required);
        assert_eq!(answered(options, vec![reply("Yes.")]), completed("Yes."), "{way:?}");
    }
}

#[test]
fn a_choice_that_demands_a_tool_is_not_sent_with_a_goal() {
    let way = ActionTransport::Native;
    let model = Scripted::new(way, vec![Says::Exactly(reply("Yes."))]);
    let mut options = researcher(way);
    options.tool_choice = Some(ToolChoice::Required);
    let mut stage = Stage::with_goal(DOCUMENT, options, model.clone());
    stage.start_workflow();
    assert_eq!(model.requests()[0].tool_choice, None);
}

#[test]
fn attempt_completion_answers_a_goal_of_an_agent_with_another_final() {
    let completion = "<attempt_completion><result>Yes.</result></attempt_completion>";
    let mut options = researcher(ActionTransport::Xml);
    options.contract.replies = vec![PayloadName::new(RESEARCH_NAMESPACE, "answer")];
    assert_eq!(answered(options, vec![reply(completion)]), completed("Yes."));

    let mut options = researcher(ActionTransport::Native);
    options.contract.replies = vec![PayloadName::new(RESEARCH_NAMESPACE, "answer")];
    let called = reply("Done.").call("attempt_completion", r#"{"result":"Yes."}"#);
    assert_eq!(answered(options, vec![called]), completed("Yes."));
}

#[test]
fn a_turn_that_cannot_answer_a_goal_gets_another_turn() {
    let cases = [
        reply("Look. <search><qurey>q</qurey></search>"),
        reply("Look. <search><query>q</query>"),
        reply("I would do\n```\n<search><query>q</query></search>\n```"),
        reply("Cut").stop(StopReason::Length),
        reply(" "),
    ];
    for first in cases {
        let title = first.text.clone();
        let turns = vec![first, reply("Yes.")];
        let answer = answered(researcher(ActionTransport::Xml), turns);
        assert_eq!(answer, completed("Yes."), "{title}");
    }
}

#[test]
fn the_text_of_a_turn_with_an_action_is_never_the_answer() {
    let turns = vec![reply("No. <search><query>q</query></search>"), reply("Yes.")];
    assert_eq!(answered(researcher(ActionTransport::Xml), turns), completed("Yes."));
}

#[test]
fn a_goal_without_an_answer_fails_when_the_last_turn_is_spent() {
    let (how, _) = answered(researcher(ActionTransport::Xml), vec![reply(" "), reply(" ")]);
    assert_eq!(how, Closing::Completed, "the workflow was told and replied");
    let (_, text) = answered(researcher(ActionTransport::Xml), vec![reply(" "), reply(" ")]);
    assert!(text.starts_with("system-error"), "{text}");
}

#[test]
fn other_calls_of_the_same_agent_keep_their_final() {
    for way in WAYS {
        let turns = vec![Says::Exactly(reply("Yes.")), Says::Exactly(reply(""))];
        let model = Scripted::new(way, turns);
        let mut options = researcher(way);
        options.max_iterations = 2;
        let mut stage = Stage::with_goal(DOCUMENT, options, model.clone());
        stage.ask();
        assert_eq!(stage.results[0].0, Closing::Failed, "{way:?}");
        let heard = &model.requests()[0];
        assert!(!heard.system.contains("text of such a response is your answer"), "{way:?}");
    }
}

#[test]
fn the_prompt_of_a_goal_says_that_the_text_is_the_answer() {
    for way in WAYS {
        let model = Scripted::new(way, vec![Says::Exactly(reply("Yes."))]);
        let mut stage = Stage::with_goal(DOCUMENT, researcher(way), model.clone());
        stage.start_workflow();
        let system = &model.requests()[0].system;
        assert!(system.contains("text of such a response is your answer"), "{way:?}");
        assert!(!system.contains("DO NOT respond with plain text"), "{way:?}");
    }
}

/// Plays turns of a goal whose only valid answer is the payload `answer`. Returns the text of the
/// result, and the model requests.
fn answered_as(
    options: AgentOptions,
    turns: Vec<Reply>,
) -> (String, Vec<organism::model::ModelRequest>) {
    let says = turns.into_iter().map(Says::Exactly).collect();
    let model = Scripted::new(options.transport, says);
    let answer = Some(PayloadName::new(RESEARCH_NAMESPACE, "answer"));
    let mut stage = Stage::with_goal_for(DOCUMENT, answer, options, model.clone());
    stage.start_workflow();
    let (_, texts) = stage.results[0].clone();
    let requests = model.requests();
    (Element::read(&texts[0]).unwrap().text(), requests)
}

/// Returns a turn that writes an `answer` with these children, in the form that the transport `way`
/// requires.
fn typed(way: ActionTransport, children: &[(&str, &str)]) -> Reply {
    let inner: String =
        children.iter().map(|(name, text)| format!("<{name}>{text}</{name}>")).collect();
    match way {
        ActionTransport::Xml => {
            reply(&format!("<thinking>Now.</thinking><answer>{inner}</answer>"))
        }
        ActionTransport::Native => {
            let field = |(name, text): &(&str, &str)| match *name {
                "source" => format!("\"{name}\":[\"{text}\"]"),
                _ => format!("\"{name}\":\"{text}\""),
            };
            let fields: Vec<_> = children.iter().map(field).collect();
            reply("Now.").call("answer", &format!("{{{}}}", fields.join(",")))
        }
        ActionTransport::XmlFinal => reply(&format!(
            "Now. <NONCE-FINAL format=\"xml\"><answer>{inner}</answer></NONCE-FINAL>"
        )),
    }
}

// C8
#[test]
fn a_typed_goal_is_answered_by_its_payload_on_every_transport() {
    for way in WAYS {
        let turns = vec![typed(way, &[("text", "Yes."), ("source", "a.rs:1")])];
        let (result, _) = answered_as(researcher(way), turns);
        assert_eq!(result, "answer: Yes.a.rs:1", "{way:?}");
    }
}

#[test]
fn an_agent_corrects_an_answer_that_does_not_fit_its_type() {
    for way in WAYS {
        let wrong = typed(way, &[("txet", "Yes.")]);
        let turns = vec![wrong, typed(way, &[("text", "Yes.")])];
        let (result, requests) = answered_as(researcher(way), turns);
        assert_eq!(result, "answer: Yes.", "{way:?}");
        assert_eq!(requests.len(), 2, "{way:?}");
    }
}

#[test]
fn text_is_no_answer_to_a_typed_goal() {
    for way in WAYS {
        for by in [FinalMode::Action, FinalMode::Text] {
            let mut options = researcher(way);
            options.final_by = by;
            let turns = vec![reply("Yes."), typed(way, &[("text", "Yes.")])];
            let (result, requests) = answered_as(options, turns);
            assert_eq!(result, "answer: Yes.", "{way:?} {by:?}");
            assert_eq!(requests.len(), 2, "{way:?} {by:?}");
            let system = &requests[0].system;
            assert!(!system.contains("text of such a response is your answer"), "{way:?} {by:?}");
            assert!(!system.contains("attempt_completion"), "{way:?} {by:?}: {system}");
        }
    }
}

#[test]
fn a_goal_with_roles_is_delegated_on_every_transport() {
    for way in WAYS {
        let xml = "<delegate role=\"reader\">Read a.rs.</delegate>";
        let turn = match way {
            ActionTransport::Xml => reply(xml),
            _ => reply("").call("delegate", r#"{"role":"reader","content":"Read a.rs."}"#),
        };
        let says = [turn, reply("It is read.")].map(Says::Exactly).to_vec();
        let model = Scripted::new(way, says);
        let mut stage = Stage::with_roles(DOCUMENT, researcher(way), model.clone());
        stage.start_workflow();
        let (_, texts) = &stage.results[0];
        let result = Element::read(&texts[0]).unwrap().text();
        assert!(result.ends_with("It is read."), "{way:?} {result}");
        let requests = model.requests();
        let offers = |request: &organism::model::ModelRequest| {
            let has_tool = request.tools.iter().any(|tool| tool.name == "delegate");
            has_tool || request.system.contains("<delegate role=")
        };
        assert!(offers(&requests[0]), "{way:?} {}", requests[0].system);
        let shown = format!("{:?}", requests[1].messages);
        assert!(shown.contains("Read a.rs."), "{way:?} {shown}");
    }

    // A goal without roles offers none.
    for way in WAYS {
        let model = Scripted::new(way, vec![Says::Exactly(reply("Yes."))]);
        let mut stage = Stage::with_goal(DOCUMENT, researcher(way), model.clone());
        stage.start_workflow();
        let request = &model.requests()[0];
        assert!(!request.system.contains("delegate"), "{way:?} {}", request.system);
        assert!(request.tools.iter().all(|tool| tool.name != "delegate"), "{way:?}");
    }
}
