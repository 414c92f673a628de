//! Decisions on held calls. An operator approves or refuses a call, or a person answers a question.
//!
//! A decision names the message id of the call's request, so it stays valid across restarts of the
//! pump. A decision counts once. A second decision is refused, and the refusal is recorded.

use super::event::{CallDecision, Effect, GatedAnswer, OperatorRuling};
use super::failures::earlier_deliveries;
use super::outcome::{Gated, OutcomeContext};
use super::refusals::refusal_of;
use super::signatures::SignedDecision;
use super::{Core, Step};
use crate::contract::Meaning;
use crate::envelope::{Disposition, Refusal, RefusalRule};
use crate::ids::{CallId, Digest, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::gate::NOT_IN_VOCABULARY;
use crate::system::ErrorCode;
use crate::thread::{
    Call, Decision, DecisionOrigin, DecisionStatement, Fact, Hold, Input, Opener, RecordedAnswer,
    Verdict,
};

/// The pump's ruling on a decision: accepted, or refused for the contained reason.
type Ruling = Result<(), Refusal>;

const NOT_WAITING: &str =
    "nothing waits for this decision: it was taken before, or the call is over";

const NOT_INTACT: &str =
    "its bytes are no longer those that were recorded; refuse it with `organism refuse`";

impl Core {
    pub(super) fn decide(&mut self, step: &mut Step, taken: CallDecision) {
        let CallDecision { ticket, message, decision, origin } = taken;
        let call = CallId(message);
        let tree = self.state.calls.get(&call).cloned().unwrap_or_else(ThreadId::organism);
        let shortened = |text: String, most: usize| text.chars().take(most).collect::<String>();
        let decision = match decision {
            Decision::Approve { hash, preview } => Decision::Approve {
                hash: shortened(hash, limits::HASH_CHARS_MAX + 1),
                preview: preview.map(|hash| shortened(hash, limits::HASH_CHARS_MAX + 1)),
            },
            Decision::Refuse { reason } => {
                Decision::Refuse { reason: shortened(reason, limits::REASON_CHARS_MAX) }
            }
            answer @ Decision::Answer(_) => answer,
        };

        let recorded = decision.as_ref().map_answer(recorded_answer);
        let origin = origin.map(DecisionOrigin::shortened);
        let input = Input::Decided {
            message,
            by: ListenerName::operator(),
            decision: recorded.clone(),
            origin: origin.clone(),
        };

        step.begin_record(tree, input);

        let proved = self.check_decision(step, message, &recorded, &origin.unwrap_or_default());
        let (by, signed) = match proved {
            Ok(operator) => (operator, Ok(())),
            Err(refusal) => (ListenerName::operator(), Err(refusal)),
        };

        let ruling = match decision {
            Decision::Answer(answer) if signed.is_err() => {
                let refused =
                    |refusal: Refusal| of_answer(refusal.rule, refusal.message, &answer.payload);
                signed.map_err(refused)
            }
            _ if signed.is_err() => signed,
            Decision::Approve { hash, preview } => {
                self.approve(step, call, &by, (&hash, preview.as_deref()))
            }
            Decision::Refuse { reason } => self.refuse_held(step, call, &by, &reason),
            Decision::Answer(GatedAnswer { listener, payload }) => {
                self.answer_held(step, call, listener, payload)
            }
        };

        if let Err(refusal) = &ruling {
            step.push_verdict(Verdict::Refused(refusal.digest));
            let thread = self.state.call(call).map(|open| open.thread.clone());
            let open = thread.is_some().then_some(call);
            self.refuse(step, &by, thread.as_ref(), open, refusal.clone());
            // Checked only after the call is known to be open, because the refusal is recorded in
            // the thread of an open call.
            if refusal.rule == RefusalRule::BudgetSpent {
                self.fail_void(step, call, &refusal.message);
            }
        }

        step.effects.insert(0, Effect::Ruled { ticket, ruling: OperatorRuling::Plain(ruling) });
    }

    /// Returns the operator who made a decision. If the call is held, refuses a decision whose
    /// required signature is missing or invalid. If the call is not held, the decision changes
    /// nothing and needs no signature: without a valid signature, returns the anonymous operator.
    fn check_decision(
        &mut self,
        step: &mut Step,
        message: MessageId,
        decision: &Decision<RecordedAnswer>,
        origin: &DecisionOrigin,
    ) -> Result<ListenerName, Refusal> {
        let call = CallId(message);
        let waiting = self.state.call(call).filter(|open| open.held.is_some());
        let thread = waiting.map(|open| open.thread.clone());
        let signature = origin.signature.as_deref();
        // The thread of a call that is over may be unknown, so the signature's own thread counts.
        let signed_thread = signature.map(|signature| &signature.thread);
        let Some(named) = thread.as_ref().or(signed_thread) else {
            return Ok(ListenerName::operator());
        };

        let statement = DecisionStatement::decided(message, decision, &origin.note);
        let signed = SignedDecision { statement, thread: named, signature };
        let proved = self.check_signature(step, &signed);
        if thread.is_some() { proved } else { Ok(proved.unwrap_or(ListenerName::operator())) }
    }

    fn waits(&self, call: CallId, hold: Option<Hold>) -> bool {
        let held = self.state.call(call).and_then(|open| open.held);
        held.is_some_and(|held| hold.is_none_or(|hold| held.hold == hold))
    }

    /// Approves a held call. The approval must name the hash of the call's payload. If the call has
    /// a recorded preview, the approval must also name the hash of the preview. Otherwise, the
    /// approval is refused.
    fn approve(
        &mut self,
        step: &mut Step,
        call: CallId,
        by: &ListenerName,
        (hash, preview): (&str, Option<&str>),
    ) -> Ruling {
        let no = |rule, message: &str| Err(Refusal::new(rule, message, hash.as_bytes()));
        let again = mutant("approve-twice") && self.state.call(call).is_some();
        if !self.waits(call, Some(Hold::Approval)) && !again {
            return no(RefusalRule::NotWaiting, NOT_WAITING);
        }

        let Some(open) = self.state.call(call) else {
            return no(RefusalRule::NotWaiting, NOT_WAITING);
        };
        let Some(request) = open.request() else { return no(RefusalRule::NotWaiting, NOT_WAITING) };
        if !request.payload.is_intact() {
            return no(RefusalRule::WrongHash, NOT_INTACT);
        }

        if !names(hash, request.payload.digest) && !mutant("accept-a-wrong-hash") {
            return no(
                RefusalRule::WrongHash,
                "this is not the hash of its payload; look at it again",
            );
        }

        if let Some(defect) = preview_mismatch(open, preview)
            && !mutant("approve-without-the-preview")
        {
            return no(RefusalRule::WrongHash, defect);
        }

        if let Some(spent) = self.spent_meanwhile(step, call) {
            return no(RefusalRule::BudgetSpent, &spent);
        }

        self.note_ruling(step, call, by.clone(), "", true);
        self.end_hold(step, call, false);
        self.queue_for_listener(step, call);
        Ok(())
    }

    /// Returns a description of a budget or time limit that was used up while `call` was held.
    /// Checks the limits of the sender of the call, and then those of the tree. Returns `None` if
    /// no limit is used up. Must be called before an approval takes effect, because a sender whose
    /// budget is used up could not use the result of the call.
    fn spent_meanwhile(&mut self, step: &mut Step, call: CallId) -> Option<String> {
        let open = self.state.call(call)?;
        let thread = open.thread.clone();
        let opener = open.opening.opener.clone();
        if let Opener::Call { name, thread, .. } = opener {
            let spent = self.time_over(&thread, step.time);
            let spent = spent.or_else(|| self.spent_for_model_call(step, &name, &thread));
            if spent.is_some() {
                return spent;
            }
        }

        // `held` includes this call, which must not count against itself.
        let tree = self.state.tree(&thread)?;
        let most = self.budgets.limits.messages;
        let is_spent = self.budgets.has_no_message_left(tree, 1);
        is_spent.then(|| format!("all {most} messages of this tree are used"))
    }

    fn fail_void(&mut self, step: &mut Step, call: CallId, spent: &str) {
        self.note_ruling(step, call, ListenerName::core(), spent, false);
        self.fail_with(step, call, ErrorCode::BudgetSpent, spent, Disposition::Cancelled);
    }

    fn refuse_held(
        &mut self,
        step: &mut Step,
        call: CallId,
        by: &ListenerName,
        reason: &str,
    ) -> Ruling {
        if !self.waits(call, None) {
            return Err(Refusal::new(RefusalRule::NotWaiting, NOT_WAITING, reason.as_bytes()));
        }

        if self.waits(call, Some(Hold::Approval)) {
            self.note_ruling(step, call, by.clone(), reason, false);
        }

        let earlier = self.state.call(call).map(earlier_deliveries).unwrap_or_default();
        let text = ended_by_operator("refused", by, reason) + &earlier;
        self.fail_with(step, call, ErrorCode::Denied, &text, Disposition::Cancelled);
        Ok(())
    }

    /// Handles an answer to a question. If the gate refuses the answer, the question stays open.
    fn answer_held(
        &mut self,
        step: &mut Step,
        call: CallId,
        listener: ListenerName,
        payload: Gated,
    ) -> Ruling {
        let question = self.state.call(call).filter(|open| open.callee == listener);
        let request = question.and_then(Call::request);
        let question_name = request.map(|request| request.name.clone());
        let is_intact = request.is_some_and(|request| request.payload.is_intact());
        let thread = question.map(|open| open.thread.clone());
        let waits = self.waits(call, Some(Hold::Answer));
        let (Some(thread), true) = (thread, waits) else {
            return Err(of_answer(RefusalRule::NotWaiting, NOT_WAITING, &payload));
        };

        if !is_intact {
            return Err(of_answer(RefusalRule::WrongHash, NOT_INTACT, &payload));
        }

        let checked = payload?;
        if *checked.meaning() != Meaning::Reply {
            return Err(refusal_of(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, &checked));
        }
        let answers = question_name.map(|name| self.contracts.answers_to(&listener, &name));
        let answers = answers.unwrap_or_default();
        if !answers.contains(checked.name()) && !mutant("answer-another-question") {
            let names: Vec<_> = answers.iter().map(ToString::to_string).collect();
            let message = format!("this question is answered with {}", names.join(" or "));
            return Err(refusal_of(RefusalRule::NotInVocabulary, message, &checked));
        }

        let attempt = self.calls.next_attempt(self.state.epoch, call);
        self.fact(step, Fact::OutcomeReceived { call, attempt });
        self.dispose(step, call.0, Disposition::Handled);
        let context = OutcomeContext::new(call, &listener, &thread, false);
        self.reply(step, &context, vec![checked]);
        Ok(())
    }
}

/// Returns the reason why an approval does not match the recorded preview of a call, or `None` if
/// it matches. An approval of a call without a recorded preview must not name a preview.
fn preview_mismatch(call: &Call, preview: Option<&str>) -> Option<&'static str> {
    let note = call.recorded_preview();
    if note.is_some_and(|note| !note.payload.is_intact()) {
        return Some(
            "its preview was redacted, so it cannot be read any more; refuse the call, and have it \
             sent again",
        );
    }

    match (note, preview) {
        (Some(note), Some(hash)) if names(hash, note.payload.digest) => None,
        (Some(_), Some(_)) => Some("this is not the hash of its preview; look at it again"),
        (Some(_), None) => Some("it has a preview, which the approval must name; look at it again"),
        (None, Some(_)) => Some("it has no preview that could be named; look at it again"),
        (None, None) => None,
    }
}

/// Returns the text for the caller of a call that an operator has ended. `verb` is `cancelled` or
/// `refused`. `reason` is the operator's reason; empty if the operator gave none.
pub(super) fn ended_by_operator(verb: &str, operator: &ListenerName, reason: &str) -> String {
    let operator = operator_phrase(operator);
    if reason.is_empty() {
        format!("{verb} by {operator}")
    } else {
        format!("{verb} by {operator}: {reason}")
    }
}

/// Returns a phrase that names an operator, such as `the operator alice`, for the text of a
/// payload.
fn operator_phrase(operator: &ListenerName) -> String {
    if *operator == ListenerName::operator() {
        "the operator".to_owned()
    } else {
        format!("the operator {operator}")
    }
}

/// Makes the refusal of the answer `payload` by the rule `rule`, whether the gate has accepted this
/// answer or not. The refusal contains the digest and the beginning of the answer.
fn of_answer(rule: RefusalRule, message: impl Into<String>, payload: &Gated) -> Refusal {
    match payload {
        Ok(checked) => refusal_of(rule, message, checked),
        Err(refusal) => refusal.instead(rule, message),
    }
}

/// Returns the form in which a record contains an answer. This form has no payloads, because the
/// record contains the payloads of the answer as messages or refusals.
fn recorded_answer(answer: &GatedAnswer) -> RecordedAnswer {
    let verdict = Verdict::from(&answer.payload);
    RecordedAnswer { listener: answer.listener.clone(), verdict }
}

/// Whether `hash` is `digest` in hexadecimal, or a sufficiently long prefix of it.
fn names(hash: &str, digest: Digest) -> bool {
    hash.len() >= limits::HASH_CHARS_MIN && digest.to_string().starts_with(hash)
}
