//! Environment variables of a program that serves listeners on NATS.

use super::header_names::URL_VARIABLE;

/// Environment variables that only a program on NATS reads. Child processes never inherit them. A
/// kit without [`URL_VARIABLE`] refuses the others, because it would find no deliveries.
pub const ENDPOINT_VARIABLES: [&str; 7] = [
    URL_VARIABLE,
    "ORGANISM_BUS_NKEY",
    "ORGANISM_BUS_CREDENTIALS",
    "ORGANISM_BUS_CA",
    "ORGANISM_BUS_LEASE",
    "ORGANISM_BUS_WORKERS",
    "ORGANISM_NAME",
];
