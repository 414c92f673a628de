//! Proxies that the environment configures by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connect::{BoxedStream, ConnectFailure};
use super::endpoint::ProviderEndpoint;
use crate::limits;

/// Advice for the operator if a proxy requires a user name and a password, or refuses those that
/// the environment states.
const CHECK_CREDENTIALS: &str = "write both into the proxy's variable, as in \
                                 `HTTPS_PROXY=http://user:password@host:port`";

/// Advice for the operator if a proxy cannot be reached, or opens no tunnel.
const CHECK_PROXY: &str = "see that the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names runs and \
                           permits this host, or name the host in NO_PROXY";

/// Advice for the operator if the value of a proxy's variable is no address of a proxy.
const CHECK_VARIABLE: &str = "write it as in `HTTPS_PROXY=http://host:port`, or take it out";

/// Status with which a proxy requires a user name and a password.
pub(super) const PROXY_AUTHENTICATION_REQUIRED: u16 = 407;

/// Value in place of a variable that cannot be read. With it, the rules still find out whether
/// `NO_PROXY` exempts an address. No connection to it is made.
const UNREADABLE: &str = "http://unreadable.invalid";

/// Rules that choose the proxy for an address.
#[derive(Debug)]
pub struct ProxyRules {
    /// `None` if every connection is direct.
    matcher: Option<Matcher>,
    /// Variable for addresses with `http` whose value cannot be read; `None` if there is none.
    unreadable_http: Option<&'static str>,
    /// As `unreadable_http`, for addresses with `https`.
    unreadable_https: Option<&'static str>,
}

/// A variable of the environment that concerns proxies.
struct ProxyVariable {
    name: &'static str,
    value: OsString,
}

impl ProxyVariable {
    /// Returns the first variable in `names` that is set, unless its value is empty.
    fn find(names: [&'static str; 2], variables: &HashMap<OsString, OsString>) -> Option<Self> {
        let value_of = |name: &str| variables.get(OsStr::new(name)).cloned();
        let set = names.into_iter().find_map(|name| Some(Self { name, value: value_of(name)? }));
        set.filter(|set| !set.value.to_string_lossy().trim().is_empty())
    }

    /// Returns the address of the proxy, or [`UNREADABLE`] with the name of the variable.
    fn address(self) -> (String, Option<&'static str>) {
        let readable = self.value.into_string().ok().filter(|value| {
            let rules = Matcher::builder().all(value.clone()).build();
            rules.intercept(&Uri::from_static("http://any.invalid")).is_some()
        });
        match readable {
            Some(value) => (value, None),
            None => (UNREADABLE.to_owned(), Some(self.name)),
        }
    }
}

/// A proxy between this machine and an endpoint.
#[derive(Debug)]
pub(super) struct HttpProxy {
    pub host: String,
    pub port: u16,
    pub is_https: bool,
    /// The value of the header `Proxy-Authorization`; `None` if the environment states no user name
    /// for the proxy.
    pub authorization: Option<String>,
}

impl ProxyRules {
    pub fn of_environment() -> Self {
        Self::of_variables(&std::env::vars_os().collect())
    }

    /// Creates rules from the values of variables by their names. A variable whose value cannot be
    /// read makes connections fail, so that no request goes past a proxy.
    fn of_variables(variables: &HashMap<OsString, OsString>) -> Self {
        // In a CGI program, a client determines the value of HTTP_PROXY.
        if variables.contains_key(OsStr::new("REQUEST_METHOD")) {
            return Self::none();
        }

        let find = |names| ProxyVariable::find(names, variables).map(ProxyVariable::address);
        let all = find(["ALL_PROXY", "all_proxy"]).unwrap_or_default();
        let (http, unreadable_http) =
            find(["HTTP_PROXY", "http_proxy"]).unwrap_or_else(|| all.clone());
        let (https, unreadable_https) = find(["HTTPS_PROXY", "https_proxy"]).unwrap_or(all);
        let exempt = ProxyVariable::find(["NO_PROXY", "no_proxy"], variables);
        let exempt = exempt.map(|set| set.value.to_string_lossy().into_owned());
        let exempt = exempt.unwrap_or_default();
        let matcher = Matcher::builder().http(http).https(https).no(exempt).build();
        Self { matcher: Some(matcher), unreadable_http, unreadable_https }
    }

    pub fn none() -> Self {
        Self { matcher: None, unreadable_http: None, unreadable_https: None }
    }

    /// Creates rules that use the proxy at `uri` for every address that is not on this machine.
    pub fn all(uri: &str) -> Self {
        let matcher = Some(Matcher::builder().all(uri.to_owned()).build());
        Self { matcher, ..Self::none() }
    }

    /// Returns the proxy for an endpoint, or `None` for a direct connection. Servers on this
    /// machine are always reached directly.
    pub(super) fn on_the_way_to(
        &self,
        endpoint: &ProviderEndpoint,
    ) -> Result<Option<HttpProxy>, ConnectFailure> {
        if endpoint.is_loopback() {
            return Ok(None);
        }

        let found = self.matcher.as_ref().and_then(|matcher| matcher.intercept(endpoint.uri()));
        let Some(found) = found else { return Ok(None) };
        let unreadable =
            if endpoint.is_https() { self.unreadable_https } else { self.unreadable_http };
        if let Some(variable) = unreadable {
            let detail = format!("the value of the variable {variable} is no address of a proxy");
            return Err(ConnectFailure { detail, advice: Some(CHECK_VARIABLE) });
        }

        let uri: &Uri = found.uri();
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") | None => false,
            Some(other) => {
                let detail = format!("{other} proxies are not supported, http ones are");
                return Err(ConnectFailure { detail, advice: Some(CHECK_VARIABLE) });
            }
        };

        let host = uri.host().unwrap_or_default();
        let basic = found.basic_auth().and_then(|value| value.to_str().ok()).map(str::to_owned);
        let raw = found.raw_auth().map(|(name, password)| {
            format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
        });
        Ok(Some(HttpProxy {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            is_https,
            authorization: basic.or(raw),
        }))
    }
}

impl HttpProxy {
    /// Requests a tunnel to `endpoint` over `stream`, an open connection to the proxy. Returns when
    /// the proxy has opened the tunnel; fails if the proxy refuses it.
    pub async fn tunnel(
        &self,
        stream: &mut BoxedStream,
        endpoint: &ProviderEndpoint,
    ) -> Result<(), ConnectFailure> {
        let host = if endpoint.host().contains(':') {
            format!("[{}]", endpoint.host())
        } else {
            endpoint.host().to_owned()
        };

        let target = format!("{host}:{}", endpoint.port());
        let mut ask = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(authorization) = &self.authorization {
            ask.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }

        ask.push_str("\r\n");
        let broken = |e: std::io::Error| self.failure(&e.to_string());
        stream.write_all(ask.as_bytes()).await.map_err(broken)?;
        // Reads single bytes, because the bytes after the head belong to the tunnel.
        let mut head = Vec::new();

        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= limits::PROXY_HEAD_BYTES_MAX {
                return Err(self.failure("its answer is too long"));
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }

        let line = String::from_utf8_lossy(&head);
        let status = line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());

        match status {
            Some(200..=299) => Ok(()),
            Some(PROXY_AUTHENTICATION_REQUIRED) => Err(self.denied()),
            Some(status) => Err(self.failure(&format!("it answered HTTP {status}"))),
            None => Err(self.failure("it does not speak HTTP")),
        }
    }

    /// Returns the failure of this proxy. `reason` states what happened.
    pub fn failure(&self, reason: &str) -> ConnectFailure {
        let Self { host, port, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let detail = format!("the proxy {host}:{port}: {reason}");
        ConnectFailure { detail, advice: Some(CHECK_PROXY) }
    }

    /// Returns the failure for a response with the status [`PROXY_AUTHENTICATION_REQUIRED`].
    pub fn denied(&self) -> ConnectFailure {
        let detail = if self.authorization.is_some() {
            format!("the proxy {} refused the user name and the password", self.host)
        } else {
            format!("the proxy {} wants a user name and a password", self.host)
        };
        ConnectFailure { detail, advice: Some(CHECK_CREDENTIALS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proxy's host for `url` under these variables, or the text of the failure.
    fn proxy_for(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let set = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let rules = ProxyRules::of_variables(&set.collect());
        let endpoint = ProviderEndpoint::parse(url, true).unwrap();
        let found = rules.on_the_way_to(&endpoint).map_err(|failure| failure.detail)?;
        Ok(found.map(|proxy| proxy.host))
    }

    type Variables<'a> = &'a [(&'a str, &'a str)];

    const HTTPS: &str = "https://model.example.com/v1";
    const HTTP: &str = "http://model.example.com/v1";

    #[test]
    fn a_variable_that_cannot_be_read_is_a_failure_with_its_name() {
        let cases: [(Variables<'_>, &str, &str); 5] = [
            (&[("HTTPS_PROXY", "http//proxy:3128")], HTTPS, "HTTPS_PROXY"),
            (&[("https_proxy", "ftp://proxy"), ("ALL_PROXY", "http://a")], HTTPS, "https_proxy"),
            (&[("ALL_PROXY", "http://me:a secret@proxy")], HTTPS, "ALL_PROXY"),
            (&[("HTTPS_PROXY", ""), ("all_proxy", "proxy/path")], HTTPS, "all_proxy"),
            (&[("HTTP_PROXY", "http//proxy")], HTTP, "HTTP_PROXY"),
        ];
        for (variables, url, name) in cases {
            let detail = format!("the value of the variable {name} is no address of a proxy");
            assert_eq!(proxy_for(variables, url), Err(detail));
        }
    }

    #[test]
    fn a_proxy_of_another_kind_is_a_failure_with_advice_on_the_variable() {
        let endpoint = ProviderEndpoint::parse(HTTPS, true).unwrap();
        let rules = ProxyRules::all("socks5://127.0.0.1:1080");
        let failure = rules.on_the_way_to(&endpoint).unwrap_err();
        assert_eq!(failure.detail, "socks5 proxies are not supported, http ones are");
        assert_eq!(failure.advice, Some(CHECK_VARIABLE));
    }

    #[test]
    fn a_variable_that_does_not_concern_an_address_is_not_read() {
        let cases: [(Variables<'_>, &str); 4] = [
            (&[("HTTPS_PROXY", "http//proxy"), ("NO_PROXY", "example.com")], HTTPS),
            (&[("HTTPS_PROXY", "http//proxy")], HTTP),
            (&[("HTTPS_PROXY", " "), ("ALL_PROXY", "")], HTTPS),
            (&[("HTTP_PROXY", "http//proxy"), ("REQUEST_METHOD", "GET")], HTTP),
        ];
        for (variables, url) in cases {
            assert_eq!(proxy_for(variables, url), Ok(None), "{variables:?}");
        }
    }

    #[test]
    fn the_variable_of_the_scheme_counts_before_the_one_for_all() {
        let variables = [("HTTPS_PROXY", "secure:3128"), ("ALL_PROXY", "http://other:3128")];
        assert_eq!(proxy_for(&variables, HTTPS), Ok(Some("secure".to_owned())));
        assert_eq!(proxy_for(&variables, HTTP), Ok(Some("other".to_owned())));
    }
}
