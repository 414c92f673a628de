//! Predicts from the config file and the journal whether a retry can succeed, before the retry is
//! sent. The prediction only keeps people from sending a retry that cannot succeed. The running
//! organism decides whether the message is retried.

use std::fmt;
use std::sync::Arc;

use super::super::ViewState;
use super::config_facts::ConfigFacts;
use crate::audit::{RetryMessage, RetrySource, SubmissionRefusal, UNKNOWN_OUTCOME, element_name};
use crate::contract::Meaning;
use crate::envelope::{Message, RefusalRule};
use crate::ids::{ListenerName, MessageId, ThreadId};
use crate::index::{self, IndexReader, IndexedError, MessageSelector};
use crate::limits;
use crate::pump::gate::Gate;
use crate::thread::{Fact, Input, Record};

use super::super::payload_text::{payload_line, recorded_line};

/// Kind of a failure: the call failed because a budget had too little left for it.
const BUDGET_SPENT: &str = "budget-spent";

/// Kinds of failures that leave open whether the listener has done the work of the call.
const CUT_OFF: [&str; 4] = ["timeout", "crashed", "unreachable", "lost"];

/// The expected result of a retry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) enum RetryOutlook {
    /// The organism is expected to send the message again.
    #[default]
    Sent,
    /// The organism sends the message only after a separate confirmation by the person. The text is
    /// the reason.
    NeedsConfirmation(String),
    /// The organism would refuse the message, or its call would fail again, until something
    /// changes. The text states the necessary change.
    NeedsChange(String),
}

/// Content of a row in a list of messages that failed or were refused.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct RetryFacts {
    /// Local name of the payload; empty if the payload does not begin with an element.
    pub name: String,
    /// Beginning of the payload on one line.
    pub payload: String,
    /// The thread of the message; `None` for a submission that was refused before it had a thread.
    pub thread: Option<ThreadId>,
    /// The recorded reason why the message was refused or its call failed; empty if none is known.
    pub detail: String,
    pub outlook: RetryOutlook,
    /// Number of attempts that the config permits for the call. `None` unless the config permits
    /// several attempts, and the listener may already have done the work.
    pub repeated: Option<u32>,
}

/// Predicts the results of retries. Checks messages with the gate, which refuses payloads that are
/// invalid under the config file. Without a gate, predicts from the journal alone.
#[derive(Default)]
pub(in super::super) struct RetryPredictor {
    gate: Option<Gate>,
}

impl fmt::Debug for RetryPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPredictor").finish_non_exhaustive()
    }
}

/// Returns the facts of the config for a view. A read-only view gets default facts: no signing
/// keys, and a predictor without a gate.
pub(in super::super) async fn config_facts(view: &ViewState) -> Arc<ConfigFacts> {
    match &view.operate {
        Some(access) => access.config_facts().await,
        None => Arc::default(),
    }
}

/// A recorded payload, with everything that determines the result of its retry.
struct RetriedPayload<'r> {
    text: &'r str,
    sender: &'r ListenerName,
    /// The recipient of the call; `None` for a refused submission.
    to: Option<&'r ListenerName>,
    /// The rule by which the submission was refused; `None` for a failed call.
    rule: Option<RefusalRule>,
    is_unknown: bool,
}

impl RetryPredictor {
    pub fn of(gate: Option<Gate>) -> Self {
        Self { gate }
    }

    /// Returns the content of the row for `message` in the list of messages to retry.
    pub fn facts(
        &self,
        index: &IndexReader,
        message: &RetryMessage,
    ) -> Result<RetryFacts, index::Error> {
        let Some(sealed) = index.journal().record(message.record)? else {
            return Ok(RetryFacts::default());
        };
        let record = &sealed.record;
        let is_unknown = has_unknown_outcome(index, message, record)?;
        if let Some(refused) = SubmissionRefusal::find(record, message.id) {
            let SubmissionRefusal { sender, thread, refusal, .. } = refused;
            let retried = RetriedPayload {
                text: &refusal.head,
                sender,
                to: None,
                rule: Some(refusal.rule),
                is_unknown,
            };
            return Ok(RetryFacts {
                name: element_name(&refusal.head).unwrap_or_default().to_owned(),
                payload: payload_line(&refusal.head),
                thread: thread.cloned(),
                detail: refusal.message.clone(),
                outlook: self.outlook(&retried),
                repeated: None,
            });
        }

        let accepted = record.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message: accepted, .. } if accepted.id == message.id => Some(accepted),
            _ => None,
        });
        let Some(accepted) = accepted else { return Ok(RetryFacts::default()) };
        let text = accepted.payload.as_str();
        let retried = RetriedPayload {
            text,
            sender: &accepted.from,
            to: Some(&accepted.to),
            rule: None,
            is_unknown,
        };
        let fault = last_fault(index, message.id)?;
        let is_cut_off = fault.as_ref().is_some_and(|fault| CUT_OFF.contains(&&*fault.kind));
        let is_budget_spent = fault.as_ref().is_some_and(|fault| fault.kind == BUDGET_SPENT);
        Ok(RetryFacts {
            name: accepted.name.local.to_string(),
            payload: recorded_line(&accepted.payload),
            thread: Some(accepted.thread.clone()),
            detail: fault.map(|fault| fault.detail).unwrap_or_default(),
            outlook: match self.outlook(&retried) {
                // A retry would spend the same again, so a retry of all leaves it out.
                RetryOutlook::Sent if is_budget_spent => budget_spent(),
                outlook => outlook,
            },
            repeated: self.attempts_of(accepted).filter(|attempts| *attempts > 1 && is_cut_off),
        })
    }

    /// Returns the number of attempts that the config permits for `call`. Returns `None` without a
    /// config, or if the config does not have the recipient of `call`.
    fn attempts_of(&self, call: &Message) -> Option<u32> {
        let contract = self.gate.as_ref()?.contracts.get(&call.to)?;
        Some(contract.attempts_of(Some(&call.name)))
    }

    /// Predicts the result of a retry. Makes the same checks as the organism, in the same order:
    /// - Is the outcome of the message unknown?
    /// - Does the gate refuse the message?
    /// - Does any listener that gets the message permit only one attempt?
    ///
    /// The gate does not check the message if the config is not available or the payload is very
    /// long. Without this check, the result for a refused message follows from the rule of its
    /// refusal alone.
    fn outlook(&self, retried: &RetriedPayload<'_>) -> RetryOutlook {
        if retried.is_unknown {
            let text = "its outcome is unknown: the work may have been done";
            return RetryOutlook::NeedsConfirmation(text.to_owned());
        }
        // To parse a very long payload takes long, and the organism checks it anyway.
        let gate = self.gate.as_ref().filter(|_| retried.text.len() <= limits::WEB_READ_BYTES);
        let Some(gate) = gate else {
            let refused = retried.rule.and_then(|rule| refused_again(rule, retried));
            return refused.unwrap_or_default();
        };

        let checked = match gate.check(retried.sender, retried.text.as_bytes()) {
            Ok(checked) => checked,
            Err(refusal) => return refused_again(refusal.rule, retried).unwrap_or_default(),
        };
        let Meaning::Call { peers, .. } = checked.meaning() else {
            return refused_again(RefusalRule::NotInVocabulary, retried).unwrap_or_default();
        };
        if let Some(to) = retried.to.filter(|to| !peers.contains(to)) {
            let text = format!(
                "refused again: the config no longer allows `{}` from {} to {to}",
                checked.name().local,
                retried.sender
            );
            return RetryOutlook::NeedsChange(text);
        }

        let is_called = |peer: &&ListenerName| retried.to.is_none_or(|to| to == *peer);
        let once = peers.iter().filter(is_called).find(|peer| {
            let contract = gate.contracts.get(peer);
            contract.is_some_and(|contract| contract.attempts_of(Some(checked.name())) == 1)
        });
        match once {
            Some(peer) => RetryOutlook::NeedsConfirmation(format!(
                "{peer} has `attempts = 1`, so a retry needs a confirmation"
            )),
            None => RetryOutlook::Sent,
        }
    }
}

/// Returns the expected result of retrying a call that failed because a budget had too little left.
fn budget_spent() -> RetryOutlook {
    RetryOutlook::NeedsChange("fails again unless a budget in the config is raised".to_owned())
}

/// Returns the expected result of retrying a payload that `rule` refused. If the rule depends only
/// on the payload, its sender and the config, the result is another refusal. Returns `None` for any
/// other rule, because the same payload may be accepted later.
fn refused_again(rule: RefusalRule, retried: &RetriedPayload<'_>) -> Option<RetryOutlook> {
    let name = element_name(retried.text).unwrap_or("this payload");
    let text = match rule {
        RefusalRule::NotInVocabulary => {
            format!("refused again unless the config allows `{name}` from {}", retried.sender)
        }
        RefusalRule::SchemaInvalid => {
            format!("refused again unless the schema of `{name}` in the config allows this content")
        }
        rule if rule.is_of_text() => {
            format!("refused again unless the client sends another text: {rule}")
        }
        _ => return None,
    };
    Some(RetryOutlook::NeedsChange(text))
}

/// Whether the outcome of the message, or of an earlier message in its chain of retries, is
/// unknown.
fn has_unknown_outcome(
    index: &IndexReader,
    message: &RetryMessage,
    record: &Record,
) -> Result<bool, index::Error> {
    let is_retry = matches!(record.input, Input::OperatorRetry(_));
    if !message.reason.is_empty() && !is_retry {
        return Ok(message.reason == UNKNOWN_OUTCOME);
    }
    // Only the whole tree shows the chain of retries.
    let source = RetrySource::find(index.journal(), message.record, message.id)?;
    Ok(source.is_ok_and(|source| source.is_unknown))
}

/// Returns the newest failure of a call; `None` if the index has none.
fn last_fault(index: &IndexReader, id: MessageId) -> Result<Option<IndexedError>, index::Error> {
    let Some(selector) = MessageSelector::parse(&id.to_string()) else { return Ok(None) };
    let Some(row) = index.messages_with_id(&selector, 1)?.pop() else { return Ok(None) };
    Ok(index.errors_of(&row)?.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Predicts, without a config, the result of a retry of a submission that `rule` refused.
    fn outlook(rule: RefusalRule, text: &str) -> RetryOutlook {
        let sender = ListenerName::parse("desk").unwrap();
        let retried =
            RetriedPayload { text, sender: &sender, to: None, rule: Some(rule), is_unknown: false };
        RetryPredictor::default().outlook(&retried)
    }

    #[test]
    fn a_refusal_by_the_config_comes_again_and_one_by_the_moment_does_not() {
        let refused = |text: &str| RetryOutlook::NeedsChange(text.to_owned());
        let unknown = outlook(RefusalRule::NotInVocabulary, "<nonsense/>");
        assert_eq!(unknown, refused("refused again unless the config allows `nonsense` from desk"));
        let invalid = outlook(RefusalRule::SchemaInvalid, "<hold><m/></hold>");
        assert_eq!(
            invalid,
            refused("refused again unless the schema of `hold` in the config allows this content")
        );
        let busy = outlook(RefusalRule::BudgetSpent, "<hold/>");
        assert_eq!(busy, RetryOutlook::Sent);
    }
}
