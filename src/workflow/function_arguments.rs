//! Checks the arguments of function calls in XPath expressions. libxml2 checks them only when it
//! evaluates an expression.

/// A function call with a wrong number of arguments, or with an argument of a wrong type.
#[derive(Debug, PartialEq, Eq)]
pub struct WrongCall {
    pub function: String,
    pub message: String,
    pub help: &'static str,
}

/// Functions that take a set of nodes as their only argument.
const NODE_FUNCTIONS: [&str; 6] =
    ["count", "sum", "name", "local-name", "namespace-uri", "payload"];

/// Returns the fault of a call of `function`. `arguments` has an entry for each argument: true if
/// the argument is certainly a text, a number or a truth value. Returns `None` if the call has no
/// fault, or if the function is unknown.
pub(super) fn wrong_call(function: &str, arguments: &[bool]) -> Option<WrongCall> {
    let (least, most) = argument_counts(function)?;
    let count = arguments.len();
    let function = function.to_owned();
    if !(least..=most).contains(&count) {
        let wanted = match (least, most) {
            (_, 0) => "no arguments".to_owned(),
            (0, most) => format!("at most {most} argument"),
            (1, 1) => "1 argument".to_owned(),
            (least, usize::MAX) => format!("{least} or more arguments"),
            (least, most) if least == most => format!("{most} arguments"),
            (least, most) => format!("{least} to {most} arguments"),
        };
        let message = format!("`{function}` takes {wanted}, and has {count} here");
        return Some(WrongCall { function, message, help: "docs/WORKFLOWS.md has examples" });
    }

    let takes_nodes = NODE_FUNCTIONS.contains(&function.as_str());
    let is_wrong = takes_nodes && arguments.first() == Some(&true);
    is_wrong.then(|| {
        let message = format!("`{function}` takes nodes, and its argument selects none");
        WrongCall { function, message, help: "give it a path to elements or attributes" }
    })
}

/// Returns the least and the greatest number of arguments of a function; `None` if the function is
/// unknown.
fn argument_counts(function: &str) -> Option<(usize, usize)> {
    Some(match function {
        "last" | "position" | "true" | "false" => (0, 0),
        "local-name" | "namespace-uri" | "name" | "string" | "string-length"
        | "normalize-space" | "number" => (0, 1),
        "count" | "id" | "boolean" | "not" | "lang" | "sum" | "floor" | "ceiling" | "round"
        | "last-line" | "payload" => (1, 1),
        "starts-with" | "contains" | "substring-before" | "substring-after" | "has-word" => (2, 2),
        "substring" => (2, 3),
        "translate" => (3, 3),
        "concat" => (2, usize::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::expression::FUNCTIONS;
    use super::*;

    fn fault(function: &str, arguments: &[bool]) -> Option<String> {
        wrong_call(function, arguments).map(|wrong| wrong.message)
    }

    #[test]
    fn every_function_has_a_number_of_arguments() {
        for function in FUNCTIONS {
            assert!(argument_counts(function).is_some(), "{function}");
        }
        assert_eq!(argument_counts("lower-case"), None);
    }

    #[test]
    fn a_call_with_a_wrong_number_of_arguments_states_the_right_one() {
        for (function, count, wanted) in [
            ("has-word", 1, "2 arguments"),
            ("last-line", 2, "1 argument"),
            ("not", 0, "1 argument"),
            ("concat", 1, "2 or more arguments"),
            ("substring", 1, "2 to 3 arguments"),
            ("string", 2, "at most 1 argument"),
            ("last", 1, "no arguments"),
        ] {
            let expected = format!("`{function}` takes {wanted}, and has {count} here");
            assert_eq!(fault(function, &vec![false; count]), Some(expected));
        }
        assert_eq!(fault("concat", &[true; 9]), None);
    }

    #[test]
    fn a_function_of_nodes_takes_no_text() {
        assert!(fault("sum", &[true]).is_some());
        assert_eq!(fault("sum", &[false]), None);
        assert_eq!(fault("string", &[true]), None);
    }
}
