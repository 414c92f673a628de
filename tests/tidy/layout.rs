//! Layout of code: each binding has its own line, and `if` decides on booleans. A function whose
//! name is a question changes nothing and answers yes or no.

use crate::ratchet::{Offence, only_shrinks};
use crate::source;
use crate::tree::{File, product};

const QUESTIONS: &[&str] = &["is_", "has_", "can_", "may_"];

/// Types that a question may return. With `Option<bool>`, the answer may be unknown.
const ANSWERS: &[&str] = &["bool", "Option<bool>"];

/// The names of the rules that code breaks, each with the offset of the offence.
fn broken_rules(code: &str) -> Vec<(&'static str, usize)> {
    let mut broken = Vec::new();
    for (at, _) in code.match_indices("let (") {
        if binds_a_tuple(&code[at..]) {
            broken.push(("two bindings", at));
        }
    }

    let arms = ["true =>", "false =>"].into_iter().flat_map(|arm| code.match_indices(arm));
    let is_arm = |at: usize| code[..at].trim_end_matches(' ').ends_with('\n');
    broken.extend(arms.filter(|(at, _)| is_arm(*at)).map(|(at, _)| ("match on a bool", at)));

    for question in QUESTIONS {
        for (at, name) in code.match_indices(&format!("fn {question}")) {
            let rest = &code[at + name.len()..];
            let head = rest.split(['{', ';']).next().unwrap_or(rest);
            if head.contains("&mut self") {
                broken.push(("a question that changes", at));
            }
            if !is_answer(rest) {
                broken.push(("a question without yes or no", at));
            }
        }
    }

    broken
}

/// Whether a function's return type is one of [`ANSWERS`], or a `Result` with a `bool`. `rest`
/// begins within the function's name.
fn is_answer(rest: &str) -> bool {
    let after = rest.find('(').and_then(|at| after_parentheses(&rest[at..]));
    let head = after.and_then(|after| after.split(['{', ';']).next()).unwrap_or_default();
    let returned = head.split_once("->").map_or("", |(_, returned)| returned);
    let returned = returned.split("where").next().unwrap_or(returned);
    let returned = returned.split_whitespace().collect::<String>();

    let is_result = returned.ends_with("Result<bool>") || returned.contains("Result<bool,");
    ANSWERS.contains(&returned.as_str()) || is_result
}

/// Whether a text begins with `let (a, b) = (x, y);`. A tuple that a function or a `match` returns
/// is allowed.
fn binds_a_tuple(text: &str) -> bool {
    let value = text.strip_prefix("let ").and_then(after_parentheses);
    let value = value.and_then(|rest| rest.trim_start().strip_prefix('='));
    let rest = value.and_then(|value| after_parentheses(value.trim_start()));
    rest.is_some_and(|rest| rest.starts_with(';'))
}

/// Returns the text after the parentheses with which `text` begins.
fn after_parentheses(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.starts_with('(').then(|| &text[at + 1..]);
        }
    }
    None
}

fn offences<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in files {
        for (rule, at) in broken_rules(&file.code) {
            let place = format!("{}:{}", file.path, source::line_of(&file.code, at));
            found.push(Offence { key: rule.to_owned(), place });
        }
    }
    found
}

#[test]
fn code_is_laid_out_to_be_read_top_down() {
    only_shrinks(
        "layout",
        offences(product()),
        "layout (`two bindings`: write one `let` a line; `match on a bool`: write `if`; `a question that \
         changes`: a function called is_, has_, can_ or may_ takes no `&mut self`; `a question without yes \
         or no`: such a function returns `bool`, `Option<bool>` or `Result<bool, _>`)",
    );
}

#[test]
fn each_offence_is_found_and_its_allowed_neighbour_is_not() {
    let broken = |code: &str| {
        let broken = broken_rules(code).into_iter().map(|(rule, _)| rule);
        broken.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(broken("let (a, b) = (f(1), 2);"), "two bindings");
    assert_eq!(broken("let (a, b) =\n (1, 2);"), "two bindings");
    assert_eq!(broken("let (a, b) = f(1, 2);"), "");
    assert_eq!(broken("let (a, b) = (f(1)).g();"), "");
    assert_eq!(broken("match x {\n    true => 1,\n    _ => 2,\n}"), "match on a bool");
    assert_eq!(broken("match x {\n    false => {\n    }\n}"), "match on a bool");
    assert_eq!(broken("matches!(x, Some(true) if y)"), "");
    assert_eq!(broken("fn is_open(&mut self) -> bool {"), "a question that changes");
    assert_eq!(broken("fn is_open(&self) -> bool { self.look(&mut self) }"), "");
    assert_eq!(broken("fn may_go(&self) -> Result<(), Error> {"), "a question without yes or no");
    assert_eq!(broken("async fn has_come(&self) {"), "a question without yes or no");
    assert_eq!(
        broken("fn is_own(is_known: impl Fn(Id) -> bool) -> Id {"),
        "a question without yes or no"
    );
    assert_eq!(broken("fn has_left(&self) -> io::Result<bool> {"), "");
    assert_eq!(broken("fn is_part(whole: [&str; 2]) -> bool\nwhere T: Way {"), "");
    assert_eq!(broken("fn can_go<T>(&self, way: T)\n-> Result<bool, Error>\nwhere T: Way {"), "");
}
