//! The views in which a page can show the messages of a thread. All views show the same messages.

use maud::{Markup, html};

use crate::word_enum::word_enum;

use super::url_query::UrlQuery;

/// Name of the URL parameter that selects the view.
const NAME: &str = "view";

word_enum! {
    /// The form in which a page shows the messages of a thread.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum ThreadView {
        Conversation = "conversation",
        /// The view shows the messages as arrows between listeners.
        Sequence = "sequence",
        /// The view shows bars for the time that the calls took.
        Timeline = "timeline",
    }
}

impl ThreadView {
    /// Reads the view from a URL.
    pub fn read(query: &UrlQuery) -> Result<Self, String> {
        let Some(text) = query.get(NAME) else { return Ok(Self::Conversation) };
        Self::parse(text).ok_or_else(|| {
            format!("`{text}` is no view of a thread; write conversation, sequence or timeline")
        })
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Conversation => "Conversation",
            Self::Sequence => "Sequence",
            Self::Timeline => "Timeline",
        }
    }

    /// Draws links to all views of a thread's messages, and to the pages in `others`. Used on pages
    /// that are not views of the messages, such as the thread's tree.
    pub fn links_from(path: &str, current: &str, others: &[(&str, String)]) -> Markup {
        html! {
            nav.views aria-label="Views of the thread" {
                @for view in Self::ALL {
                    @let value = (view != Self::Conversation).then(|| view.as_str());
                    a href=(UrlQuery::default().with(NAME, value).link(path)) { (view.title()) }
                }
                @for (title, path) in others {
                    a href=(path) aria-current=[(*title == current).then_some("page")] { (title) }
                }
            }
        }
    }

    /// Draws links to all views of the same messages, and to the other pages about the thread.
    pub fn links(self, query: &UrlQuery, path: &str, others: &[(&str, String)]) -> Markup {
        let value = |view: Self| (view != Self::Conversation).then(|| view.as_str());
        let is_past = query.get("at").is_some();
        let is_offered = |view: Self| view != Self::Timeline || !is_past;
        html! {
            nav.views aria-label="Views of these messages" {
                @for view in Self::ALL.into_iter().filter(|view| is_offered(*view)) {
                    a href=(query.with(NAME, value(view)).link(path))
                        aria-current=[(view == self).then_some("true")] { (view.title()) }
                }
                @for (title, path) in others { a href=(path) { (title) } }
            }
        }
    }
}
