//! Variables in strings: `${VAR}` and `${VAR:-default}`. `$${` stands for a literal `${`.

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::nearest;
use super::source_text::SourceRange;
use super::tree::ExpandedText;

/// Fills in the variables of the string at `place`.
pub(super) fn fill(
    text: &str,
    place: &SourceRange,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> ExpandedText {
    let mut value = String::new();
    let mut rest = text;
    let mut seen = 0;
    let mut failed = false;

    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let inner = from.get(2..).unwrap_or_default();
        let here = nth_place(place, seen);
        seen += 1;
        if let Some(before) = before.strip_suffix('$') {
            value.push_str(before);
            value.push_str("${");
            rest = inner;
            continue;
        }
        value.push_str(before);
        let Some((variable, after)) = inner.split_once('}') else {
            let problem =
                ConfigProblem::new(ProblemCode::BadVariable, &here, "`${` is never closed");
            problems.push(problem.help("write ${NAME} or ${NAME:-default}; a literal `${` is $${"));
            failed = true;
            rest = "";
            break;
        };
        match value_of(variable, &here, around) {
            Ok(filled) => value.push_str(&filled),
            Err(problem) => {
                problems.push(problem);
                failed = true;
            }
        }
        rest = after;
    }

    value.push_str(rest);
    ExpandedText { value, written: text.to_owned(), failed }
}

/// Returns the names of the variables in `written`, a string of the config before its variables are
/// filled in.
pub(super) fn named(written: &str) -> impl Iterator<Item = &str> {
    let inner = written.split("${").skip(1).filter_map(|inner| Some(inner.split_once('}')?.0));
    inner.map(|inner| inner.split_once(":-").map_or(inner, |(name, _)| name))
}

/// Returns the names of those variables in `written` that have no default. The environment must set
/// these variables.
pub(super) fn named_without_default(written: &str) -> impl Iterator<Item = &str> {
    let starts = written.match_indices("${").map(|(at, _)| at);
    let is_escaped = |at: usize| written.get(..at).is_some_and(|before| before.ends_with('$'));
    let named = starts.filter(move |at| !is_escaped(*at)).filter_map(|at| {
        let inner = written.get(at + 2..)?;
        Some(inner.split_once('}')?.0)
    });
    named.filter(|name| is_name(name))
}

fn value_of(
    variable: &str,
    here: &SourceRange,
    around: &ConfigEnvironment,
) -> Result<String, ConfigProblem> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };

    if !is_name(name) {
        // The text may be a part of a private value, so the message must not quote it.
        let message = "what stands between `${` and `}` is not the name of a variable";
        return Err(ConfigProblem::new(ProblemCode::BadVariable, here, message)
            .help("write ${NAME} or ${NAME:-default}; a literal `${` is $${"));
    }

    let set = around.variable(name);

    match (set.filter(|value| !value.is_empty()), default) {
        (Some(value), _) => Ok(value.to_owned()),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            let state = if set.is_some() { "empty" } else { "not set" };
            let near = nearest(name, around.variables.keys().map(String::as_str));
            let help = match near {
                Some(near) => format!("did you mean ${{{near}}}? or set {name} in the environment"),
                None => {
                    format!("set {name} in the environment, or write ${{{name}:-some default}}")
                }
            };
            let message = format!("the environment variable {name} is {state}");
            Err(ConfigProblem::new(ProblemCode::UnsetVariable, here, message).help(help))
        }
    }
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns the range of the `n`th variable in the string at `place`, counted from 0. Returns the
/// whole `place` if the source writes `${` with TOML escapes, because the variable cannot be found
/// then.
fn nth_place(place: &SourceRange, n: usize) -> SourceRange {
    let raw = place.source.slice(place.span.clone());
    let Some((at, _)) = raw.match_indices("${").nth(n) else { return place.clone() };
    let length = raw.get(at..).and_then(|from| from.find('}')).map_or(2, |end| end + 1);
    let start = place.span.start + at;
    SourceRange::new(&place.source, start..start + length)
}
