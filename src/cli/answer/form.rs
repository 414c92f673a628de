//! Asks for an answer on a terminal, one line for each value.

use std::io::{BufRead as _, Write as _};

use crate::cli::exit::{CommandExit, CommandFailure};
use crate::schema::{FormField, PayloadDescription, TextContent, fill as fill_in, has_form};
use crate::xml::invisible_characters::visible;

/// Asks for the values of one of the possible replies, shows the resulting payload, and asks
/// whether to send it.
pub fn fill(replies: &[PayloadDescription]) -> anyhow::Result<Vec<u8>> {
    let reply = match replies {
        [] => {
            let text = "the config has no form for this question, because its workflow was \
                        deleted or changed; name a file with the answer instead";
            return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
        }
        [only] => only,
        several => which(several)?,
    };

    if !has_form(reply) {
        let text = format!(
            "no form can express `{}`; write the answer as a file, and name it",
            reply.name.local
        );
        return Err(CommandFailure::usage(text).into());
    }

    note!("");
    if !reply.doc.is_empty() {
        note!("{}: {}", reply.name.local, reply.doc);
    }

    let text = fill_in(reply, &mut ask)?.to_xml();
    note!("\n{}", visible(&text));

    match choose("send it", &["yes", "no"])?.as_str() {
        "yes" => Ok(text.into_bytes()),
        _ => Err(CommandFailure::usage("not sent; the question is still open").into()),
    }
}

fn which(replies: &[PayloadDescription]) -> anyhow::Result<&PayloadDescription> {
    let names: Vec<&str> = replies.iter().map(|reply| &*reply.name.local).collect();
    let chosen = choose("answer with", &names)?;
    let found = replies.iter().find(|reply| *reply.name.local == *chosen);
    found.ok_or_else(|| {
        CommandFailure::new(CommandExit::Bug, "a choice that was not offered").into()
    })
}

fn choose(what: &str, choices: &[&str]) -> anyhow::Result<String> {
    let choices: Vec<String> = choices.iter().map(|choice| (*choice).to_owned()).collect();
    let content = TextContent { kind: "one of".to_owned(), choices, more_choices: 0, range: None };
    let mut again = None;

    loop {
        let path = what;
        let attribute = false;
        let content = &content;
        let doc = None;
        let required = true;
        let default = None;
        let answer = ask(FormField { path, attribute, content, doc, required, default, again })?;
        if content.choices.contains(&answer) {
            return Ok(answer);
        }
        again = Some("this is not one of the choices");
    }
}

fn ask(question: FormField<'_>) -> anyhow::Result<String> {
    if let Some(again) = question.again {
        note!("  {again}");
    }

    if let Some(doc) = question.doc {
        note!("  {doc}");
    }

    let mut more = if question.required { String::new() } else { ", may be left out".to_owned() };
    if let Some(default) = question.default {
        more = format!(", {default} if left out");
    }

    note_part!("{} ({}{more}): ", question.path, question.content);
    std::io::stderr().flush()?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        let text = "the input ended before everything was answered; nothing was sent";
        return Err(CommandFailure::usage(text).into());
    }

    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
