//! Writes the person of an action in the same form on all pages. The text contains the person's
//! name, and the operating system's user who ran the command for the action. It also states whether
//! the person is an operator.

use maud::{Markup, html};

use super::layout::inline;
use crate::audit::{SignedBy, ThreadTimeline, TimelineEvent, signed_by};
use crate::envelope::RefusalRule;
use crate::ids::{ListenerName, Position};
use crate::thread::{DecisionOrigin, Fact, Input, PauseAction, Record};

/// Number of characters of a signing key on a page, which leaves out the rest of the key.
const KEY_CHARS: usize = 12;

/// The person who performed a recorded action, with the details that the record contains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ActingPerson<'a> {
    /// Name of the person on record: the operator who signed the action, a client, or `operator` if
    /// the config names no operators.
    pub by: &'a str,
    pub is_signed: bool,
    /// Whether the organism refused the action. If so, the page may show the role `unproved`
    /// instead of `operator`. It does so for a person who did not sign, and is known only by login
    /// name or user id.
    pub is_refused: bool,
    /// Login name of the user who ran the command for the action, as the operating system reports
    /// it. `None` if the record does not contain it.
    pub login: Option<&'a str>,
    pub uid: Option<u32>,
    pub host: Option<&'a str>,
}

impl<'a> ActingPerson<'a> {
    /// Returns the person who made a decision. `is_refused` states whether the organism refused the
    /// decision.
    pub fn of_decision(
        by: &'a ListenerName,
        origin: Option<&'a DecisionOrigin>,
        signed: Option<&'a SignedBy>,
        is_refused: bool,
    ) -> Self {
        let who = origin.map(|origin| &origin.who);
        Self {
            by: by.as_str(),
            is_signed: signed.is_some_and(|signed| signed.operator.is_some()),
            is_refused,
            login: who.and_then(|who| who.login.as_deref()),
            uid: who.and_then(|who| who.uid),
            host: who.and_then(|who| who.host.as_deref()),
        }
    }

    /// Whether the record names the person only as `operator`. A record does so if the config named
    /// no operators when the person acted, or if no valid signature proved which operator it was.
    fn is_unnamed(&self) -> bool {
        self.by == ListenerName::OPERATOR
    }

    /// Returns the person's name alone. Usually, this is the recorded name. If the recorded name is
    /// only `operator`, this is the first of these that the record contains: the login name of the
    /// user who ran the command, the user id, or `operator`.
    pub fn name(&self) -> String {
        match (self.login, self.uid) {
            (Some(login), _) if self.is_unnamed() => login.to_owned(),
            (None, Some(uid)) if self.is_unnamed() => format!("uid {uid}"),
            _ => self.by.to_owned(),
        }
    }

    /// Describes the person, for example as `ana (operator, as ana1 on box)`.
    pub fn describe(&self) -> String {
        let name = self.name();
        let is_user = self.is_unnamed() && name != self.by;
        let role = match (self.is_signed, is_user) {
            (false, true) if self.is_refused => Some("unproved".to_owned()),
            (false, false) => None,
            _ => Some("operator".to_owned()),
        };
        let user = self.login.filter(|login| *login != name).map(|login| format!("as {login}"));
        let host = self.host.map(|host| format!("on {host}"));
        let command = [user, host].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let command = (!command.is_empty()).then_some(command);
        let details = [role, command].into_iter().flatten().collect::<Vec<_>>().join(", ");
        if details.is_empty() { name } else { format!("{name} ({details})") }
    }

    pub fn draw(&self) -> Markup {
        inline(&self.describe())
    }
}

/// Evidence of the identity of the person who performed an action: a signature, or the user of the
/// operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionProof {
    signature: Option<ShownSignature>,
    /// Login name of the user who ran the command for the action; `None` if the record does not
    /// contain it.
    login: Option<String>,
}

/// The signature of an action, as a page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownSignature {
    /// Public key of the signature, written as keys are in the config.
    key: String,
    state: SignatureState,
}

/// The extent to which a record proves a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureState {
    /// The organism accepted the signature as that of an operator.
    Accepted,
    /// The signature is valid, but the record does not state to whom the key belonged.
    WithoutOwner,
    /// The signature is not valid for the recorded action, or the organism refused the action
    /// because it did not accept the signature as that of an operator.
    Unproved,
}

impl SignatureState {
    fn of(record: &Record, signed: &SignedBy) -> Self {
        let is_not_signed = record.facts.iter().any(|fact| {
            matches!(fact, Fact::Refused { refusal, .. } if refusal.rule == RefusalRule::NotSigned)
        });
        match &signed.operator {
            Some(_) => Self::Accepted,
            None if signed.holds && !is_not_signed => Self::WithoutOwner,
            None => Self::Unproved,
        }
    }
}

impl ActionProof {
    pub fn unsigned(login: Option<String>) -> Self {
        Self { signature: None, login }
    }

    /// Returns the proof of the action in a record. `login` is the login name of the user who ran
    /// the command for the action.
    pub fn of_record(record: &Record, login: Option<String>) -> Self {
        let signed = origin_of(&record.input).and_then(|origin| signed_by(record, origin));
        let signature = signed.map(|signed| ShownSignature {
            key: signed.key.to_string(),
            state: SignatureState::of(record, &signed),
        });
        Self { signature, login }
    }

    pub fn draw(&self) -> Markup {
        let Some(ShownSignature { key, state }) = &self.signature else {
            return html! {
                "unsigned"
                @if let Some(login) = &self.login { ", operating system user " (inline(login)) }
            };
        };
        let digits = key.rsplit(':').next().unwrap_or(key);
        let digits: String = digits.chars().take(KEY_CHARS).collect();
        html! {
            @if *state == SignatureState::Unproved { "signature unproved, key " }
            @else { "signed, key " }
            code title=(key) { (inline(&digits)) "…" }
            @if *state == SignatureState::WithoutOwner {
                ": valid, but its owner is not on record here"
            }
        }
    }
}

/// Returns the origin of a recorded action, which contains the user and may contain a signature.
/// Returns `None` if the record has no origin.
pub(super) fn origin_of(input: &Input) -> Option<&DecisionOrigin> {
    match input {
        Input::Decided { origin, .. } | Input::Cancel { origin, .. } => origin.as_ref(),
        Input::Pause(PauseAction { origin, .. }) => origin.as_ref(),
        Input::Fork(fork) => fork.origin.as_ref(),
        Input::OperatorRetry(retry) => retry.origin.as_ref(),
        _ => None,
    }
}

/// Whether the record at `position` contains an action of a person that the organism refused.
/// Ignores refused payloads of agents in the same record.
pub(super) fn is_refused(timeline: &ThreadTimeline, position: Position) -> bool {
    let operator = ListenerName::operator();
    timeline.items.iter().filter(|item| item.position == position).any(
        |item| matches!(&item.what, TimelineEvent::Refused(refusal) if refusal.sender == operator),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_names_the_key_or_the_user() {
        let unsigned = ActionProof::unsigned(Some("ana1".to_owned()));
        let drawn = unsigned.draw().into_string();
        assert_eq!(drawn, "unsigned, operating system user <bdi>ana1</bdi>");

        let drawn = |state| {
            let key = format!("ed25519:{}", "R2UG".repeat(10));
            let signature = Some(ShownSignature { key, state });
            ActionProof { signature, ..unsigned.clone() }.draw().into_string()
        };
        let signed = drawn(SignatureState::Accepted);
        assert!(signed.starts_with("signed, key <code title=\"ed25519:R2UGR2UG"), "{signed}");
        assert!(signed.ends_with("<bdi>R2UGR2UGR2UG</bdi>…</code>"), "{signed}");
        let unowned = drawn(SignatureState::WithoutOwner);
        assert!(unowned.starts_with("signed, key "), "{unowned}");
        assert!(unowned.ends_with(": valid, but its owner is not on record here"), "{unowned}");
        let unproved = drawn(SignatureState::Unproved);
        assert!(unproved.starts_with("signature unproved, key "), "{unproved}");
    }

    #[test]
    fn a_person_has_one_form_with_what_is_known_of_them() {
        let operator = ActingPerson { by: "operator", ..ActingPerson::default() };
        let user = ActingPerson { login: Some("ana1"), host: Some("box"), ..operator };
        let cases = [
            (operator, "operator"),
            (user, "ana1 (operator, on box)"),
            (ActingPerson { by: "ana", is_signed: true, ..user }, "ana (operator, as ana1 on box)"),
            (ActingPerson { host: None, ..user }, "ana1 (operator)"),
            (ActingPerson { uid: Some(7), ..operator }, "uid 7 (operator)"),
            (ActingPerson { by: "desk", ..user }, "desk (as ana1 on box)"),
            (ActingPerson { is_refused: true, ..user }, "ana1 (unproved, on box)"),
            (ActingPerson { is_refused: true, ..operator }, "operator"),
            (
                ActingPerson { by: "ana", is_signed: true, is_refused: true, ..operator },
                "ana (operator)",
            ),
        ];
        for (person, expected) in cases {
            assert_eq!(person.describe(), expected);
        }
    }
}
