//! Access to the web view: which requests are answered at all, and which of them belong to a person
//! with the token.
//!
//! A page of another site can make a browser send requests to a server on loopback. Such a request
//! names another host (DNS rebinding), another origin, or another site, and is refused. A browser
//! sends cookies to every port of a host, so the cookie is a secret of this server alone, and its
//! name contains the port.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand_core::RngCore as _;

use crate::ids::Digest;
use crate::mutant::mutant;

const SECRET_BYTES: usize = 32;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The secret with which a person opens the view. It is shown once, on the terminal.
pub struct ViewToken(String);

impl ViewToken {
    fn new() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        rand_core::OsRng.fill_bytes(&mut bytes);
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The text of the token, for the terminal alone.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares digests, so that the time of the comparison says nothing about the token.
    fn is(&self, text: &str) -> bool {
        Digest::of(self.0.as_bytes()) == Digest::of(text.as_bytes())
    }
}

impl std::fmt::Debug for ViewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ViewToken(…)")
    }
}

/// Checks the requests to one server.
#[derive(Debug)]
pub(super) struct RequestGuard {
    token: ViewToken,
    session: ViewToken,
    cookie_name: String,
}

/// The reason why a request gets no answer.
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
    pub fn new(address: SocketAddr) -> Self {
        Self {
            token: ViewToken::new(),
            session: ViewToken::new(),
            cookie_name: format!("organism-view-{}", address.port()),
        }
    }

    pub fn token(&self) -> &ViewToken {
        &self.token
    }

    /// Refuses requests that another site made a browser send.
    pub fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), ForeignRequest> {
        let text = |name: &HeaderName| match headers.get_all(name).iter().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [value] => value.to_str().map(Some).map_err(|_| ()),
            _ => Err(()),
        };

        let host = text(&header::HOST).ok().flatten().filter(|host| super::super::is_here(host));
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
        // The pages send no referrer, so a browser writes `null` for their own forms, too.
        let is_same = match origin {
            Some("null") => site == Some("same-origin"),
            Some(origin) => origin.strip_prefix("http://") == Some(host),
            None => method == Method::GET || method == Method::HEAD || site == Some("same-origin"),
        };
        if is_same || mutant("answer-any-origin") { Ok(()) } else { Err(ForeignRequest::Origin) }
    }

    /// Whether a request has the cookie of this server.
    pub fn has_session(&self, headers: &HeaderMap) -> bool {
        if mutant("answer-without-token") {
            return true;
        }
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = values.flat_map(|value| value.split(';'));
        cookies.any(|cookie| {
            let named = cookie.trim().split_once('=');
            named.is_some_and(|(name, value)| name == self.cookie_name && self.session.is(value))
        })
    }

    /// The cookie for a person who knows the token.
    pub fn open_session(&self, token: &str) -> Option<String> {
        let name = &self.cookie_name;
        let value = self.session.reveal();
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict");
        self.token.is(token).then_some(cookie)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(method: &Method, headers: &[(&str, &str)]) -> Result<(), ForeignRequest> {
        let guard = RequestGuard::new(SocketAddr::from(([127, 0, 0, 1], 7717)));
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
        let [guard, other] =
            [7717, 7718].map(|port| RequestGuard::new(SocketAddr::from(([127, 0, 0, 1], port))));
        assert_eq!(guard.open_session(other.token().reveal()), None);
        assert_eq!(guard.open_session(""), None);

        let cookie = guard.open_session(guard.token().reveal()).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains(guard.token().reveal()), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        let headers = HeaderMap::from_iter([(
            header::COOKIE,
            HeaderValue::from_str(&format!("a=b; {pair}; c=d")).unwrap(),
        )]);
        assert!(guard.has_session(&headers));
        assert!(!other.has_session(&headers));
        assert!(!format!("{guard:?}").contains(guard.token().reveal()));
    }
}
