//! Shows a held call with the exact bytes about which a person decides.

use crate::audit::{CallPreviewView, HeldCall};
use crate::xml::invisible_characters::{hidden, visible};

use super::{RenderOutput, count};

/// Draws a held call. Each line of the payload begins with a bar, so that no payload can imitate a
/// line of the program.
pub fn held(output: &RenderOutput, call: &HeldCall) -> String {
    let title = format!("{}  {}", call.message, call.name.local);
    let mut out = format!("{}\n", output.bold(&title));
    let mut line = |name: &str, text: &str| out.push_str(&format!("  {name:<8} {text}\n"));
    line("for", call.to.as_str());
    line("from", &format!("{} in {}", call.from, call.thread));
    line("since", &call.since);
    if let Some(until) = &call.until {
        line("until", until);
    }

    if let Some(why) = &call.why {
        line("because", why);
    }

    line("sha256", &call.sha256.to_string());

    match &call.payload {
        None => line("payload", "redacted: it cannot be decided about any more"),
        Some(payload) => barred(output, payload, &mut out),
    }

    if let Some(preview) = &call.preview {
        show_preview(output, call, preview, &mut out);
    }

    out
}

fn show_preview(
    output: &RenderOutput,
    call: &HeldCall,
    preview: &CallPreviewView,
    out: &mut String,
) {
    match preview {
        CallPreviewView::Requested => out.push_str("  preview  requested, and not here yet\n"),
        CallPreviewView::Missing { reason } => {
            let reason = visible(reason).replace('\n', " ");
            out.push_str(&format!("  preview  none came: {reason}\n"));
        }
        CallPreviewView::Recorded { sha256, text } => {
            out.push_str(&format!("  preview  {sha256}, as {} claims:\n", call.to));
            match text {
                Some(text) => barred(output, text, out),
                None => out.push_str("  preview  redacted: it cannot be read any more\n"),
            }
        }
    }
}

/// Writes a text that another party gave, each line behind a bar, with hidden characters made visible.
fn barred(output: &RenderOutput, text: &str, out: &mut String) {
    // `split` instead of `lines`, which would drop line ends and so hide bytes from the person.
    for shown in visible(text).split('\n') {
        out.push_str(&format!("  {} {shown}\n", output.dim("│")));
    }

    let hidden = hidden(text) as u64;
    if hidden > 0 {
        let text = format!("{} shown as \\u{{…}}", count(hidden, "hidden character"));
        out.push_str(&format!("  {}\n", output.yellow(&text)));
    }
}
