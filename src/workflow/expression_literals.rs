//! Finds literals whose comparison cannot work as intended. Does not evaluate the comparison. There
//! are two kinds of such literals:
//! - The compared value can never match the literal.
//! - The literal is compared with a truth value, so that the comparison means the opposite of what
//!   it seems to mean.
//!
//! The search examines only the values of functions that organism adds to XPath. It reports nothing
//! if a function other than `string` and `normalize-space` changes such a value before the
//! comparison.

use crate::schema::last_line;

use super::expression::{ExpressionToken, OPERATORS, tokens};

const HAS_WORD_HELP: &str = "write has-word(x, 'WORD') or not(has-word(x, 'WORD'))";

/// A literal in a comparison that cannot work as intended: the comparison has no effect, or the
/// opposite of the intended effect.
#[derive(Debug, PartialEq, Eq)]
pub struct FutileLiteral {
    /// Text of the literal, without its quotes.
    pub literal: String,
    pub message: String,
    pub help: String,
}

/// Returns the literals of `expression` that are part of a comparison which cannot work as
/// intended. These are:
/// - literals that the compared value never equals, begins with or contains;
/// - literals that are compared with a truth value, if the comparison means the opposite of what it
///   seems to mean.
pub fn futile_literals(expression: &str) -> Vec<FutileLiteral> {
    let tokens = tokens(expression);
    let calls = (0..tokens.len()).filter_map(|at| FunctionCall::at(&tokens, at));
    calls.filter_map(|call| call.futile_literal()).collect()
}

/// A call of one of the functions that organism adds to XPath, with all tokens of the expression.
struct FunctionCall<'t> {
    tokens: &'t [ExpressionToken],
    function: &'t str,
    /// The second argument of the function, if it is a literal.
    argument: Option<&'t str>,
    /// Index, in `tokens`, of the first token of the function call; `to` is the index of the last
    /// token. The range includes parentheses around the call, and calls of `string` and
    /// `normalize-space` whose argument is the call.
    from: usize,
    to: usize,
    /// Whether `string` or `normalize-space` turns the value of the function call into a text.
    is_text: bool,
}

/// How a value is compared with a literal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    StartsWith,
    Contains,
}

impl<'t> FunctionCall<'t> {
    fn at(tokens: &'t [ExpressionToken], at: usize) -> Option<Self> {
        let function = match tokens.get(at)? {
            ExpressionToken::Name(name) => name.as_str(),
            _ => return None,
        };
        if !["last-line", "has-word", "payload"].contains(&function) {
            return None;
        }

        let to = closing(tokens, at + 1)?;
        let mut call = Self { tokens, function, argument: None, from: at, to, is_text: false };
        call.argument = match (call.symbol(to.checked_sub(2)?), tokens.get(to - 1)) {
            (Some(","), Some(ExpressionToken::Literal(text))) => Some(text),
            _ => None,
        };
        call.widen();
        Some(call)
    }

    fn symbol(&self, at: usize) -> Option<&'static str> {
        match self.tokens.get(at)? {
            ExpressionToken::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }

    fn name(&self, at: usize) -> Option<&'t str> {
        match self.tokens.get(at)? {
            ExpressionToken::Name(name) => Some(name),
            _ => None,
        }
    }

    fn literal(&self, at: usize) -> Option<&'t str> {
        match self.tokens.get(at)? {
            ExpressionToken::Literal(text) => Some(text),
            _ => None,
        }
    }

    /// Extends the range from `from` to `to` by the parentheses around the call, and by calls of
    /// `string` and `normalize-space` whose argument is the call.
    fn widen(&mut self) {
        while let Some(before) = self.from.checked_sub(1)
            && self.symbol(before) == Some("(")
            && self.symbol(self.to + 1) == Some(")")
        {
            match before.checked_sub(1).and_then(|at| self.name(at)) {
                Some("string" | "normalize-space") => {
                    self.from = before - 1;
                    self.is_text = true;
                }
                Some(name) if !OPERATORS.contains(&name) => return,
                _ => self.from = before,
            }
            self.to += 1;
        }
    }

    /// Returns the literal with which the value of the function call is compared, and the kind of
    /// the comparison. Returns `None` if the value is not compared with a literal.
    fn compared(&self) -> Option<(Comparison, &'t str)> {
        let comparison = |symbol| match symbol {
            Some("=") => Some(Comparison::Equal),
            Some("!=") => Some(Comparison::Unequal),
            _ => None,
        };
        if let Some(comparison) = comparison(self.symbol(self.to + 1))
            && let Some(literal) = self.literal(self.to + 2)
        {
            return Some((comparison, literal));
        }

        let before = self.from.checked_sub(2)?;
        if let Some(comparison) = comparison(self.symbol(before + 1)) {
            return Some((comparison, self.literal(before)?));
        }

        let comparison = match self.name(before)? {
            "starts-with" => Comparison::StartsWith,
            "contains" | "has-word" => Comparison::Contains,
            _ => return None,
        };
        let is_first =
            self.symbol(before + 1) == Some("(") && self.symbol(self.to + 1) == Some(",");
        Some((comparison, self.literal(self.to + 2).filter(|_| is_first)?))
    }

    fn futile_literal(&self) -> Option<FutileLiteral> {
        if self.function == "has-word"
            && let Some(word) = self.argument.filter(|word| !is_findable(word))
        {
            let message = format!("{} is no word: `has-word` never finds it", quoted(word));
            let help = "name a word that stands in one line, as in has-word(draft, 'SHIP')";
            return Some(FutileLiteral::new(word, message, help.to_owned()));
        }

        let (comparison, literal) = self.compared()?;
        match self.function {
            "last-line" => of_last_line(comparison, literal),
            "payload" => of_payload(comparison, literal),
            _ if self.is_text => of_has_word_as_text(comparison, literal),
            _ => of_has_word(comparison, literal),
        }
    }
}

impl FutileLiteral {
    fn new(literal: &str, message: String, help: String) -> Self {
        Self { literal: literal.to_owned(), message, help }
    }
}

/// Returns the position of the parenthesis that closes the parenthesis at `open`; `None` if that
/// parenthesis is never closed.
fn closing(tokens: &[ExpressionToken], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            ExpressionToken::Symbol("(") => depth += 1,
            ExpressionToken::Symbol(")") => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > open).then_some(at);
        }
    }
    None
}

fn of_last_line(comparison: Comparison, literal: &str) -> Option<FutileLiteral> {
    let bare = last_line(literal);
    let lower = literal.to_lowercase();
    let has_break = literal.contains('\n');
    let (can_be, right) = match comparison {
        Comparison::Equal | Comparison::Unequal => (bare == literal, bare),
        Comparison::StartsWith => {
            // White space at the end of the literal counts, because another word may follow it.
            let with_end = last_line(&format!("{literal}x"));
            let start = with_end.strip_suffix('x').unwrap_or_default().to_owned();
            (start == literal, start)
        }
        Comparison::Contains => (lower == literal && !has_break, lower),
    };
    if can_be {
        return None;
    }

    let verb = verb_of(comparison);
    let message = format!(
        "`last-line` never {verb} {}: its value is one line in lower case, without white space, \
         marks and punctuation at its ends{}",
        quoted(literal),
        consequence(comparison)
    );
    let help = if right.is_empty() || right.contains('\n') {
        "name the words of one line in lower case, as in 'publish'".to_owned()
    } else {
        format!("write {}", quoted(&right))
    };
    Some(FutileLiteral::new(literal, message, help))
}

fn of_payload(comparison: Comparison, literal: &str) -> Option<FutileLiteral> {
    let is_foreign = |c: char| c.is_whitespace() || matches!(c, ':' | '{' | '}' | '/');
    if !literal.contains(is_foreign) {
        return None;
    }

    let message = format!(
        "`payload` never {} {}: its value is a local name, without namespace and white space{}",
        verb_of(comparison),
        quoted(literal),
        consequence(comparison)
    );
    let local = literal.trim().rsplit(is_foreign).next().unwrap_or_default();
    let help = if local.is_empty() {
        "write the local name of a payload".to_owned()
    } else {
        format!("write {}", quoted(local))
    };
    Some(FutileLiteral::new(literal, message, help))
}

/// Checks a literal that is compared with a truth value. Returns the literal if it is 'false', 'no'
/// or '0', and is compared by `=` or `!=`. This comparison means the opposite of what it seems to
/// mean, because XPath converts every text that is not empty to true. Returns `None` for any other
/// literal or comparison.
fn of_has_word(comparison: Comparison, literal: &str) -> Option<FutileLiteral> {
    let converts = matches!(comparison, Comparison::Equal | Comparison::Unequal);
    let word = literal.trim().to_lowercase();
    if !converts || !["false", "no", "0"].contains(&word.as_str()) {
        return None;
    }

    let message = format!(
        "compares the truth value of `has-word` with the text {}: every text that is not empty \
         counts as true",
        quoted(literal)
    );
    Some(FutileLiteral::new(literal, message, HAS_WORD_HELP.to_owned()))
}

/// Checks a literal that is compared with the text of a truth value, such as the value of
/// `string(has-word(x, 'WORD'))`. Returns the literal if it is compared by `=` or `!=`, and is
/// neither 'true' nor 'false'. The text of a truth value never equals such a literal. Returns
/// `None` for any other literal or comparison.
fn of_has_word_as_text(comparison: Comparison, literal: &str) -> Option<FutileLiteral> {
    let compares_whole = matches!(comparison, Comparison::Equal | Comparison::Unequal);
    if !compares_whole || ["true", "false"].contains(&literal) {
        return None;
    }

    let message = format!(
        "the text of `has-word` never equals {}: it is 'true' or 'false'{}",
        quoted(literal),
        consequence(comparison)
    );
    Some(FutileLiteral::new(literal, message, HAS_WORD_HELP.to_owned()))
}

/// Whether the XPath function `has-word` finds this word in at least one possible text. `has-word`
/// never finds an empty word or a word with a line break.
fn is_findable(word: &str) -> bool {
    !word.is_empty() && !word.contains(['\n', '\r'])
}

fn verb_of(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal | Comparison::Unequal => "equals",
        Comparison::StartsWith => "begins with",
        Comparison::Contains => "contains",
    }
}

fn consequence(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Unequal => "; so this is always true",
        _ => "",
    }
}

/// Puts a literal in single quotes, or in double quotes if it contains a single quote.
fn quoted(literal: &str) -> String {
    if literal.contains('\'') { format!("\"{literal}\"") } else { format!("'{literal}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futile(expression: &str) -> Vec<String> {
        let found = futile_literals(expression).into_iter();
        found.map(|one| format!("{} | {}", quoted(&one.literal), one.help)).collect()
    }

    #[test]
    fn a_literal_that_a_last_line_never_has_is_found_with_its_right_spelling() {
        for (expression, literal, help) in [
            ("last-line(critique) = 'Publish'", "'Publish'", "write 'publish'"),
            ("last-line(critique) != \"PUBLISH\"", "'PUBLISH'", "write 'publish'"),
            ("'publish ' = last-line(critique)", "'publish '", "write 'publish'"),
            ("'**publish**' != (last-line(critique))", "'**publish**'", "write 'publish'"),
            ("last-line(a) = 'a\npublish'", "'a\npublish'", "write 'publish'"),
            ("last-line(a[b = 'x']) = 'Done.'", "'Done.'", "write 'done'"),
            ("normalize-space(last-line(a)) = 'Done'", "'Done'", "write 'done'"),
            ("not(last-line(a) = 'Done') and b", "'Done'", "write 'done'"),
            ("b or (last-line(a) = 'Done')", "'Done'", "write 'done'"),
            ("starts-with(last-line(a), 'Accept ')", "'Accept '", "write 'accept '"),
            ("starts-with(last-line(a), ' accept')", "' accept'", "write 'accept'"),
            ("contains(last-line(a), 'SHIP')", "'SHIP'", "write 'ship'"),
            ("has-word(last-line(a), 'SHIP')", "'SHIP'", "write 'ship'"),
            ("payload(a) = 't:said'", "'t:said'", "write 'said'"),
            ("payload(a) != ' said'", "' said'", "write 'said'"),
        ] {
            assert_eq!(futile(expression), [format!("{literal} | {help}")], "{expression}");
        }
        let bare = futile("last-line(a) = '---'").concat();
        assert!(bare.contains("as in 'publish'"), "{bare}");
        let empty = futile("has-word(a, '')").concat();
        assert!(empty.contains("in one line"), "{empty}");
        assert_eq!(futile("last-line(a) = 'A' or last-line(b) = 'B'").len(), 2);
    }

    #[test]
    fn a_text_beside_a_truth_value_is_reported_where_it_means_the_opposite() {
        for (expression, literal) in [
            ("has-word(a, 'SHIP') = 'false'", "'false'"),
            ("has-word(a, 'SHIP') != 'false'", "'false'"),
            ("'False' = (has-word(a, 'SHIP'))", "'False'"),
            ("has-word(a, 'SHIP') = ' no '", "' no '"),
        ] {
            let found = futile_literals(expression);
            let [futile] = found.as_slice() else { panic!("{expression}: {found:?}") };
            let message = format!(
                "compares the truth value of `has-word` with the text {literal}: every text that \
                 is not empty counts as true"
            );
            assert_eq!(futile.message, message, "{expression}");
            assert_eq!(futile.help, HAS_WORD_HELP, "{expression}");
        }
    }

    #[test]
    fn the_text_of_a_truth_value_is_true_or_false() {
        for (expression, end) in [
            ("string(has-word(a, 'SHIP')) = 'yes'", ""),
            ("normalize-space((has-word(a, 'SHIP'))) != 'True'", "; so this is always true"),
        ] {
            let found = futile_literals(expression);
            let [futile] = found.as_slice() else { panic!("{expression}: {found:?}") };
            let message = format!(
                "the text of `has-word` never equals {}: it is 'true' or 'false'{end}",
                quoted(&futile.literal)
            );
            assert_eq!(futile.message, message, "{expression}");
        }
    }

    #[test]
    fn a_literal_that_may_be_there_is_not_reported() {
        for expression in [
            "last-line(critique) = 'publish'",
            "last-line(critique) = ''",
            "last-line(critique) != 'it is done, mostly'",
            "draft = 'Publish'",
            "last-line(draft[x = 'Publish']) = 'publish'",
            "translate(last-line(a), 'p', 'P') = 'Publish'",
            "concat(last-line(a), 'B') = 'aB'",
            "starts-with(last-line(a), 'accept ')",
            "starts-with('Accept', last-line(a))",
            "contains(last-line(a), ' - ')",
            "has-word(a, 'SHIP') and last-line(a) = 'done'",
            "has-word(a, 'SHIP') = 'true'",
            "has-word(a, 'SHIP') != 'true'",
            "has-word(a, 'SHIP') = 'SHIP'",
            "has-word(a, 'SHIP') = ''",
            "string(has-word(a, 'SHIP')) = 'false'",
            "payload(a) = 'Said'",
            "last-line(a) = draft",
            "last-line(",
            "last-line(a) =",
            "= last-line(a)",
        ] {
            assert_eq!(futile(expression), [""; 0], "{expression}");
        }
    }
}
