//! Schemas that the program ships. A config names them as `organism:NAME.xsd`.

use crate::shipped::{self, ShippedSchema};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::did_you_mean;
use super::tree::{ExpandedText, Located};

/// Finds the shipped schema that `schema` names. Reports a problem if there is no such schema. Also
/// reports a schema of the pump's core, because listeners may not use the core's schemas.
pub(super) fn find(
    schema: &Located<ExpandedText>,
    problems: &mut ConfigProblems,
) -> Option<&'static ShippedSchema> {
    let name = &schema.value.value;
    let written = &schema.value.written;
    let listed = || format!("listeners may name {}", names().collect::<Vec<_>>().join(", "));

    let (message, help) = match shipped::schema(name) {
        Some(found) if !found.is_core => return Some(found),
        Some(_) => (format!("`{written}` declares the core's own words"), listed()),
        None => {
            let help = did_you_mean(name, names(), listed);
            (format!("organism ships no schema `{written}`"), help)
        }
    };

    let problem = ConfigProblem::new(ProblemCode::SchemaMissing, &schema.place, message);
    problems.push(problem.help(help));
    None
}

/// Returns the names of the shipped schemas that a listener may use.
fn names() -> impl Iterator<Item = &'static str> {
    shipped::SCHEMAS.iter().filter(|schema| !schema.is_core).map(|schema| schema.name)
}
