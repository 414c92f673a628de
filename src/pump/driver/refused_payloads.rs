//! Logs refused payloads of listeners. An agent or a workflow gets the refusals of its payloads.
//! For any other listener, this log shows the refusals to the listener's author, with the permitted
//! payload names.

use std::cell::LazyCell;

use crate::contract::{Contract, Meaning, Role, Vocabulary};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Attempt, CallId, ListenerName, PayloadName};
use crate::limits;
use crate::plural::count;
use crate::pump::gate::{Checked, Gate};
use crate::shorten::shorten;
use crate::system;
use crate::thread::{Fact, Input, Record};
use crate::xml::element::Element;
use crate::xml::invisible_characters::visible_line;
use crate::xml::scan::{nested, scan};

/// Maximum number of permitted names that a log line lists.
const NAMES_SHOWN: usize = 8;
/// Maximum number of refused payloads of one answer that have a log line each.
const PAYLOADS_LOGGED: usize = 8;
/// Maximum number of characters of a local name, and of a namespace, in a log line.
const NAME_CHARS_SHOWN: usize = 100;
/// Maximum number of characters of a reason in a log line.
const REASON_CHARS_SHOWN: usize = 1_000;

/// The listener, the call and the attempt of an answer.
type AnsweringAttempt<'a> = (&'a ListenerName, CallId, Attempt);

/// Logs the payloads of an answer that the gate refused. `texts` are the payloads of the answer,
/// and `payloads` the results of their checks, in the same order. `gate` is the gate that checked
/// them.
pub(super) fn warn_of_refused_payloads(
    gate: &Gate,
    source: AnsweringAttempt<'_>,
    texts: &[Vec<u8>],
    payloads: &[Result<Checked, Refusal>],
) {
    let vocabulary = gate.contracts.vocabulary(source.0);
    let permitted = LazyCell::new(|| vocabulary.map(sorted_names).unwrap_or_default());
    let all = texts.iter().zip(payloads);
    let refused = all.filter_map(|(text, payload)| Some((text, payload.as_ref().err()?)));

    warn_of_first(source, refused, |(text, refusal)| {
        let reason = vocabulary
            .filter(|_| refusal.rule == RefusalRule::NotInVocabulary)
            .and_then(|vocabulary| missing_word_description(vocabulary, &permitted, text))
            .unwrap_or_else(|| gate_reason(refusal));
        (payload_description(text), reason)
    });
}

/// Logs the payloads in `records` that the gate accepted and the core refused. Leaves out payloads
/// of late answers, and payloads whose refusal is reported to the sender or its caller. `gate` is
/// the current gate. After a reload, payloads that `gate` no longer permits are left out, too.
pub(super) fn warn_of_payloads_refused_by_core(records: &[Record], gate: &Gate) {
    for record in records {
        let Input::Outcome { listener, call, attempt, turn: None, .. } = &record.input else {
            continue;
        };
        let contract = gate.contracts.get(listener);
        if contract.is_none_or(|contract| contract.receives_refusals()) {
            continue;
        }

        let vocabulary = gate.contracts.vocabulary(listener);
        let refused = record.facts.iter().filter_map(|fact| {
            let Fact::Refused { refusal, .. } = fact else { return None };
            vocabulary.is_some_and(|vocabulary| is_by_core(vocabulary, refusal)).then_some(refusal)
        });
        warn_of_first((listener, *call, *attempt), refused, |refusal| {
            (payload_description(refusal.head.as_bytes()), core_reason(*attempt, refusal))
        });
    }
}

/// Logs the first payloads in `refused`, at most `PAYLOADS_LOGGED`, and the number of the others.
/// `refused` contains the refused payloads of one answer. `describe` returns the description of a
/// payload, and the reason why it was refused.
fn warn_of_first<T>(
    (listener, call, attempt): AnsweringAttempt<'_>,
    mut refused: impl Iterator<Item = T>,
    describe: impl Fn(T) -> (String, String),
) {
    for item in refused.by_ref().take(PAYLOADS_LOGGED) {
        let (payload, reason) = describe(item);
        tracing::warn!(%listener, %call, %attempt, "refused {payload} in the answer: {reason}");
    }

    let more = refused.count();
    if more > 0 {
        tracing::warn!(%listener, %call, %attempt, "refused {} in the answer", count(more, "more payload"));
    }
}

/// Whether the core refused the payload after the gate had accepted it, and the refusal is reported
/// neither to the sender nor to its caller.
fn is_by_core(vocabulary: &Vocabulary, refusal: &Refusal) -> bool {
    if refusal.name.is_some() {
        return !matches!(
            refusal.rule,
            RefusalRule::Busy
                | RefusalRule::Cycle
                | RefusalRule::BadLabel
                | RefusalRule::BudgetSpent
                | RefusalRule::CallClosed
                | RefusalRule::StaleAttempt
        );
    }

    // The gate accepts a preview in every answer, and the core refuses it without a name.
    let name = name_of(refusal.head.as_bytes());
    let meaning = name.and_then(|name| vocabulary.meaning(&name));
    refusal.rule == RefusalRule::NotInVocabulary
        && matches!(meaning, Some(Meaning::Preview | Meaning::StalePreview))
}

fn core_reason(attempt: Attempt, refusal: &Refusal) -> String {
    if attempt.is_preview() {
        let most = limits::PREVIEW_BYTES_MAX;
        return format!(
            "the answer to the request for a preview is one `preview` of at most {most} bytes"
        );
    }
    if refusal.rule == RefusalRule::NotInVocabulary {
        return "a `preview` answers only the request for a preview, and a `stale-preview` only a \
                call whose preview was approved"
            .to_owned();
    }

    shown_reason(refusal)
}

/// Returns the reason of a refusal by the gate.
fn gate_reason(refusal: &Refusal) -> String {
    let reason = shown_reason(refusal);
    let is_undeclared = refusal.message.starts_with("prefix `")
        && refusal.message.ends_with("` is not declared")
        && refusal.rule == RefusalRule::NotWellFormed;
    if is_undeclared {
        format!("{reason}; declare it in the payload itself, because each is recorded on its own")
    } else {
        reason
    }
}

/// Returns the text of a refusal as one short line. The text may quote the payload.
fn shown_reason(refusal: &Refusal) -> String {
    visible_line(&shorten(&refusal.to_string(), REASON_CHARS_SHOWN))
}

/// Returns the payload names in a vocabulary, in the order of their texts.
fn sorted_names(vocabulary: &Vocabulary) -> Vec<&PayloadName> {
    let mut names: Vec<&PayloadName> = vocabulary.iter().map(|(word, _)| word).collect();
    names.sort_by_cached_key(|word| word.to_string());
    names
}

/// Returns a description that states why a payload with this text is not in the vocabulary of its
/// sender. The description lists `permitted`, the names in this vocabulary. Returns `None` if the
/// payload has no name.
fn missing_word_description(
    vocabulary: &Vocabulary,
    permitted: &[&PayloadName],
    text: &[u8],
) -> Option<String> {
    let name = name_of(text)?;
    let (name, subject) = match vocabulary.meaning(&name) {
        // The outer payload is permitted, so the refusal concerns the payload inside.
        Some(_) => {
            let inner = inner_name(&name, text)?;
            let subject = format!("the payload {} inside", named(&inner));
            (inner, subject)
        }
        None => (name, "it".to_owned()),
    };

    if is_word_of_agents(&name) {
        let permitted = list_of(permitted);
        return Some(format!("{subject} is a word that only agents may use; {permitted}"));
    }

    let same_local = |word: &&&PayloadName| word.local.eq_ignore_ascii_case(&name.local);
    let advice = match permitted.iter().find(same_local) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => list_of(permitted),
    };
    Some(format!(
        "{subject} is not in `replies`, no listener in `peers` accepts it, and `core` does not \
         name it; {advice}"
    ))
}

/// Whether `name` is a word of the core that agents may use, and that the `core` of a listener
/// cannot allow.
fn is_word_of_agents(name: &PayloadName) -> bool {
    let is_named = |word: &str| *name == system::name(word);
    let for_role = |role| Contract::core_words_of(role).any(is_named);
    system::NOTES.into_iter().any(is_named) || (for_role(Role::Agent) && !for_role(Role::Listener))
}

fn list_of(permitted: &[&PayloadName]) -> String {
    if permitted.is_empty() {
        return "the listener may answer with no payload".to_owned();
    }

    let shown = permitted.iter().take(NAMES_SHOWN).map(|word| format!("`{word}`"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match permitted.len().saturating_sub(NAMES_SHOWN) {
        0 => format!("the listener may answer with {shown}"),
        more => format!("the listener may answer with {shown}, and {more} more"),
    }
}

/// Returns the name of the payload inside a `spawn-thread` or `send-to-thread`. `text` is the text
/// of this primitive. Returns `None` if there is no inner payload with a name.
fn inner_name(primitive: &PayloadName, text: &[u8]) -> Option<PayloadName> {
    let levels = if &*primitive.local == "spawn-thread" { 2 } else { 1 };
    let root = text.get(scan(text).ok()?.root)?;
    let inner = nested(std::str::from_utf8(root).ok()?, levels).pop()?;
    name_of(inner.text.as_bytes())
}

/// Returns the name of the payload that begins with `text`, or `a payload` if no name can be read.
/// `text` may be any bytes.
fn payload_description(text: &[u8]) -> String {
    name_of(text).map_or_else(|| "a payload".to_owned(), |name| named(&name))
}

/// Returns a name that a listener wrote, as a part of one line.
fn named(name: &PayloadName) -> String {
    let shown = |text: &str| visible_line(&shorten(text, NAME_CHARS_SHOWN));
    let local = shown(&name.local);
    if name.namespace.is_empty() {
        format!("`{local}` (no namespace)")
    } else {
        format!("`{{{}}}{local}`", shown(&name.namespace))
    }
}

/// Returns the name in the first start tag of `text`. Returns `None` if there is no valid start
/// tag.
fn name_of(text: &[u8]) -> Option<PayloadName> {
    let head = Element::head(text.utf8_chunks().next()?.valid())?;
    Some(PayloadName::from(&head.name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::contract::Contracts;

    #[test]
    fn a_preview_in_an_answer_to_a_call_is_refused_by_the_core() {
        let listener = ListenerName::parse("shows").unwrap();
        let mut contract = Contract::new(listener.clone(), Role::Listener);
        contract.previews = Some(Duration::from_secs(1));
        let contracts = Contracts::new(vec![contract]).unwrap();
        let vocabulary = contracts.vocabulary(&listener).unwrap();

        let preview = format!("<preview xmlns=\"{}\">x</preview>", system::NAMESPACE);
        let refusal = |rule, text: &str| Refusal::new(rule, "why", text.as_bytes());
        let refused = refusal(RefusalRule::NotInVocabulary, &preview);
        assert!(is_by_core(vocabulary, &refused));
        let attempt = Attempt { epoch: 1, n: 1 };
        let reason = core_reason(attempt, &refused);
        assert!(reason.starts_with("a `preview` answers only"), "{reason}");

        assert!(!is_by_core(vocabulary, &refusal(RefusalRule::SchemaInvalid, &preview)));
        assert!(!is_by_core(vocabulary, &refusal(RefusalRule::NotInVocabulary, "<other/>")));
        let name = system::name(system::PREVIEW);
        let late = refusal(RefusalRule::StaleAttempt, &preview).named(&name);
        assert!(!is_by_core(vocabulary, &late));
        let beside = refusal(RefusalRule::CallBesideReply, &preview).named(&name);
        assert!(is_by_core(vocabulary, &beside));
        assert_eq!(core_reason(attempt, &beside), "call-beside-reply: why");
    }

    #[test]
    fn a_word_of_agents_is_refused_without_the_advice_to_name_it_in_core() {
        let word = |local: &str| format!("<{local} xmlns=\"{}\">x</{local}>", system::NAMESPACE);
        let reason = |text: &str| {
            missing_word_description(&Vocabulary::default(), &[], text.as_bytes()).unwrap()
        };
        for local in ["progress", "thinking", "todo-until", "clear-context"] {
            let reason = reason(&word(local));
            assert!(reason.starts_with("it is a word that only agents may use"), "{reason}");
        }
        assert!(reason(&word("wait")).contains("`core` does not name it"));
        assert!(reason("<progress/>").contains("`core` does not name it"));
    }

    #[test]
    fn a_refused_name_is_shown_beside_the_names_that_are_permitted() {
        assert_eq!(payload_description(b"<a"), "a payload");
        assert_eq!(payload_description(b"<a><b"), "`a` (no namespace)");
        assert_eq!(payload_description(b"<a xmlns='urn:x'>\xff</a>"), "`{urn:x}a`");

        let names: Vec<_> = (0..10).map(|n| PayloadName::new("urn:x", &format!("w{n}"))).collect();
        let permitted: Vec<_> = names.iter().collect();
        assert_eq!(list_of(&[]), "the listener may answer with no payload");
        assert_eq!(
            list_of(&permitted[..2]),
            "the listener may answer with `{urn:x}w0`, `{urn:x}w1`"
        );
        assert!(list_of(&permitted).ends_with("`{urn:x}w7`, and 2 more"));
    }

    #[test]
    fn a_refused_payload_is_described_on_one_short_line() {
        let forged = payload_description(b"<a xmlns='urn:x&#10;WARN&#9;&#x202e;'/>");
        assert_eq!(forged, "`{urn:x\\u{a}WARN\\u{9}\\u{202e}}a`");

        let long = "x".repeat(10_000);
        let text = format!("<{long} xmlns='{long}'/>");
        let described = payload_description(text.as_bytes());
        assert_eq!(described.chars().count(), 2 * (NAME_CHARS_SHOWN + 1) + "`{}`".len());

        let message = format!("a\nb{long}");
        let reason = gate_reason(&Refusal::new(RefusalRule::SchemaInvalid, message, b""));
        assert!(reason.starts_with("schema-invalid: a\\u{a}b"), "{reason}");
        assert!(reason.len() < REASON_CHARS_SHOWN + 10, "{reason}");
    }

    #[test]
    fn the_reason_of_an_undeclared_prefix_states_where_to_declare_it() {
        let text = b"<p:a/>";
        let violation = scan(text).unwrap_err();
        let refusal = Refusal::new(RefusalRule::NotWellFormed, violation.message, text);
        assert_eq!(
            gate_reason(&refusal),
            "not-well-formed: prefix `p` is not declared; declare it in the payload itself, \
             because each is recorded on its own"
        );
    }

    #[test]
    fn the_name_of_a_payload_inside_a_core_word_is_found() {
        let name = |local: &str| PayloadName::new(system::NAMESPACE, local);
        let text = format!(
            "<spawn-thread xmlns=\"{}\"><initial-payload><w xmlns=\"urn:x\"/></initial-payload>\
             </spawn-thread>",
            system::NAMESPACE
        );
        let inner = inner_name(&name("spawn-thread"), text.as_bytes());
        assert_eq!(inner, Some(PayloadName::new("urn:x", "w")));
    }
}
