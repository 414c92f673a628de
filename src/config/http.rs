//! `[http]`: the address that serves health and metrics.

use std::net::{IpAddr, SocketAddr};

use super::config_problem::{ConfigProblem, ProblemCode};
use super::read::TableReader;

const EXAMPLE: &str = "write \"127.0.0.1:9464\"";

/// Reads the address on which the HTTP server listens. If the address is missing or is no loopback
/// address, reports this and returns `None`.
pub(super) fn read(read: &mut TableReader<'_>) -> Option<SocketAddr> {
    let text = read.required_text("listen", "\"127.0.0.1:9464\"")?;
    let written = &text.value.written;
    let (message, help) = match address(&text.value.value) {
        Some(address) if address.ip().is_loopback() => return Some(address),
        Some(_) => (
            format!("`listen` is `{written}`, which other machines reach"),
            "nothing listens beyond loopback without authentication; ".to_owned() + EXAMPLE,
        ),
        None => (format!("`listen` is `{written}`, which is no address and port"), EXAMPLE.into()),
    };

    read.problem(ConfigProblem::new(ProblemCode::BadAddress, &text.place, message).help(help));
    None
}

/// Parses a loopback address with a port. Returns `None` for any other text.
pub fn loopback(text: &str) -> Option<SocketAddr> {
    address(text).filter(|address| address.ip().is_loopback())
}

/// Parses a numeric address, or `localhost`, with a port. Returns `None` for any other host name,
/// because the address of a name may change.
fn address(text: &str) -> Option<SocketAddr> {
    let named = text.strip_prefix("localhost:").map(|port| (IpAddr::from([127, 0, 0, 1]), port));
    match named {
        Some((ip, port)) => Some(SocketAddr::new(ip, port.parse().ok()?)),
        None => text.parse().ok(),
    }
}
