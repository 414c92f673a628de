//! Follows the paths of an XPath expression without evaluating the expression. Finds names that
//! select nothing, unknown functions, and the goals to which the expression refers.
//!
//! This module understands enough of XPath 1.0 to follow location paths through shapes, which state
//! the children and attributes that payloads may have. libxml2 checks the syntax. If the module
//! cannot follow a path, it reports nothing about this path.

use std::collections::HashSet;

use crate::schema::{PayloadParameter, ShortType};

use super::function_arguments::{WrongCall, wrong_call};

/// The shape of a value: which child elements and attributes the value may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueShape {
    /// The value may have any children and attributes: the schema permits any content, or is not
    /// known.
    Open,
    /// The value has only text, without child elements and attributes.
    Leaf,
    /// The value may have exactly these children and attributes. Names of attributes begin with
    /// `@`.
    Children(Vec<(String, Self)>),
}

impl ValueShape {
    pub fn of_type(short_type: &ShortType) -> Self {
        match short_type {
            ShortType::Fields(fields) => {
                let children = fields.iter();
                Self::Children(
                    children
                        .map(|field| (field.name.clone(), Self::of_type(&field.short_type)))
                        .collect(),
                )
            }
            _ => Self::Leaf,
        }
    }

    /// Returns the shape of an element. `parameters` are the children and attributes that the
    /// element may have.
    pub fn of_parameters(parameters: &[PayloadParameter]) -> Self {
        if parameters
            .iter()
            .any(|parameter| parameter.name.is_empty() || parameter.content.kind == "any element")
        {
            return Self::Open;
        }

        let children = parameters.iter().map(|parameter| {
            let shape = match parameter.content.kind.as_str() {
                "anything" | "any element" => Self::Open,
                _ => Self::of_parameters(&parameter.parameters),
            };
            let mark = if parameter.attribute { "@" } else { "" };
            (format!("{mark}{}", parameter.name), shape)
        });
        let children: Vec<_> = children.collect();
        if children.is_empty() { Self::Leaf } else { Self::Children(children) }
    }

    fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Children(children) => {
                children.iter().find(|(known, _)| known == name).map(|(_, shape)| shape)
            }
            Self::Open | Self::Leaf => None,
        }
    }
}

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
    /// The beginnings of all paths that start at the root. Each path has an entry with the name of
    /// its first step. If the path has a second step, and the shape of the first step is known,
    /// another entry contains the names of both steps.
    pub references: Vec<(String, Option<String>)>,
    pub has_variable: bool,
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
    let mut reader =
        ExpressionReader { tokens: tokens(expression), at: 0, report: ExpressionReport::default() };
    let context = ShapeSet::root(root);
    while reader.at < reader.tokens.len() {
        let before = reader.at;
        reader.expression(&context);
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
}

impl<'s> ShapeSet<'s> {
    fn root(shape: &'s ValueShape) -> Self {
        Self { shapes: Some(vec![shape]), path: Vec::new(), is_root: true, is_value: false }
    }

    fn open() -> Self {
        Self { shapes: None, path: Vec::new(), is_root: false, is_value: false }
    }

    fn value() -> Self {
        Self { is_value: true, ..Self::open() }
    }

    fn or(self, other: Self) -> Self {
        match (self.shapes, other.shapes) {
            (Some(mut shapes), Some(more)) => {
                shapes.extend(more);
                Self { shapes: Some(shapes), path: self.path, is_root: false, is_value: false }
            }
            _ => Self::open(),
        }
    }
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
    /// shapes of its value. They are known only if each operator is the union `|`.
    fn expression<'s>(&mut self, context: &ShapeSet<'s>) -> ShapeSet<'s> {
        let mut value = self.operand(context);
        loop {
            let is_union = self.is_next("|");
            if !self.operator() {
                return value;
            }

            let next = self.operand(context);
            value = if is_union { value.or(next) } else { ShapeSet::value() };
        }
    }

    fn operator(&mut self) -> bool {
        let is_operator = match self.peek() {
            Some(ExpressionToken::Name(name)) => OPERATORS.contains(&name.as_str()),
            Some(ExpressionToken::Symbol(symbol)) => {
                ["|", "+", "-", "=", "!=", "<", "<=", ">", ">=", "*"].contains(symbol)
            }
            _ => false,
        };
        self.at += usize::from(is_operator);
        is_operator
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
            let is_value = self.expression(context).is_value;
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

    /// Reads the rest of a path, whose beginning selects `from`: predicates and further steps.
    /// Returns the shapes of the nodes that the whole path selects.
    fn rest_of_path<'s>(&mut self, from: ShapeSet<'s>) -> ShapeSet<'s> {
        let mut value = from;
        loop {
            if self.take("[") {
                let context = ShapeSet { is_root: false, ..value.clone() };
                self.expression(&context);
                self.take("]");
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
                ValueShape::Open | ValueShape::Leaf => Vec::new(),
            });
            let known = known.collect();
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
