//! Parses primitives, which are payloads to the core such as `spawn-thread`, after the schema has
//! validated them.

use std::borrow::Cow;

use crate::clock::{Time, parse_duration};
use crate::envelope::Money;
use crate::limits;
use crate::system::{Primitive, ThreadAllotment, WaitFor, When};
use crate::xml::scan::{NestedElement, attributes, nested};

/// Parses the primitive `local` from its element. `Err` describes the mistake.
pub(super) fn read(local: &str, text: &str) -> Result<Primitive, String> {
    let attributes = PrimitiveAttributes(attributes(text));

    match local {
        "spawn-thread" => {
            let suggested_sub_id = attributes.text("suggested_sub_id");
            let is_bound = attributes.flag("bound")?;
            let allotment = attributes.allotment()?;
            Ok(Primitive::SpawnThread { suggested_sub_id, is_bound, allotment })
        }
        "send-to-thread" => {
            Ok(Primitive::SendToThread { thread_id: attributes.required("thread_id")? })
        }
        "cancel-thread" => {
            Ok(Primitive::CancelThread { thread_id: attributes.required("thread_id")? })
        }
        "wait" => match attributes.token("for") {
            None | Some("all") => Ok(Primitive::Wait { until: WaitFor::All }),
            Some("any") => Ok(Primitive::Wait { until: WaitFor::Any }),
            Some(_) => Err("`for` is neither `all` nor `any`".to_owned()),
        },
        "clear-context" => {
            let keep = attributes.token("keep").and_then(|keep| keep.parse().ok());
            let keep = keep.filter(|keep| *keep >= 1);
            let keep = keep.ok_or("`keep` is not a whole number of at least 1")?;
            Ok(Primitive::ClearContext { keep })
        }
        "set-timer" => {
            Ok(Primitive::SetTimer { when: attributes.when()?, label: attributes.text("label") })
        }
        "cancel-timer" => Ok(Primitive::CancelTimer { timer_id: attributes.required("timer_id")? }),
        _ => Err("no such primitive".to_owned()),
    }
}

/// Returns the payload inside a primitive, or `None` if the primitive contains no payload. A
/// `send-to-thread` contains one payload, a `spawn-thread` at most one, and any other primitive
/// none.
pub(super) fn inner(primitive: &Primitive, text: &str) -> Result<Option<NestedElement>, String> {
    let (levels, least) = match primitive {
        Primitive::SpawnThread { .. } => (2, 0),
        Primitive::SendToThread { .. } => (1, 1),
        _ => return Ok(None),
    };

    let mut found = nested(text, levels);
    match found.len() {
        1 => Ok(found.pop()),
        count if count < least => Err("one payload was expected inside".to_owned()),
        0 => Ok(None),
        count => Err(format!("{count} payloads inside, where one was expected")),
    }
}

struct PrimitiveAttributes<'a>(Vec<(&'a str, Cow<'a, str>)>);

impl PrimitiveAttributes<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| &**value)
    }

    /// Returns the value of the attribute or child element with this name, as written; `None` if
    /// there is none.
    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// Returns the value of the attribute or child element with this name; `None` if there is none.
    /// Removes the white space that schemas allow around numbers and tokens.
    fn token(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim)
    }

    /// Returns the boolean value of the attribute or child element with this name; false if there
    /// is none. Returns an error if the value is not boolean.
    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.token(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(format!("`{name}` is neither `true` nor `false`")),
        }
    }

    fn required(&self, name: &str) -> Result<String, String> {
        self.text(name).ok_or_else(|| format!("`{name}` is missing"))
    }

    fn allotment(&self) -> Result<ThreadAllotment, String> {
        let read = |name: &str| self.token(name);
        let tokens = match read("tokens").map(str::parse) {
            None => None,
            Some(Ok(tokens)) if tokens > 0 => Some(tokens),
            Some(_) => return Err("`tokens` is not a whole number of at least 1".to_owned()),
        };
        let money = match read("money").map(str::parse::<f64>) {
            None => None,
            Some(Ok(units)) if units >= 0.0 => Some(Money::of_units(units)),
            Some(_) => return Err("`money` is not an amount such as `0.50`".to_owned()),
        };
        let timeout = match read("timeout").map(parse_duration) {
            None => None,
            Some(Some(timeout)) if !timeout.is_zero() && timeout <= limits::TIMER_MAX => {
                Some(timeout)
            }
            Some(_) => {
                let days = limits::TIMER_MAX.as_secs() / 86_400;
                return Err(format!(
                    "`timeout` is not a duration of more than zero and at most {days} days, in days, \
                     hours, minutes and seconds, such as `PT10M`"
                ));
            }
        };

        Ok(ThreadAllotment { tokens, money, timeout })
    }

    fn when(&self) -> Result<When, String> {
        match (self.token("after"), self.token("at")) {
            (Some(after), None) => {
                let after = parse_duration(after).filter(|after| *after <= limits::TIMER_MAX);
                let days = limits::TIMER_MAX.as_secs() / 86_400;
                after.map(When::After).ok_or_else(|| {
                    format!(
                        "`after` is not a duration from zero to {days} days, in days, hours, minutes \
                         and seconds, such as `PT30S`"
                    )
                })
            }
            (None, Some(at)) => Time::parse(at).map(When::At).ok_or_else(|| {
                "`at` is not a time with its zone, such as `2030-01-01T00:00:00Z`".to_owned()
            }),
            _ => Err("exactly one of `after` and `at` was expected".to_owned()),
        }
    }
}
