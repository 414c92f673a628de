//! Base address of a provider: scheme, host, port and path.

use std::net::IpAddr;

use http::Uri;

/// A provider's base address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEndpoint {
    uri: Uri,
    is_https: bool,
    /// Host name or address, in lower case and without brackets.
    host: String,
    port: u16,
    /// Base path, without a trailing slash.
    path: String,
}

/// Reason why a text is no base address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("is not an address such as https://host/v1")]
    Form,
    #[error("holds a user name or a password")]
    Credentials,
    #[error("holds a query")]
    Query,
    #[error("is plain http to another machine, so anyone on the network can read the key")]
    Plain,
}

impl ProviderEndpoint {
    /// Parses a base address. Plain HTTP is accepted only for servers on this machine, unless
    /// `insecure` is set.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, BadAddress> {
        let uri: Uri = text.trim().parse().map_err(|_| BadAddress::Form)?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(BadAddress::Form),
        };

        let authority = uri.authority().ok_or(BadAddress::Form)?;
        if authority.as_str().contains('@') {
            return Err(BadAddress::Credentials);
        }

        if uri.query().is_some() || text.contains('#') {
            return Err(BadAddress::Query);
        }

        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = host.to_ascii_lowercase();
        if host.is_empty() {
            return Err(BadAddress::Form);
        }

        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/').to_owned();
        let endpoint = Self { uri, is_https, host, port, path };
        if is_https || insecure || endpoint.is_loopback() {
            Ok(endpoint)
        } else {
            Err(BadAddress::Plain)
        }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }

    pub fn is_loopback(&self) -> bool {
        // An address with a final dot is resolved as a name, and may be another machine.
        let ip = self.host.parse::<IpAddr>();
        // A final dot states only that the name is complete.
        let host = self.host.strip_suffix('.').unwrap_or(&self.host);
        ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
            || host == "localhost"
            || host.ends_with(".localhost")
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the host. Appends the port, unless it is the default port of the scheme.
    pub fn authority(&self) -> String {
        self.uri.authority().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns the base path with `path` appended.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.path)
    }
}

impl std::fmt::Display for ProviderEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}
