//! The key with which a person signs in this browser. The browser makes it and keeps it; its public
//! part reaches the config through the terminal alone.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use maud::{Markup, html};

use super::super::ViewState;
use super::super::layout::inline;
use super::action_context::ActionContext;
use super::respond;

pub(super) async fn show(State(view): State<Arc<ViewState>>, headers: HeaderMap) -> Response {
    let page = async {
        let context = ActionContext::open(&view, &headers).await?;
        Ok(context.view.page("Key", "/operate", &content(&context)))
    };
    respond(&view, page.await)
}

fn content(context: &ActionContext) -> Markup {
    let person = context.person.as_str();
    let own = context.config.operators.iter().filter(|(name, _)| name.as_str() == person);
    let own: Vec<_> = own.map(|(_, key)| key.to_string()).collect();
    html! {
        h1 { "The key of this browser" }
        @if context.must_sign() {
            p {
                "This organism takes signed decisions alone. The browser makes a key of its own for "
                b { (inline(person)) } ". Its private part never leaves this browser, and no page can \
                read it. It belongs to the address of this view, with its port."
            }
        } @else {
            p.hint {
                "This organism takes decisions without a signature, because its config names no "
                code { "[operators]" } "."
            }
        }
        div #browser-key data-operator=(person) data-keys=(own.join(" ")) {
            noscript {
                p.note {
                    "A key in a browser needs the script. Without it, decide at the terminal, with "
                    code { "--sign FILE" } "."
                }
            }
            p #key-state role="status" {}
            p.buttons { button #make-key type="button" hidden { "Make a key" } }
            pre.body.written #key-line hidden {}
            p.hint #key-hint hidden {
                "Put the line with " code { "browser_key" } " into this section of the config, at the \
                terminal. It counts from the next start of the organism."
            }
        }
        script src="/operate.js" defer {}
    }
}
