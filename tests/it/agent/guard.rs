//! What does not fit the context window is left out where everybody sees it, and the turn is the
//! last of its call.

use organism::agent::Transport;
use organism::model::tokens::Family;
use organism::model::{Request, Route, Term, Terms};
use serde_json::json;

use super::scripted::{Says, Scripted};
use super::stage::{Stage, researcher};

const ALL: [Transport; 3] = [Transport::Xml, Transport::Native, Transport::XmlFinal];

/// A model with this window, of a family whose tokens are known.
fn terms(window: u64) -> Terms {
    let route = Route { provider: "fake".to_owned(), model: "gpt-4o".to_owned() };
    let (context_window, max_tokens) = (Some(window), Some(500));
    Terms::new(vec![Term { route, context_window, max_tokens, price: None }])
}

fn staged(
    transport: Transport,
    window: u64,
    turns: Vec<Says>,
) -> (Stage, std::sync::Arc<Scripted>) {
    let model = Scripted::new(transport, turns);
    let mut options = researcher(transport);
    options.terms = terms(window);
    (Stage::with(options, model.clone()), model)
}

fn looks() -> Says {
    Says::Acts(vec![("extract", json!({"file_path": "a.rs"}))])
}

fn said(request: &Request) -> String {
    let texts = request.messages.iter().flat_map(|said| said.texts());
    texts.collect::<Vec<_>>().join("\n")
}

/// What the first request of a researcher takes.
fn first_size(transport: Transport) -> u64 {
    let (mut stage, model) = staged(transport, 1_000_000, vec![Says::Ends("done")]);
    stage.ask();
    Family::O200k.size(&model.heard()[0]).total()
}

/// F14: an explicit stub, no new tools, a forced final turn.
#[test]
fn a_result_that_does_not_fit_is_left_out_and_the_turn_is_the_last() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let turns = vec![looks(), Says::Ends("as far as I saw"), Says::Ends("again")];
        let (mut stage, model) = staged(transport, window, turns);
        stage.finds = Some("lorem ipsum ".repeat(5_000));
        stage.ask();
        let heard = model.heard();
        let last = &heard[1];
        let size = Family::O200k.size(last).total();
        assert!(size + 500 <= window, "{transport:?}: {size} of {window}");
        let text = said(last);
        assert!(!text.contains("lorem ipsum"), "{transport:?}");
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}: {text}");
        assert!(text.contains("Your context window is full"), "{transport:?}: {text}");
        let offered: Vec<_> = last.tools.iter().map(|tool| tool.name.as_str()).collect();
        let finals: &[&str] = match transport {
            Transport::Native => &["attempt_completion"],
            _ => &[],
        };
        assert_eq!(offered, finals, "{transport:?}");
        assert_eq!(last.tool_choice, None);
        assert_eq!(stage.results.len(), 1);
        assert!(stage.results[0].1[0].contains("as far as I saw"), "{:?}", stage.results);
        // The conversation goes on: what was left out stays out, and nobody is hurried.
        stage.ask_again();
        let heard = model.heard();
        let text = said(&heard[2]);
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}: {text}");
        assert!(!text.contains("Your context window is full"), "{transport:?}: {text}");
        assert_eq!(heard[2].tools.len(), heard[0].tools.len(), "{transport:?}");
        let left: Vec<_> = stage.past().iter().map(|turn| turn.left_out.len()).collect();
        assert_eq!(left, [0, 1, 0], "{transport:?}: on record where it happened");
        assert!(stage.messages().iter().any(|m| m.payload.as_str().contains("lorem ipsum lorem")));
    }
}

/// F14: whoever does not end the task in the forced turn has failed it, visibly.
#[test]
fn a_forced_last_turn_that_calls_again_ends_in_a_failed_report() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let (mut stage, _) = staged(transport, window, vec![looks(), looks()]);
        stage.finds = Some("lorem ipsum ".repeat(5_000));
        stage.ask();
        let [(how, told)] = stage.results.as_slice() else { panic!("{:?}", stage.results) };
        assert_eq!(format!("{how:?}"), "Failed");
        assert!(told[0].contains("budget-spent"), "{transport:?}: {told:?}");
        let transcript = stage.transcript();
        assert!(transcript.contains("- refused budget-spent"), "{transport:?}: {transcript}");
    }
}

/// F14: of several new results the largest goes first, and what fits stays.
#[test]
fn what_fits_beside_it_stays() {
    for transport in ALL {
        let found = "lorem ipsum ".repeat(300);
        let window = first_size(transport) + 500 + Family::O200k.count(&found) * 5 / 2;
        let acts = Says::Acts(vec![
            ("extract", json!({"file_path": "a.rs"})),
            ("query", json!({"content": "q"})),
        ]);
        let (mut stage, model) = staged(transport, window, vec![looks(), acts, Says::Ends("done")]);
        stage.finds = Some(found);
        stage.ask();
        let heard = model.heard();
        assert!(!said(&heard[1]).contains("[left out"), "{transport:?}: one of them fits");
        let text = said(&heard[2]);
        let counted = (
            text.matches("ipsum &lt;/found").count() + text.matches("ipsum </found").count(),
            text.matches("[left out: ").count(),
        );
        assert_eq!(counted, (2, 1), "{transport:?}");
    }
}

/// F14: a task that does not fit by itself fails before a model is asked.
#[test]
fn a_task_that_does_not_fit_is_never_sent() {
    for transport in ALL {
        let (mut stage, model) = staged(transport, 700, vec![]);
        stage.ask();
        assert!(model.heard().is_empty());
        let [(how, told)] = stage.results.as_slice() else { panic!("{:?}", stage.results) };
        assert_eq!(format!("{how:?}"), "Failed");
        assert!(told[0].contains("too-large"), "{told:?}");
        assert!(told[0].contains("window of 700"), "{told:?}");
    }
}

/// F14: prompt, notice and definitions are schema tokens; what was said is payload.
#[test]
fn the_prompt_counts_as_schema_and_the_thread_as_payload() {
    for transport in ALL {
        let (mut stage, model) = staged(transport, 1_000_000, vec![looks(), Says::Ends("done")]);
        stage.finds = Some("lorem ipsum ".repeat(100));
        stage.ask();
        let heard = model.heard();
        let notice = |request: &Request| {
            let text = request.messages.last().unwrap().texts().last().unwrap().to_owned();
            assert!(text.starts_with("<notice>"), "{text}");
            text
        };
        let [before, after] = [&heard[0], &heard[1]]
            .map(|request| Family::O200k.size_with(request, Some(&notice(request))));
        let bare = Family::O200k.size(&heard[0]);
        assert!(before.schema > bare.schema && before.total() == bare.total(), "{before:?}");
        let framing = 2 * organism::limits::FRAMING_TOKENS;
        // A nonce is a token more or less.
        let grown = after.schema.abs_diff(before.schema + framing);
        assert!(grown < 10, "{transport:?}: {before:?} {after:?}");
        assert!(after.payload > before.payload + 200, "{transport:?}: {before:?} {after:?}");
    }
}
