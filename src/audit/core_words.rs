//! Short forms of the core's payloads. Each has a summary line, and further lines beneath it.

use super::payload_lines::{self, leave_out, take_children};
use crate::agent::protocol::feedback::REJECTED;
use crate::envelope::located_message;
use crate::system::MODEL_TURN;
use crate::xml::element::Element;

/// Summarizes a payload of the core for the first line of a displayed message. Returns `None` for a
/// payload that has no summary.
pub fn gist(local: &str, payload: &str) -> Option<String> {
    let root = payload_lines::parse(payload)?;
    let attribute = |name: &str| root.attribute(name).map(str::to_owned);
    match local {
        "thread-spawned" => attribute("assigned_id"),
        MODEL_TURN => Some(turn(&root)),
        "thread-result" => {
            let thread = attribute("thread_id")?;
            let status = attribute("status")?;
            Some(format!("{}  {status}", label(&thread)))
        }
        "timer-set" | "timer-fired" | "timer-cancelled" => attribute("label"),
        "huh" | "system-error" => attribute("code"),
        "schedule-event" => Some(format!("{} {}", attribute("schedule")?, attribute("event")?)),
        _ => None,
    }
}

/// Summarizes a turn of an agent, like `researcher turn 3 normal 1666 + 158 tokens 12 ms`.
fn turn(root: &Element) -> String {
    let get = |name: &str| root.attribute(name).unwrap_or("?");
    let mut text = format!("{} turn {}", get("agent"), get("turn"));
    if get("iteration") != get("turn") {
        text.push_str(&format!(" (iteration {})", get("iteration")));
    }

    let stop = get("stop");
    let latency = get("latency_ms");
    if root.attribute("recorded").is_some() {
        text.push_str(&format!("  {stop}  answer on record"));
        return text;
    }
    let tokens_in = get("tokens_in");
    let tokens_out = get("tokens_out");
    text.push_str(&format!("  {stop}  {tokens_in} + {tokens_out} tokens"));
    if let (Some(cost), Some(currency)) = (root.attribute("cost"), root.attribute("currency")) {
        text.push_str(&format!("  {cost} {currency}"));
    }

    text.push_str(&format!("  {latency} ms"));
    text
}

/// Returns the last label of a thread's id, with the dot before the label.
fn label(thread: &str) -> String {
    thread.rsplit_once('.').map_or_else(|| thread.to_owned(), |(_, label)| format!(".{label}"))
}

/// Returns the lines beneath the summary of a payload. The lines repeat nothing that the summary
/// shows.
pub fn lines(local: &str, payload: &str) -> Vec<String> {
    let Some(mut root) = payload_lines::parse(payload) else {
        return payload_lines::lines(payload);
    };
    match local {
        "thread-spawned" | "timer-fired" => return Vec::new(),
        MODEL_TURN => return warnings(root),
        "timer-set" | "timer-cancelled" if root.attribute("label").is_some() => {
            leave_out(&mut root, &["timer_id", "label"]);
        }
        "thread-result" => leave_out(&mut root, &["thread_id", "status"]),
        "huh" => return reasons(root),
        "todo-until" => return checklist(root),
        "system-error" => leave_out(&mut root, &["code"]),
        "schedule-event" => leave_out(&mut root, &["schedule", "event"]),
        _ => {}
    }

    payload_lines::element_lines(&root)
        .unwrap_or_else(|| payload_lines::lines(payload))
        .iter()
        .map(|line| shortened(line))
        .collect()
}

/// Returns the reasons in a `huh` payload as sentences, each with its location if this is known.
/// Further lines show the other content of the payload, such as the expected form.
fn reasons(mut root: Element) -> Vec<String> {
    let mut lines = Vec::new();
    for reason in take_children(&mut root, "reason") {
        let get = |name: &str| reason.attribute(name);
        let text = reason.own_text().trim().to_owned();
        let path = get("path").map(|path| format!(" ({path})")).unwrap_or_default();
        lines.push(match (get("line"), get("column")) {
            (Some(line), Some(column)) => {
                located_message(&text, &format!("line {line}, column {column}{path}"))
            }
            _ => format!("{text}{path}"),
        });
    }

    // The refusal above this payload already shows the attempt.
    take_children(&mut root, "attempt");
    leave_out(&mut root, &["code"]);
    lines.extend(payload_lines::element_lines(&root).unwrap_or_default());
    lines
}

/// Returns the warnings about accepted payloads of a turn.
fn warnings(mut root: Element) -> Vec<String> {
    let mut failover = failover(&mut root);
    let findings = take_children(&mut root, "finding");
    let accepted = findings.iter().filter(|one| one.attribute("accepted").is_some());
    let lines = accepted.map(|finding| {
        let get = |name: &str| finding.attribute(name).unwrap_or("?");
        let code = get("code");
        let place = match (get("line"), get("column")) {
            ("0" | "?", _) => String::new(),
            (line, column) => format!(" at line {line}, column {column}"),
        };
        format!("warning: {code}: {}{place}", finding.own_text().trim())
    });
    failover.extend(lines);
    failover
}

/// Returns one line for each request that failed before a model answered, and one line for the
/// route that answered. There is no line for the route if the provider rejected the turn's last
/// request, because no route answered then. If no request failed, returns no lines.
fn failover(root: &mut Element) -> Vec<String> {
    let tried = take_children(root, "tried");
    if tried.is_empty() {
        return Vec::new();
    }

    let get = |node: &Element, name: &str| node.attribute(name).unwrap_or("?").to_owned();
    let failed =
        tried.iter().map(|one| format!("{} failed: {}", get(one, "route"), get(one, "reason")));
    let mut lines: Vec<_> = failed.collect();
    let is_rejected = |child: &Element| {
        child.local_name() == "finding" && child.attribute("code") == Some(REJECTED)
    };
    if root.children().any(is_rejected) {
        return lines;
    }

    let provider = get(root, "provider");
    let model = get(root, "model");

    match root.attribute("answered_by") {
        Some(answered) if answered != model => {
            lines.push(format!("answered by {provider}/{model} ({answered})"));
        }
        _ => lines.push(format!("answered by {provider}/{model}")),
    }

    lines
}

/// Returns the lines of a checklist: its `condition`, which states when the whole list is done,
/// then one line with a check mark for each step.
fn checklist(mut root: Element) -> Vec<String> {
    let steps = take_children(&mut root, "step");
    let tick = |step: &Element| match step.attribute("done") {
        Some("true" | "1") => "[x]",
        _ => "[ ]",
    };

    let mut lines: Vec<_> = root.attribute("condition").map(str::to_owned).into_iter().collect();
    lines.extend(steps.iter().map(|step| format!("{} {}", tick(step), step.own_text().trim())));
    lines
}

/// Returns the line with its digest shortened to the first digits.
fn shortened(line: &str) -> String {
    match line.rsplit_once(": ") {
        Some((name, value)) if is_digest(value) => {
            format!("{name}: {}…", value.chars().take(12).collect::<String>())
        }
        _ => line.to_owned(),
    }
}

fn is_digest(value: &str) -> bool {
    value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_words_say_the_most_important_in_their_head_and_once() {
        let cases = [
            (
                "thread-spawned",
                "<a assigned_id=\"sess-a.b\" parent_id=\"sess-a\"/>",
                "sess-a.b",
                "",
            ),
            (
                "thread-result",
                "<a thread_id=\"sess-a.b\" status=\"failed\"><e>x</e></a>",
                ".b  failed",
                "e: x",
            ),
            (
                "timer-set",
                "<a timer_id=\"1\" fires_at=\"noon\" label=\"tea\"/>",
                "tea",
                "fires_at: noon",
            ),
            (
                "schedule-event",
                "<a schedule=\"nightly\" event=\"missed\" policy=\"skip\"/>",
                "nightly missed",
                "policy: skip",
            ),
            (
                "huh",
                "<a code=\"c\"><reason code=\"c\" line=\"1\" column=\"2\" path=\"/q\">no</reason><expected>yes</expected><attempt>x</attempt></a>",
                "c",
                "no at line 1, column 2 (/q)|expected: yes",
            ),
            (
                "model-turn",
                "<a agent=\"r\" turn=\"3\" iteration=\"2\" stop=\"normal\" tokens_in=\"5\" tokens_out=\"6\" latency_ms=\"7\"/>",
                "r turn 3 (iteration 2)  normal  5 + 6 tokens  7 ms",
                "",
            ),
            (
                "model-turn",
                "<a agent=\"r\" turn=\"3\" iteration=\"3\" stop=\"normal\" tokens_in=\"0\" tokens_out=\"0\" latency_ms=\"0\" recorded=\"01\"/>",
                "r turn 3  normal  answer on record",
                "",
            ),
            (
                "model-turn",
                "<a agent=\"r\" turn=\"1\" iteration=\"1\" stop=\"normal\" provider=\"q\" model=\"m\" answered_by=\"m-7\" tokens_in=\"5\" tokens_out=\"6\" latency_ms=\"7\"><tried route=\"p/m\" reason=\"denied\"/></a>",
                "r turn 1  normal  5 + 6 tokens  7 ms",
                "p/m failed: denied|answered by q/m (m-7)",
            ),
            (
                "model-turn",
                "<a agent=\"r\" turn=\"2\" iteration=\"2\" stop=\"unknown\" provider=\"p\" model=\"m\" tokens_in=\"0\" tokens_out=\"0\" latency_ms=\"7\"><tried route=\"p/m\" reason=\"rejected\"/><finding code=\"request-rejected\" line=\"0\" column=\"0\">no</finding></a>",
                "r turn 2  unknown  0 + 0 tokens  7 ms",
                "p/m failed: rejected",
            ),
        ];
        for (word, payload, head, body) in cases {
            assert_eq!(gist(word, payload).unwrap(), head, "{word}");
            assert_eq!(lines(word, payload).join("|"), body, "{word}");
        }
    }

    // O8
    #[test]
    fn a_plan_is_a_checklist() {
        let plan =
            "<t condition=\"all is told\"><step done=\"true\">look</step><step>say</step></t>";
        assert_eq!(lines("todo-until", plan), ["all is told", "[x] look", "[ ] say"]);
    }

    #[test]
    fn digests_are_shortened_and_nothing_else() {
        let digest = "a1".repeat(32);
        let payload = format!("<boot epoch=\"1\" config=\"{digest}\"/>");
        assert_eq!(lines("boot", &payload).join("|"), "epoch: 1|config: a1a1a1a1a1a1…");
    }
}
