//! The receipt of a confirmed action: the object of the action, the record of the action, the
//! person, and the next call that waits for a person.

use std::ops::ControlFlow;
use std::sync::Arc;

use maud::{Markup, html};

use super::super::layout::{inline, wrapped};
use super::super::payload_text::MessageWithPayload;
use super::super::person::{ActingPerson, ActionProof, origin_of};
use super::super::{message, record_entry, thread, waiting};
use super::action_context::ActionContext;
use crate::ids::{ListenerName, MessageId, Position, ThreadId};
use crate::index::{self, IndexReader, WaitingMessage};
use crate::limits;
use crate::plural::{count, form};
use crate::service::{RetryRequest, ServiceRequest};
use crate::thread::{Decision, DecisionOrigin, Fact, Input, PauseAction, PauseTarget, Record};

/// The data from one journal for the receipt of an action.
struct FoundReceipt {
    /// Partition of the journal; `None` without partitions.
    partition: Option<u32>,
    record: Option<Record>,
    concerned: Option<MessageWithPayload>,
    next: Option<(WaitingMessage, Option<MessageWithPayload>)>,
    /// Number of calls that still wait for a person, not counting the call that was just decided.
    left: u64,
}

/// Draws the receipt of an action. If an index cannot be read at present, draws only a reference to
/// the page with all actions.
pub(super) async fn draw(context: &ActionContext, request: ServiceRequest) -> Markup {
    let person = context.person.clone();
    let find = move |_, index: &mut IndexReader| find(index, &request);
    let view = Arc::clone(&context.view);
    let drawn = context.view.journals.query(find, move |answers| {
        let found = answers.into_iter().map(|found| {
            let partition = view.journals.named(found.partition);
            FoundReceipt { partition, ..found.answer }
        });
        let found: Vec<_> = found.collect();
        // The frame of the page counts these calls, too.
        view.present.set_waiting(found.iter().map(|found| found.left).sum());
        receipt(&found, &person)
    });
    drawn.await.unwrap_or_else(|_| {
        html! { p.hint { "The page Actions shows the record of this action." } }
    })
}

/// Draws the receipt of an action that consists of several requests. `requests` contains the
/// requests that the organism carried out. Draws nothing if `requests` is empty.
pub(super) async fn draw_several(context: &ActionContext, requests: Vec<ServiceRequest>) -> Markup {
    let all = requests.len();
    let find = move |partition, index: &mut IndexReader| {
        let own = requests.iter().filter(|request| partition_of(request) == Some(partition));
        let records = own.take(limits::WEB_RECEIPT_LINKS).map(|request| match request {
            ServiceRequest::Retry(retry) => retry_record(index, retry),
            request => newest_record(index, request),
        });
        records.collect::<Result<Vec<_>, _>>()
    };
    let view = Arc::clone(&context.view);
    let drawn = context.view.journals.query(find, move |answers| {
        let records = answers.into_iter().flat_map(|found| {
            let partition = view.journals.named(found.partition);
            found.answer.into_iter().flatten().map(move |record| (partition, record))
        });
        let records: Vec<_> = records.take(limits::WEB_RECEIPT_LINKS).collect();
        receipt_of_several(&records, all)
    });
    drawn.await.unwrap_or_default()
}

fn partition_of(request: &ServiceRequest) -> Option<u32> {
    match request {
        ServiceRequest::Pause(pause) => Some(pause.partition),
        ServiceRequest::Retry(retry) => Some(retry.partition),
        _ => None,
    }
}

/// Returns the record of a retry. Searches the last [`limits::WEB_RECEIPT_RECORDS`] records in the
/// tree of the message that the retry sent, and returns `None` if the record is not among them.
fn retry_record(
    index: &IndexReader,
    request: &RetryRequest,
) -> Result<Option<Record>, index::Error> {
    let journal = index.journal();
    let Some(head) = journal.head(&request.thread.root())? else { return Ok(None) };
    let mut found = None;
    let mut left = limits::WEB_RECEIPT_RECORDS;
    journal.walk_back(head, |walked| {
        let record = walked.record();
        let is_same = matches!(
            &record.input,
            Input::OperatorRetry(retry) if retry.message == request.message
        );
        let is_found = is_same && is_accepted(record);
        if is_found {
            found = Some(record.clone());
        }
        left -= 1;
        Ok(if is_found || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Draws one receipt for several requests. `records` contains at most one record for each request,
/// and `all` is the number of requests. If `records` lacks the records of some requests, the
/// receipt states the number of these requests.
fn receipt_of_several(records: &[(Option<u32>, Record)], all: usize) -> Markup {
    let left = all.saturating_sub(records.len()) as u64;
    html! {
        @if let Some((_, first)) = records.first() {
            h2 { "Receipt" }
            dl.facts.long.receipt {
                div {
                    dt { "Records" }
                    dd {
                        @for (at, (partition, record)) in records.iter().enumerate() {
                            @if at > 0 { ", " }
                            (record_entry::link_in(*partition, record.position))
                        }
                        @if left > 0 { ", and " (count(left, "more record")) }
                    }
                }
                (person_facts(first))
            }
        }
    }
}

fn find(index: &IndexReader, request: &ServiceRequest) -> Result<FoundReceipt, index::Error> {
    let decided = message_of(request);
    let concerned = match decided {
        Some(id) => MessageWithPayload::find(index, id)?,
        None => None,
    };

    // The index may not know the decision yet, and then lists the decided call as waiting.
    let (waiting, all) = index.waiting_messages(2)?;
    let is_listed = match decided {
        Some(id) => index.open_hold(id)?.is_some(),
        None => false,
    };
    let next = waiting.into_iter().find(|call| Some(call.message) != decided);
    let next = match next {
        Some(call) => {
            let message = MessageWithPayload::find(index, call.message)?;
            Some((call, message))
        }
        None => None,
    };

    let record = newest_record(index, request)?;
    let partition = None;
    Ok(FoundReceipt {
        partition,
        record,
        concerned,
        next,
        left: all.saturating_sub(is_listed.into()),
    })
}

/// Returns the message that an action decides about or retries; `None` for any other action.
fn message_of(request: &ServiceRequest) -> Option<MessageId> {
    match request {
        ServiceRequest::Decide(decision) => Some(decision.message),
        ServiceRequest::Retry(retry) => Some(retry.message),
        _ => None,
    }
}

/// Returns the newest record of an action that the organism carried out. Returns `None` if no
/// record of the action is among the last [`limits::WEB_RECEIPT_RECORDS`] records of the journal.
/// Does not use the index, because the index may lag behind the journal.
fn newest_record(
    index: &IndexReader,
    request: &ServiceRequest,
) -> Result<Option<Record>, index::Error> {
    let last = index.journal().last()?;
    let first = last.0.saturating_sub(limits::WEB_RECEIPT_RECORDS - 1).max(1);
    if last.0 < first {
        return Ok(None);
    }

    let records = index.journal().records(Position(first), last)?;
    let newest = records.into_iter().rev().map(|sealed| sealed.record);
    Ok(record_of(newest, request))
}

/// Returns the first of `records` that came from `request` and that the organism did not refuse.
/// Refused actions are skipped because their records may have the same contents. An example is a
/// second decision about the same call.
fn record_of(
    mut records: impl Iterator<Item = Record>,
    request: &ServiceRequest,
) -> Option<Record> {
    records.find(|record| is_accepted(record) && is_record_of(&record.input, request))
}

/// Whether the organism carried out the action of the record.
fn is_accepted(record: &Record) -> bool {
    // A fork may begin with a refusal of the payload that its operator wrote.
    if matches!(record.input, Input::Fork(_)) {
        return true;
    }
    // The record may also contain refused payloads of agents.
    let operator = ListenerName::operator();
    let is_of_person =
        |sender: &ListenerName| *sender == operator || Some(sender) == person_of(&record.input);
    !record
        .facts
        .iter()
        .any(|fact| matches!(fact, Fact::Refused { sender, .. } if is_of_person(sender)))
}

/// Whether a record with the input `input` came from `request`. True only if both have the same
/// action and object. For decisions, cancellations and pauses, both must also have the same
/// contents, signature and note, because two such requests may differ in these alone.
fn is_record_of(input: &Input, request: &ServiceRequest) -> bool {
    match (input, request) {
        (
            Input::Decided { message, decision: recorded, origin, .. },
            ServiceRequest::Decide(decision),
        ) => {
            *message == decision.message
                && is_same_decision(recorded, &decision.what)
                && is_of(origin.as_ref(), decision.origin.as_ref())
        }
        (
            Input::Cancel { thread, reason, origin, .. },
            ServiceRequest::Cancel { thread: cancelled, reason: given, origin: sent, .. },
        ) => thread == cancelled && reason == given && is_of(origin.as_ref(), sent.as_ref()),
        (Input::Pause(PauseAction { verb, target, origin, .. }), ServiceRequest::Pause(pause)) => {
            *verb == pause.verb
                && *target == pause.target
                && is_of(origin.as_ref(), pause.origin.as_ref())
        }
        (Input::Fork(fork), ServiceRequest::Fork(request)) => fork.thread == request.thread,
        (Input::OperatorRetry(retry), ServiceRequest::Retry(request)) => {
            retry.message == request.message
        }
        _ => false,
    }
}

/// Whether a recorded decision has the contents of a sent decision. Ignores the payload of an
/// answer, because a message has at most one answer that the organism accepted.
fn is_same_decision<A, B>(recorded: &Decision<A>, sent: &Decision<B>) -> bool {
    recorded.as_ref().map_answer(drop) == sent.as_ref().map_answer(drop)
}

/// Whether a recorded origin belongs to the origin of a sent request. True if both have the same
/// signature and the same shortened note. Ignores the user of the operating system and the time at
/// which the signature was judged, because the organism adds both to the recorded origin.
fn is_of(recorded: Option<&DecisionOrigin>, sent: Option<&DecisionOrigin>) -> bool {
    let sent = sent.cloned().unwrap_or_default().shortened();
    let mut recorded = recorded.cloned().unwrap_or_default();
    if let Some(signature) = &mut recorded.signature {
        signature.judged_at = None;
    }

    recorded.note == sent.note && recorded.signature == sent.signature
}

fn receipt(found: &[FoundReceipt], person: &ListenerName) -> Markup {
    let left: u64 = found.iter().map(|found| found.left).sum();
    let next = found.iter().filter_map(|found| found.next.as_ref());
    let next = next.min_by_key(|(call, _)| (call.since, call.message));
    let concerned = found.iter().find_map(|found| found.concerned.as_ref());
    let record = found.iter().filter_map(|found| Some((found.partition, found.record.as_ref()?)));
    let record = record.max_by_key(|(_, record)| record.time);
    html! {
        h2 { "Receipt" }
        dl.facts.long.receipt {
            @if let Some(concerned) = concerned { (concerned_facts(concerned)) }
            @match record {
                Some((partition, record)) => {
                    (record_facts(partition, record, concerned.is_none()))
                },
                None => {
                    div { dt { "Person" } dd { (inline(person.as_str())) } }
                    div {
                        dt { "Record" }
                        dd { "not in the index yet; the page Actions will show it" }
                    }
                }
            }
        }
        p.next-call {
            @match next {
                Some((call, message)) => {
                    "Next: " a href=(waiting::call_path(call.message)) {
                        @match message {
                            Some(found) => (found.title()),
                            None => "the call that waits longest",
                        }
                    }
                    ". " (count(left, "call")) " " (form(left, "waits", "wait")) " for a person."
                },
                None => "No other call waits for a person.",
            }
        }
    }
}

fn concerned_facts(concerned: &MessageWithPayload) -> Markup {
    let message = &concerned.message;
    html! {
        div {
            dt { "Message" }
            dd {
                a href=(message::path(message.id)) { (concerned.title()) } ": " (concerned.payload())
            }
        }
        @if let Some(payload) = &concerned.payload {
            div { dt { "Payload" } dd.digest { "sha256 " (payload.digest) } }
        }
        div {
            dt { "Thread" }
            dd { a href=(thread::path(&message.thread)) { (inline(&message.thread)) } }
        }
    }
}

fn record_facts(partition: Option<u32>, record: &Record, needs_thread: bool) -> Markup {
    html! {
        @if let Some(id) = concerned_thread(record).filter(|_| needs_thread) {
            div {
                dt { "Thread" }
                dd { a href=(thread::path(id.as_str())) { (inline(id.as_str())) } }
            }
        }
        div { dt { "Record" } dd { (record_entry::link_in(partition, record.position)) } }
        (person_facts(record))
    }
}

/// Draws the person of a recorded action that the organism carried out, the proof of the person's
/// identity, and the texts that the person entered.
fn person_facts(record: &Record) -> Markup {
    let origin = origin_of(&record.input);
    let login = origin.and_then(|origin| origin.who.login.clone());
    let operator = ListenerName::operator();
    let by = person_of(&record.input).unwrap_or(&operator);
    let person = ActingPerson {
        is_signed: origin.is_some_and(|origin| origin.signature.is_some()),
        ..ActingPerson::of_decision(by, origin, None, false)
    };
    let proof = ActionProof::of_record(record, login);
    let note = origin.map(|origin| origin.note.as_str()).unwrap_or_default();
    let reason = reason_of(&record.input).unwrap_or_default();
    html! {
        div { dt { "Person" } dd { (person.draw()) } }
        div { dt { "Proof" } dd { (proof.draw()) } }
        @if !reason.is_empty() { div { dt { "Reason" } dd { (wrapped(reason)) } } }
        @if !note.is_empty() { div { dt { "Note" } dd { (wrapped(note)) } } }
    }
}

/// Returns the thread that an action concerns; `None` for a pause of everything, or of a listener.
fn concerned_thread(record: &Record) -> Option<&ThreadId> {
    match &record.input {
        Input::Cancel { thread, .. } => Some(thread),
        Input::Pause(PauseAction { target: PauseTarget::Thread(thread), .. }) => Some(thread),
        Input::Pause(_) => None,
        _ => Some(&record.tree),
    }
}

/// Returns the name of the person who requested the action `input`; `None` if no person requested
/// `input`.
fn person_of(input: &Input) -> Option<&ListenerName> {
    match input {
        Input::Decided { by, .. } | Input::Cancel { by, .. } => Some(by),
        Input::Pause(PauseAction { by, .. }) => Some(by),
        Input::Fork(fork) => Some(&fork.by),
        Input::OperatorRetry(retry) => Some(&retry.by),
        _ => None,
    }
}

/// Returns the reason that the caller of a refused or cancelled call receives; `None` if the input
/// neither refuses nor cancels a call.
fn reason_of(input: &Input) -> Option<&str> {
    match input {
        Input::Decided { decision: Decision::Refuse { reason }, .. }
        | Input::Cancel { reason, .. } => Some(reason),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;
    use crate::clock::Time;
    use crate::envelope::{Refusal, RefusalRule};
    use crate::ids::Digest;
    use crate::service::DecisionRequest;
    use crate::thread::{DecisionSignature, DecisionStatement};

    fn origin(note: &str) -> Option<DecisionOrigin> {
        Some(DecisionOrigin { note: note.to_owned(), ..DecisionOrigin::default() })
    }

    #[test]
    fn a_receipt_is_not_that_of_another_decision_about_the_same_message() {
        let message = MessageId(uuid::Uuid::from_u128(7));
        let reason = || "no".to_owned();
        let request = ServiceRequest::Decide(DecisionRequest {
            message,
            partition: None,
            by: ListenerName::operator(),
            what: Decision::Refuse { reason: reason() },
            origin: origin("seen by ana"),
        });
        let recorded = |decision, origin| Input::Decided {
            message,
            by: ListenerName::operator(),
            decision,
            origin,
        };

        let refuse = || Decision::Refuse { reason: reason() };
        assert!(is_record_of(&recorded(refuse(), origin("seen by ana")), &request));
        assert!(!is_record_of(&recorded(refuse(), origin("seen by eve")), &request));
        let approve = Decision::Approve { hash: "ab".to_owned(), preview: None };
        assert!(!is_record_of(&recorded(approve, origin("seen by ana")), &request));
        let other = Decision::Refuse { reason: "never".to_owned() };
        assert!(!is_record_of(&recorded(other, origin("seen by ana")), &request));
    }

    /// Two equal decisions are recorded, and the second one is refused. `record_of` gets the newer
    /// record first, and must return the record of the first decision.
    #[test]
    fn the_record_of_a_decision_is_not_one_that_was_refused() {
        let message = MessageId(uuid::Uuid::from_u128(7));
        let by = ListenerName::operator();
        let what = Decision::Refuse { reason: "no".to_owned() };
        let request = DecisionRequest {
            message,
            partition: None,
            by: by.clone(),
            what,
            origin: origin("seen by ana"),
        };
        let request = ServiceRequest::Decide(request);
        let record = |position, facts| Record {
            position: Position(position),
            tree: ThreadId::organism(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(5),
            input: Input::Decided {
                message,
                by: by.clone(),
                decision: Decision::Refuse { reason: "no".to_owned() },
                origin: origin("seen by ana"),
            },
            facts,
        };
        let refused = |sender: ListenerName| Fact::Refused {
            sender,
            thread: None,
            call: None,
            refusal: Refusal::new(RefusalRule::NotWaiting, "it has ended", b""),
        };

        let accepted = record(2, vec![refused(ListenerName::parse("writer").unwrap())]);
        let newest = record(3, vec![refused(by.clone())]);
        let found = record_of([newest, accepted].into_iter(), &request);
        assert_eq!(found.unwrap().position, Position(2));
    }

    #[test]
    fn a_recorded_signature_is_that_of_the_request_whenever_it_was_judged() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let place = (uuid::Uuid::nil(), ThreadId::organism());
        let moment = (Time(1), uuid::Uuid::nil());
        let statement = DecisionStatement::cancel("enough", "");
        let signature = DecisionSignature::new(&key, place, moment, &statement);
        let signed = |judged_at| {
            let mut signature = Box::new(signature.clone());
            signature.judged_at = judged_at;
            DecisionOrigin { signature: Some(signature), ..DecisionOrigin::default() }
        };
        assert!(is_of(Some(&signed(Some(Time(2)))), Some(&signed(None))));
        assert!(!is_of(Some(&signed(None)), None));
    }
}
