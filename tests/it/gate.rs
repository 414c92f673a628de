//! The gate: what it lets through, what it refuses, by which rule and where.

mod corpus;
mod envelope;
mod oracle;
mod rules;
mod scan;
mod stage;
