//! XPath 1.0 on payloads, with a bound on the operations of an evaluation.
//!
//! An [`XPathDocument`] has no namespaces, so names in expressions match local names. There are
//! three functions beside those of XPath: `last-line`, `has-word` and `payload`.

use std::collections::HashSet;
use std::ffi::CString;

use super::libxml2::{self, ParsedDocument, XPathContext};
use super::xpath_numbers::{has_plus_literal, has_plus_sign, reading_plus_signs};
use crate::limits;
use crate::xml::element::{Element, Node};
use crate::xml::shape::QName;
use crate::xml::write;

/// A document on which XPath expressions are evaluated. The root of the document is the context
/// node.
pub struct XPathDocument {
    root: Element,
    parsed: ParsedDocument,
    /// For each element that contains a payload: the path of positions from the root to the
    /// element, and the local name of the payload.
    payloads: Vec<(Vec<u32>, String)>,
    joins_texts: bool,
    /// Whether an attribute or a text of the document contains a plus sign.
    has_plus_sign: bool,
    refuses_plus_signs: bool,
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum XPathValue {
    Text(String),
    Number(f64),
    Flag(bool),
    /// Selected nodes, in document order.
    Nodes(Vec<XPathNode>),
}

/// A node that an expression selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XPathNode {
    /// Path from the root to the element: for each level below the root, the element's position
    /// among its siblings that are elements. `None` if the node is not an element.
    pub element: Option<Vec<u32>>,
    pub text: String,
}

/// Reason why an expression cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XPathError {
    #[error("the expression is longer than {} bytes", limits::XPATH_BYTES_MAX)]
    TooLong,
    #[error("the expression nests deeper than {} levels", limits::XPATH_DEPTH_MAX)]
    TooDeep,
    #[error("the expression contains a character that XML does not allow")]
    Character,
    #[error("{0}")]
    Invalid(String),
    #[error("the evaluation took more than {} operations", limits::XPATH_OPERATIONS_MAX)]
    TooManyOperations,
    #[error("the expression selects more than {} bytes of text", limits::XPATH_TEXT_BYTES_MAX)]
    TooMuchText,
    #[error("the expression selects more than {} nodes", limits::XPATH_NODES_MAX)]
    TooManyNodes,
    #[error("the expression selects {found}, and the call takes {wanted}")]
    OtherElement { found: String, wanted: String },
    #[error("what the expression starts from is no document: {0}")]
    NoDocument(String),
}

impl XPathDocument {
    /// Builds a document with a root named `root` that contains the elements `children`. Each child
    /// comes with the local name of the payload inside it, or `None` if it contains no payload.
    ///
    /// # Errors
    ///
    /// Returns an error if the document exceeds the limits of a payload.
    pub fn new(root: &str, children: &[(Element, Option<String>)]) -> Result<Self, XPathError> {
        let mut element = Element::local(root);
        let mut payloads = Vec::new();
        for (position, (child, payload)) in (0u32..).zip(children) {
            element.content.push(Node::Element(without_namespaces(child)));
            payloads.extend(payload.clone().map(|name| (vec![position], name)));
        }

        Self::of_element(element, payloads)
    }

    /// Builds a document with `payload` as its root.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`XPathDocument::new`].
    pub fn of_payload(payload: &Element) -> Result<Self, XPathError> {
        let name = payload.local_name().to_owned();
        Self::of_element(without_namespaces(payload), vec![(Vec::new(), name)])
    }

    fn of_element(root: Element, payloads: Vec<(Vec<u32>, String)>) -> Result<Self, XPathError> {
        let parsed = ParsedDocument::parse(write::payload(&root).as_bytes());
        let parsed = parsed.map_err(|found| {
            let first = found.into_iter().next().map(|one| one.message.trim().to_owned());
            XPathError::NoDocument(first.unwrap_or_default())
        })?;
        libxml2::number_elements(&parsed);
        let has_plus_sign = has_plus_sign(&root);
        let document = Self {
            root,
            parsed,
            payloads,
            joins_texts: false,
            has_plus_sign,
            refuses_plus_signs: false,
        };
        Ok(document)
    }

    /// Sets how `has-word` searches its first argument. If `joins_texts` is true, it searches only
    /// the first node, as one text in which the texts of child elements stand without a separator.
    /// If `joins_texts` is false, it searches all nodes, and the child elements of a node one by
    /// one.
    #[must_use]
    pub fn joining_texts(mut self, joins_texts: bool) -> Self {
        self.joins_texts = joins_texts;
        self
    }

    /// Makes a number with a plus sign, such as `+5`, no number in expressions, as XPath 1.0
    /// requires. By default, it is the number without the sign.
    #[must_use]
    pub fn refusing_plus_signs(mut self, refuses_plus_signs: bool) -> Self {
        self.refuses_plus_signs = refuses_plus_signs;
        self
    }

    /// Records that the element with the path `positions` contains a payload with the local name
    /// `name`.
    pub fn name_payload(&mut self, positions: Vec<u32>, name: &str) {
        self.payloads.push((positions, name.to_owned()));
    }

    /// Evaluates `expression`, with the root as the context node.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is not XPath 1.0, or its evaluation exceeds a bound.
    pub fn evaluate(&self, expression: &str) -> Result<XPathValue, XPathError> {
        let expression = self.prepared(expression)?;
        libxml2::evaluate(&self.parsed, &expression, self.context())
    }

    /// Evaluates `expression`, and converts the value to a boolean by the rules of XPath's
    /// `boolean()`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`XPathDocument::evaluate`].
    pub fn evaluate_flag(&self, expression: &str) -> Result<bool, XPathError> {
        let expression = self.prepared(expression)?;
        libxml2::evaluate_flag(&self.parsed, &expression, self.context())
    }

    fn prepared(&self, expression: &str) -> Result<CString, XPathError> {
        let checked = checked(expression)?;
        let can_read_plus_sign = self.has_plus_sign || has_plus_literal(expression);
        if self.refuses_plus_signs || !can_read_plus_sign {
            return Ok(checked);
        }

        CString::new(reading_plus_signs(expression)).map_err(|_| XPathError::Character)
    }

    fn context(&self) -> XPathContext<'_> {
        XPathContext { payloads: &self.payloads, joins_texts: self.joins_texts }
    }

    /// Returns the root element, with all names reduced to local names.
    pub fn root(&self) -> &Element {
        &self.root
    }
}

/// Checks the syntax of an expression.
///
/// # Errors
///
/// Returns an error if the expression is not XPath 1.0, or exceeds a bound.
pub fn check_expression(expression: &str) -> Result<(), XPathError> {
    let error = match libxml2::check_expression(&checked(expression)?) {
        Err(XPathError::Invalid(message)) => message,
        other => return other,
    };

    Err(XPathError::Invalid(match foreign_operator(expression) {
        Some((theirs, ours)) => format!("{error}; XPath has no `{theirs}`, write `{ours}`"),
        None => error,
    }))
}

/// Finds the first operator outside of string literals that XPath does not have but other languages
/// do, such as `&&`. Returns this operator, and the XPath operator of the same meaning. Returns
/// `None` if the expression has no such operator.
fn foreign_operator(expression: &str) -> Option<(&'static str, &'static str)> {
    const OPERATORS: [(&str, &str); 3] = [("==", "="), ("&&", "and"), ("||", "or")];
    let mut quote = None;
    for (at, c) in expression.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, _) => {
                let rest = expression.get(at..).unwrap_or_default();
                let found = OPERATORS.into_iter().find(|(theirs, _)| rest.starts_with(theirs));
                if found.is_some() {
                    return found;
                }
            }
        }
    }

    None
}

/// Checks the length and the nesting depth of an expression. The limits keep the recursion in
/// libxml2 shallow.
fn checked(expression: &str) -> Result<CString, XPathError> {
    if expression.len() > limits::XPATH_BYTES_MAX {
        return Err(XPathError::TooLong);
    }

    let mut depth = 0usize;
    for c in expression.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limits::XPATH_DEPTH_MAX {
            return Err(XPathError::TooDeep);
        }
    }

    CString::new(expression).map_err(|_| XPathError::Character)
}

/// Returns a copy of `element` with all names reduced to local names. Of several attributes with
/// the same local name, keeps the one without a namespace. If all of them have namespaces, keeps
/// the first.
fn without_namespaces(element: &Element) -> Element {
    let mut copy = Element::local(element.local_name());
    let (bare, prefixed): (Vec<_>, Vec<_>) =
        element.attributes.iter().partition(|(name, _)| name.namespace.is_none());
    let mut known = HashSet::new();
    for (name, value) in bare.into_iter().chain(prefixed) {
        if known.insert(&name.local) {
            copy.attributes.push((QName::new(None, &name.local), value.clone()));
        }
    }

    for node in &element.content {
        copy.content.push(match node {
            Node::Text(text) => Node::Text(text.clone()),
            Node::Element(child) => Node::Element(without_namespaces(child)),
        });
    }

    copy
}

impl XPathValue {
    /// Converts the value to text by the rules of XPath's `string()`. For example, a list of nodes
    /// becomes the text of its first node.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number_text(*number),
            Self::Flag(flag) => flag.to_string(),
            Self::Nodes(nodes) => nodes.first().map(|node| node.text.clone()).unwrap_or_default(),
        }
    }

    /// Converts the value to a boolean by the rules of XPath's `boolean()`.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Number(number) => *number != 0.0 && !number.is_nan(),
            Self::Flag(flag) => *flag,
            Self::Nodes(nodes) => !nodes.is_empty(),
        }
    }
}

/// Formats a number by the rules of XPath's `string()`.
fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }

    if number == 0.0 { "0".to_owned() } else { number.to_string() }
}

/// Computes the XPath function `last-line(x)`: the last non-blank line of a text, in lower case,
/// without white space, Markdown marks and punctuation at both ends.
pub fn last_line(text: &str) -> String {
    let is_mark = |c: char| c.is_whitespace() || c.is_ascii_punctuation() || is_punctuation(c);
    let lines = text.lines().rev().map(|line| line.trim_matches(is_mark));
    let found = text.lines().rev().zip(lines).find(|(line, _)| !line.trim().is_empty());
    found.map(|(_, line)| line.to_lowercase()).unwrap_or_default()
}

/// Whether `c` is a punctuation character outside ASCII that models write at the ends of lines.
fn is_punctuation(c: char) -> bool {
    matches!(
        c,
        '…' | '–'
            | '—'
            | '‘'
            | '’'
            | '“'
            | '”'
            | '«'
            | '»'
            | '。'
            | '！'
            | '？'
            | '：'
            | '，'
    )
}

/// Computes the XPath function `has-word(x, 'SHIP')` for one text: whether the text contains the
/// word as a whole word. Ignores fenced code blocks.
pub fn has_word(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return false;
    }

    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        if let Some(mark) = mark.filter(|mark| fence.is_none_or(|open| open == *mark)) {
            fence = if fence.is_some() { None } else { Some(mark) };
            continue;
        }

        let is_word = |(at, _): (usize, &str)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        };
        if fence.is_none() && line.match_indices(word).any(is_word) {
            return true;
        }
    }

    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(children: &[&str]) -> XPathDocument {
        let read = |text: &&str| {
            let element = Element::read(text).expect("it is one element");
            let name = element.local_name().to_owned();
            (element, Some(name))
        };
        let children: Vec<_> = children.iter().map(read).collect();
        XPathDocument::new("run", &children).expect("it is a document")
    }

    fn text(document: &XPathDocument, expression: &str) -> String {
        document.evaluate(expression).expect("the expression has a value").to_text()
    }

    #[test]
    fn names_match_local_names_in_any_namespace() {
        let document =
            document(&["<plan xmlns='urn:p'><q:task xmlns:q='urn:q' n='1'>a</q:task></plan>"]);
        assert_eq!(text(&document, "plan/task"), "a");
        assert_eq!(text(&document, "plan/task/@n"), "1");
        assert_eq!(text(&document, "count(plan/task)"), "1");
        assert_eq!(text(&document, "plan/task > 0"), "false");
    }

    #[test]
    fn nodes_come_in_document_order_with_their_positions() {
        let document = document(&["<a><b>1</b><b>2</b></a>", "<c>3</c>"]);
        let value = document.evaluate("c | a/b").expect("the expression has a value");
        let XPathValue::Nodes(nodes) = value else { panic!("it selects nodes") };
        let found: Vec<_> =
            nodes.iter().map(|node| (node.text.as_str(), node.element.clone())).collect();
        let expected = [("1", Some(vec![0, 0])), ("2", Some(vec![0, 1])), ("3", Some(vec![1]))];
        assert_eq!(found, expected);
    }

    #[test]
    fn of_attributes_with_one_local_name_the_one_without_a_namespace_counts() {
        for (payload, expected) in [
            ("<a xml:lang='de' lang='en'/>", "en"),
            ("<a xml:lang='de'/>", "de"),
            ("<a p:x='1' q:x='2' xmlns:p='urn:p' xmlns:q='urn:q'/>", "1"),
        ] {
            assert_eq!(text(&document(&[payload]), "a/@*"), expected, "{payload}");
        }
    }

    #[test]
    fn outputs_that_are_no_document_are_an_error_of_their_own() {
        let deep =
            (0..300).fold(Element::local("a"), |inner, _| Element::local("a").with_child(inner));
        let error = XPathDocument::of_payload(&deep).err();
        assert!(matches!(error, Some(XPathError::NoDocument(_))), "{error:?}");
    }

    /// Returns a document with `items` elements, separated by white space.
    fn long_document(items: usize) -> XPathDocument {
        document(&[&format!("<a>{}</a>", "<b>x</b> ".repeat(items))])
    }

    #[test]
    fn the_positions_of_many_nodes_are_found_in_one_pass() {
        let document = long_document(limits::XPATH_NODES_MAX);
        let started = std::time::Instant::now();
        for expression in ["a/b", "a/b[last()]/preceding-sibling::b | a/b[last()]"] {
            let value = document.evaluate(expression).expect("the expression has a value");
            let XPathValue::Nodes(nodes) = value else { panic!("it selects nodes") };
            assert_eq!(nodes.len(), limits::XPATH_NODES_MAX);
            for (position, node) in (0u32..).zip(&nodes) {
                assert_eq!(node.element, Some(vec![0, position]));
            }
        }
        // Walking over the siblings of each node would take more than a minute.
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn the_number_of_nodes_that_an_expression_selects_is_bounded() {
        let document = long_document(limits::XPATH_NODES_MAX + 1);
        assert_eq!(document.evaluate("a/b"), Err(XPathError::TooManyNodes));
        assert_eq!(document.evaluate_flag("a/b"), Ok(true));
        assert_eq!(document.evaluate_flag("a/c"), Ok(false));
    }

    #[test]
    fn a_flag_is_what_boolean_gives() {
        let document = document(&["<a>0</a>"]);
        for (expression, expected) in [
            ("a", true),
            ("b", false),
            ("'x'", true),
            ("''", false),
            ("0", false),
            ("0 div 0", false),
            ("-1", true),
            ("a = 0", true),
            ("a = 1", false),
        ] {
            assert_eq!(document.evaluate_flag(expression), Ok(expected), "{expression}");
            let value = document.evaluate(expression).expect("the expression has a value");
            assert_eq!(value.is_true(), expected, "{expression}");
        }
        assert!(document.evaluate_flag("a b").is_err());
    }

    #[test]
    fn the_added_functions_count_the_text_that_they_read() {
        let long = format!("<a>{}</a>", "x ".repeat(500_000));
        let document = document(&[&long, &format!("<c>{}</c>", "<b/>".repeat(1_000))]);
        for expression in [
            "c/b[last-line(/run/a) = 'y']",
            "c/b[has-word(/run/a, 'y')]",
            "c/b[has-word(/run/c, 'y')]",
        ] {
            let value = document.evaluate(expression);
            assert_eq!(value, Err(XPathError::TooManyOperations), "{expression}");
        }
        assert_eq!(document.evaluate_flag("has-word(a, 'x')"), Ok(true));
    }

    #[test]
    fn reading_plus_signs_counts_neither_short_texts_nor_long_texts_without_one() {
        let long = format!("<a> {}</a>", "x ".repeat(500_000));
        let short = format!("<c>{}</c>", "<b>+1</b>".repeat(750));
        let document = document(&[&long, &short]);
        for (expression, expected) in [
            ("count(c/b[position() < 100][/run/a > 1])", "0"),
            ("count(c/b[sum(/run/c/b) = 750])", "750"),
        ] {
            assert_eq!(text(&document, expression), expected, "{expression}");
        }
    }

    #[test]
    fn an_attribute_and_a_text_are_no_elements() {
        let document = document(&["<a n='1'>x</a>"]);
        for expression in ["a/@n", "a/text()", "/", "a/namespace::*"] {
            let value = document.evaluate(expression).expect("the expression has a value");
            let XPathValue::Nodes(nodes) = value else { panic!("it selects nodes") };
            assert_eq!(nodes.first().map(|node| node.element.clone()), Some(None), "{expression}");
        }
    }

    #[test]
    fn the_added_functions_work_in_expressions() {
        let document = document(&["<review>Bad.\n**REVISE.**\n</review>", "<plan/>"]);
        assert_eq!(text(&document, "last-line(review)"), "revise");
        assert!(document.evaluate("last-line(review) = 'revise'").expect("a value").is_true());
        assert!(document.evaluate("has-word(review, 'REVISE')").expect("a value").is_true());
        assert_eq!(text(&document, "payload(plan)"), "plan");
        assert_eq!(text(&document, "payload(nothing)"), "");
    }

    #[test]
    fn has_word_searches_each_of_several_texts_by_itself() {
        let several = [
            "<reviews><critic>Wrong.\nREVISE</critic><lead>Fine.</lead></reviews>",
            "<notes>\n <a>```\nREVISE</a>\n <b><c/><d>x</d></b>\n</notes>",
            "<fenced><a>```\nx</a><b>REVISE</b></fenced>",
            "<mixed>RE<b>VISE</b></mixed>",
        ];
        // For each expression, its value, and the value for a run that began before the rule.
        for (expression, expected, joined) in [
            ("has-word(reviews, 'REVISE')", true, false),
            ("has-word(reviews/critic, 'REVISE')", true, true),
            ("has-word(reviews/lead | reviews/critic, 'Fine')", true, false),
            ("has-word(reviews/*, 'Fine')", true, false),
            ("has-word(reviews/*, 'Fin')", false, false),
            ("has-word(notes, 'REVISE')", false, false),
            ("has-word(notes, 'x')", true, false),
            ("has-word(fenced, 'REVISE')", true, false),
            ("has-word(mixed, 'REVISE')", true, true),
            ("has-word(/, 'x')", true, false),
            ("has-word(reviews/none, 'Fine')", false, false),
            ("has-word(string(reviews/critic), 'REVISE')", true, true),
        ] {
            let found = document(&several).evaluate_flag(expression);
            assert_eq!(found, Ok(expected), "{expression}");
            let found = document(&several).joining_texts(true).evaluate_flag(expression);
            assert_eq!(found, Ok(joined), "{expression}");
        }
    }

    #[test]
    fn a_number_with_a_plus_sign_is_a_number_and_its_text_keeps_the_sign() {
        let several = [
            "<bill n='+2'><sum> +6100 </sum><sum>7</sum><tax>+.5</tax><phone>+4930</phone></bill>",
            "<other><a>+</a><a>++1</a><a>+1e2</a><a>+INF</a></other>",
        ];
        // For each expression, its value, and the value for a run that began before the rule.
        for (expression, expected, refused) in [
            ("bill/sum >= 5000", "true", "false"),
            ("5000 <= bill/sum", "true", "false"),
            ("bill/sum[. > 5000] = 6100", "true", "false"),
            ("bill/sum = 6100", "true", "false"),
            ("bill/sum != 7", "true", "true"),
            ("bill/@n + 1", "3", "NaN"),
            ("-bill/@n", "-2", "NaN"),
            ("bill/@n * 2 = count(bill/sum) * 2", "true", "false"),
            ("bill/@n = (1 + 1)", "true", "false"),
            ("sum(bill/sum)", "6107", "NaN"),
            ("number(bill/sum) div 100", "61", "NaN"),
            ("round(bill/tax)", "1", "NaN"),
            ("count(bill/sum[@x or . > 1])", "2", "1"),
            ("sum(other/a[3])", "100", "NaN"),
            ("other/a > 100", "false", "false"),
            ("string(bill/phone)", "+4930", "+4930"),
            ("bill/phone", "+4930", "+4930"),
            ("bill/phone = '+4930' and starts-with(bill/phone, '+49')", "true", "true"),
            ("concat(bill/phone, ' ', bill/phone + 1)", "+4930 4931", "+4930 NaN"),
            ("bill/sum[number() > 5000] = 6100", "true", "false"),
            ("substring('abc', bill/@n)", "bc", ""),
            ("bill/sum > 5e+3 and-bill/@n < -1", "true", "false"),
            ("bill/sum = 6100 = 1", "true", "false"),
            ("bill/sum = bill/tax = 1", "false", "false"),
        ] {
            assert_eq!(text(&document(&several), expression), expected, "{expression}");
            let refusing = document(&several).refusing_plus_signs(true);
            assert_eq!(text(&refusing, expression), refused, "{expression}");
        }

        for (payload, expression) in
            [("<a n='1'>5</a>", "concat('+', a) = 5"), ("<a n='1,+5'/>", "substring(a/@n, 3) = 5")]
        {
            let value = document(&[payload]).evaluate_flag(expression);
            assert_eq!(value, Ok(true), "{expression}");
        }
    }

    #[test]
    fn the_name_of_a_payload_is_not_the_name_of_its_goal() {
        let mut document = XPathDocument::new(
            "run",
            &[
                (Element::local("book"), Some("invoice-accepted".to_owned())),
                (Element::local("all"), None),
            ],
        )
        .expect("it is a document");
        document.name_payload(vec![1], "later");
        assert_eq!(text(&document, "payload(book)"), "invoice-accepted");
        assert_eq!(text(&document, "payload(all)"), "later");
    }

    #[test]
    fn a_wrong_expression_is_an_error() {
        let document = document(&["<a/>"]);
        for wrong in [
            "a/",
            "a b",
            "a[",
            "unknown(a)",
            "$x",
            "last-line()",
            "has-word(a)",
            "",
            "payload('a')",
        ] {
            assert!(document.evaluate(wrong).is_err(), "{wrong}");
        }
        for wrong in ["a/", "a b", "a[", ""] {
            assert!(check_expression(wrong).is_err(), "{wrong}");
        }
        assert_eq!(check_expression("a/b[1] | c"), Ok(()));
        assert_eq!(
            check_expression(&"a".repeat(limits::XPATH_BYTES_MAX + 1)),
            Err(XPathError::TooLong)
        );
        let deep = "(".repeat(limits::XPATH_DEPTH_MAX + 1);
        assert_eq!(check_expression(&deep), Err(XPathError::TooDeep));
    }

    #[test]
    fn an_evaluation_ends_at_its_bound() {
        let many = format!("<a>{}</a>", "<b/>".repeat(20_000));
        let document = document(&[&many]);
        let value = document.evaluate("count(//b[count(//b) > 0])");
        assert_eq!(value, Err(XPathError::TooManyOperations));
        assert_eq!(text(&document, "count(a/b)"), "20000");
    }

    #[test]
    fn the_text_that_an_expression_selects_is_bounded() {
        let long =
            format!("<a>{}{}</a>", "<b>".repeat(100), "x".repeat(200_000) + &"</b>".repeat(100));
        let document = document(&[&long]);
        assert_eq!(document.evaluate("//b"), Err(XPathError::TooMuchText));
    }

    #[test]
    fn the_last_line_is_bare_and_in_lower_case() {
        for (line, expected) in [
            ("x\n**ACCEPT**\n", "accept"),
            ("# Verdict: `REVISE`.", "verdict: `revise"),
            ("> _Sound_!\n\n \n", "sound"),
            ("NONE", "none"),
            ("a\n---\n", ""),
            ("", ""),
            ("done — ", "done"),
        ] {
            assert_eq!(last_line(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_word_counts_whole_and_outside_of_code_fences() {
        for (text, expected) in [
            ("SHIP it", true),
            ("do SHIP.", true),
            ("ship it", false),
            ("SHIPPED", false),
            ("RE_SHIP", false),
            ("```\nSHIP\n```\n", false),
            ("```\nx\n```\nSHIP", true),
            ("~~~\n```\nSHIP\n~~~", false),
            ("ESHIP SHIP", true),
        ] {
            assert_eq!(has_word(text, "SHIP"), expected, "{text:?}");
        }
        assert!(!has_word("x", ""));
    }
}
