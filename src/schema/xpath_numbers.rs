//! Numbers with a plus sign in XPath expressions.
//!
//! `xs:integer` and `xs:decimal` permit `+5`, but XPath 1.0 converts this text to NaN. This module
//! rewrites an expression so that each operand that XPath converts to a number passes through the
//! function [`WITHOUT_PLUS`]. Texts keep the sign, such as a telephone number that an expression
//! compares with a literal.

use std::ffi::CStr;
use std::ops::Range;

use crate::xml::element::{Element, Node};

/// Name of the XPath function that removes the plus sign from each node that is a number with this
/// sign.
pub const WITHOUT_PLUS: &CStr = c"number-without-plus";

/// Functions of XPath 1.0 that convert their argument to a number.
const CONVERTING_FUNCTIONS: [&str; 5] = ["number", "sum", "floor", "ceiling", "round"];

/// Functions of XPath 1.0 that return a number, beside [`CONVERTING_FUNCTIONS`].
const COUNTING_FUNCTIONS: [&str; 4] = ["count", "string-length", "position", "last"];

/// Returns the text without its plus sign and the white space around it, if it is a number with
/// this sign. Returns `None` for any other text.
pub fn without_plus(text: &str) -> Option<&str> {
    let number = text.trim_matches([' ', '\t', '\r', '\n']).strip_prefix('+')?;
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (number, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && are_digits(digits)
    });

    (has_digits && are_digits(whole) && are_digits(fraction) && is_exponent).then_some(number)
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an attribute or a text of `element` contains a plus sign.
pub fn has_plus_sign(element: &Element) -> bool {
    element.attributes.iter().any(|(_, value)| value.contains('+'))
        || element.content.iter().any(|node| match node {
            Node::Text(text) => text.contains('+'),
            Node::Element(child) => has_plus_sign(child),
        })
}

/// Whether a literal in `expression` contains a plus sign.
pub fn has_plus_literal(expression: &str) -> bool {
    expression.contains('+') && tokens(expression).iter().any(XPathToken::is_plus_literal)
}

/// Rewrites `expression` so that a number with a plus sign is a number in each operation on
/// numbers, and in each comparison with a number.
pub fn reading_plus_signs(expression: &str) -> String {
    let mut rewriter = PlusSignRewriter { tokens: tokens(expression), insertions: Vec::new() };
    rewriter.read(0..rewriter.tokens.len());
    rewriter.insertions.sort_by_key(|(at, _)| *at);

    let mut out = String::new();
    let mut written = 0;
    for (at, inserted) in rewriter.insertions {
        out.push_str(expression.get(written..at).unwrap_or_default());
        out.push_str(&inserted);
        written = at;
    }
    out.push_str(expression.get(written..).unwrap_or_default());
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum XPathTokenKind {
    /// `and` or `or`.
    Logical,
    /// `=` or `!=`.
    Equality,
    /// An operator that converts its operands to numbers. A comparison such as `<` is one, too,
    /// unless one of its operands is a truth value.
    Numeric,
    /// `(` or `[`.
    Open,
    /// `)` or `]`.
    Close,
    Comma,
    /// A number or a literal in quotes.
    Constant,
    /// A name, or another part of a path.
    Other,
}

struct XPathToken<'a> {
    kind: XPathTokenKind,
    text: &'a str,
    at: usize,
}

impl XPathToken<'_> {
    fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// Whether the token is a number, and no literal in quotes.
    fn is_number(&self) -> bool {
        self.kind == XPathTokenKind::Constant && !self.text.starts_with(['"', '\''])
    }

    fn is_plus_literal(&self) -> bool {
        self.text.starts_with(['"', '\'']) && self.text.contains('+')
    }
}

/// Splits an expression into tokens, as libxml2 does. A `*` or a name such as `div` is an operator
/// if a complete operand stands before it. Such an operator ends after its letters, also if a name
/// or a number follows directly.
fn tokens(expression: &str) -> Vec<XPathToken<'_>> {
    const SYMBOLS: [&str; 6] = ["//", "::", "..", "!=", "<=", ">="];
    const WORDS: [&str; 4] = ["and", "or", "div", "mod"];
    let mut found: Vec<XPathToken<'_>> = Vec::new();
    let mut at = 0;
    while let Some(rest) = expression.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or_default();
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }

        let starts_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let word = WORDS.into_iter().find(|word| rest.starts_with(word));
        let word = word.filter(|_| follows_operand(found.last()));
        let length = if let Some(word) = word {
            word.len()
        } else if first == '"' || first == '\'' {
            let inner = rest.get(1..).unwrap_or_default();
            inner.find(first).map_or(rest.len(), |end| end + 2)
        } else if starts_number(rest.strip_prefix('.').unwrap_or(rest)) {
            number_length(rest)
        } else if SYMBOLS.iter().any(|symbol| rest.starts_with(symbol)) {
            2
        } else if is_name(first) && !matches!(first, '-' | '.') {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };

        let text = rest.get(..length).unwrap_or(rest);
        let kind = kind_of(text, found.last());
        found.push(XPathToken { kind, text, at });
        at += text.len();
    }

    found
}

/// Whether a name may contain `c`. Of the characters that are not ASCII, this includes some that a
/// valid expression has only in literals.
fn is_name(c: char) -> bool {
    let is_foreign = !c.is_ascii() && !c.is_whitespace();
    is_foreign || c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns the number of bytes of the number at the beginning of `text`. Beside the numbers of
/// XPath 1.0, libxml2 accepts exponents, such as `5e+3`.
fn number_length(text: &str) -> usize {
    let after_digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let Some(end) = after_digits(text) else { return text.len() };
    let rest = text.get(end..).unwrap_or_default();
    let Some(exponent) = rest.strip_prefix(['e', 'E']) else { return end };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let digits = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    text.len() - digits.len()
}

/// Whether the token `before` ends an operand.
fn follows_operand(before: Option<&XPathToken<'_>>) -> bool {
    before.is_some_and(|before| match before.kind {
        XPathTokenKind::Constant | XPathTokenKind::Close => true,
        XPathTokenKind::Other => !matches!(before.text, "/" | "//" | "|" | "@" | "::" | "$" | ":"),
        _ => false,
    })
}

fn kind_of(text: &str, before: Option<&XPathToken<'_>>) -> XPathTokenKind {
    match text {
        "and" | "or" if follows_operand(before) => XPathTokenKind::Logical,
        "div" | "mod" | "*" if follows_operand(before) => XPathTokenKind::Numeric,
        "=" | "!=" => XPathTokenKind::Equality,
        "<" | "<=" | ">" | ">=" | "+" | "-" => XPathTokenKind::Numeric,
        "(" | "[" => XPathTokenKind::Open,
        ")" | "]" => XPathTokenKind::Close,
        "," => XPathTokenKind::Comma,
        _ => {
            let digits = text.strip_prefix('.').unwrap_or(text);
            let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
            let is_literal = text.starts_with(['"', '\'']);
            if is_number || is_literal { XPathTokenKind::Constant } else { XPathTokenKind::Other }
        }
    }
}

struct PlusSignRewriter<'a> {
    tokens: Vec<XPathToken<'a>>,
    /// Texts to insert, each with its byte offset in the expression.
    insertions: Vec<(usize, String)>,
}

impl PlusSignRewriter<'_> {
    fn kind(&self, index: usize) -> Option<XPathTokenKind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// Splits a range of tokens at the tokens outside of brackets for which `is_split` returns
    /// true. Returns the parts between these tokens.
    fn parts(
        &self,
        range: Range<usize>,
        is_split: impl Fn(XPathTokenKind) -> bool,
    ) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut depth = 0usize;
        let mut start = range.start;
        for index in range.clone() {
            match self.kind(index) {
                Some(XPathTokenKind::Open) => depth += 1,
                Some(XPathTokenKind::Close) => depth = depth.saturating_sub(1),
                Some(kind) if depth == 0 && is_split(kind) => {
                    parts.push(start..index);
                    start = index + 1;
                }
                _ => {}
            }
        }

        parts.push(start..range.end);
        parts
    }

    /// Reads an expression, or the arguments of a function.
    fn read(&mut self, range: Range<usize>) {
        let is_split = |kind| matches!(kind, XPathTokenKind::Logical | XPathTokenKind::Comma);
        for condition in self.parts(range, is_split) {
            let sides = self.parts(condition, |kind| kind == XPathTokenKind::Equality);
            // `a = b = 5` is `(a = b) = 5`: only the first two sides can be a number and a text.
            let compared = if sides.len() > 1 { 2 } else { 0 };
            let compares_number =
                sides.iter().take(compared).any(|side| self.is_number(side.clone()));
            for (number, side) in sides.into_iter().enumerate() {
                let operands = self.parts(side, |kind| kind == XPathTokenKind::Numeric);
                let is_converted = operands.len() > 1 || (compares_number && number < compared);
                for operand in operands {
                    if is_converted {
                        self.convert(operand.clone());
                    }
                    self.read_brackets(operand);
                }
            }
        }
    }

    /// Reads the expressions in the brackets of an operand.
    fn read_brackets(&mut self, operand: Range<usize>) {
        let mut next = operand.start;
        while next < operand.end {
            let open = next;
            next += 1;
            if self.kind(open) != Some(XPathTokenKind::Open) {
                continue;
            }

            let close = self.close_of(open, operand.end);
            let is_call = self.tokens.get(open).is_some_and(|token| token.text == "(");
            let function = open.checked_sub(1).filter(|at| is_call && *at >= operand.start);
            let function = function.and_then(|before| self.tokens.get(before));
            self.convert_arguments(function.map_or("", |token| token.text), open + 1..close);
            self.read(open + 1..close);
            next = close + 1;
        }
    }

    /// Converts the arguments that XPath converts to numbers. `number()` reads the context node.
    fn convert_arguments(&mut self, function: &str, arguments: Range<usize>) {
        if function == "number" && arguments.is_empty() {
            if let Some(close) = self.tokens.get(arguments.end) {
                let name = WITHOUT_PLUS.to_string_lossy();
                self.insertions.push((close.at, format!("{name}(.)")));
            }
        } else if CONVERTING_FUNCTIONS.contains(&function) {
            self.convert(arguments);
        } else if function == "substring" {
            let numbers = self.parts(arguments, |kind| kind == XPathTokenKind::Comma);
            for number in numbers.into_iter().skip(1) {
                self.convert(number);
            }
        }
    }

    /// Returns the index of the bracket that closes the bracket at `open`, or `end`.
    fn close_of(&self, open: usize, end: usize) -> usize {
        let mut depth = 0usize;
        for index in open..end {
            match self.kind(index) {
                Some(XPathTokenKind::Open) => depth += 1,
                Some(XPathTokenKind::Close) => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        end
    }

    /// Whether an operand of `=` or `!=` is certainly a number.
    fn is_number(&self, side: Range<usize>) -> bool {
        let operands = self.parts(side.clone(), |kind| kind == XPathTokenKind::Numeric);
        if let [before @ .., _] = operands.as_slice()
            && !before.is_empty()
        {
            // The operator after an operand stands at the end of its tokens.
            let is_compared = |operand: &Range<usize>| {
                let operator = self.tokens.get(operand.end);
                operator.is_some_and(|operator| operator.text.starts_with(['<', '>']))
            };
            return !before.iter().any(is_compared);
        }

        let Some(tokens) = self.tokens.get(side.clone()) else { return false };
        let is_call = |function: &str| {
            CONVERTING_FUNCTIONS.contains(&function) || COUNTING_FUNCTIONS.contains(&function)
        };
        match tokens {
            [constant] => constant.is_number(),
            [open, .., _] if open.text == "(" => {
                let close = self.close_of(side.start, side.end);
                close + 1 == side.end && self.is_number(side.start + 1..close)
            }
            [function, open, ..] if open.text == "(" && is_call(function.text) => {
                self.close_of(side.start + 1, side.end) + 1 == side.end
            }
            _ => false,
        }
    }

    /// Passes an operand through the function. Does nothing if the operand is a constant without a
    /// plus sign, or empty, as before a sign.
    fn convert(&mut self, operand: Range<usize>) {
        let Some([first, rest @ ..]) = self.tokens.get(operand) else { return };
        let is_constant = first.kind == XPathTokenKind::Constant && !first.is_plus_literal();
        if rest.is_empty() && is_constant {
            return;
        }

        let end = rest.last().unwrap_or(first).end();
        let name = WITHOUT_PLUS.to_string_lossy();
        self.insertions.push((first.at, format!("{name}(")));
        self.insertions.push((end, ")".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_that_xpath_converts_to_numbers_lose_the_sign() {
        let short = |text: &str| reading_plus_signs(text).replace("number-without-plus(", "N(");
        for (expression, expected) in [
            ("(read | by-hand)/payable >= 5000", "N((read | by-hand)/payable) >= 5000"),
            ("a<b", "N(a)<N(b)"),
            ("-a * -2", "-N(a) * -2"),
            ("a div b mod * - c-d", "N(a) div N(b) mod N(*) - N(c-d)"),
            ("*", "*"),
            ("a/* * @*", "N(a/*) * N(@*)"),
            ("div/mod + and/or", "N(div/mod) + N(and/or)"),
            ("a = 5 and b = c", "N(a) = 5 and b = c"),
            ("a = b + 1 or c != 'd + 1'", "N(a) = N(b) + 1 or c != 'd + 1'"),
            ("a = ((.5))", "N(a) = N(((.5)))"),
            ("a = count(b[c > 1])", "N(a) = N(count(b[N(c) > 1]))"),
            ("a = (b > 1)", "a = (N(b) > 1)"),
            ("a = 1 + count(b[c > 1])", "N(a) = 1 + N(count(b[N(c) > 1]))"),
            ("a[b = 2]/c", "a[N(b) = 2]/c"),
            ("sum(a/b | c)", "sum(N(a/b | c))"),
            ("concat(a, number(b), c + 1)", "concat(a, number(N(b)), N(c) + 1)"),
            ("round(a + 1)", "round(N(N(a) + 1))"),
            (
                "starts-with(a, '+') and last-line(b) = 'x'",
                "starts-with(a, '+') and last-line(b) = 'x'",
            ),
            ("sum[number() > 5000]", "sum[N(number(N(.))) > 5000]"),
            ("sum[number( ) = 1]", "sum[N(number( N(.))) = 1]"),
            ("substring(a, b, c - 1)", "substring(a, N(b), N(N(c) - 1))"),
            ("substring(concat(a, b), 2)", "substring(concat(a, b), 2)"),
            ("a = b = 5", "a = b = 5"),
            ("a = 5 = b", "N(a) = 5 = b"),
            ("a = b + 1 = c - 2 = d", "N(a) = N(b) + 1 = N(c) - 2 = d"),
            ("é-1 >= 'ä'", "N(é-1) >= 'ä'"),
            ("cafe\u{301}-a > 1", "N(cafe\u{301}-a) > 1"),
            ("\u{e1b}\u{e48} * ह\u{94d}न", "N(\u{e1b}\u{e48}) * N(ह\u{94d}न)"),
            ("a >= 5e+3", "N(a) >= 5e+3"),
            ("a = 5e and b = .5E-1", "N(a) = 5e and N(b) = .5E-1"),
            ("a > 1 and-b > 2", "N(a) > 1 and-N(b) > 2"),
            ("a orb > 2 and android", "a orN(b) > 2 and android"),
            ("a div2 mod(b)", "N(a) div2 modN((b))"),
            ("order > and and or or modern", "N(order) > N(and) and or or modern"),
            ("'+5' > 4 and concat('+', n) > 5", "N('+5') > 4 and N(concat('+', n)) > 5"),
            ("a + (", "N(a) + N(()"),
            ("", ""),
        ] {
            assert_eq!(short(expression), expected, "{expression}");
        }
    }

    #[test]
    fn a_plus_sign_may_stand_in_a_text_an_attribute_or_a_literal() {
        for (text, expected) in [
            ("<a b='1'>2<c>3</c></a>", false),
            ("<a b='1'>2<c>3+</c></a>", true),
            ("<a><c b='x 1+2'/></a>", true),
        ] {
            let element = Element::read(text).expect("it is one element");
            assert_eq!(has_plus_sign(&element), expected, "{text}");
        }
        for (expression, expected) in
            [("a + 5e+3", false), ("a + 'b'", false), ("concat('+', n) > 5", true)]
        {
            assert_eq!(has_plus_literal(expression), expected, "{expression}");
        }
    }

    #[test]
    fn only_a_number_with_a_plus_sign_has_one_to_remove() {
        for (text, expected) in [
            ("+5", Some("5")),
            (" +6100.50\n", Some("6100.50")),
            ("+.5", Some(".5")),
            ("+5.", Some("5.")),
            ("+1e-2", Some("1e-2")),
            ("5", None),
            ("-5", None),
            ("+", None),
            ("+.", None),
            ("++5", None),
            ("+-5", None),
            ("+1e", None),
            ("+INF", None),
            ("+49 30", None),
        ] {
            assert_eq!(without_plus(text), expected, "{text:?}");
        }
    }
}
