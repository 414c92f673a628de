//! Agreement of nouns and verbs with a number, in texts for people.

use std::fmt::Display;

/// Formats a number with its noun, like `1 message` or `2 messages`. The noun must have a plural
/// with `s`; [`form`] serves any other noun.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    format!("{number} {noun}{}", form(number, "", "s"))
}

/// Returns `singular` if the number is 1, and `plural` otherwise.
pub fn form<'t, N: PartialEq + From<u8>>(number: N, singular: &'t str, plural: &'t str) -> &'t str {
    if number == N::from(1) { singular } else { plural }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_and_a_verb_agree_with_the_number() {
        assert_eq!(count(1_usize, "call"), "1 call");
        assert_eq!(count(0_u64, "more call"), "0 more calls");
        assert_eq!(form(1_u32, "was", "were"), "was");
        assert_eq!(form(2_u32, "was", "were"), "were");
    }
}
