//! Sections of the system prompt that explain the protocol: the tools, the form of answers, and the
//! form of results. Tools and examples are generated from the peers' schemas. A test sends every
//! example through the extractor and validates it by its schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub use crate::system::EXAMPLES as CORE_EXAMPLES;

use crate::agent::protocol::{AgentFinals, AgentVocabulary, VocabularyEntry, in_format};
use crate::agent::{ActionTransport, FinalMode, RendererVersion};
use crate::schema::{PayloadParameter, TextContent};

/// The settings and the vocabulary from which the prompt sections are generated.
#[derive(Debug, Clone)]
pub struct PromptInput {
    pub name: String,
    pub description: String,
    pub vocabulary: AgentVocabulary,
    /// Renderer version of the generated texts.
    pub version: RendererVersion,
    pub actions_per_turn: u32,
    pub max_iterations: u32,
    pub transport: ActionTransport,
    pub finals: AgentFinals,
}

/// Default text of the section `rules`, for an agent whose config has no such section.
pub const RULES: &str = "\
- Reach the goal of the request by reasoning and by using the tools.
- Say only what the results you were given support; where they do not, say so.";

pub fn capabilities(prompt: &PromptInput) -> String {
    let tools: Vec<_> = prompt.vocabulary.tools().collect();
    match prompt.version {
        _ if !tools.is_empty() => {}
        RendererVersion::V3 => return "You have no tools; you reason and answer.".to_owned(),
        version if version >= RendererVersion::V8 && prompt.transport.is_native() => {}
        _ if prompt.transport.is_native() => {
            return "You reason, and you call the native tools that are listed in <tool_calling>."
                .to_owned();
        }
        _ => {
            return "You reason, and you write the actions that <response_protocol> describes."
                .to_owned();
        }
    }

    // The tools are described only once: in their own section, or by their definitions.
    if prompt.version >= RendererVersion::V8 {
        let text = if prompt.transport.is_native() {
            "You reason, and you call the native tools that you are given."
        } else {
            "You reason, and you use the tools that <tool_calling> describes."
        };
        return text.to_owned();
    }

    let mut out = String::from("You can use these tools:");

    for word in tools {
        let _ = write!(out, "\n- {}", word.name.local);
        if !word.description.doc.is_empty() {
            let _ = write!(out, ": {}", word.description.doc);
        }
    }

    out
}

pub fn tool_calling(prompt: &PromptInput) -> String {
    let mut out = String::new();
    for word in prompt.vocabulary.tools() {
        if !out.is_empty() {
            out.push('\n');
        }
        tool(&mut out, word, prompt.version);
    }

    let peers = peers(prompt);
    if !peers.is_empty() {
        out.insert_str(0, &format!("{peers}\n"));
    }

    if out.is_empty() && prompt.version == RendererVersion::V3 {
        out.push_str("There are no tools.\n");
    }

    out
}

/// Lists the peers that accept calls of the agent, with their descriptions. Returns an empty text
/// if no peer has a description. For renderer versions before the eighth, always returns an empty
/// text, because in these versions each tool describes its peers.
pub fn peers(prompt: &PromptInput) -> String {
    let peers = prompt.vocabulary.peers();
    let has_description = peers.iter().any(|peer| !peer.description.is_empty());
    if prompt.version < RendererVersion::V8 || !has_description {
        return String::new();
    }

    let lines = peers.iter().map(|peer| match peer.description.as_str() {
        "" => format!("- {}\n", peer.name),
        description => format!("- {}: {description}\n", peer.name),
    });
    format!("Your tools are answered by:\n{}", lines.collect::<String>())
}

fn tool(out: &mut String, word: &VocabularyEntry, version: RendererVersion) {
    let _ = write!(out, "<{}>", word.name.local);
    if !word.description.doc.is_empty() {
        let _ = write!(out, ": {}", word.description.doc);
    }

    out.push('\n');
    if !word.peers.is_empty() {
        let _ = writeln!(out, "Answered by: {}", word.answered_by(version));
    }

    match &word.description.text {
        Some(content) => {
            let _ = writeln!(out, "Content: {}", kind(content));
        }
        None if word.description.parameters.is_empty() => out.push_str("Parameters: none\n"),
        None => {}
    }

    if !word.description.parameters.is_empty() {
        out.push_str("Parameters:\n");
        parameters(out, &word.description.parameters, 0, version);
    }

    if let Some(left_out) = &word.description.left_out {
        let _ = writeln!(out, "{left_out}");
    }

    match word.example.as_str() {
        "" => {
            let _ = writeln!(out, "{NO_EXAMPLE}");
        }
        example => {
            let _ = writeln!(out, "Example:\n{example}");
        }
    }
}

/// Returns the text that describes a payload. For a payload that opens a call, this is the
/// description of a tool; for any other payload, an example.
pub fn described(word: &VocabularyEntry, version: RendererVersion) -> String {
    if !word.opens_call() {
        return example_or_outline(word, version);
    }

    let mut out = String::new();
    tool(&mut out, word, version);
    out
}

const NO_EXAMPLE: &str = "No short example of it could be generated: one can be given in the schema, in \
    <xs:appinfo><example>.";

/// Returns the example of a payload. If there is no example, returns an outline with the payload's
/// parameters.
pub fn example_or_outline(word: &VocabularyEntry, version: RendererVersion) -> String {
    if !word.example.is_empty() {
        return word.example.clone();
    }

    let mut out = format!("<{0}>...</{0}>\nParameters:\n", word.name.local);
    parameters(&mut out, &word.description.parameters, 0, version);
    for line in word.description.left_out.iter().map(String::as_str).chain([NO_EXAMPLE]) {
        let _ = writeln!(out, "{line}");
    }

    out.trim_end().to_owned()
}

fn parameters(
    out: &mut String,
    parameters: &[PayloadParameter],
    depth: usize,
    version: RendererVersion,
) {
    for parameter in parameters {
        let sign = if parameter.attribute { "attribute " } else { "" };
        let needed = match (parameter.required, parameter.alternative) {
            (_, true) => "one of several",
            (true, false) => "required",
            (false, false) => "optional",
        };

        let indent = "  ".repeat(depth);
        let kind = kind(&parameter.content);
        let _ = write!(out, "{indent}- {sign}{} ({kind}, {needed}", parameter.name);

        if parameter.repeated {
            out.push_str(", may be repeated");
        }
        if let Some(default) = &parameter.default {
            let is_only_value = parameter.fixed && version >= RendererVersion::V14;
            let word = if is_only_value { "exactly" } else { "default" };
            let _ = write!(out, ", {word} {default}");
        }
        out.push(')');
        if let Some(parts) = parameter.undescribed.in_prose() {
            let _ = write!(out, ", {parts}");
        }
        if let Some(doc) = &parameter.doc {
            let _ = write!(out, ": {doc}");
        }
        out.push('\n');

        self::parameters(out, &parameter.parameters, depth + 1, version);
    }
}

/// Describes the type of a text and the values that it may have.
fn kind(content: &TextContent) -> String {
    let mut out = content.kind.clone();
    if !content.choices.is_empty() {
        let _ = write!(out, " {}", content.choices_in_prose());
    }

    if let Some(range) = &content.range {
        let _ = write!(out, ", {range}");
    }

    out
}

pub fn response_protocol(prompt: &PromptInput) -> String {
    let mut out = String::new();
    form(&mut out, prompt);
    finish(&mut out, prompt);
    going_on(&mut out, prompt);
    core_words(&mut out, prompt);
    out.push_str(match prompt.version {
        RendererVersion::V3 => FEEDBACK_3,
        _ => FEEDBACK,
    });
    flow(&mut out, prompt);
    out
}

fn form(out: &mut String, prompt: &PromptInput) {
    if prompt.version == RendererVersion::V3 {
        return form_3(out, prompt);
    }

    let many = many(prompt.actions_per_turn, "action");
    let most = prompt.max_iterations;
    let _ = match prompt.finals.by {
        FinalMode::Action => writeln!(
            out,
            "You MUST think before every action: every response is your reasoning in \
             <thinking>...</thinking>, then {many}. You have at most {most} responses for a task.\n\
             You MUST write every action as XML, the end of the task included. DO NOT respond with \
             plain text: ONLY what stands in {} reaches the asker.",
            final_tags(prompt),
        ),
        FinalMode::Text => writeln!(
            out,
            "You MUST think before every action: every response is your reasoning in \
             <thinking>...</thinking>, then {many}, or your answer as text. You have at most {most} \
             responses for a task.\n{}\nYou MUST write every action as XML.",
            text_is_the_answer(prompt),
        ),
    };
    out.push_str(
        "An action is one XML element: its root is the name of the action, its parameters are \
         child elements, or attributes where the description says so. DO NOT write it in a code \
         fence, in quotes or inside <thinking>; ALWAYS close it. Text around it is kept, but \
         nothing is done with it.\n\
         Values are text. Write them raw, as they are: code such as a && b < c, quotes and tags are \
         not escaped. A value that is escaped throughout is unescaped once. DO NOT mix raw and \
         escaped characters in one value. ONLY where a value itself holds text such as &amp; or its \
         own closing tag, it MUST stand in <![CDATA[...]]>.\n",
    );
    if prompt.version >= RendererVersion::V10 {
        markup(out, &prompt.vocabulary);
    }
}

/// Lists those elements of the agent's payloads that may contain any XML: in these elements, the
/// agent must escape special characters. Writes nothing if there are no such elements.
fn markup(out: &mut String, vocabulary: &AgentVocabulary) {
    let words = vocabulary.tools().chain(vocabulary.own()).chain(vocabulary.finals());
    let names: BTreeSet<&String> = words.flat_map(|word| &word.markup).collect();
    if names.is_empty() {
        return;
    }

    let tags: Vec<_> = names.into_iter().map(|name| format!("<{name}>")).collect();
    let _ = writeln!(
        out,
        "The content of {} is XML instead: in its text, & MUST be written &amp; and < MUST be \
         written &lt;.",
        tags.join(", ")
    );
}

/// Returns the sentences of the prompt which state that the text of a response without any action
/// is the answer.
pub fn text_is_the_answer(prompt: &PromptInput) -> String {
    format!(
        "When the task is complete, write your answer as {} in a response without any action: the \
         text of such a response is your answer, reaches the asker as it is, and ends the task. The \
         text of a response with an action is NEVER the answer. DO NOT quote an action in your answer.",
        prompt.finals.format.words()
    )
}

/// Returns the tags of the payloads that end a task.
fn final_tags(prompt: &PromptInput) -> String {
    let names = prompt.vocabulary.finals().map(|word| format!("<{}>", word.name.local));
    name_of_final(&names.collect::<Vec<_>>())
}

/// Returns, with words in capitals, how many actions a response may contain, such as `EXACTLY ONE
/// action`. `most` is the maximum; 0 means 1. `word` is the noun for an action.
pub fn many(most: u32, word: &str) -> String {
    match most {
        0 | 1 => format!("EXACTLY ONE {word}"),
        n => format!("AT MOST {n} {word}s, one after another"),
    }
}

fn form_3(out: &mut String, prompt: &PromptInput) {
    let many = actions(prompt.actions_per_turn, "action");
    let _ = write!(
        out,
        "Every response is your reasoning in <thinking>...</thinking>, then {many}. You have at \
         most {} responses for a task.\n\
         An action is one XML element: its root is the name of the action, its parameters are \
         child elements, or attributes where the description says so. Write it as plain text, \
         not in a code fence, not in quotes, not inside <thinking>, and always close it. Text \
         around it is kept, but nothing is done with it.\n\
         Values are text. Write & as &amp; and < as &lt; in them; a value with much \
         markup may stand in <![CDATA[...]]>.\n",
        prompt.max_iterations,
    );
}

fn finish(out: &mut String, prompt: &PromptInput) {
    let format = in_format(&prompt.finals, prompt.version);
    let opening = match prompt.version {
        _ if prompt.finals.by == FinalMode::Text => {
            "You may also end the task by this action, with"
        }
        RendererVersion::V3 => "To end the task, with",
        _ => "When the task is complete, respond ONLY with this action, with",
    };

    for word in prompt.vocabulary.finals() {
        let _ = write!(
            out,
            "\n{opening} everything the asker needs to know{format}:\n{}\n",
            example_or_outline(word, prompt.version)
        );
    }

    ends(out, prompt);
}

/// Returns, in lower case, how many actions a response may contain, such as `exactly one action`.
/// `most` is the maximum; 0 means 1. `word` is the noun for an action.
pub fn actions(most: u32, word: &str) -> String {
    match most {
        0 | 1 => format!("exactly one {word}"),
        n => format!("at most {n} {word}s, one after another"),
    }
}

/// Lists the names of the final payloads.
pub fn name_of_final(names: &[String]) -> String {
    if names.is_empty() { "your final".to_owned() } else { names.join(" or ") }
}

/// Writes the JSON Schema of the final report, as the end of a prompt section. Writes nothing if
/// the config names no schema.
pub fn ends(out: &mut String, prompt: &PromptInput) {
    if let Some(schema) = prompt.finals.format.schema() {
        let _ = writeln!(
            out,
            "The report is JSON that is valid by this JSON Schema:\n{}",
            schema.json()
        );
    }
}

fn going_on(out: &mut String, prompt: &PromptInput) {
    for word in prompt.vocabulary.own() {
        let _ = write!(
            out,
            "\nTo go on working by yourself, write your own <{}>: it is recorded in this thread \
             and you are asked again.\n{}\n",
            word.name.local,
            example_or_outline(word, prompt.version)
        );
    }
}

/// Returns the example of a core payload. Starts from `template`, and replaces `{own}` in it by the
/// example of a payload from the agent's vocabulary.
pub fn core_example(
    vocabulary: &AgentVocabulary,
    version: RendererVersion,
    template: &str,
) -> String {
    template.replace("{own}", &vocabulary.inner_example(version))
}

fn core_words(out: &mut String, prompt: &PromptInput) {
    out.push_str(
        "\nThe system itself understands these; notes are no actions and may precede one:\n",
    );
    for (name, what, example) in CORE_EXAMPLES {
        if prompt.vocabulary.has_core(name) {
            let example = core_example(&prompt.vocabulary, prompt.version, example);
            let _ = writeln!(out, "- <{name}> {what}.\n  {}", example.replace('\n', "\n  "));
            if name == "spawn-thread" {
                out.push_str(match prompt.version {
                    RendererVersion::V3 | RendererVersion::V4 => "",
                    RendererVersion::V5 => SPAWN_ATTRIBUTES_5,
                    version if !prompt.vocabulary.mentions_money(version) => {
                        SPAWN_ATTRIBUTES_WITHOUT_MONEY
                    }
                    RendererVersion::V6
                    | RendererVersion::V7
                    | RendererVersion::V8
                    | RendererVersion::V9
                    | RendererVersion::V10
                    | RendererVersion::V11
                    | RendererVersion::V12
                    | RendererVersion::V13
                    | RendererVersion::V14
                    | RendererVersion::V15 => SPAWN_ATTRIBUTES,
                });
            }
        }
    }
}

const SPAWN_ATTRIBUTES: &str = "  \
Optional: bound=\"true\" (the child thread is cancelled when you end this task); tokens=\"5000\" and \
money=\"0.50\" (the most that its model calls may use); timeout=\"PT10M\" (how long it may take).
";

const SPAWN_ATTRIBUTES_WITHOUT_MONEY: &str = "  \
Optional: bound=\"true\" (the child thread is cancelled when you end this task); tokens=\"5000\" (the \
most that its model calls may use); timeout=\"PT10M\" (how long it may take).
";

const SPAWN_ATTRIBUTES_5: &str = "  \
Optional: bound=\"true\" (the child thread is cancelled when you end this task).
";

const FEEDBACK: &str = "
What comes back:
- The result of a tool is <tool_result tool_name=\"NAME\">...</tool_result>. In its text & is written \
&amp; and < is written &lt;, once. Several results stand in the order of your actions.
- A result that begins with \"Error:\" is a failure, of the tool or of the way you called it: you MUST \
read what was wrong and what was expected, and correct it. DO NOT repeat the same action.
- An action that is not accepted is answered the same way, at its place, and has no effect; so is \
every action beyond the number you may write.
- <message from=\"...\" to=\"...\"> is a message of somebody in this thread.
- <thread-spawned>, <thread-result>, <timer-set>, <timer-fired> and the like are written by the \
system alone; DO NOT write them yourself.
- <notice> says where you stand: which turn it is, which tools there are, how to end.
";

const FEEDBACK_3: &str = "
What comes back:
- The result of a tool is <tool_result tool_name=\"NAME\">...</tool_result>; markup in it is escaped.
- A result that begins with \"Error:\" is a failure, of the tool or of the way you called it: read \
what was wrong and what was expected, and correct it.
- An action that is not accepted is answered the same way and has no effect; so is every action \
beyond the number you may write.
- <message from=\"...\" to=\"...\"> is a message of somebody in this thread.
- <thread-spawned>, <thread-result>, <timer-set>, <timer-fired> and the like are written by the \
system alone; never write them yourself.
- <notice> says where you stand: which turn it is, which tools there are, how to end.
";

fn flow(out: &mut String, prompt: &PromptInput) {
    out.push_str("\nAn example of the flow:\n");
    if let Some(tool) = prompt.vocabulary.tools().find(|tool| !tool.example.is_empty()) {
        let name = &tool.name.local;
        let _ = write!(
            out,
            "You: <thinking>I need what {name} can tell me.</thinking>\n{}\n\
             Answer: <tool_result tool_name=\"{name}\">...</tool_result>\n",
            tool.example
        );
    }

    if prompt.finals.by == FinalMode::Text {
        out.push_str(
            "You: <thinking>That is all I need to answer.</thinking>\nMy answer, as text.\n",
        );
    } else if let Some(end) = prompt.vocabulary.finals().find(|end| !end.example.is_empty()) {
        let _ = writeln!(
            out,
            "You: <thinking>That is all I need to answer.</thinking>\n{}",
            end.example
        );
    }
}
