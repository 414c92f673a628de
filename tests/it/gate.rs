//! The gate: accepted texts, refused texts, and the rule and location of each refusal.

mod corpus;
mod envelope;
mod oracle;
mod rules;
mod scan;
mod stage;
