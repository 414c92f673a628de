//! Hints at permitted names, printed beneath a refusal by the rule `not-in-vocabulary`. The refusal
//! itself does not contain these names, because listeners and models get the same text. A person
//! with the config may see them.

use crate::contract::{Contracts, Meaning};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{ListenerName, PayloadName};
use crate::xml::element::Element;

use super::decision::exit_of_refusal;
use super::exit::CommandFailure;
use super::render::clean;
use super::submit_output::print_refusal;

/// Maximum number of names in a hint.
const SHOWN_MAX: usize = 5;

/// Returns the names of the payloads with which `sender` may make a call, or end a call that it
/// received.
pub fn permitted_names(contracts: &Contracts, sender: &ListenerName) -> Vec<PayloadName> {
    let words = contracts.vocabulary(sender).into_iter().flat_map(|words| words.iter());
    let permitted = words.filter(|(_, meaning)| {
        matches!(
            meaning,
            Meaning::Call { .. } | Meaning::Delegate { .. } | Meaning::Reply | Meaning::GoalAnswer
        )
    });
    permitted.map(|(name, _)| name.clone()).collect()
}

/// Prints the refusal of a payload, with its reason first, and then the hint of [`note_permitted`].
/// Returns the error with which the command ends, which prints nothing.
pub fn refused_payload(refusal: &Refusal, permitted: &[PayloadName]) -> anyhow::Error {
    print_refusal(refusal);
    note_permitted(refusal, permitted);
    CommandFailure::silent(exit_of_refusal(refusal)).into()
}

/// Prints a hint for a payload that was refused because of its name. The hint contains this name,
/// and the nearest names in `permitted`. Prints nothing for any other refusal.
pub fn note_permitted(refusal: &Refusal, permitted: &[PayloadName]) {
    if let Some(hint) = hint(refusal, permitted) {
        hint.lines().for_each(|line| note!("{}", clean(line)));
    }
}

fn hint(refusal: &Refusal, permitted: &[PayloadName]) -> Option<String> {
    if refusal.rule != RefusalRule::NotInVocabulary || permitted.is_empty() {
        return None;
    }
    let written = PayloadName::from(&Element::head(&refusal.head)?.name);
    if permitted.contains(&written) {
        return None;
    }

    let mut nearest: Vec<&PayloadName> = permitted.iter().collect();
    nearest.sort_by_cached_key(|name| {
        let local = strsim::damerau_levenshtein(&written.local, &name.local);
        let namespace = strsim::damerau_levenshtein(&written.namespace, &name.namespace);
        (local, namespace, name.to_string())
    });
    let shown = if written.namespace.is_empty() {
        format!("{written}, without a namespace (xmlns)")
    } else {
        written.to_string()
    };
    let mut out = format!("the payload's name is {shown}; write one of these, nearest first:\n");
    for name in nearest.iter().take(SHOWN_MAX) {
        out.push_str(&format!("  {name}\n"));
    }
    match nearest.len().saturating_sub(SHOWN_MAX) {
        0 => {}
        more => out.push_str(&format!("  and {more} more\n")),
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: &str = "urn:example:talk";

    fn hint_of(text: &str, permitted: &[&str]) -> Option<String> {
        let permitted: Vec<_> = permitted.iter().map(|name| PayloadName::new(NS, name)).collect();
        let refusal = Refusal::new(RefusalRule::NotInVocabulary, "refused", text.as_bytes());
        hint(&refusal, &permitted)
    }

    #[test]
    fn a_refused_name_is_shown_with_the_nearest_permitted_names() {
        let misspelled = hint_of("<greeet xmlns=\"urn:example:talk\"/>", &["order", "greet"]);
        assert_eq!(
            misspelled.unwrap(),
            "the payload's name is {urn:example:talk}greeet; write one of these, nearest first:\n  \
             {urn:example:talk}greet\n  {urn:example:talk}order\n"
        );
        let plain = hint_of("<greet>x</greet>", &["greet"]).unwrap();
        assert!(plain.contains("name is greet, without a namespace (xmlns);"), "{plain}");
        let many = hint_of("<x/>", &["a", "b", "c", "d", "e", "f", "g"]).unwrap();
        assert!(many.ends_with("}e\n  and 2 more\n"), "{many}");

        assert_eq!(hint_of("<greet xmlns=\"urn:example:talk\"/>", &["greet"]), None);
        assert_eq!(hint_of("hello", &["greet"]), None);
        let refusal = Refusal::new(RefusalRule::SchemaInvalid, "refused", b"<greet/>");
        assert_eq!(hint(&refusal, &[PayloadName::new(NS, "greet")]), None);
    }
}
