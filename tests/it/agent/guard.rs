//! A text that exceeds the context window is left out of the prompt, and a short note takes its
//! place. The next turn then becomes the last turn of its call.

use std::sync::Arc;

use organism::agent::{ActionTransport, ModelAgent};
use organism::envelope::{AttemptFailure, Message};
use organism::ids::ListenerName;
use organism::model::router::{RateLimits, RoutedModel, RoutingStrategy};
use organism::model::tokens::TokenizerFamily;
use organism::model::{
    AnswerChunk, CallFuture, ChatBlock, Error, ModelProvider, ModelRequest, ModelRoute,
    ModelRouter, ModelTerms, OnChunk, RouteTerms, SharedModel, StopReason, StreamEnd, TokenUsage,
};
use serde_json::json;

use super::scripted::{Says, Scripted, reply};
use super::setup::{TOOLS, delivery, question_thread, take};
use super::stage::{Stage, researcher};

const ALL: [ActionTransport; 3] =
    [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal];

/// Returns the context window and token limit of a model whose tokenizer is known.
fn terms(window: u64) -> ModelTerms {
    let route = ModelRoute { provider: "fake".to_owned(), model: "gpt-4o".to_owned() };
    let (context_window, max_tokens) = (Some(window), Some(500));
    ModelTerms::new(vec![RouteTerms { route, context_window, max_tokens, price: None }])
}

fn staged(transport: ActionTransport, window: u64, turns: Vec<Says>) -> (Stage, Arc<Scripted>) {
    let model = Scripted::new(transport, turns);
    let mut options = researcher(transport);
    options.terms = terms(window);
    (Stage::with(options, model.clone()), model)
}

/// Returns a peer that answers each payload in `texts` with its text, and every other payload with
/// `nothing`. The answers are `word` elements.
fn finds(
    word: &'static str,
    texts: Vec<(&'static str, String)>,
) -> impl Fn(&ListenerName, &Message) -> Vec<Vec<u8>> {
    move |_, asked| {
        let found = texts.iter().find(|(name, _)| *asked.name.local == **name);
        let found = found.map_or("nothing", |(_, text)| text);
        vec![format!("<{word} xmlns=\"{TOOLS}\">{found}</{word}>").into_bytes()]
    }
}

fn looks() -> Says {
    Says::Acts(vec![("extract", json!({"file_path": "a.rs"}))])
}

fn said(request: &ModelRequest) -> String {
    let texts = request.messages.iter().flat_map(|said| said.texts());
    texts.collect::<Vec<_>>().join("\n")
}

/// Number of tokens of a researcher's first request.
fn first_size(transport: ActionTransport) -> u64 {
    let (mut stage, model) = staged(transport, 1_000_000, vec![Says::Ends("done")]);
    stage.ask();
    TokenizerFamily::O200k.size(&model.requests()[0]).total()
}

/// F14: a result that does not fit is left out of the prompt, and a note takes its place. The next
/// turn has no tools and must end the task.
#[test]
fn a_result_that_does_not_fit_is_left_out_and_the_turn_is_the_last() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let turns = vec![looks(), Says::Ends("as far as I saw"), Says::Ends("again")];
        let (stage, model) = staged(transport, window, turns);
        let mut stage =
            stage.answering(finds("found", vec![("extract", "lorem ipsum ".repeat(5_000))]));
        stage.ask();
        let heard = model.requests();
        let last = &heard[1];
        let size = TokenizerFamily::O200k.size(last).total();
        assert!(size + 500 <= window, "{transport:?}: {size} of {window}");
        let text = said(last);
        assert!(!text.contains("lorem ipsum"), "{transport:?}");
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}: {text}");
        assert!(text.contains("Your context window is full"), "{transport:?}: {text}");
        let offered: Vec<_> = last.tools.iter().map(|tool| tool.name.as_str()).collect();
        let finals: &[&str] = match transport {
            ActionTransport::Native => &["attempt_completion"],
            _ => &[],
        };
        assert_eq!(offered, finals, "{transport:?}");
        assert_eq!(last.tool_choice, None);
        assert_eq!(stage.results.len(), 1);
        assert!(stage.results[0].1[0].contains("as far as I saw"), "{:?}", stage.results);
        // In the next call, the stub remains, and no turn is forced to be the last.
        stage.ask_again();
        let heard = model.requests();
        let text = said(&heard[2]);
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}: {text}");
        assert!(!text.contains("Your context window is full"), "{transport:?}: {text}");
        assert_eq!(heard[2].tools.len(), heard[0].tools.len(), "{transport:?}");
        let left: Vec<_> = stage.past().iter().map(|turn| turn.left_out.len()).collect();
        assert_eq!(left, [0, 1, 0], "{transport:?}: on record where it happened");
        assert!(stage.messages().iter().any(|m| m.payload.as_str().contains("lorem ipsum lorem")));
    }
}

/// F14: an agent that does not end its task in the forced turn has failed visibly.
#[test]
fn a_forced_last_turn_that_calls_again_ends_in_a_failed_report() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let (stage, _) = staged(transport, window, vec![looks(), looks()]);
        let mut stage =
            stage.answering(finds("found", vec![("extract", "lorem ipsum ".repeat(5_000))]));
        stage.ask();
        let [(how, told)] = stage.results.as_slice() else { panic!("{:?}", stage.results) };
        assert_eq!(format!("{how:?}"), "Failed");
        assert!(told[0].contains("budget-spent"), "{transport:?}: {told:?}");
        let transcript = stage.transcript();
        assert!(transcript.contains("- refused budget-spent"), "{transport:?}: {transcript}");
    }
}

/// F14: of several new results, the largest is left out first, and results that fit remain.
#[test]
fn results_that_fit_remain() {
    for transport in ALL {
        let (small, large) = ("lorem ipsum ".repeat(300), "dolor sit ".repeat(450));
        let room =
            TokenizerFamily::O200k.count(&small) * 2 + TokenizerFamily::O200k.count(&large) / 2;
        let window = first_size(transport) + 500 + room;
        let acts = Says::Acts(vec![
            ("extract", json!({"file_path": "a.rs"})),
            ("query", json!({"content": "q"})),
        ]);
        let (stage, model) = staged(transport, window, vec![looks(), acts, Says::Ends("done")]);
        let mut stage = stage.answering(finds("found", vec![("extract", small), ("query", large)]));
        stage.ask();
        let heard = model.requests();
        assert!(!said(&heard[1]).contains("[left out"), "{transport:?}: one of them fits");
        let text = said(&heard[2]);
        assert!(text.contains("lorem ipsum lorem"), "{transport:?}");
        assert!(!text.contains("dolor sit"), "{transport:?}: the largest goes, not the first");
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}");
        let past = stage.past();
        let [left] = past[2].left_out.as_slice() else { panic!("{past:?}") };
        let messages = stage.messages();
        let message = messages.iter().find(|message| message.id == *left).unwrap();
        assert!(message.payload.as_str().contains("dolor sit"), "{transport:?}");
    }
}

/// T8: a failure that is left out of the prompt is still shown as a failure, also as a native
/// result.
#[test]
fn an_omitted_failure_still_counts_as_a_failure() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let (stage, model) = staged(transport, window, vec![looks(), Says::Ends("done")]);
        let mut stage =
            stage.answering(finds("search-error", vec![("extract", "lorem ipsum ".repeat(5_000))]));
        stage.ask();
        let heard = model.requests();
        let text = said(&heard[1]);
        assert!(text.contains("Error: [left out: "), "{transport:?}: {text}");
        let blocks = heard[1].messages.iter().flat_map(|said| &said.blocks);
        let failed = blocks.filter(|block| matches!(block, ChatBlock::Result { failed: true, .. }));
        let native = transport == ActionTransport::Native;
        assert_eq!(failed.count(), usize::from(native), "{transport:?}");
    }
}

/// F14: if the result of a thread is left out of the prompt, the note in its place names the thread
/// and the status of the result.
#[test]
fn the_result_of_a_thread_that_is_left_out_is_still_that_of_its_thread() {
    for transport in [ActionTransport::Native, ActionTransport::XmlFinal] {
        let window = first_size(transport) + 2_500;
        let spawn =
            json!({"suggested_sub_id": "sub", "initial-payload": {"query": {"content": "q"}}});
        let turns = vec![
            Says::Acts(vec![("spawn-thread", spawn)]),
            Says::Ends("begun"),
            Says::Ends("seen"),
        ];
        let (stage, model) = staged(transport, window, turns);
        let mut stage =
            stage.answering(finds("found", vec![("query", "lorem ipsum ".repeat(5_000))]));
        stage.ask();
        stage.ask_again();
        let heard = model.requests();
        let text = said(heard.last().unwrap());
        assert!(!text.contains("lorem ipsum"), "{transport:?}");
        let stub =
            "<thread-result thread_id=\"sess-stage0001.sub\" status=\"completed\">[left out: ";
        assert_eq!(text.matches(stub).count(), 1, "{transport:?}: {text}");
    }
}

/// F14: a request also fits in the form for another route, which shows the thinking of this route.
#[test]
fn the_form_for_every_route_fits() {
    let way = ActionTransport::Native;
    let family = TokenizerFamily::O200k;
    let thinking = json!({"thinking": "deep thought ".repeat(1_500)}).to_string();
    let found = "lorem ipsum ".repeat(400);
    let window = first_size(way) + 500 + family.count(&thinking) + family.count(&found) / 2;

    let call = reply("").call("extract", r#"{"file_path":"a.rs"}"#).own("other", &thinking);
    let first = Scripted::by("fake", way, vec![Says::Rejects("no"), Says::Rejects("no")]);
    let other = Scripted::by("other", way, vec![Says::Exactly(call), Says::Ends("done")]);
    let models: [SharedModel; 2] = [first.clone(), other.clone()];
    let routes = models.map(|model| RoutedModel::new(model, RateLimits::default()));
    let router = ModelRouter::new(routes.into(), RoutingStrategy::Failover, 1);
    let mut options = researcher(way);
    let terms = terms(window).routes()[0].clone();
    let route = ModelRoute { provider: "other".to_owned(), ..terms.route.clone() };
    options.terms = ModelTerms::new(vec![terms.clone(), RouteTerms { route, ..terms }]);
    let stage = Stage::with(options, Arc::new(router));
    let mut stage = stage.answering(finds("found", vec![("extract", found)]));
    stage.ask();

    let last = &other.requests()[1];
    let blocks = || last.messages.iter().flat_map(|message| &message.blocks);
    assert!(blocks().any(|block| matches!(block, ChatBlock::Own(_))));
    let size = family.size(last).total();
    assert!(size + 500 <= window, "{size} of {window}");
    assert_eq!(stage.past()[1].left_out.len(), 1);
    let own_form = family.size(&first.requests()[1]).total();
    assert!(own_form + family.count(&thinking) <= window, "{own_form} of {window}");
}

/// F14: if a model has a context window but no limit for answers, the request sets a limit for the
/// answer.
#[test]
fn where_the_window_has_to_hold_it_an_answer_is_bounded() {
    for (window, bounded, expected) in
        [(Some(100_000), None, Some(8_192)), (Some(8_000), None, Some(4_000)), (None, None, None)]
    {
        let model = Scripted::new(ActionTransport::Xml, vec![Says::Ends("done")]);
        let mut options = researcher(ActionTransport::Xml);
        let route = ModelRoute { provider: "fake".to_owned(), model: "gpt-4o".to_owned() };
        let term = RouteTerms { route, context_window: window, max_tokens: bounded, price: None };
        options.terms = ModelTerms::new(vec![term]);
        Stage::with(options, model.clone()).ask();
        let request = &model.requests()[0];
        assert_eq!((request.max_tokens, request.most(None)), (None, expected), "{window:?}");
        // A route with a bound of its own has this bound.
        assert_eq!(request.most(Some(32_000)), Some(32_000), "{window:?}");
    }
}

/// F14: the notice about the last turn is sent even if notices are switched off.
#[test]
fn a_forced_last_turn_has_a_notice_even_if_notices_are_off() {
    let window = first_size(ActionTransport::Xml) + 1_500;
    let model = Scripted::new(ActionTransport::Xml, vec![looks(), Says::Ends("done")]);
    let mut options = researcher(ActionTransport::Xml);
    options.terms = terms(window);
    options.notice = false;
    let stage = Stage::with(options, model.clone());
    let mut stage =
        stage.answering(finds("found", vec![("extract", "lorem ipsum ".repeat(5_000))]));
    stage.ask();
    let heard = model.requests();
    assert!(!said(&heard[0]).contains("<notice>"));
    assert!(said(&heard[1]).contains("Your context window is full"), "{}", said(&heard[1]));
}

/// A model whose first streams break off. After these streams, the model answers or fails.
#[derive(Debug)]
struct Faltering {
    breaks: u32,
    answers: bool,
}

impl ModelProvider for Faltering {
    fn call<'a>(&'a self, _: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            for _ in 0..self.breaks {
                on_chunk(AnswerChunk::Text(&"lost words ".repeat(40)));
                on_chunk(AnswerChunk::Restart);
            }
            if !self.answers {
                on_chunk(AnswerChunk::Text("and the la"));
                return Err(Error::Cut { route: self.route(), bytes: 10 });
            }
            on_chunk(AnswerChunk::Text(
                "<attempt_completion><result>done</result></attempt_completion>",
            ));
            let usage = TokenUsage { tokens_in: 100, tokens_out: 10, ..TokenUsage::default() };
            let (calls, own) = (Vec::new(), Vec::new());
            Ok(StreamEnd {
                stop: StopReason::Normal,
                usage,
                calls,
                own,
                route: self.route(),
                settings: None,
                model: None,
            })
        })
    }

    fn route(&self) -> ModelRoute {
        ModelRoute { provider: "fake".to_owned(), model: "gpt-4o".to_owned() }
    }
}

/// F14: streams that broke off are charged, whether the model answers in the end or fails.
#[test]
fn an_answer_that_broke_off_is_paid_for() {
    let prompt = first_size(ActionTransport::Xml);
    for breaks in [0, 1, 3] {
        let mut options = researcher(ActionTransport::Xml);
        options.terms = terms(1_000_000);
        let model = Arc::new(Faltering { breaks, answers: true });
        let mut stage = Stage::with(options.clone(), model);
        stage.ask();
        let turn = &stage.turns[0];
        let lost = (440_u64 * u64::from(breaks)).div_ceil(4);
        assert_eq!(turn.tokens_in, 100 + prompt * u64::from(breaks), "{breaks}");
        assert_eq!(turn.tokens_out, 10 + lost, "{breaks}");
        assert_eq!(turn.note.contains("estimated=\"true\""), breaks > 0, "{}", turn.note);

        let (story, call) = question_thread();
        let model = Arc::new(Faltering { breaks, answers: false });
        let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
        let failed = take(&agent, &delivery(&story, call)).unwrap_err();
        let AttemptFailure::Model { spent, passing: true, .. } = failed else {
            panic!("{failed:?}")
        };
        let tries = u64::from(breaks) + 1;
        let heard = (440 * u64::from(breaks) + 10).div_ceil(4);
        assert!(spent.tokens >= tries * prompt / 2 + heard, "{breaks}: {spent:?}");
    }
}

/// F14: a task that exceeds the window fails before any model request.
#[test]
fn a_task_that_does_not_fit_is_never_sent() {
    for transport in ALL {
        let (mut stage, model) = staged(transport, 700, vec![]);
        stage.ask();
        assert!(model.requests().is_empty());
        let [(how, told)] = stage.results.as_slice() else { panic!("{:?}", stage.results) };
        assert_eq!(format!("{how:?}"), "Failed");
        assert!(told[0].contains("too-large"), "{told:?}");
        assert!(told[0].contains("window of 700"), "{told:?}");
    }
}

/// F14: prompt, notice and definitions count as schema tokens; the thread counts as payload tokens.
#[test]
fn the_prompt_counts_as_schema_and_the_thread_as_payload() {
    for transport in ALL {
        let (stage, model) = staged(transport, 1_000_000, vec![looks(), Says::Ends("done")]);
        let mut stage =
            stage.answering(finds("found", vec![("extract", "lorem ipsum ".repeat(100))]));
        stage.ask();
        let heard = model.requests();
        let notice = |request: &ModelRequest| {
            let text = request.messages.last().unwrap().texts().last().unwrap().to_owned();
            assert!(text.starts_with("<notice>"), "{text}");
            text
        };
        let [before, after] = [&heard[0], &heard[1]]
            .map(|request| TokenizerFamily::O200k.size_with(request, Some(&notice(request))));
        let bare = TokenizerFamily::O200k.size(&heard[0]);
        assert!(before.schema > bare.schema && before.total() == bare.total(), "{before:?}");
        let framing = 2 * organism::limits::FRAMING_TOKENS;
        // The nonce differs by a token more or less.
        let grown = after.schema.abs_diff(before.schema + framing);
        assert!(grown < 10, "{transport:?}: {before:?} {after:?}");
        assert!(after.payload > before.payload + 200, "{transport:?}: {before:?} {after:?}");
    }
}

/// The first request of a thread exceeds the window and ends without a turn. The prompt of the next
/// request leaves out this first request, so that the next request gets its turn.
#[test]
fn a_request_that_ended_without_a_turn_is_left_out_where_it_does_not_fit() {
    for transport in ALL {
        let window = first_size(transport) + 1_500;
        let (mut stage, model) = staged(transport, window, vec![Says::Ends("done")]);
        stage.ask_about(&"lorem ipsum ".repeat(5_000));
        assert_eq!(model.requests().len(), 0, "{transport:?}: it was too large");
        stage.ask_again();
        let requests = model.requests();
        let text = said(&requests[0]);
        assert!(!text.contains("lorem ipsum") && text.contains("where?"), "{transport:?}: {text}");
        assert_eq!(text.matches("[left out: ").count(), 1, "{transport:?}: {text}");
        assert!(stage.results[1].1[0].contains("done"), "{transport:?}: {:?}", stage.results);
    }
}
