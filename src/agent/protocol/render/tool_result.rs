//! Writes the element `<tool_result>`, and escapes its content so that no text inside the element
//! can close the element.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::agent::RendererVersion;
use crate::mutant::mutant;
use crate::xml::escape::{escape_attribute, escape_text};

/// Writes the result of an action as one element. `is_payload` states whether `text` is XML.
pub(super) fn tool_result(
    name: Option<&str>,
    from: Option<&str>,
    text: Cow<'_, str>,
    is_payload: bool,
    version: RendererVersion,
) -> String {
    let content = match (version, is_payload) {
        _ if mutant("let-a-result-close") => text,
        (RendererVersion::V3, _) | (_, false) => escape_text(&text).into_owned().into(),
        (_, true) => contained(&text).into(),
    };

    let mut out = String::with_capacity(content.len() + 64);
    out.push_str("<tool_result");
    for (attribute, value) in [("tool_name", name), ("from", from)] {
        if let Some(value) = value {
            let _ = write!(out, " {attribute}=\"{}\"", escape_attribute(value));
        }
    }

    let _ = write!(out, ">{content}</tool_result>");
    out
}

/// Returns a payload as the content of the element `<tool_result>`. Also escapes tags with the name
/// `tool_result` in the payload, because they could close the element.
pub(super) fn contained(payload: &str) -> String {
    let inert = inert(payload);
    if !inert.contains("tool_result") {
        return inert;
    }
    inert.replace("</tool_result", "&lt;/tool_result").replace("<tool_result", "&lt;tool_result")
}

/// Returns a payload in which CDATA sections and comments contain no tags. An end tag inside them
/// could seem to close the element that encloses the payload. Replaces CDATA sections by escaped
/// text, and escapes the content of comments. Processing instructions need no escaping, because no
/// payload contains them.
pub(super) fn inert(payload: &str) -> String {
    let mut out = String::with_capacity(payload.len());
    let mut rest = payload;
    while let Some(at) = rest.find("<!") {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        let (open, close) =
            if special.starts_with("<![CDATA[") { ("<![CDATA[", "]]>") } else { ("<!--", "-->") };
        let body = special.strip_prefix(open).and_then(|body| body.split_once(close));
        let Some((body, after)) = body else {
            out.push_str(&escape_text(special));
            return out;
        };
        if open == "<!--" {
            out.push_str(&format!("<!--{}-->", escape_text(body)));
        } else {
            out.push_str(&escape_text(body));
        }
        rest = after;
    }

    out.push_str(rest);
    out
}
