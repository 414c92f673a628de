//! The page where a person enters the view token. A script takes the token from the address of the
//! page. Without the script, the person pastes the token.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use tokio::time::timeout;

use super::ViewState;
use super::url_query::UrlQuery;
use crate::limits;

/// Draws the form for the token. `next` is the page that the person requested.
pub(super) fn content(next: &str, problem: Option<&str>) -> Markup {
    html! {
        h1 { "Token" }
        @if let Some(problem) = problem {
            p.problem role="alert" { (problem) }
        }
        form.token #token-form method="post" action="/session" {
            label for="token" { "Token of this view" }
            input #token name="token" type="password" autocomplete="off" required autofocus
                aria-describedby="token-hint";
            input name="next" type="hidden" value=(next);
            button type="submit" { "Open" }
            p.hint #token-hint {
                "The terminal in which " code { "organism serve" } " or " code { "organism run" }
                " began shows the token: it stands behind " code { "#token=" } " in the address. If the "
                "view belongs to a client with a secret, that is the token."
            }
        }
    }
}

/// Opens a session for a person who knows the token.
pub(super) async fn open(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // A client that sends no form must not keep one of the few connections.
    let body = timeout(limits::HTTP_HEAD_TIMEOUT, to_bytes(body, limits::WEB_FORM_BYTES_MAX));
    let body = match body.await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the form is too long\n").into_response();
        }
        Err(_) => {
            return (StatusCode::REQUEST_TIMEOUT, "the form did not arrive\n").into_response();
        }
    };
    let form = UrlQuery::parse(&String::from_utf8_lossy(&body));
    let next = form.get("next").filter(|next| is_own_path(next)).unwrap_or("/");

    match view.guard.open_session(form.get("token").unwrap_or_default(), &headers) {
        Some(cookie) => {
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, next.to_owned())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        None => {
            let problem = "This is not the token of this view. Each start makes a new one, unless \
                           it is the secret of a client.";
            let content = content(next, Some(problem));
            (StatusCode::FORBIDDEN, view.page_without_person(&content)).into_response()
        }
    }
}

/// Whether every browser stays on this server after a redirect to the path. False for a path that
/// some browsers take for the address of another server, such as a path that begins with `//`.
fn is_own_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_leads_to_pages_of_this_server_alone() {
        for path in ["/", "/threads?words=a%20b", "/threads/sess-1"] {
            assert!(is_own_path(path), "{path}");
        }
        for path in ["", "//x.example", "/\\x.example", "https://x.example", "/a\r\nb", "/\t/x"] {
            assert!(!is_own_path(path), "{path}");
        }
    }
}
