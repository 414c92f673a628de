//! Hints for an action that must be signed: how a person signs with a key in the browser, and the
//! command with which a person signs at the terminal.

use maud::{Markup, html};

use super::super::layout::shown;
use super::action_context::ActionContext;
use super::config_facts::own_keys;
use super::pending::PreparedAction;
use crate::config::in_shell;
use crate::limits;
use crate::service::ServiceRequest;
use crate::thread::{Decision, PauseVerb};

/// Draws the hints for an action that must be signed.
pub(super) fn draw(context: &ActionContext, action: &PreparedAction) -> Markup {
    let minutes = limits::SIGNATURE_VALIDITY.as_secs() / 60;
    html! {
        p.hint #signing role="status" data-keys=(own_keys(&context.config, &context.person)) {
            noscript {
                "This organism accepts only signed decisions, and a key in a browser needs the \
                 script."
            }
        }
        noscript { (terminal(action)) }
        div #signing-steps hidden {
            p.note { "To decide in this browser, in this order:" }
            ol {
                li { a href="/operate/key" { "Make a key" } " in this browser." }
                li {
                    "Type the command that the page of the key shows, at the terminal of the \
                     organism's host. It begins with "
                    code { "organism operator enroll " (shown(context.person.as_str())) } "."
                }
                li { "Restart the organism: a reload takes no keys of operators." }
                li { "Load this page again." }
            }
            (terminal(action))
        }
        p.hint {
            "The signature counts for " (minutes) " minutes from when this page was opened; after \
             that, open the page again. " a href="/operate/key" { "The key of this browser" }
        }
    }
}

/// Draws the command that signs and sends the action at the terminal.
fn terminal(action: &PreparedAction) -> Markup {
    let command = command(action).map(|command| format!("{command} --sign FILE"));
    html! {
        @if let Some(command) = command {
            p.hint {
                "Without a key in the browser, type at the terminal, where FILE is the file of your \
                 key:"
            }
            pre.body.written { (shown(&command)) }
        }
    }
}

/// Returns the command that performs an action, without the command's option for signing. Returns
/// `None` if no single command line performs the action.
fn command(action: &PreparedAction) -> Option<String> {
    Some(match action.first_request()? {
        ServiceRequest::Decide(decision) => match &decision.what {
            Decision::Approve { hash, preview } => {
                let preview = preview.as_ref().map(|preview| format!(" --preview {preview}"));
                let preview = preview.unwrap_or_default();
                format!("organism approve {} --hash {hash}{preview}", decision.message)
            }
            Decision::Refuse { .. } => {
                format!("organism refuse {} --reason \"…\"", decision.message)
            }
            Decision::Answer(_) => format!("organism answer {} ANSWER.xml", decision.message),
        },
        ServiceRequest::Pause(pause) => {
            let target = pause.target.to_string();
            let name = in_shell(target.rsplit(' ').next().unwrap_or_default());
            match pause.verb {
                PauseVerb::Pause => format!("organism pause {name}"),
                PauseVerb::PauseAndCancel => format!("organism pause {name} --cancel"),
                PauseVerb::Resume => format!("organism resume {name}"),
            }
        }
        ServiceRequest::Cancel { thread, .. } => {
            format!("organism cancel {} --reason \"…\"", in_shell(thread.as_str()))
        }
        ServiceRequest::Retry(retry) if action.requests.len() == 1 => {
            let again = if retry.is_confirmed { " --again" } else { "" };
            format!("organism retry {}{again}", retry.message)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;
    use crate::service::PauseRequest;
    use crate::thread::PauseTarget;

    #[test]
    fn the_command_of_an_action_is_that_of_the_terminal() {
        let thread = ThreadId::parse("sess-paused0001").unwrap();
        let pause = |verb, target| {
            let request = PauseRequest { verb, target, partition: 0, origin: None };
            PreparedAction::new("", String::new(), [ServiceRequest::Pause(request)])
        };
        let cases = [
            (pause(PauseVerb::PauseAndCancel, PauseTarget::All), "organism pause all --cancel"),
            (
                pause(PauseVerb::Resume, PauseTarget::Thread(thread)),
                "organism resume sess-paused0001",
            ),
        ];
        for (action, expected) in cases {
            assert_eq!(command(&action).as_deref(), Some(expected));
        }
    }
}
