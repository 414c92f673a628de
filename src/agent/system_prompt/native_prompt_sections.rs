//! Sections of the system prompt for an agent with native calls. The prompt does not contain the
//! definitions of the agent's tools; they are sent to the provider beside the prompt.

use std::fmt::Write as _;

use super::prompt_sections::{
    PromptInput, actions, ends, example_or_outline, many, name_of_final, peers, text_is_the_answer,
};
use crate::agent::protocol::native::NativeTools;
use crate::agent::protocol::{VocabularyEntry, in_format};
use crate::agent::{ActionTransport, FinalFormat, FinalMode, RendererVersion};
use crate::limits;
use crate::schema::Schemas;

/// Explains how tools are called. In renderer versions before the eighth, also lists the tools. In
/// later versions, only the tool definitions in the request describe the tools.
pub fn tool_calling(prompt: &PromptInput, tools: &NativeTools, schemas: &Schemas) -> String {
    if prompt.version == RendererVersion::V3 {
        return tool_calling_v3(prompt, tools, schemas);
    }
    if prompt.version >= RendererVersion::V8 {
        return tool_calling_by_definitions(prompt, tools, schemas);
    }

    let offered = tools.described();
    if offered.is_empty() {
        return String::new();
    }

    let mut out = format!(
        "Your tools are native tools of this conversation. You MUST call them natively; DO NOT \
         write them as XML in the text. All of them, with their parameters (`?` is optional):\n\
         - {}\n",
        offered.join("\n- "),
    );
    let entries = prompt.vocabulary.tools().chain(prompt.vocabulary.own());
    let examples = entries.filter_map(|entry| {
        Some(format!(
            "- {}: {}\n",
            tools.name_of(&entry.name)?,
            example(entry, schemas, prompt.version)?
        ))
    });
    let examples: String = examples.collect();
    if !examples.is_empty() {
        let _ = write!(out, "Examples of arguments:\n{examples}");
    }

    out
}

fn tool_calling_by_definitions(
    prompt: &PromptInput,
    tools: &NativeTools,
    schemas: &Schemas,
) -> String {
    if tools.is_empty() {
        return String::new();
    }

    let mut out = String::from(
        "Your tools are native tools of this conversation. You MUST call them natively; DO NOT \
         write them as XML in the text.\n",
    );
    out.push_str(&peers(prompt));

    // The definition of a tool with nested parameters leaves much to guess, so an example follows.
    let entries = prompt.vocabulary.tools().chain(prompt.vocabulary.own());
    let examples = entries.filter(|entry| tools.has_nested_parameters(&entry.name));
    let examples = examples.filter_map(|entry| {
        let name = tools.name_of(&entry.name)?;
        let arguments = example(entry, schemas, prompt.version)?;
        Some(format!("An example of arguments of {name}: {arguments}\n"))
    });
    out.extend(examples);
    out
}

fn tool_calling_v3(prompt: &PromptInput, tools: &NativeTools, schemas: &Schemas) -> String {
    let mut out = String::from(
        "Your tools are native tools of this conversation; their definitions say which parameters \
         they take. Call them natively, never as XML in the text. An example of each:\n",
    );
    let entries = prompt.vocabulary.tools().chain(prompt.vocabulary.own());
    let mut has_tools = false;

    for entry in entries {
        let Some(name) = tools.name_of(&entry.name) else { continue };
        has_tools = true;
        let _ = write!(out, "- {name}");
        if !entry.peers.is_empty() {
            let _ = write!(out, " (answered by {})", entry.answered_by(prompt.version));
        }

        match example(entry, schemas, prompt.version) {
            Some(arguments) => {
                let _ = writeln!(out, ": {arguments}");
            }
            None => out.push('\n'),
        }
    }

    if has_tools { out } else { "There are no tools.\n".to_owned() }
}

/// Returns example arguments of a tool as JSON text. The arguments are valid by the payload's
/// schema. Returns `None` if there is no short example.
pub fn example(
    word: &VocabularyEntry,
    schemas: &Schemas,
    version: RendererVersion,
) -> Option<String> {
    let is_short =
        |xml: &String| version < RendererVersion::V8 || xml.len() <= limits::EXAMPLE_BYTES_MAX;
    let xml = schemas.example(&word.name).filter(is_short)?;
    let json = schemas.to_json_in(&word.name, &xml, version.json_form());
    json.ok().map(|json| json.to_string())
}

pub fn response_protocol(prompt: &PromptInput, tools: &NativeTools) -> String {
    let end = match prompt.transport {
        ActionTransport::XmlFinal => ", or the final report",
        _ => "",
    };

    let mut out = match prompt.version {
        RendererVersion::V3 => format!(
            "Every response is your reasoning as text in <thinking>...</thinking>, then {}{end}. \
             You have at most {} responses for a task.\n",
            actions(prompt.actions_per_turn, "native tool call"),
            prompt.max_iterations,
        ),
        _ if prompt.finals.by == FinalMode::Text => format!(
            "You MUST think before every action: every response is your reasoning as text in \
             <thinking>...</thinking>, then {}, or your answer as text. You have at most {} responses \
             for a task.\n{}\n",
            many(prompt.actions_per_turn, "native tool call"),
            prompt.max_iterations,
            text_is_the_answer(prompt),
        ),
        _ => format!(
            "You MUST think before every action: every response is your reasoning as text in \
             <thinking>...</thinking>, then {}{end}. You have at most {} responses for a task.\n\
             DO NOT respond with plain text: ONLY {} reaches the asker.\n",
            many(prompt.actions_per_turn, "native tool call"),
            prompt.max_iterations,
            reaches_the_asker(prompt, tools),
        ),
    };

    match prompt.transport {
        ActionTransport::XmlFinal => slot(&mut out, prompt),
        _ => finals(&mut out, prompt, tools),
    }

    out.push_str(match prompt.version {
        RendererVersion::V3 => FEEDBACK_3,
        _ => FEEDBACK,
    });
    flow(&mut out, prompt, tools);
    out
}

fn reaches_the_asker(prompt: &PromptInput, tools: &NativeTools) -> String {
    match prompt.transport {
        ActionTransport::XmlFinal => "the final report".to_owned(),
        _ => format!("what you give to {}", name_of_final(&tools.finals())),
    }
}

/// Returns the opening words of the sentence that explains how to end the call.
fn when_done(prompt: &PromptInput) -> &'static str {
    match prompt.version {
        _ if prompt.finals.by == FinalMode::Text => "Instead of answering in text, you may",
        RendererVersion::V3 => "To end the task,",
        _ => "When the task is complete, and ONLY then,",
    }
}

fn finals(out: &mut String, prompt: &PromptInput, tools: &NativeTools) {
    let names = tools.finals();
    let opening = when_done(prompt);
    let _ = writeln!(
        out,
        "\n{opening} call {}, with everything the asker needs to know{}.",
        name_of_final(&names),
        in_format(&prompt.finals, prompt.version),
    );
    ends(out, prompt);
}

/// Writes the section that explains the slot for the final report. The nonce is not in this section
/// but in the notice of each turn.
fn slot(out: &mut String, prompt: &PromptInput) {
    let format = prompt.finals.format.as_str();
    let opening = when_done(prompt);
    if prompt.finals.format == FinalFormat::Xml {
        return declared(out, prompt, opening);
    }
    let _ = writeln!(
        out,
        "\n{opening} write the final report as text in the slot of the turn, with everything \
         the asker needs to know, in {}. NONCE is told with every turn and is valid in that turn \
         only; always close the slot:\n<NONCE-FINAL format=\"{format}\">...</NONCE-FINAL>\n\
         Nothing else is written as XML: tools are called natively. Whether the task succeeded is \
         decided by the system; a slot has no status.",
        prompt.finals.format.words(),
    );
    ends(out, prompt);
}

/// Writes the prompt section about the slot, which is the element for the final report. This form
/// of the section is for agents that write a whole final payload as XML into the slot.
fn declared(out: &mut String, prompt: &PromptInput, opening: &str) {
    for word in prompt.vocabulary.finals() {
        let _ = writeln!(
            out,
            "\n{opening} write the final report as one XML element <{}> in the slot of the turn:\n\
             <NONCE-FINAL format=\"xml\">{}</NONCE-FINAL>",
            word.name.local,
            example_or_outline(word, prompt.version),
        );
    }
    out.push_str(
        "NONCE is told with every turn and is valid in that turn only; always close the element and \
         the slot, and write nothing else in it.\nNothing else is written as XML: tools are called \
         natively. Whether the task succeeded is decided by the system; a slot has no status.\n",
    );
}

const FEEDBACK: &str = "
What comes back:
- The result of a tool call comes back as the result of that call. It is XML: in its text & is written \
&amp; and < is written &lt;, once. The arguments of your calls are not escaped.
- A result that begins with \"Error:\" is a failure, of the tool or of the way you called it: you MUST \
read what was wrong and what was expected, and correct it. DO NOT repeat the same call.
- A call that is not accepted is answered the same way and has no effect; so is every call beyond \
the number you may make.
- <message from=\"...\" to=\"...\"> is a message of somebody in this thread.
- <thread-spawned>, <thread-result>, <timer-set>, <timer-fired> and the like are written by the \
system alone; DO NOT write them yourself.
- <notice> says where you stand: which turn it is, which tools there are, how to end.
";

const FEEDBACK_3: &str = "
What comes back:
- The result of a tool call comes back as the result of that call.
- A result that begins with \"Error:\" is a failure, of the tool or of the way you called it: read \
what was wrong and what was expected, and correct it.
- A call that is not accepted is answered the same way and has no effect; so is every call beyond \
the number you may make.
- <message from=\"...\" to=\"...\"> is a message of somebody in this thread.
- <thread-spawned>, <thread-result>, <timer-set>, <timer-fired> and the like are written by the \
system alone; never write them yourself.
- <notice> says where you stand: which turn it is, which tools there are, how to end.
";

fn flow(out: &mut String, prompt: &PromptInput, tools: &NativeTools) {
    out.push_str("\nAn example of the flow:\n");
    if let Some(name) = prompt.vocabulary.tools().next().and_then(|word| tools.name_of(&word.name))
    {
        let _ = write!(
            out,
            "You: <thinking>I need what {name} can tell me.</thinking> and a call of {name}\n\
             Answer: the result of {name}\n"
        );
    }

    let end = match prompt.transport {
        ActionTransport::XmlFinal => "the final report in the slot of the turn".to_owned(),
        _ => format!("a call of {}", name_of_final(&tools.finals())),
    };

    let _ = writeln!(out, "You: <thinking>That is all I need to answer.</thinking> and {end}");
}
