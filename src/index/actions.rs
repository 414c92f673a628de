//! Writes the index rows of people's decisions and actions.

use rusqlite::params;

use crate::ids::{CallId, ListenerName, MessageId};
use crate::thread::{
    ActionDetail, Decision, DecisionOrigin, Fact, Input, OperatorAction, OperatorIdentity,
    PauseAction, PauseTarget, Record,
};

use super::fold::IndexFold;

/// The values of one index row, which stores an action of a person.
#[derive(Default)]
struct PersonAction<'r> {
    action: &'static str,
    person: Option<&'r ListenerName>,
    who: Option<&'r OperatorIdentity>,
    is_signed: bool,
    thread: Option<i64>,
    message: Option<MessageId>,
    payload: Option<&'r str>,
    preview: Option<&'r str>,
    reason: Option<&'r str>,
    details: Option<String>,
}

/// Adds an index row if the input of `record` is an action of a person.
pub fn take(fold: &mut IndexFold<'_>, record: &Record) -> rusqlite::Result<()> {
    match &record.input {
        Input::Decided { message, by, decision, origin } => {
            let mut action = decided(decision);
            action.message = Some(*message);
            action.thread = fold.thread_of_call(CallId(*message))?;
            if action.thread.is_none() {
                action.thread = fold.messages.thread_of(*message)?;
            }
            add(fold, record, action.by(by, origin.as_ref()))
        }
        Input::Cancel { thread, by, reason, origin } => {
            let thread = fold.threads.find(thread)?;
            let reason = Some(reason.as_str());
            let action = PersonAction { action: "cancel", thread, reason, ..Default::default() };
            add(fold, record, action.by(by, origin.as_ref()))
        }
        Input::Pause(PauseAction { verb, target, by, origin }) => {
            let thread = match target {
                PauseTarget::Thread(thread) => fold.threads.find(thread)?,
                PauseTarget::All | PauseTarget::Listener(_) => None,
            };
            let details = [ActionDetail::new("target", target)];
            let details = serde_json::to_string(&details).ok();
            let action = verb.as_str();
            let action = PersonAction { action, thread, details, ..Default::default() };
            add(fold, record, action.by(by, origin.as_ref()))
        }
        Input::Fork(fork) => {
            let thread = fold.threads.find(&fork.thread)?;
            let mut details = vec![
                ActionDetail::new("source", &fork.source.thread),
                ActionDetail::new("message", fork.source.message),
            ];
            details.extend(fork.permissions());
            let details = serde_json::to_string(&details).ok();
            let action = PersonAction { action: "fork", thread, details, ..Default::default() };
            add(fold, record, action.by(&fork.by, fork.origin.as_ref()))
        }
        Input::OperatorRetry(retry) => {
            let thread = fold.threads.find(&retry.thread)?;
            let details = [ActionDetail::new("retry", retry.id)];
            let details = serde_json::to_string(&details).ok();
            let message = Some(retry.message);
            let action =
                PersonAction { action: "retry", thread, message, details, ..Default::default() };
            add(fold, record, action.by(&retry.by, retry.origin.as_ref()))
        }
        Input::Operator(action) => add(fold, record, on_organism(action)),
        _ => Ok(()),
    }
}

fn decided<A>(decision: &Decision<A>) -> PersonAction<'_> {
    match decision {
        Decision::Approve { hash, preview } => PersonAction {
            action: "approve",
            payload: Some(hash),
            preview: preview.as_deref(),
            ..Default::default()
        },
        Decision::Refuse { reason } => {
            PersonAction { action: "refuse", reason: Some(reason), ..Default::default() }
        }
        Decision::Answer(_) => PersonAction { action: "answer", ..Default::default() },
    }
}

fn on_organism(action: &OperatorAction) -> PersonAction<'_> {
    let details = serde_json::to_string(&action.details);
    PersonAction {
        action: action.verb.as_str(),
        person: Some(&action.by),
        who: Some(&action.who),
        reason: non_empty(&action.note),
        details: details.ok().filter(|_| !action.details.is_empty()),
        ..Default::default()
    }
}

impl<'r> PersonAction<'r> {
    fn by(self, person: &'r ListenerName, origin: Option<&'r DecisionOrigin>) -> Self {
        // A refusal or cancellation without a reason is recorded with an empty one.
        let reason = self.reason.and_then(non_empty);
        Self {
            person: Some(person),
            who: origin.map(|origin| &origin.who),
            is_signed: origin.is_some_and(|origin| origin.signature.is_some()),
            reason: reason.or(origin.and_then(|origin| non_empty(&origin.note))),
            ..self
        }
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn add(
    fold: &mut IndexFold<'_>,
    record: &Record,
    action: PersonAction<'_>,
) -> rusqlite::Result<()> {
    let person = action.person.map_or(ListenerName::CORE, ListenerName::as_str);
    let person = fold.names.number(person)?;
    // A fork may begin with a refusal of the payload that its operator wrote.
    let is_forked = record.facts.iter().any(|fact| matches!(fact, Fact::Forked { .. }));
    let is_refused =
        !is_forked && record.facts.iter().any(|fact| matches!(fact, Fact::Refused { .. }));
    let who = action.who;
    let sql = "INSERT INTO action_row(position, time, action, person, uid, login, host, signed, \
               accepted, thread, message, payload, preview, reason, details) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    fold.db.prepare_cached(sql)?.execute(params![
        record.position.0,
        record.time.0,
        action.action,
        person,
        who.and_then(|who| who.uid),
        who.and_then(|who| who.login.as_deref()),
        who.and_then(|who| who.host.as_deref()),
        action.is_signed,
        !is_refused,
        action.thread,
        action.message.as_ref().map(|message| message.0.as_bytes().as_slice()),
        action.payload,
        action.preview,
        action.reason,
        action.details
    ])?;
    Ok(())
}
