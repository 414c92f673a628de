//! The page for a person's signing key. The browser generates the key, keeps it, and signs with it.
//! A person can add the public key to the config only at the terminal.

use axum::response::Response;
use maud::{Markup, html};

use super::super::layout::inline;
use super::action_context::ActionContext;
use super::config_facts::own_keys;
use crate::config::in_shell;

pub(super) async fn show(context: ActionContext) -> Response {
    context.view.page("Key", "/operate", &content(&context))
}

fn content(context: &ActionContext) -> Markup {
    let person = context.person.as_str();
    let keys = own_keys(&context.config, &context.person);
    let own = keys.split_whitespace().count();
    let config = std::path::absolute(&context.config.file);
    let config = config.unwrap_or_else(|_| context.config.file.clone());
    let command = format!("organism operator enroll {person} KEY");
    // An operator has one key for the terminal, and at most one for a browser.
    let replace = if own > 1 { " --replace" } else { "" };
    let command = format!("{command} {}{replace}", in_shell(&config.display().to_string()));
    html! {
        h1 { "The key of this browser" }
        @if context.must_sign() {
            p {
                "This organism accepts only signed decisions. The browser makes a key of its own for "
                b { (inline(person)) } ". Its private part never leaves this browser, and no page can \
                read it. It belongs to the address of this view, with its port."
            }
        } @else {
            p.hint {
                "This organism takes decisions without a signature, because its config names no "
                code { "[operators]" } "."
            }
        }
        div #browser-key data-operator=(person) data-keys=(keys) data-command=(command) {
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
                "Type this command once, at the terminal of the organism's host: it writes the key \
                into the config. Then restart the organism: the key counts from its next start, and a \
                reload takes no keys."
                @if own > 1 {
                    " The key of another browser, which the config has now, counts no more then."
                }
            }
        }
        // The frame has the script of a page on which decisions must be signed.
        @if !context.must_sign() { script src="/operate.js" defer {} }
    }
}
