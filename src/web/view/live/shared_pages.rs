//! Shares the server's work when several browsers reload the same address at the same time. The
//! server draws the content once, and sends a copy to each browser.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::OnceCell;

use super::super::{IndexBehind, ViewState};
use super::content_version::ContentVersion;
use crate::limits;
use crate::locks::locked;

/// Request header with which an open live page reloads its content. The value is the version of the
/// new content, which the page knows from an event of the server.
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-live-version");

/// The address of a page, and the version of its content.
type PageKey = (String, ContentVersion);

/// The drawn content of one address and version. All requests for this address and version share
/// it.
#[derive(Debug)]
struct DrawnPage {
    cell: OnceCell<(StatusCode, Bytes)>,
    since: Instant,
}

#[derive(Debug, Default)]
pub(in super::super) struct SharedPages {
    /// Lock: held only for a lookup, never across an await.
    pages: Mutex<HashMap<PageKey, Arc<DrawnPage>>>,
}

impl SharedPages {
    /// Returns the shared entry for `key`. A new entry is empty until its first caller has drawn
    /// the content. Also removes old entries.
    fn get(&self, key: PageKey) -> Arc<DrawnPage> {
        let mut pages = locked(&self.pages);
        pages.retain(|_, page| page.since.elapsed() < limits::WEB_LIVE_INTERVAL);
        if pages.len() >= limits::WEB_SHARED_PAGES_MAX {
            pages.clear();
        }
        let new = || Arc::new(DrawnPage { cell: OnceCell::new(), since: Instant::now() });
        Arc::clone(pages.entry(key).or_insert_with(new))
    }
}

/// Draws a page once for all live pages that request the same address and version. While an index
/// lacks records of this version, these pages get an error instead, because they would not try
/// again after an old page. All sessions of a view belong to one person, so every session may see
/// the page. Use only for HTML pages.
pub(in super::super) async fn share(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    let version = request.headers().get(VERSION_HEADER);
    let version = version.and_then(|version| version.to_str().ok()?.parse::<ContentVersion>().ok());
    let Some(version) = version.filter(|_| request.method() == Method::GET) else {
        return next.run(request).await;
    };

    let page = view.shared_pages.get((request.uri().to_string(), version.clone()));
    let drawn = page.cell.get_or_init(|| draw(&view, &version, request, next));
    let (status, bytes) = drawn.await.clone();
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, kind, Body::from(bytes)).into_response()
}

async fn draw(
    view: &ViewState,
    version: &ContentVersion,
    request: Request,
    next: Next,
) -> (StatusCode, Bytes) {
    let mut page = next.run(request).await;
    // Later records come with an event of their own. While the journal grows, an index may always
    // lack some of these.
    let is_indexed = |behind: &IndexBehind| {
        behind.0.iter().all(|(partition, position)| version.is_indexed(*partition, *position))
    };
    if !page.extensions().get().is_none_or(is_indexed) {
        page = view.not_yet_indexed();
    }
    let (head, body) = page.into_parts();
    let bytes = to_bytes(body, usize::MAX).await;
    (head.status, bytes.unwrap_or_default())
}
