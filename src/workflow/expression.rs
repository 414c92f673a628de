//! Follows the paths of an XPath expression without evaluating the expression. Finds names that
//! select nothing, unknown functions, and the goals to which the expression refers.
//!
//! This module understands enough of XPath 1.0 to follow location paths through shapes, which state
//! the children and attributes that payloads may have. libxml2 checks the syntax. If the module
//! cannot follow a path, it reports nothing about this path.

use std::collections::HashSet;
use std::ops::Range;

use super::function_arguments::{WrongCall, wrong_call};
use super::value_shape::{ANY_ATTRIBUTE, ValueShape};

/// The names to which an expression refers, and the faults of the expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExpressionReport {
    /// Names that select nothing, each with the path in which it occurs.
    pub missing: Vec<MissingName>,
    /// Names of functions that the expression calls, although neither XPath 1.0 nor organism
    /// defines them.
    pub unknown_functions: Vec<String>,
    /// Calls of known functions with a wrong number of arguments, or with a wrong argument.
    pub wrong_calls: Vec<WrongCall>,
    /// The first names of each path that starts at the root. The path `a/b/c` gives the entry `(a,
    /// None)`. If the children of `a` are known, it also gives the entry `(a, Some(b))`.
    pub references: Vec<(String, Option<String>)>,
    pub has_variable: bool,
    /// Comparisons of paths with literals. Contains only those whose compared value can have only
    /// certain texts.
    pub comparisons: Vec<LiteralComparison>,
    /// Paths whose values have the type boolean, and are converted by XPath to truth values. The
    /// conversion gives true for each path that selects a node, even if the text of this node is
    /// `false`.
    pub converted_booleans: Vec<String>,
}

/// A comparison of a path with a literal by `=` or `!=`.
#[derive(Debug, PartialEq, Eq)]
pub struct LiteralComparison {
    pub path: String,
    /// The texts that the compared value can have, without white space around them.
    pub words: Vec<String>,
    /// Text of the literal, without its quotes.
    pub literal: String,
}

/// A name that selects nothing, with the names that would select something in its place.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingName {
    /// Path before the missing name; empty if the name is the first step.
    pub path: String,
    pub name: String,
    /// Names that would select something in place of the missing name.
    pub known: Vec<String>,
}

/// Follows each path of `expression` from the shape `root`. Returns the names to which the paths
/// refer, and the faults, such as names that select nothing.
pub fn read(expression: &str, root: &ValueShape) -> ExpressionReport {
    read_as(expression, root, false)
}

/// Follows each path of a condition, as [`read`] does. XPath converts the value of a condition to a
/// truth value.
pub fn read_condition(expression: &str, root: &ValueShape) -> ExpressionReport {
    read_as(expression, root, true)
}

fn read_as(expression: &str, root: &ValueShape, is_condition: bool) -> ExpressionReport {
    let mut reader =
        ExpressionReader { tokens: tokens(expression), at: 0, report: ExpressionReport::default() };
    let context = ShapeSet::root(root);
    while reader.at < reader.tokens.len() {
        let before = reader.at;
        reader.expression_as(&context, is_condition);
        // Skips a token that fits nowhere; libxml2 reports it.
        reader.at = reader.at.max(before + 1);
    }

    reader.report
}

/// Returns the shape of the nodes that `expression` selects. Returns [`ValueShape::Open`] if this
/// shape is unknown, or if the nodes may have different shapes.
pub fn selected(expression: &str, root: &ValueShape) -> ValueShape {
    let mut reader =
        ExpressionReader { tokens: tokens(expression), at: 0, report: ExpressionReport::default() };
    let selected = reader.expression(&ShapeSet::root(root));
    match selected.shapes.as_deref() {
        Some([shape]) if reader.at == reader.tokens.len() => (*shape).clone(),
        _ => ValueShape::Open,
    }
}

/// Whether the value of `expression` is certainly a text, a number or a truth value, so that it
/// selects no nodes.
pub fn is_value(expression: &str) -> bool {
    let mut reader =
        ExpressionReader { tokens: tokens(expression), at: 0, report: ExpressionReport::default() };
    let value = reader.expression(&ShapeSet::root(&ValueShape::Open)).is_value;
    value && reader.at == reader.tokens.len()
}

/// Returns all names with which a path of the expression can begin. Returns `None` if a path may
/// also begin with something other than a name, such as `/` or `*`.
pub fn names(expression: &str) -> Option<HashSet<String>> {
    let tokens = tokens(expression);
    let mut names = HashSet::new();
    let mut brackets = 0usize;
    let mut before: Option<&ExpressionToken> = None;
    for token in &tokens {
        let follows_step = match before {
            // The name may be an operator or an element; in doubt, a `/` after it begins a path at
            // the root.
            Some(ExpressionToken::Name(name)) => !OPERATORS.contains(&name.as_str()),
            Some(ExpressionToken::Symbol(symbol)) => matches!(*symbol, "]" | ")" | "."),
            _ => false,
        };
        match token {
            ExpressionToken::Name(name) if name == "id" || NODE_TESTS.contains(&name.as_str()) => {
                return None;
            }
            ExpressionToken::Name(name) => {
                names.insert(name.clone());
            }
            ExpressionToken::Symbol("//" | "::" | ".." | "*") => return None,
            ExpressionToken::Symbol("/") if !follows_step => return None,
            ExpressionToken::Symbol(".") if brackets == 0 => return None,
            ExpressionToken::Symbol("[") => brackets += 1,
            ExpressionToken::Symbol("]") => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        before = Some(token);
    }

    Some(names)
}

/// Functions of XPath 1.0, and the functions that organism adds.
pub const FUNCTIONS: [&str; 30] = [
    "last",
    "position",
    "count",
    "id",
    "local-name",
    "namespace-uri",
    "name",
    "string",
    "concat",
    "starts-with",
    "contains",
    "substring-before",
    "substring-after",
    "substring",
    "string-length",
    "normalize-space",
    "translate",
    "boolean",
    "not",
    "true",
    "false",
    "lang",
    "number",
    "sum",
    "floor",
    "ceiling",
    "round",
    "last-line",
    "has-word",
    "payload",
];
/// Operators of XPath 1.0 that are names.
pub(super) const OPERATORS: [&str; 4] = ["and", "or", "div", "mod"];
const NODE_TESTS: [&str; 4] = ["node", "text", "comment", "processing-instruction"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpressionToken {
    Name(String),
    /// A literal: the text between its quotes.
    Literal(String),
    Number,
    Symbol(&'static str),
}

const SYMBOLS: [&str; 22] = [
    "//", "::", "..", "!=", "<=", ">=", "(", ")", "[", "]", "/", "@", ",", "|", "+", "-", "=", "<",
    ">", "*", "$", ".",
];

pub(super) fn tokens(text: &str) -> Vec<ExpressionToken> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit()
            || (first == '.' && rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit()));
        let length = if first == '"' || first == '\'' {
            let inner = rest.get(1..).unwrap_or_default();
            let end = inner.find(first);
            let text = inner.get(..end.unwrap_or(inner.len())).unwrap_or_default();
            found.push(ExpressionToken::Literal(text.to_owned()));
            end.map_or(rest.len(), |end| end + 2)
        } else if is_number {
            found.push(ExpressionToken::Number);
            rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len())
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            found.push(ExpressionToken::Symbol(symbol));
            symbol.len()
        } else {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '·');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            found.push(ExpressionToken::Name(rest.get(..end).unwrap_or_default().to_owned()));
            end.max(first.len_utf8())
        };
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }

    found
}

/// The shapes of the nodes that a path can select, with the steps of this path.
#[derive(Debug, Clone)]
struct ShapeSet<'s> {
    /// Shapes of the nodes that the path can select; `None` if they are not known.
    shapes: Option<Vec<&'s ValueShape>>,
    path: Vec<String>,
    is_root: bool,
    /// Whether the value of the expression is a text, a number or a truth value. Such an expression
    /// selects no nodes.
    is_value: bool,
    /// Whether the path ends with a predicate.
    is_filtered: bool,
}

impl<'s> ShapeSet<'s> {
    fn root(shape: &'s ValueShape) -> Self {
        Self { shapes: Some(vec![shape]), is_root: true, ..Self::open() }
    }

    fn open() -> Self {
        Self { shapes: None, path: Vec::new(), is_root: false, is_value: false, is_filtered: false }
    }

    fn value() -> Self {
        Self { is_value: true, ..Self::open() }
    }

    fn or(self, other: Self) -> Self {
        match (self.shapes, other.shapes) {
            (Some(mut shapes), Some(more)) => {
                shapes.extend(more);
                Self { shapes: Some(shapes), path: self.path, ..Self::open() }
            }
            _ => Self::open(),
        }
    }

    /// Whether all nodes contain a boolean ([`ValueShape::Boolean`]), and no predicate selects
    /// among them.
    fn is_boolean(&self) -> bool {
        let shapes = self.shapes.as_deref().unwrap_or_default();
        let are_booleans = shapes.iter().all(|shape| **shape == ValueShape::Boolean);
        !shapes.is_empty() && are_booleans && !self.is_filtered
    }

    /// Returns the texts that the nodes can have. `None` if they can have any text.
    fn words(&self) -> Option<Vec<String>> {
        let shapes = self.shapes.as_deref().filter(|shapes| !shapes.is_empty())?;
        let words: Option<Vec<_>> = shapes.iter().map(|shape| shape.words()).collect();
        Some(words?.concat().into_iter().map(str::to_owned).collect())
    }
}

/// An operand of an expression.
struct Operand<'s> {
    value: ShapeSet<'s>,
    /// Range of the operand's tokens within the tokens of the expression.
    tokens: Range<usize>,
}

struct ExpressionReader {
    tokens: Vec<ExpressionToken>,
    at: usize,
    report: ExpressionReport,
}

impl ExpressionReader {
    fn peek(&self) -> Option<&ExpressionToken> {
        self.tokens.get(self.at)
    }

    fn is_next(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(ExpressionToken::Symbol(next)) if *next == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is_next(symbol);
        self.at += usize::from(found);
        found
    }

    /// Reads an expression, which consists of operands with operators between them. Returns the
    /// shapes of the expression's value. These shapes are known only if every operator is the union
    /// `|`.
    fn expression<'s>(&mut self, context: &ShapeSet<'s>) -> ShapeSet<'s> {
        self.expression_as(context, false)
    }

    /// Reads an expression, as [`Self::expression`] does. `is_condition` states whether XPath
    /// converts the value to a truth value.
    fn expression_as<'s>(&mut self, context: &ShapeSet<'s>, is_condition: bool) -> ShapeSet<'s> {
        let mut operands = vec![self.placed_operand(context)];
        let mut operators = Vec::new();
        let mut value = operands.first().map_or_else(ShapeSet::open, |first| first.value.clone());
        while let Some(operator) = self.operator() {
            let operand = self.placed_operand(context);
            value =
                if operator == "|" { value.or(operand.value.clone()) } else { ShapeSet::value() };
            operands.push(operand);
            operators.push(operator);
        }

        self.record_operands(&operands, &operators, is_condition);
        value
    }

    fn placed_operand<'s>(&mut self, context: &ShapeSet<'s>) -> Operand<'s> {
        let start = self.at;
        let value = self.operand(context);
        Operand { value, tokens: start..self.at }
    }

    /// Reads an operator, and returns its text; `None` if the next token is no operator.
    fn operator(&mut self) -> Option<&'static str> {
        let operator = match self.peek()? {
            ExpressionToken::Name(name) => OPERATORS.into_iter().find(|known| known == name)?,
            ExpressionToken::Symbol(symbol) => {
                let known = ["|", "+", "-", "=", "!=", "<", "<=", ">", ">=", "*"];
                known.into_iter().find(|known| known == symbol)?
            }
            _ => return None,
        };
        self.at += 1;
        Some(operator)
    }

    /// Records comparisons with literals, and values of the type boolean that XPath converts to
    /// truth values. `operators` stand between the `operands`.
    fn record_operands(
        &mut self,
        operands: &[Operand<'_>],
        operators: &[&str],
        is_condition: bool,
    ) {
        let is_logical = |operator: Option<&&str>| {
            operator.is_none_or(|operator| ["and", "or"].contains(operator))
        };
        let is_condition = is_condition || !operators.is_empty();
        for (at, operand) in operands.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|before| operators.get(before));
            let after = operators.get(at);
            if is_condition && is_logical(before) && is_logical(after) && operand.value.is_boolean()
            {
                self.report.converted_booleans.push(operand.value.path.join("/"));
            }

            let is_compared = after.is_some_and(|operator| ["=", "!="].contains(operator));
            if let Some(next) = operands.get(at + 1)
                && is_compared
                && is_logical(before)
                && is_logical(operators.get(at + 1))
            {
                self.record_comparison(operand, next);
                self.record_comparison(next, operand);
            }
        }
    }

    fn record_comparison(&mut self, operand: &Operand<'_>, other: &Operand<'_>) {
        let path = operand.value.path.join("/");
        match self.tokens.get(other.tokens.clone()) {
            Some([ExpressionToken::Literal(literal)]) => {
                let literal = literal.clone();
                let words = operand.value.words();
                let found = words.map(|words| LiteralComparison { path, words, literal });
                self.report.comparisons.extend(found);
            }
            Some([ExpressionToken::Name(name), ExpressionToken::Symbol("("), _])
                if matches!(name.as_str(), "true" | "false") && operand.value.is_boolean() =>
            {
                self.report.converted_booleans.push(path);
            }
            _ => {}
        }
    }

    fn operand<'s>(&mut self, context: &ShapeSet<'s>) -> ShapeSet<'s> {
        let before = self.at;
        while self.take("-") {}
        if self.at > before {
            self.operand(context);
            return ShapeSet::value();
        }

        match self.peek().cloned() {
            Some(ExpressionToken::Literal(_) | ExpressionToken::Number) => {
                self.at += 1;
                ShapeSet::value()
            }
            Some(ExpressionToken::Symbol("(")) => {
                self.at += 1;
                let inner = self.expression(context);
                self.take(")");
                self.rest_of_path(inner)
            }
            Some(ExpressionToken::Symbol("$")) => {
                self.at += 2;
                self.report.has_variable = true;
                ShapeSet::open()
            }
            Some(ExpressionToken::Name(name))
                if self.opens_call() && !NODE_TESTS.contains(&name.as_str()) =>
            {
                self.call(&name, context);
                let has_value = name != "id" && FUNCTIONS.contains(&name.as_str());
                self.rest_of_path(if has_value { ShapeSet::value() } else { ShapeSet::open() })
            }
            Some(ExpressionToken::Symbol("/" | "//")) => {
                self.at += 1;
                let inner = self.step(&ShapeSet::open());
                self.rest_of_path(inner)
            }
            _ => {
                let first = self.step(context);
                self.rest_of_path(first)
            }
        }
    }

    fn opens_call(&self) -> bool {
        matches!(self.tokens.get(self.at + 1), Some(ExpressionToken::Symbol("(")))
    }

    fn call(&mut self, name: &str, context: &ShapeSet<'_>) {
        self.at += 2;
        if !FUNCTIONS.contains(&name) {
            self.report.unknown_functions.push(name.to_owned());
        }

        // For each argument, whether it is certainly no set of nodes.
        let mut arguments = Vec::new();
        let mut is_new = true;
        while self.at < self.tokens.len() && !self.take(")") {
            let before = self.at;
            let is_condition = matches!(name, "not" | "boolean");
            let is_value = self.expression_as(context, is_condition).is_value;
            if is_new {
                arguments.push(is_value);
            } else if let Some(argument) = arguments.last_mut() {
                // The reader has followed only a part of this argument.
                *argument = false;
            }
            is_new = self.take(",");
            self.at = self.at.max(before + 1);
        }
        self.report.wrong_calls.extend(wrong_call(name, &arguments));
    }

    /// Reads the rest of a path: predicates and further steps. `from` has the shapes of the nodes
    /// that the beginning of the path selects. Returns the shapes of the nodes that the whole path
    /// selects.
    fn rest_of_path<'s>(&mut self, from: ShapeSet<'s>) -> ShapeSet<'s> {
        let mut value = from;
        loop {
            if self.take("[") {
                let context = ShapeSet { is_root: false, ..value.clone() };
                self.expression_as(&context, true);
                self.take("]");
                value.is_filtered = true;
            } else if self.take("//") {
                value = self.step(&ShapeSet::open());
            } else if self.take("/") {
                value = self.step(&value);
            } else {
                return value;
            }
        }
    }

    fn step<'s>(&mut self, from: &ShapeSet<'s>) -> ShapeSet<'s> {
        if self.take(".") {
            return from.clone();
        }
        if self.take("..") || self.take("*") {
            return ShapeSet::open();
        }

        let is_attribute = self.take("@");
        if is_attribute && self.take("*") {
            return ShapeSet::open();
        }

        let Some(ExpressionToken::Name(name)) = self.peek().cloned() else {
            return ShapeSet::open();
        };
        self.at += 1;
        if self.take("::") {
            self.at += 1;
            return ShapeSet::open();
        }
        if self.is_next("(") {
            while self.at < self.tokens.len() && !self.take(")") {
                self.at += 1;
            }
            return ShapeSet::open();
        }

        let name = if is_attribute { format!("@{name}") } else { name };
        self.named_step(from, name)
    }

    fn named_step<'s>(&mut self, from: &ShapeSet<'s>, name: String) -> ShapeSet<'s> {
        // A character that fits nowhere, such as the colon of a prefix, makes an empty name.
        if name.trim_start_matches('@').is_empty() {
            return ShapeSet::open();
        }

        match (from.is_root, from.path.as_slice()) {
            (true, _) => self.report.references.push((name.clone(), None)),
            (false, [first]) if from.shapes.is_some() => {
                self.report.references.push((first.clone(), Some(name.clone())));
            }
            _ => {}
        }

        let Some(shapes) = &from.shapes else { return ShapeSet::open() };
        let mut path = from.path.clone();
        path.push(name.clone());
        if shapes.iter().any(|shape| **shape == ValueShape::Open) {
            return ShapeSet { path, ..ShapeSet::open() };
        }

        let found: Vec<_> = shapes.iter().filter_map(|shape| shape.child(&name)).collect();
        if found.is_empty() {
            let known = shapes.iter().flat_map(|shape| match shape {
                ValueShape::Children(children) => {
                    children.iter().map(|(name, _)| name.clone()).collect()
                }
                _ => Vec::new(),
            });
            let known = known.filter(|known| known != ANY_ATTRIBUTE).collect();
            self.report.missing.push(MissingName { path: from.path.join("/"), name, known });
            return ShapeSet::open();
        }

        ShapeSet { shapes: Some(found), path, ..ShapeSet::open() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(of: &[(&str, ValueShape)]) -> ValueShape {
        ValueShape::Children(
            of.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone())).collect(),
        )
    }

    fn root() -> ValueShape {
        let line = children(&[("@n", ValueShape::Leaf), ("fault", ValueShape::Leaf)]);
        children(&[
            ("input", children(&[("topic", ValueShape::Leaf), ("words", ValueShape::Leaf)])),
            ("plan", children(&[("line", line)])),
            ("draft", ValueShape::Leaf),
            ("other", ValueShape::Open),
        ])
    }

    fn missing(expression: &str) -> Vec<String> {
        let report = read(expression, &root());
        report.missing.iter().map(|one| format!("{}:{}", one.path, one.name)).collect()
    }

    #[test]
    fn a_path_that_fits_its_schema_has_no_missing_name() {
        for good in [
            "input/topic",
            "plan/line[@n = 1]/fault",
            "last-line(draft) != 'none'",
            "(draft | plan/line)/fault",
            "count(plan/line) > 3 and not(input/words = 800)",
            "concat(input/topic, ' div ', \"and\")",
            "//anything/at/all",
            "other/whatever/it/has",
            "plan/*/unknown",
            "plan/line/text()",
            "plan/line/../x",
            "plan/child::line/unknown",
            "draft * 2 - 1",
            "plan/line[position() = last()]",
            ".",
        ] {
            assert_eq!(missing(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn the_shape_of_what_a_path_selects_is_known_or_open() {
        let line = children(&[("@n", ValueShape::Leaf), ("fault", ValueShape::Leaf)]);
        assert_eq!(selected("plan/line[@n = 1]", &root()), line);
        assert_eq!(selected("draft", &root()), ValueShape::Leaf);
        for unknown in ["other/line", "plan/*", "plan/none", "draft | plan/line", "count(draft)"] {
            assert_eq!(selected(unknown, &root()), ValueShape::Open, "{unknown}");
        }
    }

    #[test]
    fn a_name_that_selects_nothing_is_found_at_its_path() {
        for (wrong, expected) in [
            ("inptu/topic", ":inptu"),
            ("input/topci", "input:topci"),
            ("plan/line/falt", "plan/line:falt"),
            ("plan/line[@m = 1]", "plan/line:@m"),
            ("draft/x", "draft:x"),
            ("not(has-word(drfat, 'SHIP'))", ":drfat"),
            ("(draft | plan)/lin", "draft:lin"),
        ] {
            assert_eq!(missing(wrong), [expected], "{wrong}");
        }
    }

    #[test]
    fn references_name_the_first_two_steps() {
        let report = read("concat(input/topic, draft, plan/line[fault]/@n)", &root());
        let second = |name: &str, child: &str| (name.to_owned(), Some(child.to_owned()));
        let first = |name: &str| (name.to_owned(), None);
        let expected = [
            first("input"),
            second("input", "topic"),
            first("draft"),
            first("plan"),
            second("plan", "line"),
        ];
        assert_eq!(report.references, expected);
    }

    #[test]
    fn a_function_that_nobody_has_and_a_variable_are_found() {
        let report = read("lower-case(draft) = $x", &root());
        assert_eq!(report.unknown_functions, ["lower-case"]);
        assert!(report.has_variable);
    }

    fn review() -> ValueShape {
        let words = ValueShape::Words(vec!["good".to_owned(), "bad".to_owned()]);
        let fields = children(&[("accept", ValueShape::Boolean), ("grade", words)]);
        children(&[("review", fields)])
    }

    #[test]
    fn a_boolean_that_becomes_a_truth_value_is_found() {
        for converted in [
            "review/accept",
            "(review/accept)",
            "not(review/accept)",
            "review/accept and review/grade = 'good'",
            "review[accept]/grade",
            "review/accept[.]",
            "review/accept = true()",
            "false() != review/accept",
        ] {
            let report = read_condition(converted, &review());
            assert_eq!(report.converted_booleans, ["review/accept"], "{converted}");
        }
        for compared in [
            "review/accept = 'true'",
            "review/accept[. = 'true']",
            "string(review/accept) = 'true'",
            "count(review/accept) = 1",
            "review/accept = review/grade",
            "review/grade",
            "review",
        ] {
            let report = read_condition(compared, &review());
            assert_eq!(report.converted_booleans, [""; 0], "{compared}");
        }
        assert_eq!(read("review/accept", &review()).converted_booleans, [""; 0]);
    }

    #[test]
    fn a_comparison_with_a_literal_names_the_texts_that_the_value_can_have() {
        let report = read("review/grade = 'Bad' or 'yes' != review/accept", &review());
        let found = report.comparisons.iter();
        let found: Vec<_> = found
            .map(|one| (one.path.as_str(), one.words.join(" "), one.literal.as_str()))
            .collect();
        let expected = [
            ("review/grade", "good bad".to_owned(), "Bad"),
            ("review/accept", "true false 1 0".to_owned(), "yes"),
        ];
        assert_eq!(found, expected);

        for other in [
            "review/grade | review = 'Bad'",
            "review/grade + 1 = 'Bad'",
            "concat(review/grade, '') = 'Bad'",
            "review/grade < 'Bad'",
            "review = 'Bad'",
        ] {
            let report = read(other, &review());
            assert!(report.comparisons.is_empty(), "{other}: {report:?}");
        }
    }

    #[test]
    fn a_call_with_wrong_arguments_is_found_anywhere_in_an_expression() {
        for (wrong, function) in [
            ("has-word(draft)", "has-word"),
            ("plan/line[contains(fault)]", "contains"),
            ("not(last-line(draft, 2) = 'x')", "last-line"),
            ("concat(draft, string(count()))", "count"),
            ("sum('a')", "sum"),
            ("count(string(draft))", "count"),
            ("name(draft = 'x')", "name"),
        ] {
            let report = read(wrong, &root());
            let functions = report.wrong_calls.iter().map(|wrong| wrong.function.as_str());
            assert_eq!(functions.collect::<Vec<_>>(), [function], "{wrong}");
        }
        for good in [
            "count(plan/child::node())",
            "count(plan/line[contains(fault, 'x')]/text())",
            "sum(plan/line/@n | draft) + 1",
            "name(id('x'))",
            "concat(draft, ', ', -1, \"a, b\")",
            "substring(draft, 1, string-length(draft) - 1)",
            "count(child::node()[contains(., 'a')])",
            "string()",
        ] {
            let report = read(good, &root());
            assert!(report.wrong_calls.is_empty(), "{good}: {report:?}");
        }
    }

    #[test]
    fn an_expression_with_a_text_or_a_number_selects_no_nodes() {
        for value in ["count(draft)", "'a'", "(1)", "-draft", "draft = 'x'", "plan/line * 2"] {
            assert!(is_value(value), "{value}");
        }
        for nodes in ["draft", "(draft)", "id('x')", "draft | plan", "plan/*", "lower-case(draft)"]
        {
            assert!(!is_value(nodes), "{nodes}");
        }
    }

    #[test]
    fn an_expression_that_may_begin_anywhere_has_no_names() {
        for open in [
            "*",
            ".",
            "..",
            "//a",
            "/",
            "/run/a",
            "a | /run/b",
            "(/run)",
            "a[/run/b]",
            "a//b",
            "a/..",
            "child::a",
            "id('x')",
            "node()",
            "text()",
            "plan and /run",
            "a[../b]",
            "a * b",
        ] {
            assert_eq!(names(open), None, "{open}");
        }
        let all = names("concat(input/topic, item, plan/task[@n = ./m]/x)").expect("it has names");
        for name in ["input", "item", "plan"] {
            assert!(all.contains(name), "{name}");
        }
        assert!(names("'a//b'").is_some_and(|names| names.is_empty()));
    }

    #[test]
    fn a_broken_expression_ends() {
        for broken in ["", "(((", "a[", "]]", ")", "f(", "//", "@", "a::", "'x", "a b c", "$"] {
            let _ = read(broken, &root());
        }
        assert_eq!(missing("]]"), Vec::<String>::new());
    }
}
