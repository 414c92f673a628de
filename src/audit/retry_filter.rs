//! Checks the values of a retry filter, so that a misspelt value does not look like an empty list.

use crate::config::nearest;
use crate::envelope::RefusalRule;
use crate::index::RetryFilter;
use crate::system::ErrorCode;

/// A value of a retry filter that neither this program nor the config knows. It may still be on
/// record, because an earlier version or config may have had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFilterValue {
    /// Name of the filter's field, which is also that of the command's option.
    pub field: &'static str,
    pub value: String,
    /// Text about the value for the person who entered it.
    pub problem: String,
}

impl UnknownFilterValue {
    fn new(field: &'static str, value: &str, problem: &str, known: &[&str]) -> Self {
        let near = nearest(value, known.iter().copied());
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Self { field, value: value.to_owned(), problem: format!("`{value}` {problem}{near}") }
    }
}

/// Returns the unknown values of `filter`. `callees` contains the names of the listeners in the
/// config; `None` if the config is not known, so that every name of a listener is accepted.
pub fn unknown_filter_values(
    filter: &RetryFilter,
    callees: Option<&[String]>,
) -> Vec<UnknownFilterValue> {
    let mut unknown = Vec::new();
    if let Some(reason) = &filter.reason {
        let rules = RefusalRule::ALL.map(RefusalRule::as_str);
        let codes = ErrorCode::ALL.map(ErrorCode::as_str);
        let known = [&rules[..], &codes[..]].concat();
        if !known.contains(&reason.as_str()) {
            let problem = "is neither the rule of a refusal nor the code of a failure";
            unknown.push(UnknownFilterValue::new("reason", reason, problem, &known));
        }
    }

    if let (Some(listener), Some(callees)) = (&filter.listener, callees)
        && !callees.contains(listener)
    {
        let known: Vec<&str> = callees.iter().map(String::as_str).collect();
        let problem = "is neither in the config nor on record";
        unknown.push(UnknownFilterValue::new("listener", listener, problem, &known));
    }
    unknown
}
