//! Examples of core payloads, for prompts and refusals.

use super::NAMESPACE;

/// Name, purpose and a valid example of each core payload that a listener may write. In an example,
/// `{own}` stands for a payload of the listener to one of its peers.
pub const EXAMPLES: [(&str, &str, &str); 10] = [
    (
        "spawn-thread",
        "opens a child thread that works at the same time; its result comes back to you as \
         <thread-result>",
        "<spawn-thread suggested_sub_id=\"part-one\"><initial-payload>{own}</initial-payload></spawn-thread>",
    ),
    (
        "send-to-thread",
        "sends another payload into a thread you spawned",
        "<send-to-thread thread_id=\"sess-abcd1234.part-one\">{own}</send-to-thread>",
    ),
    (
        "cancel-thread",
        "ends a thread you spawned, with everything beneath it",
        "<cancel-thread thread_id=\"sess-abcd1234.part-one\"/>",
    ),
    (
        "wait",
        "ends your turn until all, or any, of your threads and timers are done",
        "<wait for=\"all\"/>",
    ),
    (
        "set-timer",
        "tells you when a time has come, with <timer-fired>",
        "<set-timer after=\"PT30S\" label=\"look again\"/>",
    ),
    (
        "cancel-timer",
        "cancels a timer by the id you were given",
        "<cancel-timer timer_id=\"0197f3a2-0000-7000-8000-000000000000\"/>",
    ),
    (
        "clear-context",
        "keeps only your latest turns and messages in what you are shown; the record keeps \
         everything",
        "<clear-context keep=\"10\"/>",
    ),
    (
        "todo-until",
        "a note: a checklist for you and for people who watch",
        "<todo-until condition=\"every part is answered\"><step done=\"true\">look</step><step>answer</step></todo-until>",
    ),
    ("progress", "a note: how far you are", "<progress>two of three parts are done</progress>"),
    (
        "thinking",
        "a note: your reasoning, before every action",
        "<thinking>I need the place where this is decided, so I search for it.</thinking>",
    ),
];

/// Returns an example of the core payload with the local name `local`, or `None` if only the core
/// writes this payload. If the example contains another payload, takes the contained payload from
/// `inner`. If `inner` then returns `None`, this function returns `None`, too.
pub fn example(local: &str, inner: impl FnOnce() -> Option<String>) -> Option<String> {
    let (_, _, template) = EXAMPLES.iter().find(|(word, _, _)| *word == local)?;
    let filled = if template.contains(OWN) {
        template.replace(OWN, inner()?.trim())
    } else {
        (*template).to_owned()
    };

    let root = format!("<{local}");
    Some(filled.replacen(&root, &format!("{root} xmlns=\"{NAMESPACE}\""), 1))
}

const OWN: &str = "{own}";
