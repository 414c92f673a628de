//! Questions of workflows to people: payloads that only one workflow may send, each with exactly
//! one payload that answers it.

use serde::{Deserialize, Serialize};

use super::{Contract, Contracts};
use crate::ids::{ListenerName, PayloadName};

/// A question that a workflow may put to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowQuestion {
    #[serde(rename = "human")]
    pub human: ListenerName,
    /// Payload that contains the question. Only the workflow that declares the question may send
    /// this payload.
    #[serde(rename = "question")]
    pub question: PayloadName,
    /// The only payload that answers the question.
    #[serde(rename = "answer")]
    pub answer: PayloadName,
}

impl Contract {
    /// Returns the questions that `sender` may put to this listener. Empty if this listener is not
    /// a person.
    pub(super) fn questions_from<'a>(
        &'a self,
        sender: &'a Self,
    ) -> impl Iterator<Item = &'a PayloadName> {
        let to_self = sender.questions.iter().filter(|question| question.human == self.name);
        to_self.filter(|_| self.is_human()).map(|question| &question.question)
    }

    /// Returns the payloads with which this listener may answer questions of workflows. Empty if
    /// this listener is not a person.
    pub(super) fn answers_to_workflows<'a>(
        &'a self,
        callable: &'a [&'a Self],
    ) -> impl Iterator<Item = &'a PayloadName> {
        let questions = callable.iter().flat_map(|contract| &contract.questions);
        let own = questions.filter(|question| question.human == self.name);
        own.filter(|_| self.is_human()).map(|question| &question.answer)
    }
}

impl Contracts {
    /// Returns the payloads with which `human` may answer `question`. If a workflow declares an
    /// answer to this question, returns only that answer. Otherwise, returns all replies that the
    /// config declares for the person.
    pub fn answers_to(&self, human: &ListenerName, question: &PayloadName) -> Vec<PayloadName> {
        let all = self.iter().flat_map(|contract| &contract.questions);
        let mut own = all.filter(|one| one.human == *human && one.question == *question);
        match own.next() {
            Some(one) => vec![one.answer.clone()],
            None => self.get(human).map(|human| human.replies.clone()).unwrap_or_default(),
        }
    }
}
