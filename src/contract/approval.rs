//! Decides which calls an operator must approve before they are delivered.
//!
//! The decision depends on the listener's setting and on the bytes of the payload. In doubt,
//! approval is required. A sender may request more approvals than the config requires, but not
//! fewer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::xml::element::Element;
use crate::xml::scan::attributes;

/// Which calls to a listener need approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Approval {
    #[default]
    #[serde(rename = "never")]
    Never,
    /// A call needs no approval if its payload meets two conditions:
    /// - The root element has the attribute `is_dangerous` with the literal value `false`.
    /// - No element has another value in this attribute or in an attribute of a similar name.
    ///
    /// Every other call needs approval.
    #[serde(rename = "dangerous")]
    Dangerous,
    #[serde(rename = "always")]
    Always,
}

impl Approval {
    /// Name of the attribute with which a model rates its own action.
    pub const FLAG: &str = "is_dangerous";

    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }

    /// Returns the reason why a call with this payload needs approval; `None` if the call needs no
    /// approval.
    pub fn wanted(self, payload: &str) -> Option<&'static str> {
        match self {
            Self::Never => None,
            Self::Always => Some("every call to it needs an approval"),
            Self::Dangerous => danger(payload),
        }
    }
}

fn danger(payload: &str) -> Option<&'static str> {
    let attributes = attributes(payload);
    let flag = attributes.iter().find(|(name, _)| *name == Approval::FLAG);
    match flag {
        None => Some("its is_dangerous is missing"),
        // An encoded value is not the literal `false`, even if it decodes to `false`.
        Some((_, Cow::Borrowed("false"))) => inside(payload),
        Some(_) => Some("its is_dangerous is not literally false"),
    }
}

/// Returns the reason why an element of the payload needs approval; `None` if no element needs it.
/// Examines all elements, because a harmless root element may contain dangerous ones.
fn inside(payload: &str) -> Option<&'static str> {
    let Some(root) = Element::read(payload) else { return Some("it cannot be read") };
    let mut next: Vec<&Element> = vec![&root];
    while let Some(element) = next.pop() {
        let mut flags = element.attributes.iter().filter(|(name, _)| resembles(&name.local));
        if flags.any(|(_, value)| value != "false") {
            return Some("something in it is marked as dangerous");
        }
        next.extend(element.children());
    }

    None
}

/// Whether `name` is a spelling of [`FLAG`] that a model might use by mistake.
fn resembles(name: &str) -> bool {
    let letters = name.chars().filter(|c| c.is_alphabetic());
    let plain: String = letters.flat_map(char::to_lowercase).collect();
    matches!(plain.as_str(), "isdangerous" | "dangerous")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement A13.
    #[test]
    fn only_a_literal_false_passes_without_an_approval() {
        let passes = [
            "<run is_dangerous=\"false\">ls</run>",
            "<run is_dangerous='false'/>",
            "<run xmlns=\"urn:x\" a=\"1\" is_dangerous=\"false\">is_dangerous=\"true\"</run>",
            "<run is_dangerous=\"false\"><step is_dangerous=\"false\"/></run>",
        ];
        for payload in passes {
            assert_eq!(Approval::Dangerous.wanted(payload), None, "{payload}");
            assert!(Approval::Always.wanted(payload).is_some(), "never loosened: {payload}");
        }

        let waits = [
            "<run>ls</run>",
            "<run is_dangerous=\"true\"/>",
            "<run is_dangerous=\"\"/>",
            "<run is_dangerous=\"0\"/>",
            "<run is_dangerous=\"no\"/>",
            "<run is_dangerous=\"False\"/>",
            "<run is_dangerous=\"FALSE\"/>",
            "<run is_dangerous=\" false\"/>",
            "<run is_dangerous=\"false \"/>",
            "<run is_dangerous=\"f&#97;lse\"/>",
            "<run is_dangerous=\"fal\u{200b}se\"/>",
            "<run is_dangerous=\"f\u{430}lse\"/>",
            "<run Is_Dangerous=\"false\"/>",
            "<run isDangerous=\"false\"/>",
            "<run dangerous=\"false\"/>",
            "<run x:is_dangerous=\"false\" xmlns:x=\"urn:x\"/>",
            "<run><step is_dangerous=\"false\"/></run>",
            "<run><is_dangerous>false</is_dangerous></run>",
            "<run is_dangerous=\"false\"><step is_dangerous=\"true\"/></run>",
            "<run is_dangerous=\"false\"><a><step isDangerous=\"yes\"/></a></run>",
            "<run is_dangerous=\"false\" dangerous=\"true\"/>",
        ];
        for payload in waits {
            assert!(Approval::Dangerous.wanted(payload).is_some(), "{payload}");
            assert_eq!(Approval::Never.wanted(payload), None);
        }
    }
}
