//! Access to the web view: decides which requests get a page at all, and which of these requests
//! come from a person who knows the token.
//!
//! A page of another site can make a browser send requests to a server on loopback. This server
//! refuses such a request, because the request names a foreign host (DNS rebinding), a foreign
//! origin or a foreign site.
//!
//! The cookie of a session contains a random secret of this server, and not the token. The name of
//! the cookie contains the port, because a browser sends cookies to every port of a host. Over TLS,
//! the cookie is bound to the host and never sent without TLS. The cookie also contains a random id
//! of the browser, so that the server can count the live pages of each browser.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand_core::RngCore as _;

use crate::config::SecretValue;
use crate::ids::Digest;
use crate::mutant::mutant;

const SECRET_BYTES: usize = 32;
const BROWSER_ID_BYTES: usize = 12;
/// Character between the secret and the id of the browser in a session cookie. Neither the secret
/// nor the id contains this character.
const COOKIE_SEPARATOR: char = '.';

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The secret with which a person opens the view. A generated token is shown only once, on the
/// terminal.
pub struct ViewToken(String);

impl ViewToken {
    pub(super) fn generate() -> Self {
        Self(random_text::<SECRET_BYTES>())
    }

    /// Creates the token for a client's view. The text of the token is `secret`, which is the
    /// secret of the client in the config.
    pub fn of_secret(secret: &SecretValue) -> Self {
        Self(secret.expose().to_owned())
    }

    /// Returns the text of the token. Show it only on the terminal.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `text` is the text of the token. Compares digests, so that the duration of the
    /// comparison reveals nothing about the token.
    fn is(&self, text: &str) -> bool {
        Digest::of(self.0.as_bytes()) == Digest::of(text.as_bytes())
    }
}

/// Id of a browser that has a session. It distinguishes browsers, and gives no access. Empty for a
/// request without a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct BrowserId(String);

impl BrowserId {
    pub fn random() -> Self {
        Self(random_text::<BROWSER_ID_BYTES>())
    }
}

/// Returns a random text of ASCII letters, digits, `-` and `_`.
fn random_text<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    rand_core::OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

impl std::fmt::Debug for ViewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ViewToken(…)")
    }
}

/// Settings of the [`RequestGuard`] of one server.
#[derive(Debug)]
pub(super) struct GuardOptions {
    pub address: SocketAddr,
    /// The token; `None` if the server has to generate a token.
    pub token: Option<ViewToken>,
    /// Host names of the server, in addition to the names of this machine.
    pub hosts: Vec<String>,
    pub has_tls: bool,
}

/// Checks the requests to one server.
#[derive(Debug)]
pub(super) struct RequestGuard {
    token: ViewToken,
    session: ViewToken,
    cookie_name: String,
    /// Address and host names of the server, in addition to the names of this machine.
    hosts: Vec<String>,
    has_tls: bool,
}

/// The reason why a request is refused as foreign, that is, as caused by another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignRequest {
    Host,
    Origin,
    Site,
}

impl ForeignRequest {
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Host => {
                "the request names another host; open the address that the terminal shows"
            }
            Self::Origin => "another page sent this request; open the address by yourself",
            Self::Site => {
                "a link on another page led here; type the address, or open it from the terminal"
            }
        }
    }
}

impl RequestGuard {
    pub fn new(options: GuardOptions) -> Self {
        let GuardOptions { address, token, mut hosts, has_tls } = options;
        let prefix = if has_tls { "__Host-" } else { "" };
        if !address.ip().is_unspecified() {
            hosts.push(bracketed(address.ip()));
        }
        Self {
            token: token.unwrap_or_else(ViewToken::generate),
            session: ViewToken::generate(),
            cookie_name: format!("{prefix}organism-view-{}", address.port()),
            hosts,
            has_tls,
        }
    }

    /// Whether a `Host` header names this server.
    fn is_own_host(&self, host: &str) -> bool {
        let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let name = port.map_or(host, |(name, _)| name);
        super::super::is_here(host) || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    pub fn token(&self) -> &ViewToken {
        &self.token
    }

    /// Refuses a request if another site caused the browser to send it.
    pub fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), ForeignRequest> {
        let text = |name: &HeaderName| match headers.get_all(name).iter().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [value] => value.to_str().map(Some).map_err(|_| ()),
            _ => Err(()),
        };

        let host = text(&header::HOST).ok().flatten().filter(|host| self.is_own_host(host));
        let host = match host {
            Some(host) => host,
            None if mutant("answer-any-host") => "",
            None => return Err(ForeignRequest::Host),
        };

        let site = text(&SEC_FETCH_SITE).map_err(|()| ForeignRequest::Site)?;
        if !matches!(site, None | Some("same-origin" | "none")) {
            return Err(ForeignRequest::Site);
        }

        let origin = text(&header::ORIGIN).map_err(|()| ForeignRequest::Origin)?;
        let scheme = if self.has_tls { "https://" } else { "http://" };
        // The pages send no referrer, so a browser writes `null` for their own forms, too.
        let is_same = match origin {
            Some("null") => site == Some("same-origin"),
            Some(origin) => origin.strip_prefix(scheme) == Some(host),
            None => method == Method::GET || method == Method::HEAD || site == Some("same-origin"),
        };
        if is_same || mutant("answer-any-origin") { Ok(()) } else { Err(ForeignRequest::Origin) }
    }

    /// Whether a request has the session cookie of this server, with the right secret.
    pub fn has_session(&self, headers: &HeaderMap) -> bool {
        self.browser_of(headers).is_some() || mutant("answer-without-token")
    }

    /// Returns the id of the browser that sent a request; `None` if the request belongs to no
    /// session.
    pub fn browser_of(&self, headers: &HeaderMap) -> Option<BrowserId> {
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = values.flat_map(|value| value.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            let (secret, browser) = value.split_once(COOKIE_SEPARATOR)?;
            let is_own = name == self.cookie_name && self.session.is(secret);
            is_own.then(|| BrowserId(browser.to_owned()))
        })
    }

    /// Returns the cookie of a new session if the token is right, and otherwise `None`. `headers`
    /// are those of the request. A browser that already has a session keeps its id.
    pub fn open_session(&self, token: &str, headers: &HeaderMap) -> Option<String> {
        let name = &self.cookie_name;
        let BrowserId(browser) = self.browser_of(headers).unwrap_or_else(BrowserId::random);
        let value = format!("{}{COOKIE_SEPARATOR}{browser}", self.session.reveal());
        let secure = if self.has_tls { "; Secure" } else { "" };
        let cookie = format!("{name}={value}; Path=/{secure}; HttpOnly; SameSite=Strict");
        self.token.is(token).then_some(cookie)
    }
}

/// Writes an address as in a `Host` header, where an IPv6 address stands in brackets.
fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn guard(port: u16) -> RequestGuard {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let hosts = Vec::new();
        RequestGuard::new(GuardOptions { address, token: None, hosts, has_tls: false })
    }

    fn check(method: &Method, headers: &[(&str, &str)]) -> Result<(), ForeignRequest> {
        let guard = guard(7717);
        let header = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        guard.check_origin(method, &headers.iter().map(header).collect())
    }

    #[test]
    fn only_requests_of_this_site_and_of_a_person_are_answered() {
        use ForeignRequest::{Host, Origin, Site};
        const HOST: (&str, &str) = ("host", "localhost:7717");
        let own = ("origin", "http://localhost:7717");
        let same = ("sec-fetch-site", "same-origin");
        let cases = [
            (Method::GET, vec![HOST], Ok(())),
            (Method::GET, vec![HOST, ("sec-fetch-site", "none")], Ok(())),
            (Method::POST, vec![HOST, own], Ok(())),
            (Method::POST, vec![HOST, same, ("origin", "null")], Ok(())),
            (Method::GET, vec![], Err(Host)),
            (Method::GET, vec![("host", "rebound.example:7717")], Err(Host)),
            (Method::GET, vec![HOST, ("origin", "http://rebound.example")], Err(Origin)),
            (Method::GET, vec![HOST, ("origin", "https://localhost:7717")], Err(Origin)),
            (Method::POST, vec![HOST, ("origin", "http://localhost:3000")], Err(Origin)),
            (Method::POST, vec![HOST], Err(Origin)),
            (Method::POST, vec![HOST, ("origin", "null")], Err(Origin)),
            (Method::GET, vec![HOST, ("sec-fetch-site", "cross-site")], Err(Site)),
            (Method::GET, vec![HOST, ("sec-fetch-site", "same-site")], Err(Site)),
        ];
        for (method, headers, expected) in cases {
            assert_eq!(check(&method, &headers), expected, "{method} {headers:?}");
        }
    }

    #[test]
    fn a_session_needs_the_token_and_its_cookie_is_of_one_server() {
        let [guard, other] = [7717, 7718].map(guard);
        let none = HeaderMap::new();
        assert_eq!(guard.open_session(other.token().reveal(), &none), None);
        assert_eq!(guard.open_session("", &none), None);

        let cookie = guard.open_session(guard.token().reveal(), &none).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains(guard.token().reveal()), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        let headers = HeaderMap::from_iter([(
            header::COOKIE,
            HeaderValue::from_str(&format!("a=b; {pair}; c=d")).unwrap(),
        )]);
        assert!(guard.has_session(&headers));
        assert!(!other.has_session(&headers));
        assert_eq!(guard.open_session(guard.token().reveal(), &headers), Some(cookie));
        assert!(!format!("{guard:?}").contains(guard.token().reveal()));
    }

    #[test]
    fn each_browser_has_an_id_of_its_own() {
        let guard = guard(7717);
        let browser = || {
            let cookie = guard.open_session(guard.token().reveal(), &HeaderMap::new()).unwrap();
            let value = HeaderValue::from_str(&cookie).unwrap();
            guard.browser_of(&HeaderMap::from_iter([(header::COOKIE, value)])).unwrap()
        };
        assert_ne!(browser(), browser());
        assert_eq!(guard.browser_of(&HeaderMap::new()), None);
    }

    #[test]
    fn over_tls_only_its_own_names_and_its_own_scheme_are_answered() {
        let guard = RequestGuard::new(GuardOptions {
            address: SocketAddr::from(([192, 0, 2, 1], 443)),
            token: None,
            hosts: vec!["view.example".to_owned()],
            has_tls: true,
        });
        let check = |host: &'static str, origin: &'static str| {
            let headers = [(header::HOST, host), (header::ORIGIN, origin)];
            let headers = headers.map(|(name, text)| (name, HeaderValue::from_static(text)));
            guard.check_origin(&Method::POST, &headers.into_iter().collect())
        };

        assert_eq!(check("view.example", "https://view.example"), Ok(()));
        assert_eq!(check("VIEW.example:443", "https://VIEW.example:443"), Ok(()));
        assert_eq!(check("192.0.2.1", "https://192.0.2.1"), Ok(()));
        let plain = check("view.example", "http://view.example");
        assert_eq!(plain, Err(ForeignRequest::Origin));
        for host in ["other.example", "view.example.org", "192.0.2.2", "view.example:x"] {
            assert_eq!(check(host, "https://view.example"), Err(ForeignRequest::Host), "{host}");
        }

        let none = HeaderMap::new();
        let cookie = guard.open_session(guard.token().reveal(), &none).unwrap();
        assert!(cookie.starts_with("__Host-organism-view-443="), "{cookie}");
        assert!(cookie.contains("; Path=/; Secure; HttpOnly"), "{cookie}");
    }
}
