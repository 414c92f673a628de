//! `organism diff`: compares two threads by their content, and shows where they differ first.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;

use crate::audit::{
    ComparedEvent, ComparedTurn, RecordedMoment, ThreadComparison, ThreadDifference,
    ThreadTimeline, ThreadTotals, compare_threads, thread_state, thread_timeline,
};
use crate::ids::{Digest, ListenerName, ThreadId};
use crate::limits;
use crate::organism::{ComparedSide, first_different_prompts, unified_diff};
use crate::xml::invisible_characters::visible;

use super::exit::CommandExit;
use super::journal_target::{JournalTarget, failed_in, known, readers_of, unknown};
use super::past_prompt::past_prompt;
use super::render::{RenderOutput, count, duration, payload_lines, put, put_visible_json, table};

/// Number of digits of each digest that the table shows.
const DIGITS_SHOWN: usize = 12;
/// Maximum number of lines that the output shows of a payload, if only one of the two threads has
/// the payload. `--full` shows all lines.
const LINES_SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Thread A, which is compared with thread B.
    #[arg(value_name = "A")]
    left: String,
    /// Thread B, which is compared with thread A.
    #[arg(value_name = "B")]
    right: String,
    #[command(flatten)]
    place: JournalTarget,
    /// Data directory of the journal that contains thread B. Default: the data directory of thread
    /// A.
    #[arg(long, value_name = "DIR")]
    other: Option<PathBuf>,
    /// Show every difference, not only the first.
    #[arg(long)]
    all: bool,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

/// The first difference between two threads, either in a prompt or in an event.
#[derive(Debug, Serialize)]
pub(super) enum FirstDifference {
    #[serde(rename = "prompt")]
    Prompt(PromptDifference),
    #[serde(rename = "event")]
    Event(ThreadDifference),
}

/// The model requests of two corresponding turns, one of each compared thread. The requests differ.
#[derive(Debug, Serialize)]
pub(super) struct PromptDifference {
    #[serde(rename = "a")]
    left: PromptOfTurn,
    #[serde(rename = "b")]
    right: PromptOfTurn,
    /// Unified diff of the requests; `None` if a request cannot be rebuilt.
    #[serde(rename = "diff")]
    diff: Option<String>,
}

#[derive(Debug, Serialize)]
struct PromptOfTurn {
    #[serde(rename = "thread")]
    thread: ThreadId,
    #[serde(rename = "agent")]
    agent: ListenerName,
    #[serde(rename = "turn")]
    turn: u32,
    #[serde(rename = "prompt")]
    prompt: Digest,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let other = match &args.other {
        Some(data) => JournalTarget { config: None, data: Some(data.clone()), state: None },
        None => JournalTarget {
            config: args.place.config.clone(),
            data: args.place.data.clone(),
            state: args.place.state.clone(),
        },
    };
    let left = timeline(&args.place, &args.left, None)?;
    let right = timeline(&other, &args.right, None)?;
    let comparison = compare_threads(&left, &right);

    let mut uncompared = 0;
    let first = first_difference(&comparison, &args.place, &other, &mut uncompared);
    if args.json {
        put_visible_json(&serde_json::json!({
            "equal": first.is_none() && uncompared == 0,
            "uncompared_prompts": uncompared,
            "equal_results": comparison.has_equal_results(),
            "equal_events": comparison.equal,
            "first": first,
            "differences": comparison.differences,
            "a": comparison.left,
            "b": comparison.right,
        }))?;
        return Ok(CommandExit::Done.into());
    }

    let output = RenderOutput::stdout(args.full);
    let mut out = match &first {
        Some(first) if args.all => all_text(&output, first, &comparison),
        Some(first) => first_text(&output, first),
        None => String::new(),
    };
    out.push_str(&totals(&output, [&comparison.left, &comparison.right]));
    put(&out)?;
    if comparison.is_with_fork {
        note!(
            "note: the table counts the whole threads; the events leave out the history that a fork \
             shares with its source, and the notes of the core about the fork"
        );
    }
    if uncompared > 0 {
        note!(
            "note: {} with different digests {} not compared; the {} before differ only in ids and \
             dates",
            count(uncompared, "later prompt"),
            if uncompared == 1 { "was" } else { "were" },
            limits::COMPARED_PROMPTS_MAX
        );
    }
    note!("{}", summary(&comparison, first.as_ref(), args.all));
    Ok(CommandExit::Done.into())
}

/// Finds the first difference between two threads, in a prompt or in an event. Returns `None` if no
/// difference is found. Compares only a limited number of pairs of prompts. If all compared pairs
/// are equal, sets `uncompared` to the number of pairs that were left out.
pub(super) fn first_difference(
    comparison: &ThreadComparison,
    place: &JournalTarget,
    other: &JournalTarget,
    uncompared: &mut u64,
) -> Option<FirstDifference> {
    let prompt = first_prompt(comparison, place, other, uncompared);
    let event = || comparison.differences.first().cloned().map(FirstDifference::Event);
    prompt.map(FirstDifference::Prompt).or_else(event)
}

/// Reads the events of a thread and of the threads beneath it up to the moment `up_to`, or all
/// events if `up_to` is `None`.
pub(super) fn timeline(
    place: &JournalTarget,
    id: &str,
    up_to: Option<RecordedMoment>,
) -> anyhow::Result<ThreadTimeline> {
    let thread = known(id)?;
    for reader in readers_of(place, &thread)? {
        let found = thread_timeline(&reader, &thread, up_to);
        if let Some(timeline) = found.map_err(|error| failed_in(&reader, error))? {
            return Ok(timeline);
        }
    }
    Err(unknown(place, &thread).into())
}

/// Finds the first pair of model requests that differ between two threads. Considers only requests
/// before the first different event. Returns `None` if no different pair is found.
///
/// Two requests differ if their texts differ in more than ids and dates, or if one of them cannot
/// be rebuilt. Compares only a limited number of pairs. If all compared pairs are equal, sets
/// `uncompared` to the number of pairs that were left out.
fn first_prompt(
    comparison: &ThreadComparison,
    place: &JournalTarget,
    other: &JournalTarget,
    uncompared: &mut u64,
) -> Option<PromptDifference> {
    let found = first_different_prompts(comparison, |side, turn| {
        let place = match side {
            ComparedSide::Left => place,
            ComparedSide::Right => other,
        };
        past_prompt(place, &turn.agent, &turn.thread, turn.turn)
    });
    *uncompared = found.uncompared;

    let first = found.first?;
    let diff = first.diff.inspect_err(|error| {
        note!("note: the prompts have different digests, but one cannot be rebuilt: {error}");
    });
    let left = PromptOfTurn::of(&first.pair.left);
    let right = PromptOfTurn::of(&first.pair.right);
    Some(PromptDifference { left, right, diff: diff.ok() })
}

impl PromptOfTurn {
    fn of(turn: &ComparedTurn) -> Self {
        let ComparedTurn { thread, agent, turn, prompt, .. } = turn.clone();
        Self { thread, agent, turn, prompt }
    }
}

pub(super) fn first_text(output: &RenderOutput, first: &FirstDifference) -> String {
    titled(output, "first difference", first)
}

/// Draws all differences, each with its number. `first` is the first of them.
fn all_text(
    output: &RenderOutput,
    first: &FirstDifference,
    comparison: &ThreadComparison,
) -> String {
    let all = difference_count(comparison, first);
    let title = |number: usize| format!("difference {number} of {all}");
    let mut out = titled(output, &title(1), first);
    let deadline = Instant::now() + limits::LINE_COMPARISON_TIME;
    let shown = usize::from(matches!(first, FirstDifference::Event(_)));
    for (number, difference) in (2..).zip(comparison.differences.iter().skip(shown)) {
        let text = event_text(output, difference, deadline);
        out.push_str(&format!("{}\n{text}\n", output.bold(&title(number))));
    }
    out
}

/// Number of all differences. `first` is the first of them; a prompt is not among the different
/// events.
fn difference_count(comparison: &ThreadComparison, first: &FirstDifference) -> u64 {
    let prompts = u64::from(matches!(first, FirstDifference::Prompt(_)));
    comparison.differences.len() as u64 + prompts
}

/// Draws the first difference under a title.
fn titled(output: &RenderOutput, title: &str, first: &FirstDifference) -> String {
    let mut out = format!("{}\n", output.bold(title));
    let deadline = Instant::now() + limits::LINE_COMPARISON_TIME;
    match first {
        FirstDifference::Event(difference) => {
            out.push_str(&event_text(output, difference, deadline));
        }
        FirstDifference::Prompt(PromptDifference { left, right, diff }) => {
            for (sign, side) in [('-', left), ('+', right)] {
                let PromptOfTurn { thread, agent, turn, prompt } = side;
                out.push_str(&format!(
                    "{sign} {thread}  prompt of turn {turn} of {agent}  sha256 {prompt}\n"
                ));
            }
            out.push_str(&changed(output, diff.as_deref().unwrap_or_default()));
        }
    }
    out.push('\n');
    out
}

/// Draws one difference: the place of the event in each thread, and the lines that differ. Shows
/// control and hidden characters as their code points. The search for equal lines ends at
/// `deadline`.
fn event_text(output: &RenderOutput, difference: &ThreadDifference, deadline: Instant) -> String {
    let ThreadDifference { left, right, .. } = difference;
    let mut out = String::new();
    for (sign, side) in [('-', left), ('+', right)] {
        if let Some(ComparedEvent { thread, position, seq, title, .. }) = side {
            let title = visible(title);
            out.push_str(&format!("{sign} {thread} {seq}  position {position}  {title}\n"));
        }
    }

    let (Some(left), Some(right)) = (left, right) else {
        let only = left.iter().chain(right).next();
        let lines = only.map(|event| event.lines.as_slice()).unwrap_or_default();
        return out + &cut_lines(output, lines);
    };
    let [one, other] = [left, right].map(|event| format!("{}\n", event.lines.join("\n")));
    let diff = unified_diff(&one, &other, deadline);
    out.push_str(&changed(output, &diff));
    if diff.is_empty() {
        out.push_str("    the payloads differ only in white space or namespaces\n");
    }
    out
}

fn cut_lines(output: &RenderOutput, lines: &[String]) -> String {
    let most = if output.full { usize::MAX } else { LINES_SHOWN };
    let shown = lines.iter().take(most);
    let mut out: String = shown.map(|line| format!("    {}\n", visible(line))).collect();
    if lines.len() > most {
        out.push_str(&format!("    … {} more; --full shows them\n", lines.len() - most));
    }
    out
}

/// Returns the lines of a unified diff without the positions in its hunk headers.
fn changed(output: &RenderOutput, diff: &str) -> String {
    let lines = diff.lines().map(|line| {
        // The colours come last, because they are characters that `visible` replaces.
        let line = visible(if line.starts_with("@@") { "…" } else { line });
        match line.chars().next() {
            Some('-') => format!("    {}\n", output.red(&line)),
            Some('+') => format!("    {}\n", output.green(&line)),
            _ => format!("    {line}\n"),
        }
    });
    lines.collect()
}

/// Draws the totals of the two compared threads side by side.
fn totals(output: &RenderOutput, sides: [&ThreadTotals; 2]) -> String {
    let row = |name: &str, value: &dyn Fn(&ThreadTotals) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(sides.iter().map(|side| value(side)));
        row
    };
    let mut rows =
        vec![row("status", &|side| thread_state(side.status.as_str(), side.waits).to_owned())];
    let results = sides.map(|side| side.results.len()).into_iter().max().unwrap_or_default();
    // The payloads of a result stand one under another.
    for at in 0..results.max(1) {
        let name = if at == 0 { "result" } else { "" };
        rows.push(row(name, &|side| result_line(side, at)));
    }
    rows.extend([
        row("cost", &cost),
        row("tokens", &|side| side.spent.tokens.to_string()),
        row("turns", &|side| side.turns.to_string()),
        row("messages", &|side| side.messages.to_string()),
        row("refusals", &|side| side.refusals.to_string()),
        row("failed attempts", &|side| side.failed_attempts.to_string()),
        row("subthreads", &|side| side.subthreads.to_string()),
        row("time", &|side| duration(std::time::Duration::from_millis(side.ms))),
    ]);
    if sides.iter().any(|side| side.definition.is_some()) {
        let digest = |side: &ThreadTotals| {
            let digest = side.definition.as_deref().and_then(|digest| digest.get(..DIGITS_SHOWN));
            digest.map_or_else(|| "none".to_owned(), visible)
        };
        rows.push(row("definition", &digest));
    }
    let [left, right] = sides.map(|side| side.thread.as_str());
    table(output, &["", left, right], &rows)
}

/// Returns the first line of the payload with the index `at` in a thread's result, or `[redacted]`
/// for a redacted payload. If there is no such payload, returns `none` at index 0, and an empty
/// text at any other index.
fn result_line(side: &ThreadTotals, at: usize) -> String {
    match side.results.get(at) {
        Some(Some(payload)) => {
            let first = payload_lines(payload).into_iter().find(|line| !line.is_empty());
            first.map_or_else(|| "none".to_owned(), |line| visible(&line))
        }
        Some(None) => "[redacted]".to_owned(),
        None if at == 0 => "none".to_owned(),
        None => String::new(),
    }
}

pub(super) fn cost(side: &ThreadTotals) -> String {
    visible(&side.spent.money.to_string())
}

fn summary(comparison: &ThreadComparison, first: Option<&FirstDifference>, all: bool) -> String {
    let results = comparison
        .result_verdict([comparison.left.thread.as_str(), comparison.right.thread.as_str()]);
    let equal = count(comparison.equal, "event");
    let Some(first) = first else {
        return format!("the events of both threads are equal: {equal}");
    };

    let differences = difference_count(comparison, first);
    let verb = if comparison.equal == 1 { "is" } else { "are" };
    let more = if all || differences < 2 { "" } else { "; --all shows them" };
    format!(
        "{equal} {verb} equal, and there {} {}{more}; {results}",
        if differences == 1 { "is" } else { "are" },
        count(differences, "difference")
    )
}
