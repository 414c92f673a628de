//! Limits the cost of compiling a schema and of validating texts against it. The check takes place
//! before libxml2 gets the schema, and limits:
//!
//! - the number of particles in each content model, after references to groups are expanded,
//! - the product of bounded repetitions that are nested in one another,
//! - the repetitions and the nesting in patterns.
//!
//! A schema that passes this check is still compiled in a child process with a time limit.

use std::collections::HashMap;

use super::pattern_cost;
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::{SchemaElement, is_xsd};
use crate::limits;
use crate::xml::element::Element;

/// Returns a problem for every part of `sources` that exceeds a bound.
pub fn check(sources: &[SchemaDocument]) -> Vec<SchemaProblem> {
    let mut groups: HashMap<&str, Vec<&Element>> = HashMap::new();
    for source in sources {
        for holder in std::iter::once(&source.root).chain(source.root.all("redefine")) {
            for group in holder.all("group") {
                if let Some(name) = group.attribute("name") {
                    groups.entry(name).or_default().push(group);
                }
            }
        }
    }

    let mut scale = ParticleScale { groups, known: HashMap::new() };
    let mut problems = Vec::new();
    for source in sources {
        walk(source, &source.root, &mut scale, &mut problems);
    }

    problems
}

fn walk(
    source: &SchemaDocument,
    element: &Element,
    scale: &mut ParticleScale<'_>,
    problems: &mut Vec<SchemaProblem>,
) {
    if is_xsd(&element.name) {
        match &*element.name.local {
            "complexType" | "extension" | "restriction" => {
                let weight = scale.weight_of_children(element);
                if let Some(message) = weight.excess() {
                    problems.push(source.problem(element, "schema-too-complex", message));
                    return;
                }
            }
            "pattern" => {
                let pattern = element.attribute("value").unwrap_or_default();
                if let Err(message) = pattern_cost::check(pattern) {
                    problems.push(source.problem(element, "schema-pattern", message));
                }
            }
            _ => {}
        }
    }

    for child in element.children() {
        walk(source, child, scale, problems);
    }
}

/// The weight of a content model: the number of particles, and the largest product of bounded
/// repetitions that are nested in one another. Each of these two numbers has its own limit.
#[derive(Debug, Clone, Copy, Default)]
struct ParticleWeight {
    particles: u64,
    occurs: u64,
}

impl ParticleWeight {
    fn excess(self) -> Option<String> {
        if self.particles > limits::SCHEMA_PARTICLES_MAX {
            return Some(format!(
                "the content model has more than {} particles once its groups are expanded; name types instead of groups",
                limits::SCHEMA_PARTICLES_MAX
            ));
        }

        (self.occurs > limits::SCHEMA_OCCURS_MAX).then(|| {
            format!(
                "counted repetitions inside one another multiply beyond {}; make one of them unbounded",
                limits::SCHEMA_OCCURS_MAX
            )
        })
    }
}

struct ParticleScale<'a> {
    groups: HashMap<&'a str, Vec<&'a Element>>,
    /// The weight of each named group, or `None` while it is being computed. In that time, a
    /// reference to the group counts as empty, so that the computation ends even if groups refer to
    /// one another in a cycle.
    known: HashMap<String, Option<ParticleWeight>>,
}

impl ParticleScale<'_> {
    fn weight_of_children(&mut self, element: &Element) -> ParticleWeight {
        let mut sum = ParticleWeight { particles: 0, occurs: 1 };
        for child in element.children().filter(|c| is_xsd(&c.name)) {
            let one = match &*child.name.local {
                "sequence" | "choice" | "all" => self.weight_of_children(child),
                "element" | "any" => ParticleWeight { particles: 1, occurs: 1 },
                "group" => self.weight_of_group(child.attribute("ref").unwrap_or_default()),
                _ => continue,
            };
            sum.particles = sum.particles.saturating_add(one.particles);
            sum.occurs = sum.occurs.max(one.occurs.saturating_mul(counted(child)));
        }

        sum
    }

    fn weight_of_group(&mut self, reference: &str) -> ParticleWeight {
        let local = reference.rsplit(':').next().unwrap_or_default().trim();
        if let Some(known) = self.known.get(local) {
            return known.unwrap_or_default();
        }

        self.known.insert(local.to_owned(), None);
        let mut most = ParticleWeight::default();

        for definition in self.groups.get(local).cloned().unwrap_or_default() {
            let weight = self.weight_of_children(definition);
            most.particles = most.particles.max(weight.particles);
            most.occurs = most.occurs.max(weight.occurs);
        }

        self.known.insert(local.to_owned(), Some(most));
        most
    }
}

/// Returns the factor by which a particle multiplies the bounded repetitions inside it. This is its
/// `maxOccurs`, or 1 if `maxOccurs` is absent or `unbounded`.
fn counted(particle: &Element) -> u64 {
    particle.attribute("maxOccurs").and_then(|n| n.trim().parse().ok()).unwrap_or(1).max(1)
}
