//! Requirements for every provider, in every wire format.

use std::time::{Duration, Instant};

use organism::limits;
use organism::model::{AnswerChunk, CallPhase, Error, ModelProvider, StopReason};

use super::server::{
    KEY, STREAM_HEAD, Script, Server, Then, answered, ask, call, http_chunk, options, remote,
};
use super::wires::{ANTHROPIC, OPENAI, Scene, Stop, TOKENS_IN, TOKENS_OUT, Usage, Wire};
use crate::organism::kill::torture;

macro_rules! provider_suite {
    ($($claim:ident)*) => {
        mod openai {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(&super::OPENAI).await;
            })*
        }
        mod anthropic {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(&super::ANTHROPIC).await;
            })*
        }
    };
}

provider_suite! {
    an_answer_arrives_unchanged
    parallel_calls_are_put_together
    reasoning_is_separated_from_the_answer
    bytes_may_be_cut_anywhere
    a_character_may_be_cut_between_its_surrogates
    a_surrogate_without_its_other_half_is_replaced
    line_ends_comments_pings_and_unknown_events_change_nothing
    stop_reasons_are_distinguished
    a_call_that_was_cut_short_is_not_handed_out
    a_call_that_was_cut_before_its_arguments_is_not_handed_out
    a_call_without_a_name_is_returned_for_feedback
    a_status_says_what_is_wrong
    retry_after_is_seconds_or_a_date
    an_html_page_is_no_answer
    an_empty_answer_is_an_error
    an_event_that_is_no_json_is_an_error
    a_whole_answer_is_known_by_its_beginning
    a_stream_is_read_whatever_its_content_type
    a_text_that_is_neither_an_answer_nor_an_error_is_not_retried
    an_error_in_the_middle_is_an_error
    an_error_within_status_200_counts_as_the_error_with_its_own_status
    a_compressed_answer_is_an_error_for_another_route
    a_stream_without_its_terminator_is_cut
    a_reset_at_any_byte_is_an_error_or_after_the_terminator
    a_stall_ends_the_call
    an_endless_answer_is_too_long
    an_answer_may_be_one_long_event
    an_event_with_too_much_text_is_charged_for_its_text
    a_hundred_thousand_tiny_deltas_are_read_in_bounded_time
    usage_that_is_missing_or_absurd_is_estimated
    a_key_that_is_echoed_is_hidden
    a_dropped_call_closes_its_socket
}

fn hello() -> Scene {
    Scene { text: vec!["Hel", "lo, ", "grü", "ße 🦀", "!"], ..Scene::default() }
}

const HELLO: &str = "Hello, grüße 🦀!";

fn script(wire: &Wire, scene: &Scene) -> Script {
    Script::stream(&(wire.events)(scene))
}

async fn an_answer_arrives_unchanged(wire: &Wire) {
    let (end, heard) = answered(wire.preset, script(wire, &hello())).await;
    let end = end.unwrap();
    assert_eq!(heard.text, HELLO);
    assert_eq!(heard.reasoning, "");
    assert_eq!(heard.chunks, 5, "it streams");
    assert_eq!(end.stop, StopReason::Normal);
    assert_eq!((end.usage.tokens_in, end.usage.tokens_out), (TOKENS_IN, TOKENS_OUT));
    assert_eq!((end.usage.cached, end.usage.estimated), (16, false));
    assert_eq!(end.route.to_string(), format!("{}/m-1", wire.preset));
    assert!(end.calls.is_empty() && end.own.is_empty());
}

fn calling(stop: Stop) -> Scene {
    Scene {
        text: vec!["I look."],
        calls: vec![
            ("call_1", "search", vec!["{\"query\":", "\"a \\\"b\\\" ü\"", "}"]),
            ("call_2", "clock", vec![]),
            ("call_3", "search", vec!["{\"query\":\"c", "d\"}"]),
        ],
        stop,
        ..Scene::default()
    }
}

async fn parallel_calls_are_put_together(wire: &Wire) {
    let (end, heard) = answered(wire.preset, script(wire, &calling(Stop::Calls))).await;
    let end = end.unwrap();
    assert_eq!(heard.text, "I look.");
    assert_eq!(end.stop, StopReason::Calls);
    let calls: Vec<_> =
        end.calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect();
    // Missing arguments stay missing; this format itself writes `{}`.
    let nothing = if wire.preset == "anthropic" { "{}" } else { "" };
    let expected = [
        ("call_1", "search", "{\"query\":\"a \\\"b\\\" ü\"}"),
        ("call_2", "clock", nothing),
        ("call_3", "search", "{\"query\":\"cd\"}"),
    ];
    assert_eq!(calls, expected);
}

async fn reasoning_is_separated_from_the_answer(wire: &Wire) {
    let scene = Scene { reasoning: vec!["Let me ", "think: ü."], ..hello() };
    let (end, heard) = answered(wire.preset, script(wire, &scene)).await;
    assert_eq!((heard.reasoning.as_str(), heard.text.as_str()), ("Let me think: ü.", HELLO));
    assert_eq!(end.unwrap().stop, StopReason::Normal);
}

async fn bytes_may_be_cut_anywhere(wire: &Wire) {
    let scene = Scene { reasoning: vec!["Hmm."], ..calling(Stop::Calls) };
    let body = (wire.events)(&scene).concat();
    let (whole, heard) = answered(wire.preset, Script::stream(&[&body])).await;
    for size in [1, 2, 3, 7, 61, 1000] {
        let pieces: Vec<_> = body.as_bytes().chunks(size).collect();
        let (end, again) = answered(wire.preset, Script::stream(&pieces)).await;
        assert_eq!(end, whole, "in pieces of {size}");
        assert_eq!((again.text, again.reasoning), (heard.text.clone(), heard.reasoning.clone()));
    }
}

/// Writes the events of a scene, with a leading surrogate for each `HIGH` and a trailing one for
/// each `LOW`.
fn with_surrogates(wire: &Wire, scene: &Scene) -> Script {
    let written = |event: String| event.replace("HIGH", "\\ud83e").replace("LOW", "\\udd80");
    let events: Vec<_> = (wire.events)(scene).into_iter().map(written).collect();
    Script::stream(&events)
}

/// Some gateways cut texts by UTF-16 units.
async fn a_character_may_be_cut_between_its_surrogates(wire: &Wire) {
    let scene = Scene {
        reasoning: vec!["Hm HIGH", "LOW."],
        text: vec!["A HIGH", "", "LOWHIGH", "LOW crab"],
        calls: vec![
            ("call_1", "search", vec!["{\"query\":\"HIGH", "LOW\"}"]),
            ("call_2", "search", vec!["{\"query\":\"HIGH", "LOW\"}"]),
        ],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let (end, heard) = answered(wire.preset, with_surrogates(wire, &scene)).await;
    let end = end.unwrap();
    assert_eq!((heard.reasoning.as_str(), heard.text.as_str()), ("Hm 🦀.", "A 🦀🦀 crab"));
    assert_eq!(end.calls.len(), 2);
    assert!(end.calls.iter().all(|call| call.arguments == "{\"query\":\"🦀\"}"), "{end:?}");
    assert!(end.own.iter().all(|block| block.json.contains("Hm 🦀.")), "{end:?}");
}

async fn a_surrogate_without_its_other_half_is_replaced(wire: &Wire) {
    let scene = Scene {
        reasoning: vec!["Hm HIGH"],
        text: vec!["LOW a HIGH", "b HIGH"],
        calls: vec![("call_1", "search", vec!["{\"query\":\"HIGH", "x\"}"])],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let (end, heard) = answered(wire.preset, with_surrogates(wire, &scene)).await;
    let end = end.unwrap();
    assert_eq!(heard.reasoning, "Hm \u{fffd}");
    assert_eq!(heard.text, "\u{fffd} a \u{fffd}b \u{fffd}");
    assert_eq!(end.calls[0].arguments, "{\"query\":\"\u{fffd}x\"}");
    assert!(end.own.iter().all(|block| block.json.contains("Hm \u{fffd}")), "{end:?}");
}

async fn line_ends_comments_pings_and_unknown_events_change_nothing(wire: &Wire) {
    let events = (wire.events)(&hello());
    let (whole, heard) = answered(wire.preset, Script::stream(&events)).await;
    let between = |extra: &str| events.iter().flat_map(|e| [extra.to_owned(), e.clone()]).collect();
    let variants: [(&str, Vec<String>); 7] = [
        ("CRLF", events.iter().map(|e| e.replace('\n', "\r\n")).collect()),
        ("CR", events.iter().map(|e| e.replace('\n', "\r")).collect()),
        ("a byte order mark", std::iter::once("\u{feff}".into()).chain(events.clone()).collect()),
        ("comments", between(": keep-alive\n")),
        ("pings", between(wire.ping)),
        ("unknown events", between(wire.unknown)),
        ("retry and id", between("id: 1\nretry: 3000\n")),
    ];
    for (what, events) in variants {
        let (end, again) = answered(wire.preset, Script::stream(&events)).await;
        assert_eq!((end, again.text), (whole.clone(), heard.text.clone()), "{what}");
    }
}

async fn stop_reasons_are_distinguished(wire: &Wire) {
    let word = |word| Stop::Word(word);
    let mut cases = vec![
        (Stop::Normal, StopReason::Normal),
        (Stop::Length, StopReason::Length),
        (Stop::Refused, StopReason::Refused),
        (word("something_new"), StopReason::Unknown),
    ];
    match wire.preset {
        "anthropic" => cases.extend([
            (word("stop_sequence"), StopReason::Normal),
            (word("model_context_window_exceeded"), StopReason::Length),
            (word("pause_turn"), StopReason::Unknown),
        ]),
        _ => cases.extend([
            (word("function_call"), StopReason::Calls),
            (word("tool_call"), StopReason::Calls),
            (word("tool_use"), StopReason::Calls),
            (word("eos_token"), StopReason::Normal),
            (word("model_length"), StopReason::Length),
            (word("MAX_TOKENS"), StopReason::Length),
            (word("content_filter: RECITATION"), StopReason::Refused),
            (word("SAFETY"), StopReason::Refused),
            (word("function_call_filter: MALFORMED_FUNCTION_CALL"), StopReason::Unknown),
        ]),
    }
    for (said, stop) in cases {
        let (end, heard) =
            answered(wire.preset, script(wire, &Scene { stop: said, ..hello() })).await;
        assert_eq!((end.unwrap().stop, heard.text.as_str()), (stop, HELLO), "{said:?}");
    }
}

async fn a_call_that_was_cut_short_is_not_handed_out(wire: &Wire) {
    let mut events = (wire.events)(&calling(Stop::Length));
    // The last piece of the last call.
    events.retain(|event| !event.contains("d\\\"}\""));
    let (end, _) = answered(wire.preset, Script::stream(&events)).await;
    let end = end.unwrap();
    assert_eq!(end.stop, StopReason::Length);
    let ids: Vec<_> = end.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_1", "call_2"]);
}

/// If an answer was cut, a call without arguments is not handed out, because a provider may end the
/// block of a call before its arguments begin. An unknown reason for the end may mean such a cut.
async fn a_call_that_was_cut_before_its_arguments_is_not_handed_out(wire: &Wire) {
    let unknown = Stop::Word("something_new");
    for (stop, kept) in [(Stop::Length, 2), (Stop::Refused, 2), (unknown, 2), (Stop::Calls, 3)] {
        let mut scene = calling(stop);
        scene.calls.swap(1, 2);
        let (end, _) = answered(wire.preset, script(wire, &scene)).await;
        let ids: Vec<_> = end.unwrap().calls.into_iter().map(|call| call.id).collect();
        assert_eq!(ids, ["call_1", "call_3", "call_2"][..kept], "{stop:?}");
    }
}

async fn a_call_without_a_name_is_returned_for_feedback(wire: &Wire) {
    let calls = vec![("call_1", "", vec!["{\"query\":\"a\"}"]), ("call_2", "search", vec!["{}"])];
    let scene = Scene { calls, stop: Stop::Calls, ..Scene::default() };
    let (end, _) = answered(wire.preset, script(wire, &scene)).await;
    let names: Vec<_> = end.unwrap().calls.into_iter().map(|call| call.name).collect();
    assert_eq!(names, ["", "search"]);
}

/// The kind of an error, whether the call is retried, and whether another route may succeed.
fn verdict(error: &Error) -> (&'static str, bool, bool) {
    let kind = match error {
        Error::Denied { .. } => "denied",
        Error::NoCredit { .. } => "no credit",
        Error::UnknownModel { .. } => "unknown model",
        Error::Rejected { .. } => "rejected",
        Error::RateLimited { .. } => "rate limited",
        Error::Overloaded { .. } => "overloaded",
        Error::Status { .. } => "status",
        Error::Html { .. } => "html",
        Error::Empty { .. } => "empty",
        Error::InvalidEvent { .. } => "invalid event",
        Error::NotStreamed { .. } => "not streamed",
        Error::Stream { .. } => "stream",
        Error::UnparsedAnswer { .. } => "unparsed answer",
        Error::Cut { .. } => "cut",
        Error::NoResponse { .. } => "no response",
        Error::TooLong { .. } => "too long",
        Error::Redirected { .. } => "redirected",
        Error::Timeout { .. } => "timeout",
        _ => "other",
    };
    (kind, error.is_retried(), error.is_for_another_route())
}

async fn a_status_says_what_is_wrong(wire: &Wire) {
    let cases = [
        ("400 Bad Request", "invalid_request_error", ("rejected", false, true)),
        ("401 Unauthorized", "authentication_error", ("denied", false, true)),
        ("402 Payment Required", "billing_error", ("no credit", false, true)),
        ("403 Forbidden", "permission_error", ("denied", false, true)),
        ("404 Not Found", "not_found_error", ("unknown model", false, true)),
        ("405 Method Not Allowed", "method", ("unknown model", false, true)),
        ("408 Request Timeout", "timeout", ("status", true, true)),
        ("413 Too Large", "request_too_large", ("rejected", false, true)),
        ("418 Teapot", "teapot", ("status", false, true)),
        ("422 Unprocessable", "invalid", ("rejected", false, true)),
        ("429 Too Many Requests", "rate_limit_error", ("rate limited", true, true)),
        ("429 Too Many Requests", "insufficient_quota", ("no credit", false, true)),
        ("429 Too Many Requests", "billing_not_active", ("no credit", false, true)),
        // The provider could not parse the model's answer.
        ("400 Bad Request", "tool_use_failed", ("unparsed answer", true, true)),
        ("422 Unprocessable", "json_validate_failed", ("unparsed answer", true, true)),
        ("500 Internal Server Error", "api_error", ("status", true, true)),
        ("502 Bad Gateway", "api_error", ("status", true, true)),
        ("503 Service Unavailable", "overloaded", ("overloaded", true, true)),
        ("529 Overloaded", "overloaded_error", ("overloaded", true, true)),
    ];
    for (status, kind, expected) in cases {
        let long = format!("the server's own words {}", "and more ".repeat(200));
        let body = (wire.complaint)(kind, &long);
        let script = Script::whole(status, "Content-Type: application/json\r\n", &body);
        let error = answered(wire.preset, script).await.0.unwrap_err();
        assert_eq!(verdict(&error), expected, "{status} {kind}: {error}");
        let text = error.to_string();
        assert!(text.contains("the server's own words"), "{text}");
        assert!(text.contains(wire.preset), "{text}");
        assert!(text.chars().count() < limits::ERROR_MESSAGE_CHARS_MAX + 300, "{text}");
        if matches!(error, Error::UnknownModel { .. }) {
            let (_, address) = text.split_once("POST http://127.0.0.1:").unwrap();
            let asked =
                if wire.preset == "anthropic" { "/v1/messages" } else { "/v1/chat/completions" };
            assert!(address.contains(&format!("{asked} answered HTTP 40")), "{text}");
        }
        if matches!(error, Error::Denied { .. } | Error::NoCredit { .. }) {
            assert!(text.contains("the variable TEST_API_KEY"), "{text}");
        }
        let is_feedback = ["rejected", "unparsed answer"].contains(&expected.0);
        assert_eq!(error.feedback().is_some(), is_feedback, "{text}"); // F6
    }
    // The message alone states that the account has no credit, or that the key is wrong.
    let no_credit = ("no credit", false, true);
    let denied = ("denied", false, true);
    let spent = "Your team has either used all available credits or reached its monthly limit.";
    for (status, text, expected) in [
        ("400 Bad", "Your credit balance is too low to access the API.", no_credit),
        ("429 Too Many", spent, no_credit),
        ("400 Bad", "Incorrect API key provided: xa***RM.", denied),
        ("400 Bad", "API key not valid. Please pass a valid API key.", denied),
        ("400 Bad", "messages.0: \"Incorrect API key\" is no role", ("rejected", false, true)),
    ] {
        let body = (wire.complaint)("invalid_request_error", text);
        let error = answered(wire.preset, Script::whole(status, "", &body)).await.0.unwrap_err();
        assert_eq!(verdict(&error), expected, "{error}");
    }

    // In every form that servers use.
    for (body, words) in [
        ("{\"error\":\"plain words\"}", "plain words"),
        ("{\"detail\":\"Not Found\"}", "Not Found"),
        ("{\"detail\":[{\"msg\":\"field required\"}]}", "field required"),
        ("{\"object\":\"error\",\"message\":\"bare words\",\"code\":400}", "bare words"),
        ("[{\"error\":{\"message\":\"in a list\"}}]", "in a list"),
        ("no JSON at all\r\n\u{7}", "no JSON at all"),
        ("", "HTTP 400"),
        ("{\"error\":null}", "HTTP 400"),
        // OpenRouter quotes the response of the provider to which it forwarded the request.
        (
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":
            "{\"error\":{\"message\":\"no such tool\"}}","provider_name":"Anthropic"}}}"#,
            "400): Provider returned error (Anthropic: no such tool)",
        ),
        (
            r#"{"error":{"message":"Provider returned error","metadata":{"raw":{"a":1}}}}"#,
            "400): Provider returned error ({\"a\":1})",
        ),
        (r#"{"error":{"message":"bad","metadata":{"raw":"","provider_name":"x"}}}"#, "400): bad"),
        // Errors may nest to any depth. Only the first quoted one is read.
        (
            r#"{"error":{"message":"A","metadata":{"raw":{"error":{"message":"B","metadata":{"raw":
            {"error":{"message":"C"}}}}}}}}"#,
            "400): A (B)",
        ),
        (
            r#"{"error":{"message":"See it.","code":"tool_use_failed","failed_generation":"<f"}}"#,
            "could not parse the model's answer: See it.",
        ),
    ] {
        let error = answered(wire.preset, Script::whole("400 Bad", "", body)).await.0.unwrap_err();
        assert!(error.to_string().contains(words), "{body}: {error}");
    }
}

async fn retry_after_is_seconds_or_a_date(wire: &Wire) {
    let dated =
        "Date: Wed, 21 Oct 2026 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2026 07:28:30 GMT\r\n";
    let past =
        "Date: Wed, 21 Oct 2026 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2015 07:28:30 GMT\r\n";
    let cases = [
        ("", None),
        ("Retry-After: 7\r\n", Some(Duration::from_secs(7))),
        ("Retry-After: 1.5\r\n", Some(Duration::from_millis(1500))),
        ("Retry-After: -3\r\n", None),
        ("Retry-After: soon\r\n", None),
        ("Retry-After: NaN\r\n", None),
        ("Retry-After: 99999999999999999999999\r\n", Some(limits::MODEL_PAUSE_MAX)),
        ("Retry-After: 1e300\r\n", Some(limits::MODEL_PAUSE_MAX)),
        ("Retry-After-Ms: 250\r\nRetry-After: 9\r\n", Some(Duration::from_millis(250))),
        (dated, Some(Duration::from_secs(30))),
        (past, Some(Duration::ZERO)),
    ];
    for status in ["429 Too Many Requests", "503 Unavailable", "529 Overloaded"] {
        for (headers, expected) in cases {
            let script = Script::whole(status, headers, "{}");
            let error = answered(wire.preset, script).await.0.unwrap_err();
            assert_eq!(error.retry_after(), expected, "{status} {headers}");
            assert!(!error.to_string().contains("wait 0ns"), "{error}");
            assert!(error.is_overload());
        }
    }

    // Gemini states the delay in the error.
    let document = |delay: &str| {
        let details = format!(
            r#"[{{"@type":"type.googleapis.com/google.rpc.Help"}},{{"retryDelay":{delay}}}]"#
        );
        let error = format!(r#"{{"code":429,"message":"Wait.","details":{details}}}"#);
        format!(r#"{{"type":"error","error":{error}}}"#)
    };
    for (delay, headers, expected) in [
        ("\"4s\"", "", Some(Duration::from_secs(4))),
        ("\"45.837906927s\"", "", Some(Duration::new(45, 837_906_927))),
        ("\"4s\"", "Retry-After: 7\r\n", Some(Duration::from_secs(7))),
        ("\"4s\"", "Retry-After: soon\r\n", Some(Duration::from_secs(4))),
        ("\"-4s\"", "", None),
        ("\"4\"", "", None),
        ("4", "", None),
    ] {
        let document = document(delay);
        let status = "429 Too Many Requests";
        let whole = Script::whole(status, headers, &format!("[{document}]"));
        let error = answered(wire.preset, whole).await.0.unwrap_err();
        assert_eq!(error.retry_after(), expected, "{delay} {headers}: {error}");
    }
    let event = Script::stream(&[format!("event: error\ndata: {}\n\n", document("\"4s\""))]);
    let error = answered(wire.preset, event).await.0.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(4)), "{error}");
}

async fn an_html_page_is_no_answer(wire: &Wire) {
    let page = "<!DOCTYPE html><html><head><title>Sign in to the\nnetwork</title></head></html>";
    let cases = [
        ("200 OK", "Content-Type: text/html\r\n", ("html", false, true)),
        ("200 OK", "", ("html", false, true)),
        ("200 OK", "Content-Type: text/event-stream\r\n", ("html", false, true)),
        ("401 Unauthorized", "Content-Type: text/html\r\n", ("denied", false, true)),
        ("403 Forbidden", "Content-Type: text/html\r\n", ("html", false, true)),
        ("413 Too Large", "Content-Type: text/html\r\n", ("rejected", false, true)),
        ("404 Not Found", "", ("html", false, true)),
        ("502 Bad Gateway", "Content-Type: text/html\r\n", ("html", true, true)),
        ("503 Unavailable", "Content-Type: text/html\r\n", ("overloaded", true, true)),
    ];
    for (status, headers, expected) in cases {
        let error =
            answered(wire.preset, Script::whole(status, headers, page)).await.0.unwrap_err();
        assert_eq!(verdict(&error), expected, "{status} {headers}: {error}");
        assert!(error.to_string().contains("Sign in to the network"), "{error}");
        assert_eq!(error.feedback().is_some(), expected.0 == "rejected", "{error}");
        // A passing fault of a gateway is no reason to change the address.
        let is_advised = expected == ("html", false, true);
        assert_eq!(error.to_string().contains("`base_url`"), is_advised, "{error}");
    }
}

async fn an_empty_answer_is_an_error(wire: &Wire) {
    for headers in ["", "Content-Type: text/event-stream\r\n", "Content-Type: application/json\r\n"]
    {
        let error =
            answered(wire.preset, Script::whole("200 OK", headers, "")).await.0.unwrap_err();
        assert_eq!(verdict(&error), ("empty", true, true), "{headers}: {error}");
    }
    // White space keeps a connection alive, but not forever.
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_vec();
    let endless = Script::new(vec![head, vec![b'\n'; 4 << 10]], Then::Repeat);
    let error = answered(wire.preset, endless).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("empty", true, true), "{error}");

    let nothing = Script::new(vec![Vec::new()], Then::Close);
    let error = answered(wire.preset, nothing).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("no response", true, true), "{error}");
    assert!(error.is_unanswered(), "the server has read the whole request: {error}");
}

async fn an_event_that_is_no_json_is_an_error(wire: &Wire) {
    for bad in ["data: {\"choices\":[{\n\n", "data: hello\n\n", "data: [1,2]\n\n", "data: 7\n\n"] {
        let mut events = (wire.events)(&hello());
        events.insert(3, bad.to_owned());
        let (end, heard) = answered(wire.preset, Script::stream(&events)).await;
        let error = end.unwrap_err();
        assert_eq!(verdict(&error), ("invalid event", true, true), "{bad:?}: {error}");
        assert!(HELLO.starts_with(&heard.text), "what came before it was handed out");
    }
    let mut events: Vec<Vec<u8>> =
        (wire.events)(&hello()).into_iter().map(String::into_bytes).collect();
    events.insert(3, b"data: {\"object\":\"\xff\xfe\",\"type\":\"\xff\"}\n\n".to_vec());
    let error = answered(wire.preset, Script::stream(&events)).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("invalid event", true, true), "no UTF-8: {error}");
    let whole = Script::whole("200 OK", "Content-Type: application/json\r\n", "{\"id\":\"x\"}");
    let error = answered(wire.preset, whole).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("not streamed", false, true), "no stream: {error}");

    let openai =
        r#"{"object":"chat.completion","error":null,"choices":[{"message":{"content":"hi"}}]}"#;
    let anthropic =
        r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}]}"#;
    for answer in [openai, anthropic] {
        for kind in ["application/json", "text/event-stream"] {
            let headers = format!("Content-Type: {kind}\r\n");
            let whole = Script::whole("200 OK", &headers, answer);
            let error = answered(wire.preset, whole).await.0.unwrap_err();
            assert_eq!(verdict(&error), ("not streamed", false, true), "{kind}: {error}");
            let cause = "a server or gateway ignores `stream: true`";
            assert!(error.to_string().contains(cause), "{kind}: {error}");
        }
    }
}

/// A whole answer was paid for, however long it is and wherever it is cut, so its request is
/// charged.
async fn a_whole_answer_is_known_by_its_beginning(wire: &Wire) {
    let text = "word ".repeat(4 << 10);
    let answers = [
        format!(r#"{{"id":"x","error":null,"choices":[{{"message":{{"content":"{text}"}}}}]}}"#),
        format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"id":"x"}}"#),
        format!(r#"{{"type":"message","content":[{{"type":"text","text":"{text}"}}]}}"#),
        format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"type":"message"}}"#),
    ];
    for answer in &answers {
        for headers in
            ["Content-Type: application/json\r\n", "Content-Type: text/event-stream\r\n", ""]
        {
            let whole = Script::whole("200 OK", headers, answer);
            let error = answered(wire.preset, whole).await.0.unwrap_err();
            assert_eq!(verdict(&error), ("not streamed", false, true), "{headers}: {error}");
            assert!(error.has_stream(), "{headers}: {error}");
            assert!(error.to_string().contains("ignores `stream: true`"), "{headers}: {error}");
        }

        let error = answered(wire.preset, broken(answer, 100)).await.0.unwrap_err();
        assert_eq!(verdict(&error), ("not streamed", false, true), "{error}");
        assert!(error.has_stream(), "{error}");
    }

    // These keys come after the part that is read.
    let late = format!(r#"{{"id":"{text}","error":null,"choices":[]}}"#);
    let late = Script::whole("200 OK", "Content-Type: application/json\r\n", &late);
    let error = answered(wire.preset, late).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("not streamed", false, true), "{error}");
    assert!(error.has_stream(), "{error}");

    // Nothing has shown yet what the document is.
    let error = answered(wire.preset, broken(&answers[0], 8)).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("cut", true, true), "{error}");
    assert!(error.has_stream(), "{error}");

    let error = r#"{"message":"it broke","type":"invalid_request_error"}"#;
    let document = format!(r#"{{"error":{error},"x":"{text}"}}"#);
    let rejected = ("rejected", false, true);
    let cases = [
        (Script::whole("200 OK", "Content-Type: application/json\r\n", &document), rejected),
        (broken(&document, 80), rejected),
        (broken(&document, 40), ("stream", true, true)),
        // The whole document arrived.
        (broken(error, error.len()), rejected),
    ];
    for (script, expected) in cases {
        let error = answered(wire.preset, script).await.0.unwrap_err();
        assert_eq!(verdict(&error), expected, "{error}");
        assert!(error.to_string().contains("it broke"), "{error}");
        assert!(!error.has_stream(), "{error}");
    }
}

/// Some gateways label a stream as JSON. Before it, they may send white space to keep the
/// connection alive.
async fn a_stream_is_read_whatever_its_content_type(wire: &Wire) {
    let body = (wire.events)(&hello()).concat();
    for before in ["", ": ping\n\n", "\u{feff}", "\r\n"] {
        for kind in ["application/json", "application/x-ndjson", "text/html"] {
            let headers = format!("Content-Type: {kind}\r\n");
            let script = Script::whole("200 OK", &headers, &format!("{before}{body}"));
            let (end, received) = answered(wire.preset, script).await;
            let stop = end.unwrap().stop;
            assert_eq!((stop, received.text.as_str()), (StopReason::Normal, HELLO), "{kind}");
        }
    }

    // The read buffer holds no more than the HTTP chunks of white space.
    let mut pieces = vec!["\n".to_owned(); limits::HTTP_READ_BYTES / 4];
    pieces.extend((wire.events)(&hello()));
    let stream = String::from_utf8(Script::stream(&pieces).bytes()).unwrap();
    let labelled = stream.replacen("text/event-stream", "application/json", 1);
    let script = Script::new(vec![labelled.into_bytes()], Then::Close);
    let (end, received) = answered(wire.preset, script).await;
    assert_eq!((end.unwrap().stop, received.text.as_str()), (StopReason::Normal, HELLO));
}

async fn a_text_that_is_neither_an_answer_nor_an_error_is_not_retried(wire: &Wire) {
    let lines = r#"{"message":{"role":"assistant","content":"hi"},"done":false}"#;
    for (headers, body) in [
        ("Content-Type: application/json\r\n", "{\"status\":\"ok\"}".to_owned()),
        ("Content-Type: application/json\r\n", "{\"errors\":[],\"code\":0}".to_owned()),
        ("Content-Type: application/x-ndjson\r\n", format!("{lines}\n{lines}\n")),
        ("Content-Type: text/plain\r\n", "Ollama is running".to_owned()),
    ] {
        let script = Script::whole("200 OK", headers, &body);
        let error = answered(wire.preset, script).await.0.unwrap_err();
        assert_eq!(verdict(&error), ("not streamed", false, true), "{body}: {error}");
        assert!(error.has_stream(), "it is charged: {error}");
        let first = body.lines().next().unwrap();
        assert!(error.to_string().contains(first), "{error}");
        assert!(error.to_string().contains("see that `base_url` is the API's address"), "{error}");
    }
}

/// A response with a JSON document, whose connection breaks after this number of bytes, before the
/// announced end of the body.
fn broken(document: &str, bytes: usize) -> Script {
    let announced = format!("{document} ");
    let mut script = Script::whole("200 OK", "Content-Type: application/json\r\n", &announced);
    script.pieces[1].truncate(bytes);
    script
}

async fn an_error_in_the_middle_is_an_error(wire: &Wire) {
    for (kind, expected) in [
        ("overloaded_error", ("overloaded", true, true)),
        ("rate_limit_error", ("rate limited", true, true)),
        ("api_error", ("stream", true, true)),
        ("server_error", ("stream", true, true)),
        ("invalid_request_error", ("rejected", false, true)),
        ("authentication_error", ("denied", false, true)),
    ] {
        let mut events = (wire.events)(&hello());
        events.insert(4, (wire.error)(kind, "it broke"));
        let (end, heard) = answered(wire.preset, Script::stream(&events)).await;
        let error = end.unwrap_err();
        assert_eq!(verdict(&error), expected, "{kind}: {error}");
        assert!(error.to_string().contains("it broke"), "{error}");
        assert!(!heard.text.is_empty() && heard.text != HELLO);
        assert!(heard.has_begun, "{kind}");
    }

    let first = (wire.error)("api_error", "it broke");
    let (_, heard) = answered(wire.preset, Script::stream(&[first])).await;
    assert!(!heard.has_begun);

    let credit = (wire.error)("invalid_request_error", "Your credit balance is too low");
    let error = answered(wire.preset, Script::stream(&[credit])).await.0.unwrap_err();
    assert_eq!(verdict(&error), ("no credit", false, true), "{error}");

    // The blank line after the last event is missing.
    let last = (wire.error)("invalid_request_error", "it broke");
    let events = [&(wire.events)(&hello())[..4], &[last.trim_end().to_owned()]].concat();
    let whole = Script::stream(&events);
    // The connection ends without the last HTTP chunk.
    let mut broken = whole.clone();
    broken.pieces.pop();
    for script in [whole, broken] {
        let error = answered(wire.preset, script).await.0.unwrap_err();
        assert_eq!(verdict(&error), ("rejected", false, true), "{error}");
        assert!(error.to_string().contains("it broke"), "{error}");
    }
}

async fn an_error_within_status_200_counts_as_the_error_with_its_own_status(wire: &Wire) {
    let cases = [
        (r#""code":400"#, ("rejected", false, true)),
        (r#""code":"401""#, ("denied", false, true)),
        (r#""code":402"#, ("no credit", false, true)),
        (r#""code":403"#, ("denied", false, true)),
        (r#""code":404"#, ("unknown model", false, true)),
        (r#""code":408"#, ("stream", true, true)),
        (r#""code":413,"type":"rate_limit_exceeded""#, ("rejected", false, true)),
        (r#""code":418"#, ("stream", false, true)),
        (r#""code":422"#, ("rejected", false, true)),
        (r#""code":429"#, ("rate limited", true, true)),
        (r#""code":429,"type":"insufficient_quota""#, ("no credit", false, true)),
        (r#""code":"tool_use_failed","status_code":400"#, ("unparsed answer", true, true)),
        (
            r#""type":"invalid_request_error","code":"tool_use_failed""#,
            ("unparsed answer", true, true),
        ),
        (r#""code":502"#, ("stream", true, true)),
        (r#""code":503"#, ("overloaded", true, true)),
        (r#""type":"invalid_request_error","code":"invalid_api_key""#, ("denied", false, true)),
        (
            r#""type":"invalid_request_error","code":"model_not_found""#,
            ("unknown model", false, true),
        ),
        (r#""type":"request_too_large""#, ("rejected", false, true)),
        (r#""status":"PERMISSION_DENIED""#, ("denied", false, true)),
        (r#""code":40003"#, ("stream", true, true)),
    ];
    for (kind, expected) in cases {
        let document =
            format!("{{\"type\":\"error\",\"error\":{{\"message\":\"it broke\",{kind}}}}}");
        let whole = Script::whole("200 OK", "Content-Type: application/json\r\n", &document);
        let event = Script::stream(&[format!("event: error\ndata: {document}\n\n")]);
        for script in [whole, event] {
            let (end, heard) = answered(wire.preset, script).await;
            let error = end.unwrap_err();
            assert_eq!(verdict(&error), expected, "{kind}: {error}");
            assert!(error.to_string().contains("it broke"), "{error}");
            let is_feedback = ["rejected", "unparsed answer"].contains(&expected.0);
            assert_eq!(error.feedback().is_some(), is_feedback, "{error}");
            if matches!(error, Error::Denied { .. } | Error::NoCredit { .. }) {
                assert!(error.to_string().contains("the variable TEST_API_KEY"), "{error}");
            }
            assert!(!heard.has_begun, "{kind}");
        }
    }

    for (document, words) in [
        (r#"{"errors":[{"message":"it broke"},{"message":"another"}]}"#, "it broke"),
        (r#"{"errors":[{"code":7003,"message":"it broke"}],"error":null}"#, "it broke"),
        (r#"{"error_code":336003,"error_msg":"it broke"}"#, "it broke"),
        (r#"{"status":"error"}"#, "reported an error: error"),
        (r#"{"status":"FAILED"}"#, "reported an error: FAILED"),
    ] {
        let whole = Script::whole("200 OK", "Content-Type: application/json\r\n", document);
        let error = answered(wire.preset, whole).await.0.unwrap_err();
        assert_eq!(verdict(&error), ("stream", true, true), "{document}: {error}");
        assert!(!error.has_stream(), "it is free: {error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

async fn a_compressed_answer_is_an_error_for_another_route(wire: &Wire) {
    let (stream, json) = ("text/event-stream", "application/json");
    for (status, kind, coding, expected) in [
        ("200 OK", stream, "gzip", ("status", false, true)),
        ("200 OK", json, "br", ("status", false, true)),
        ("401 Unauthorized", json, "gzip", ("denied", false, true)),
    ] {
        let headers = format!("Content-Type: {kind}\r\nContent-Encoding: {coding}\r\n");
        let script = Script::whole(status, &headers, "\u{1f}\u{8b}");
        let (end, heard) = answered(wire.preset, script).await;
        let error = end.unwrap_err();
        assert_eq!(verdict(&error), expected, "{status} {kind}: {error}");
        assert!(error.to_string().contains("is compressed ("), "{error}");
        assert!(error.to_string().contains(coding), "{error}");
        assert_eq!(heard.has_begun, kind == stream, "a stream that had begun is charged");
    }

    let body = (wire.events)(&hello()).concat();
    let headers = "Content-Type: text/event-stream\r\nContent-Encoding: identity\r\n";
    let (end, heard) = answered(wire.preset, Script::whole("200 OK", headers, &body)).await;
    assert_eq!((end.unwrap().stop, heard.text.as_str()), (StopReason::Normal, HELLO));
}

async fn a_stream_without_its_terminator_is_cut(wire: &Wire) {
    let mut events = (wire.events)(&hello());
    events.pop();
    let (end, heard) = answered(wire.preset, Script::stream(&events)).await;
    assert_eq!(heard.text, HELLO, "everything was said, but not that it was everything");
    assert_eq!(verdict(&end.unwrap_err()), ("cut", true, true));
    // Bytes after the terminator are ignored.
    let mut events = (wire.events)(&hello());
    events.push("data: garbage\n\n".to_owned());
    let (end, heard) = answered(wire.preset, Script::stream(&events)).await;
    assert_eq!((end.unwrap().stop, heard.text.as_str()), (StopReason::Normal, HELLO));
}

async fn a_reset_at_any_byte_is_an_error_or_after_the_terminator(wire: &Wire) {
    let scene = Scene { reasoning: vec!["Hmm."], ..hello() };
    let events = (wire.events)(&scene);
    let whole = Script::stream(&events);
    let bytes = whole.bytes();
    assert!(bytes.len() > 1500, "{} bytes", bytes.len());
    // Before the empty line that ends the terminator's event, and before the end of its HTTP chunk.
    let terminated = bytes.len() - b"0\r\n\r\n".len() - b"\r\n".len();
    let cuts: Vec<_> = (0..=bytes.len()).filter(|cut| is_tried(&bytes, *cut)).collect();
    let terminated_cuts = cuts.iter().filter(|cut| **cut >= terminated).count();
    assert_eq!(terminated_cuts, bytes.len() - terminated + 1);
    let reset = |cut: &usize| Script::new(vec![bytes[..*cut].to_vec()], Then::Reset);
    let server = Server::start(cuts.iter().map(reset).collect()).await;
    let model = remote(options(wire.preset, &server.url()));
    let (mut errors, mut successes) = (0, 0);
    for cut in cuts.iter().copied() {
        let (end, heard) = call(&model, &ask("Hello.")).await;
        match end {
            Ok(end) => {
                assert!(cut >= terminated, "a success after {cut} of {terminated} bytes");
                assert_eq!((heard.text.as_str(), end.stop), (HELLO, StopReason::Normal));
                successes += 1;
            }
            // A reset may overtake the bytes that were sent before it.
            Err(error) => {
                assert!(HELLO.starts_with(&heard.text), "{cut}: {heard:?}");
                let has_head = cut >= STREAM_HEAD.len();
                let is_expected = match verdict(&error) {
                    ("no response", true, true) => true,
                    verdict => has_head && verdict == ("cut", true, true),
                };
                assert!(is_expected, "{cut}: {error}");
                errors += 1;
            }
        }
    }
    let unterminated = cuts.len() - terminated_cuts;
    assert!(errors >= unterminated - 2, "{errors} errors and {successes} successes");
}

/// Whether a run cuts an answer after `cut` bytes. A long run cuts it after every byte. A short run does
/// so near its end, beside a line end and within a character; elsewhere, it cuts after every eighth byte.
fn is_tried(bytes: &[u8], cut: usize) -> bool {
    let is_seam = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0x80..);
    let beside = &bytes[cut.saturating_sub(1)..(cut + 1).min(bytes.len())];
    torture() || cut + 100 > bytes.len() || cut.is_multiple_of(8) || beside.iter().any(is_seam)
}

async fn a_stall_ends_the_call(wire: &Wire) {
    let events = (wire.events)(&hello());
    let short = Duration::from_millis(50);
    let pieces = Script::stream(&events[..3]).pieces;
    let begun = pieces[..pieces.len() - 1].to_vec();
    let cases = [
        (vec![], CallPhase::FirstByte),
        (vec![STREAM_HEAD.to_vec()], CallPhase::FirstByte),
        (begun, CallPhase::Stall),
    ];
    for (pieces, phase) in cases {
        let server = Server::answering(Script::new(pieces, Then::Hang)).await;
        let mut options = options(wire.preset, &server.url());
        match phase {
            CallPhase::FirstByte => options.timeouts.first_byte = short,
            _ => options.timeouts.stall = short,
        }
        let error = call(&remote(options), &ask("Hello.")).await.0.unwrap_err();
        let Error::Timeout { phase: found, after, .. } = &error else { panic!("{error}") };
        assert_eq!((*found, *after, error.is_retried()), (phase, short, true));
        assert!(error.to_string().contains(phase.key()), "{error}");
        server.ended(1).await;
    }
    // Pings prevent a stall, but not for an unlimited time.
    let pings = vec![STREAM_HEAD.to_vec(), http_chunk(wire.ping.as_bytes())];
    let server = Server::answering(Script::new(pings, Then::Repeat)).await;
    let mut options = options(wire.preset, &server.url());
    options.timeouts.total = Duration::from_millis(300);
    let error = call(&remote(options), &ask("Hello.")).await.0.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: CallPhase::Total, .. }), "{error}");
    server.ended(1).await;
}

async fn an_endless_answer_is_too_long(wire: &Wire) {
    let long: &'static str = Box::leak("word ".repeat(2_000).into_boxed_str());
    let events = (wire.events)(&Scene { text: vec![long], ..Scene::default() });
    let at = events.iter().position(|event| event.contains("word word")).unwrap();
    let mut pieces = vec![STREAM_HEAD.to_vec()];
    pieces.extend(events[..=at].iter().map(|event| http_chunk(event.as_bytes())));
    let server = Server::answering(Script::new(pieces, Then::Repeat)).await;
    let (end, heard) = call(&remote(options(wire.preset, &server.url())), &ask("Hello.")).await;
    let error = end.unwrap_err();
    assert_eq!(verdict(&error), ("too long", false, false), "{error}");
    assert!(heard.text.len() <= limits::ANSWER_BYTES_MAX);
    server.ended(1).await;

    // An answer with an endless event is charged as the longest answer, with the text before it.
    let text = events[..=at].iter().map(|event| http_chunk(event.as_bytes()));
    for before in [Vec::new(), text.collect()] {
        let begin = [vec![STREAM_HEAD.to_vec()], before, vec![http_chunk(b"data: ")]].concat();
        let endless = begin.into_iter().chain([http_chunk("word ".repeat(10_000).as_bytes())]);
        let script = Script::new(endless.collect(), Then::Repeat);
        let (error, received) = failed(wire, script).await;
        assert_eq!(verdict(&error), ("too long", false, false), "{error}");
        assert!(error.is_broken_off(), "{error}");
        assert_eq!(received, limits::ANSWER_BYTES_MAX);
    }
}

/// Makes a call that fails. Returns its error, and the number of bytes that were received from the
/// model and that the call is charged for.
async fn failed(wire: &Wire, script: Script) -> (Error, usize) {
    let server = Server::answering(script).await;
    let model = remote(options(wire.preset, &server.url()));
    let mut received = 0;
    let mut count = |chunk: AnswerChunk<'_>| {
        received += match chunk {
            AnswerChunk::Text(text) | AnswerChunk::Reasoning(text) => text.len(),
            AnswerChunk::Withheld(bytes) => bytes,
            _ => 0,
        };
    };
    let error = ModelProvider::call(&model, &ask("Hello."), &mut count).await.unwrap_err();
    (error, received)
}

async fn an_event_with_too_much_text_is_charged_for_its_text(wire: &Wire) {
    let long: &'static str = Box::leak("word ".repeat(1 << 20).into_boxed_str());
    let scenes = [
        Scene { text: vec![long], ..Scene::default() },
        Scene { reasoning: vec![long], ..Scene::default() },
    ];
    for scene in scenes {
        let (error, received) = failed(wire, script(wire, &scene)).await;
        assert_eq!(verdict(&error), ("too long", false, false), "{error}");
        // A block of reasoning counts with the parts of its first event that are no text.
        let most = long.len() + 100;
        assert!((long.len()..most).contains(&received), "{received}");
    }
}

/// Some gateways send a whole answer as one event.
async fn an_answer_may_be_one_long_event(wire: &Wire) {
    let long: &'static str = Box::leak("\"word\"\n".repeat(250_000).into_boxed_str());
    let scene = Scene { text: vec![long], ..Scene::default() };
    let (end, received) = answered(wire.preset, script(wire, &scene)).await;
    assert_eq!(end.unwrap().stop, StopReason::Normal);
    assert_eq!(received.text, long);
}

async fn a_hundred_thousand_tiny_deltas_are_read_in_bounded_time(wire: &Wire) {
    let events = (wire.events)(&Scene { text: vec!["x"], ..Scene::default() });
    let at = events.iter().position(|event| event.contains("\"x\"")).unwrap();
    // A thousand events for each HTTP chunk; otherwise the test would measure the server.
    let thousand = http_chunk(events[at].repeat(1_000).as_bytes());
    let mut pieces = vec![STREAM_HEAD.to_vec()];
    pieces.extend(events[..at].iter().map(|event| http_chunk(event.as_bytes())));
    pieces.extend(std::iter::repeat_n(thousand, 100));
    pieces.extend(events[at + 1..].iter().map(|event| http_chunk(event.as_bytes())));
    pieces.push(b"0\r\n\r\n".to_vec());
    let server = Server::answering(Script::new(pieces, Then::Close)).await;
    let started = Instant::now();
    let (end, heard) = call(&remote(options(wire.preset, &server.url())), &ask("Hello.")).await;
    assert_eq!(end.unwrap().stop, StopReason::Normal);
    assert_eq!((heard.text.len(), heard.chunks), (100_000, 100_000));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

async fn usage_that_is_missing_or_absurd_is_estimated(wire: &Wire) {
    let numbers = [
        serde_json::json!(-5),
        serde_json::json!(u64::MAX),
        serde_json::json!(1.5),
        serde_json::json!("many"),
        serde_json::json!(null),
        serde_json::json!({}),
        // The answer has text, so its number of tokens is not 0.
        serde_json::json!(0),
    ];
    let absurd = numbers.into_iter().map(Usage::Absurd);
    for usage in std::iter::once(Usage::Missing).chain(absurd) {
        let shown = format!("{usage:?}");
        let (end, heard) = answered(wire.preset, script(wire, &Scene { usage, ..hello() })).await;
        let usage = end.unwrap().usage;
        assert!(usage.estimated, "{shown}: {usage:?}");
        assert_eq!(usage.tokens_out, (heard.text.len() as u64).div_ceil(4), "{shown}");
        assert!((1..100).contains(&usage.tokens_in), "{shown}: {usage:?}");
    }
}

async fn a_key_that_is_echoed_is_hidden(wire: &Wire) {
    let (first, second) = KEY.split_at(9);
    let text = vec!["The key is ", first, second, ", or ", KEY, " and sk-test-", "no."];
    let scene = Scene {
        reasoning: vec!["sk-", &KEY[3..], "."],
        text,
        calls: vec![
            ("call_1", "search", vec!["{\"query\":\"", KEY, "\"}"]),
            ("call_2", "search", vec!["{\"query\":\"\\u0073", &KEY[1..], "\"}"]),
        ],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let (end, heard) = answered(wire.preset, script(wire, &scene)).await;
    let end = end.unwrap();
    assert_eq!(heard.text, "The key is ***, or *** and sk-test-no.");
    assert_eq!(heard.reasoning, "***.");
    assert_eq!(end.calls[0].arguments, "{\"query\":\"***\"}");
    // The first character of the key is written as an escape.
    assert_eq!(end.calls[1].arguments, "{\"query\":\"***\"}");
    assert!(!format!("{end:?}").contains(KEY));
    for (status, headers) in [
        ("401 Unauthorized", ""),
        ("400 Bad Request", ""),
        ("500 Oops", "Content-Type: text/html\r\n"),
        ("302 Found", "Location: https://example.com/?key=KEY\r\n"),
    ] {
        for body in [
            (wire.complaint)("x", &format!("no such key: {KEY}")),
            format!("<html><title>{KEY}</title></html>"),
            format!("Bearer {KEY}"),
        ] {
            let script = Script::whole(status, &headers.replace("KEY", KEY), &body);
            let error = answered(wire.preset, script).await.0.unwrap_err();
            assert!(!format!("{error} {error:?}").contains(KEY), "{error}");
            assert!(error.to_string().contains("***"), "{status} {body}: {error}");
        }
    }
    let mut events = (wire.events)(&hello());
    events.insert(2, (wire.error)("api_error", KEY));
    let error = answered(wire.preset, Script::stream(&events)).await.0.unwrap_err();
    assert!(!format!("{error:?}").contains(KEY));
    // Wherever the key begins in an event that cannot be read, no part of it is shown.
    for before in [0, 40, 70, 90, 95, 360, 390] {
        let broken = format!("data: {{\"{}{KEY}\n\n", "x".repeat(before));
        let error = answered(wire.preset, Script::stream(&[broken])).await.0.unwrap_err();
        assert!(!format!("{error:?}").contains(&KEY[..12]), "{error}");
    }
}

async fn a_dropped_call_closes_its_socket(wire: &Wire) {
    let events = (wire.events)(&hello());
    let mut pieces = Script::stream(&events[..4]).pieces;
    pieces.pop();
    let server = Server::answering(Script::new(pieces, Then::Hang)).await;
    let model = remote(options(wire.preset, &server.url()));
    let request = ask("Hello.");
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut on_chunk = move |_: organism::model::AnswerChunk<'_>| {
        let _ = said.send(());
    };
    tokio::select! {
        _ = organism::model::ModelProvider::call(&model, &request, &mut on_chunk) => panic!("it hangs"),
        _ = heard.recv() => {}
    }
    server.ended(1).await;
}
