//! Texts of the events of a thread. Each display of an event shows the same text.

use super::timeline::SignedBy;
use crate::envelope::{AttemptFailure, Money, Spending};

/// Describes the failure of an attempt, as lines of text. If a model call made several requests,
/// describes each failed request. Describes a single failed request if the first line does not name
/// its route, as for a cancelled call. Also states the tokens and the money that were charged for
/// the failed call, if any.
pub fn failure_lines(failure: &AttemptFailure) -> Vec<String> {
    let mut lines = vec![failure.to_string()];
    if let AttemptFailure::Model { detail, tries, .. } = failure {
        let shown = tries.iter().filter(|one| tries.len() > 1 || !detail.contains(&one.route));
        lines.extend(shown.map(|one| format!("{} failed: {}", one.route, one.reason)));
    }

    if let Some(spent) = failure.spent().filter(|spent| *spent != Spending::default()) {
        lines.push(format!("charged: {} tokens{}", spent.tokens, and_money(spent.money)));
    }

    lines
}

/// Returns the text about a model call whose result is lost, because the process of the pump or of
/// the agent ended during the call. All tokens and money that were reserved for this call are
/// charged.
pub fn charge_text(reserved: &Spending) -> String {
    let Spending { tokens, money } = reserved;
    let money = and_money(*money);
    format!("its result is lost: all {tokens} tokens{money} that it had reserved are charged")
}

fn and_money(money: Money) -> String {
    if money.is_zero() { String::new() } else { format!(" and {money}") }
}

/// States who signed a decision, and whether the signature is valid. For a refused decision, the
/// record does not state the owner of the key, so the text names only the key. The text then does
/// not state whether the signer had the right to decide, because the key may belong to an operator.
pub fn signature_text(signed: &SignedBy) -> String {
    let SignedBy { operator, key, holds } = signed;
    let verdict = if *holds { "valid" } else { "INVALID" };
    match operator {
        Some(operator) => format!("signed by {operator}, {key}: the signature is {verdict}"),
        None => format!(
            "signed with {key}, whose owner is not on record here: the signature is {verdict}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::RouteTry;
    use crate::ids::ListenerName;
    use crate::thread::OperatorPublicKey;

    #[test]
    fn a_refused_signature_says_nothing_about_the_right_of_its_key() {
        let pair = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
        let key = OperatorPublicKey::of(&pair);
        let refused = signature_text(&SignedBy { operator: None, key, holds: true });
        assert_eq!(
            refused,
            format!("signed with {key}, whose owner is not on record here: the signature is valid")
        );

        let operator = Some(ListenerName::parse("ana").unwrap());
        let signed = signature_text(&SignedBy { operator, key, holds: true });
        assert_eq!(signed, format!("signed by ana, {key}: the signature is valid"));
    }

    #[test]
    fn a_single_failed_request_is_shown_unless_the_failure_names_its_route() {
        let lines = |detail: &str, reason: &str| {
            let reason = reason.to_owned();
            let tries = vec![RouteTry { route: "openai/m".to_owned(), reason: reason.clone() }];
            let detail = detail.to_owned();
            let spent = Spending::default();
            let failure = AttemptFailure::Model { reason, detail, spent, passing: false, tries };
            failure_lines(&failure)[1..].to_vec()
        };
        let cancelled = lines("its caller no longer wants the answer", "cancelled");
        assert_eq!(cancelled, ["openai/m failed: cancelled"]);
        assert_eq!(lines("openai/m: an empty answer (HTTP 200)", "empty"), [""; 0]);
    }

    #[test]
    fn a_charge_states_its_tokens_and_its_money() {
        let charged = |money| charge_text(&Spending { tokens: 40, money: Money(money) });
        let free = "its result is lost: all 40 tokens that it had reserved are charged";
        assert_eq!(charged(0), free);
        let paid = "its result is lost: all 40 tokens and 0.003 that it had reserved are charged";
        assert_eq!(charged(3_000_000), paid);

        let failed = |tokens, money| {
            let spent = Spending { tokens, money: Money(money) };
            let detail = "the stream broke off".to_owned();
            let failure = AttemptFailure::CutShort { detail, spent, retried: true };
            failure_lines(&failure)[1..].to_vec()
        };
        assert_eq!(failed(0, 0), [""; 0]);
        assert_eq!(failed(40, 0), ["charged: 40 tokens"]);
        assert_eq!(failed(40, 3_000_000), ["charged: 40 tokens and 0.003"]);
    }
}
