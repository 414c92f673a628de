//! The definition of a run. A run records its definition in its first outcome, and uses this
//! definition until the run ends.
//!
//! To record the definition, the workflow sends itself a payload with a digest. This is the digest
//! of the compiled definition, which is a text in canonical XML. The gate checks the payload. Every
//! later delivery of the run's call contains the payload, and the workflow reads the digest from
//! it. The journal stores the XML text only once, for all runs with this definition.
//!
//! The payload also names the listeners to which the run must not repeat a call after a time-out.
//! If their contracts change while the run is open, the run records the listeners again. The new
//! record counts only for the messages after it, so all earlier decisions stay as they were.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::contract::{delegated_goal, retry_name, run_definition_name};
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName};
use crate::system;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::WorkflowDefinition;

/// The part of a run's record that restricts the retries of its goals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryRecord {
    /// Listeners to which the run must not repeat a call after a time-out.
    pub once: BTreeSet<ListenerName>,
    /// Whether the run never retries a goal that fails with the code `stopped`. A goal has this
    /// code if a person or a supervisor beneath it has stopped the work. The first record of a run
    /// decides, and later records do not change this. False for runs that began before core version
    /// 62, which retry the goal.
    pub is_stop_final: bool,
}

/// Writes the payload with which a run records its definition, and the restrictions of its retries.
pub fn write_run_definition(digest: Digest, retries: &RetryRecord) -> String {
    let once: Vec<_> = retries.once.iter().map(ListenerName::as_str).collect();
    let element = Element::new(QName::from(&run_definition_name()));
    let element = element.with_attribute("digest", digest.to_string());
    let mut element = element.with_attribute(ONCE, once.join(" "));
    if retries.is_stop_final {
        // Only the first record of a run states these rules.
        element = element.with_attribute(STOPPED, FINAL).with_attribute(ITEMS, ELEMENTS);
        element = element.with_attribute(FAILURES, HANDLED).with_attribute(RULES, RULES_PRESENT);
    }
    element.to_xml()
}

/// Name of the XML attribute that lists the listeners to which the run must not repeat a call after
/// a time-out.
const ONCE: &str = "once";

/// Name and value of the XML attribute that is set if [`RetryRecord::is_stop_final`] is true.
const STOPPED: &str = "stopped";
const FINAL: &str = "final";

/// Name and value of the XML attribute that is set if each item of a list is the selected element,
/// not only its text. Runs that follow [`RunRules::TextItems`] or earlier rules lack it.
const ITEMS: &str = "items";
const ELEMENTS: &str = "elements";

/// Name and value of the XML attribute that is set if a retry leaves out failures that the earlier
/// run did not handle. Runs that follow [`RunRules::UnhandledFailures`] or earlier rules lack it.
const FAILURES: &str = "failures";
const HANDLED: &str = "handled";

/// Name and value of the XML attribute that is set if the run follows [`RunRules::Present`]. The
/// value is the first core version with these rules.
const RULES: &str = "rules";
const RULES_PRESENT: &str = "72";

/// The rules that a run follows. A run keeps the rules of the version of the program that began it,
/// because the recorded calls of the run follow from these rules. The variants are in the order of
/// the versions, earliest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunRules {
    /// If `with` selects several nodes, only the first one counts. A person's answer counts as a
    /// failure if it has one of the names for failures. The rules of [`Self::TextItems`] hold, too.
    Early,
    /// The rules of versions of the program before core version 64. If an item of a list is an
    /// element without children and attributes, the item is only the text of this element.
    /// `has-word` searches its first argument as one text. A vote without a majority is not
    /// repeated. The rules of [`Self::UnhandledFailures`] hold, too.
    TextItems,
    /// The rules of versions of the program before core version 67. A retry applies the policies of
    /// the goals also to failures that the earlier run did not handle, such as cancellations of
    /// calls at the end of the earlier run. The rules of [`Self::BeforeCore72`] hold, too.
    UnhandledFailures,
    /// The rules of versions of the program before core version 72. A text such as `+5` is no
    /// number in expressions. A retry takes over the results of goals whose calls another retry of
    /// the same run has undone.
    BeforeCore72,
    #[default]
    Present,
}

/// Returns the digest of the definition that `message` records for a run of `workflow`. Returns
/// `None` if `message` records no definition, or if another sender than the workflow wrote it.
pub fn recorded_definition(message: &Message, workflow: &ListenerName) -> Option<Digest> {
    let payload = record_in(message, workflow)?;
    Digest::parse(payload.attribute("digest")?).ok()
}

/// Returns the restrictions of retries that `message` records for a run of `workflow`. Returns
/// `None` in these cases:
/// - `message` records no definition of a run.
/// - Another sender than the workflow wrote `message`.
/// - `message` is from an early version of the program, which did not record these restrictions.
pub(super) fn recorded_retries(message: &Message, workflow: &ListenerName) -> Option<RetryRecord> {
    let payload = record_in(message, workflow)?;
    let names = payload.attribute(ONCE)?.split_whitespace();
    let once = names.filter_map(|name| ListenerName::parse(name).ok()).collect();
    let is_stop_final = payload.attribute(STOPPED) == Some(FINAL);
    Some(RetryRecord { once, is_stop_final })
}

/// Returns the rules of the run with these messages. The run's first record of its definition
/// decides. [`RunRules::Early`] applies in two cases:
/// - The first record has no list of listeners, not even an empty one.
/// - The run recorded no definition, although the core has already sent it a message.
///
/// `messages` are all messages of the run's call, in their order. The rules count for the whole
/// run.
pub fn run_rules_of(messages: &[Arc<Message>]) -> RunRules {
    stated_rules_of(messages).unwrap_or_default()
}

/// Returns the rules of the run with these messages, as [`run_rules_of`]. Returns `None` if nothing
/// states the rules, because the run has not begun, or because it ended before its first outcome.
pub(super) fn stated_rules_of(messages: &[Arc<Message>]) -> Option<RunRules> {
    let mut records = messages.iter().filter_map(|message| record_in(message, &message.to));
    let rules = match records.next() {
        Some(first) if first.attribute(ONCE).is_none() => RunRules::Early,
        Some(first) if first.attribute(ITEMS) != Some(ELEMENTS) => RunRules::TextItems,
        Some(first) if first.attribute(FAILURES) != Some(HANDLED) => RunRules::UnhandledFailures,
        Some(first) if first.attribute(RULES) != Some(RULES_PRESENT) => RunRules::BeforeCore72,
        Some(_) => RunRules::Present,
        None if messages.iter().skip(1).any(is_by_core) => RunRules::Early,
        None => return None,
    };
    Some(rules)
}

fn is_by_core(message: &Arc<Message>) -> bool {
    *message.name.namespace == *system::NAMESPACE
}

fn record_in(message: &Message, workflow: &ListenerName) -> Option<Element> {
    if !is_definition_record(message, workflow) {
        return None;
    }
    Element::read(message.payload.as_str())
}

/// Whether a run of `workflow` recorded its definition with `message`. Also true if the payload of
/// the message was redacted, so that the definition is not known.
pub(super) fn is_definition_record(message: &Message, workflow: &ListenerName) -> bool {
    message.kind == MessageKind::Own
        && message.from == *workflow
        && message.name == run_definition_name()
}

/// Returns the request of the latest run in a thread, and the digest of the definition that this
/// run recorded. `messages` are all messages of the thread, in their order. Returns `None` if no
/// run of the thread recorded a definition.
///
/// The digest is `None` if the latest run recorded no definition, or if its record was redacted. A
/// run without a record has not begun, or it ended in its first outcome, before core version 59. A
/// retry without a record of a definition does not count as a run, because it was refused.
pub fn latest_run(messages: &[Arc<Message>]) -> Option<(Arc<Message>, Option<Digest>)> {
    let recorded = |message: &Arc<Message>| {
        let digest = recorded_definition(message, &message.to);
        let is_record = digest.is_some() || is_redacted_record(message);
        is_record.then(|| (message.to.clone(), message.call, digest))
    };
    // Only the first record of a run counts: an open run may record the same definition again while
    // a later run has begun.
    let mut runs = HashSet::new();
    let mut latest = None;
    for record in messages.iter().filter_map(recorded) {
        if runs.insert(record.1) {
            latest = Some(record);
        }
    }

    let (workflow, call, digest) = latest?;
    let is_request = |message: &&Arc<Message>| {
        let opens_call = message.kind == MessageKind::Call && message.to == workflow;
        let is_refused_retry = message.name == retry_name(&workflow) && message.call != call;
        opens_call && delegated_goal(&message.name).is_none() && !is_refused_retry
    };
    let request = messages.iter().rev().find(is_request)?;
    let digest = digest.filter(|_| request.call == call);
    Some((Arc::clone(request), digest))
}

/// Returns the redacted message with which the run of `request` recorded its definition. Returns
/// `None` if there is no such message. `messages` are all messages of the thread.
pub fn redacted_definition<'m>(
    request: &Message,
    messages: &'m [Arc<Message>],
) -> Option<&'m Arc<Message>> {
    let is_of_run = |message: &&Arc<Message>| message.call == Some(CallId(request.id));
    messages.iter().filter(is_of_run).find(|message| is_redacted_record(message))
}

fn is_redacted_record(message: &Message) -> bool {
    message.payload.is_redacted() && is_definition_record(message, &message.to)
}

/// A workflow definition with the digest of its compiled XML.
#[derive(Debug, Clone)]
pub struct IdentifiedDefinition {
    pub digest: Digest,
    pub definition: Arc<WorkflowDefinition>,
}

/// The definitions that the runs of one workflow use.
#[derive(Debug, Clone, Default)]
pub struct RunDefinitions {
    /// Definition of new runs; `None` if only open runs still use the workflow.
    pub current: Option<IdentifiedDefinition>,
    /// Definitions that earlier runs recorded, by the digest of the compiled XML.
    pub recorded: BTreeMap<Digest, Arc<WorkflowDefinition>>,
}

impl RunDefinitions {
    pub fn of_digest(&self, digest: Digest) -> Option<&Arc<WorkflowDefinition>> {
        let current = self.current.as_ref().filter(|current| current.digest == digest);
        current.map(|current| &current.definition).or_else(|| self.recorded.get(&digest))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::envelope::Payload;
    use crate::ids::{MessageId, PayloadName, ThreadId};

    /// Returns a message of the call with the number `call`.
    fn message(id: u64, call: u64, from: &str, name: PayloadName, payload: &str) -> Arc<Message> {
        let id_of = |number: u64| MessageId(Uuid::from_u128(number.into()));
        let kind = if id == call { MessageKind::Call } else { MessageKind::Own };
        Arc::new(Message {
            id: id_of(id),
            kind,
            from: ListenerName::parse(from).unwrap(),
            to: ListenerName::parse("tour").unwrap(),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            seq: id,
            cause: None,
            call: Some(CallId(id_of(call))),
            time: Time(0),
            name,
            payload: Payload::new(payload),
        })
    }

    fn request(id: u64) -> Arc<Message> {
        message(id, id, "desk", PayloadName::new("urn:test", "tour"), "<tour/>")
    }

    #[test]
    fn the_first_record_of_a_run_states_its_rules() {
        let digest = Digest::of(b"definition");
        let once = BTreeSet::new();
        let present = write_run_definition(digest, &RetryRecord { once, is_stop_final: true });
        let before_72 = present.replace(" rules=\"72\"", "");
        let every_failure = before_72.replace(" failures=\"handled\"", "");
        let text_items = every_failure.replace(" items=\"elements\"", "");
        let early = format!("<run-definition xmlns=\"{}\"/>", run_definition_name().namespace);
        let rules = |records: &[&str]| {
            let records = (2u64..).zip(records);
            let records =
                records.map(|(id, record)| message(id, 1, "tour", run_definition_name(), record));
            run_rules_of(&[request(1)].into_iter().chain(records).collect::<Vec<_>>())
        };
        assert_ne!(before_72, present);
        assert_ne!(every_failure, before_72);
        assert_ne!(text_items, every_failure);
        assert_eq!(rules(&[]), RunRules::Present, "it begins");
        assert_eq!(rules(&[present.as_str()]), RunRules::Present);
        assert_eq!(rules(&[before_72.as_str(), present.as_str()]), RunRules::BeforeCore72);
        let records = [every_failure.as_str(), present.as_str()];
        assert_eq!(rules(&records), RunRules::UnhandledFailures);
        assert_eq!(rules(&[text_items.as_str(), present.as_str()]), RunRules::TextItems);
        assert_eq!(rules(&[early.as_str(), present.as_str()]), RunRules::Early);
    }

    #[test]
    fn the_latest_run_is_that_of_the_latest_request_with_or_without_a_definition() {
        let digest = Digest::of(b"definition");
        let record = |id: u64, call: u64| {
            message(
                id,
                call,
                "tour",
                run_definition_name(),
                &write_run_definition(digest, &RetryRecord::default()),
            )
        };
        let mut messages = vec![request(1)];
        assert_eq!(latest_run(&messages), None, "it may be no workflow");

        messages.push(record(2, 1));
        let found = latest_run(&messages).unwrap();
        assert_eq!((found.0.seq, found.1), (1, Some(digest)));

        messages.push(request(3));
        let found = latest_run(&messages).unwrap();
        assert_eq!((found.0.seq, found.1), (3, None), "it has not begun");

        messages.push(record(4, 3));
        let retry = retry_name(&ListenerName::parse("tour").unwrap());
        messages.push(message(5, 5, "desk", retry, "<tour-retry run=\"early\"/>"));
        let found = latest_run(&messages).unwrap();
        assert_eq!((found.0.seq, found.1), (3, Some(digest)), "the retry was refused");

        messages.push(record(6, 5));
        let found = latest_run(&messages).unwrap();
        assert_eq!((found.0.seq, found.1), (5, Some(digest)));

        messages.push(record(7, 3));
        let found = latest_run(&messages).unwrap();
        assert_eq!((found.0.seq, found.1), (5, Some(digest)), "an earlier run recorded it again");

        let redacted = messages.iter_mut().find(|message| message.seq == 6).unwrap();
        let redacted = Arc::make_mut(redacted);
        assert!(redacted.payload.restore(&"\0".repeat(redacted.payload.len())));
        let (request, digest) = latest_run(&messages).unwrap();
        assert_eq!((request.seq, digest), (5, None), "the run is not taken for a refused retry");
        assert_eq!(redacted_definition(&request, &messages).unwrap().seq, 6);
    }
}
