//! The page where a person enters the view token. A script takes the token from the address of the
//! page. Without the script, the person pastes the token.
//!
//! A form that a browser sends without a session has no effect. If the form has values that a
//! person entered, the token page keeps these values. After the token was accepted, the next page
//! lets the person send the form again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::form_body::{FormBodyError, read_form_body};
use super::url_query::UrlQuery;
use super::{ViewState, operate, waiting};
use crate::limits;

/// Name of the field that contains the path to which the unsent form must be sent.
const FORM_PATH: &str = "form";
/// Beginning of the names of the fields that contain the values of the unsent form.
const FORM_FIELD: &str = "form.";

/// A form that was sent without a session, and had no effect.
struct UnsentForm {
    path: String,
    fields: Vec<(String, String)>,
}

impl UnsentForm {
    /// Reads the form that a token page has kept. Returns `None` if it has kept none.
    fn kept(posted: &UrlQuery) -> Option<Self> {
        let path = posted.get(FORM_PATH).filter(|path| operate::has_form(path))?.to_owned();
        let fields = posted.pairs().filter_map(|(name, value)| {
            let name = name.strip_prefix(FORM_FIELD)?;
            Some((name.to_owned(), value.to_owned()))
        });
        Some(Self { path, fields: fields.collect() })
    }

    /// Draws hidden fields with the values of this form. Each name begins with `prefix`.
    fn hidden_fields(&self, prefix: &str) -> Markup {
        html! {
            @for (name, value) in &self.fields {
                input name={ (prefix) (name) } type="hidden" value=(value);
            }
        }
    }

    /// Draws the page on which the person sends the form again.
    fn content(&self) -> Markup {
        html! {
            h1 { "Not sent yet" }
            p { "The view is open. The form has everything that was entered." }
            form method="post" action=(self.path) {
                (self.hidden_fields(""))
                button type="submit" autofocus { "Go on with the form" }
            }
        }
    }
}

/// Draws the page for a request without a session.
pub(super) async fn without_session(request: Request) -> Markup {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        return content(path, None, None);
    }

    let path = request.uri().path().to_owned();
    if !operate::has_form(&path) {
        let problem = "This view was started anew, or has closed the session, so nothing was done. \
                       Enter the token, and begin the action again.";
        return content(waiting::PATH, Some(problem), None);
    }

    let fields = read_form_body(request.into_body(), limits::WEB_UNSENT_FORM_BYTES_MAX).await;
    let fields = match fields {
        Ok(fields) => fields,
        Err(error) => {
            let lost = match error {
                FormBodyError::TooLong => "is too long to keep",
                FormBodyError::Incomplete | FormBodyError::Late => "did not arrive whole",
            };
            let problem = format!(
                "This view was started anew, or has closed the session, so nothing was sent, and \
                 the form {lost}. Enter the token, and fill in the form again."
            );
            return content(waiting::PATH, Some(&problem), None);
        }
    };
    let fields = fields.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let problem = "This view was started anew, or has closed the session, so nothing was sent. \
                   Enter the token: the form keeps everything that was entered.";
    content(waiting::PATH, Some(problem), Some(&UnsentForm { path, fields }))
}

/// Draws the form for the token. `next` is the path of the page that follows. If there is an
/// `unsent` form, a page that sends this form again follows instead.
fn content(next: &str, problem: Option<&str>, unsent: Option<&UnsentForm>) -> Markup {
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
            @if let Some(unsent) = unsent {
                input name=(FORM_PATH) type="hidden" value=(unsent.path);
                (unsent.hidden_fields(FORM_FIELD))
            }
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
    // The form with the token contains an unsent form under longer names.
    let bytes_max = 2 * limits::WEB_UNSENT_FORM_BYTES_MAX;
    let form = match read_form_body(body, bytes_max).await {
        Ok(form) => form,
        Err(error) => {
            let text = match error {
                FormBodyError::TooLong => "the form is too long\n",
                FormBodyError::Incomplete => "the form did not arrive whole\n",
                FormBodyError::Late => "the form did not arrive\n",
            };
            return (error.status(), text).into_response();
        }
    };
    let next = form.get("next").filter(|next| is_own_path(next)).unwrap_or("/");

    let unsent = UnsentForm::kept(&form);
    // The secret of a client may begin or end with white space.
    let token = form.written("token");
    let cookie = view.guard.open_session(&token, &headers);
    let cookie = cookie.or_else(|| view.guard.open_session(token.trim(), &headers));
    match (cookie, &unsent) {
        (Some(cookie), Some(unsent)) => {
            let page = view.page_without_person(&unsent.content());
            ([(header::SET_COOKIE, cookie)], page).into_response()
        }
        (Some(cookie), None) => {
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, next.to_owned())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        (None, _) => {
            let problem = "This is not the token of this view. Each start makes a new one, unless \
                           it is the secret of a client.";
            let content = content(next, Some(problem), unsent.as_ref());
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
