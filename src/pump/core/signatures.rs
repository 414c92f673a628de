//! Signatures of decisions. If the config names operators, each decision needs the signature of one
//! of them, and each signature counts once.

use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{DecisionSignature, DecisionStatement, Fact, OperatorKeys};

/// The parts of a decision that its signature covers.
pub(super) struct SignedDecision<'a> {
    /// The statement that the operator signs. `None` for an approval that contains only a shortened
    /// digest: a signed approval must contain the whole digests of the payload and of the preview.
    pub statement: Option<DecisionStatement<'a>>,
    pub thread: &'a ThreadId,
    pub signature: Option<&'a DecisionSignature>,
}

impl Core {
    /// Sets the operators who must sign decisions. If `operators` is empty, decisions need no
    /// signature.
    #[must_use]
    pub fn with_operators(self, operators: OperatorKeys) -> Self {
        Self { operators, ..self }
    }

    /// Checks the signature of a decision, records it, and returns the operator who signed. The
    /// same signature is not accepted a second time. Returns the anonymous operator if the config
    /// names no operators.
    pub(super) fn check_signature(
        &mut self,
        step: &mut Step,
        decision: &SignedDecision<'_>,
    ) -> Result<ListenerName, Refusal> {
        let signature = self.proof(step.time, decision)?;
        let Some(signature) = signature else { return Ok(ListenerName::operator()) };
        let Some(operator) = self.operators.owner(&signature.key).cloned() else {
            return Ok(ListenerName::operator());
        };

        let DecisionSignature { nonce, time, .. } = *signature;
        step.set_operator(&operator);
        self.fact(step, Fact::Signed { operator: operator.clone(), nonce, time });
        Ok(operator)
    }

    /// Returns the valid signature of a decision. Returns `None` if the decision is unsigned and
    /// needs no signature.
    ///
    /// # Errors
    ///
    /// Returns the refusal of a decision whose signature is missing or invalid.
    pub(super) fn proof<'d>(
        &self,
        now: Time,
        decision: &SignedDecision<'d>,
    ) -> Result<Option<&'d DecisionSignature>, Refusal> {
        let Some(signature) = decision.signature else {
            if self.operators.is_empty() || mutant("take-unsigned-decisions") {
                return Ok(None);
            }
            return Err(refusal(&unsigned(&self.operators)));
        };

        self.validate(now, decision, signature).map_err(|message| refusal(&message))?;
        Ok(Some(signature))
    }

    /// Checks that `signature` is valid for `decision`. If it is not, `Err` contains the reason.
    fn validate(
        &self,
        now: Time,
        decision: &SignedDecision<'_>,
        signature: &DecisionSignature,
    ) -> Result<(), String> {
        if self.operators.owner(&signature.key).is_none() {
            let names = self.operators.names();
            return Err(format!(
                "the key that signed it is of no operator of this config ({names})"
            ));
        }

        let Some(statement) = &decision.statement else {
            return Err("a signed approval names the whole hash of its payload".to_owned());
        };

        if !signature.holds(statement) && !mutant("take-any-signature") {
            return Err(
                "its signature is of something else: it was changed after it was signed".to_owned()
            );
        }

        let is_here = signature.journal == self.state.journal;
        if !is_here && !mutant("take-signatures-of-other-threads") {
            return Err("it was signed for another journal; sign it again".to_owned());
        }

        let is_thread = *decision.thread == signature.thread;
        if !is_thread && !mutant("take-signatures-of-other-threads") {
            return Err("it was signed for another thread; sign it again".to_owned());
        }

        self.judge_time(now, signature)
    }

    /// Checks that `signature` has not expired and was not used before. Compares the time of the
    /// signature with `judged_at`, the time of the host's clock at the decision. If `signature`
    /// lacks `judged_at`, compares with `now`, the time of the record.
    fn judge_time(&self, now: Time, signature: &DecisionSignature) -> Result<(), String> {
        let now = signature.judged_at.unwrap_or(now);
        let signed = signature.time;
        if now > signed.plus(limits::SIGNATURE_VALIDITY) && !mutant("take-old-signatures") {
            let minutes = limits::SIGNATURE_VALIDITY.as_secs() / 60;
            return Err(format!(
                "it was signed at {signed}, and a signature holds for {minutes} minutes; sign it \
                 again"
            ));
        }

        if signed > now.plus(limits::SIGNATURE_AHEAD_MAX) {
            return Err(format!(
                "it was signed at {signed}, and here it is {now}: compare the clocks of the two \
                 hosts, then sign it again"
            ));
        }

        if self.state.nonces.contains_key(&signature.nonce) && !mutant("use-a-signature-twice") {
            return Err("its signature was used before; sign it again".to_owned());
        }

        Ok(())
    }
}

fn unsigned(operators: &OperatorKeys) -> String {
    format!(
        "this organism takes decisions of its operators alone ({}): sign it with --sign FILE, the \
         key of one of them",
        operators.names()
    )
}

fn refusal(message: &str) -> Refusal {
    Refusal::new(RefusalRule::NotSigned, message, b"")
}
