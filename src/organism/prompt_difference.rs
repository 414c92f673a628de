//! Finds the first prompts in which two compared threads differ.

use std::time::Instant;

use similar::TextDiff;

use super::PromptPreview;
use crate::audit::{ComparedTurn, PromptPair, ThreadComparison};
use crate::limits;
use crate::model::{ChatBlock, ModelRequest};

/// Number of equal lines that a diff shows around each difference.
const CONTEXT_LINES: usize = 3;

/// One side of a comparison of two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparedSide {
    Left,
    Right,
}

/// Result of a search for the first pair of different prompts in two compared threads. The search
/// ends at the first event in which the threads differ in something other than a prompt.
#[derive(Debug)]
pub struct PromptSearch<E> {
    /// The first pair of requests that differ in more than ids and dates, or that cannot be
    /// compared because one of the two requests cannot be rebuilt. `None` if there is no such pair.
    pub first: Option<DifferentPrompts<E>>,
    /// Number of pairs that were not compared, because the search had already compared its maximum
    /// number of pairs.
    pub uncompared: u64,
}

/// Two requests at the same place in the two compared threads.
#[derive(Debug)]
pub struct DifferentPrompts<E> {
    pub pair: PromptPair,
    /// Unified diff of the requests, or the reason why one of them cannot be rebuilt.
    pub diff: Result<String, E>,
}

/// Finds the first pair of requests that differ in more than ids and dates. Stops where the two
/// compared threads first differ in something other than a prompt. `rebuild` rebuilds the request
/// of a turn.
pub fn first_different_prompts<E>(
    comparison: &ThreadComparison,
    mut rebuild: impl FnMut(ComparedSide, &ComparedTurn) -> Result<PromptPreview, E>,
) -> PromptSearch<E> {
    let mut uncompared = 0;
    for (number, pair) in comparison.prompts_before_difference().enumerate() {
        if number >= limits::COMPARED_PROMPTS_MAX {
            uncompared += 1;
            continue;
        }

        let left = rebuild(ComparedSide::Left, &pair.left);
        let both = left.and_then(|left| Ok((left, rebuild(ComparedSide::Right, &pair.right)?)));
        let diff = match both {
            Ok((left, right)) => request_diff(comparison, pair, &left, &right).map(Ok),
            Err(error) => Some(Err(error)),
        };
        if let Some(diff) = diff {
            let first = Some(DifferentPrompts { pair: pair.clone(), diff });
            return PromptSearch { first, uncompared };
        }
    }
    PromptSearch { first: None, uncompared }
}

/// Returns the unified diff of two requests, or `None` if the requests differ only in ids and
/// dates.
fn request_diff(
    comparison: &ThreadComparison,
    pair: &PromptPair,
    left: &PromptPreview,
    right: &PromptPreview,
) -> Option<String> {
    let texts = [left, right].map(|preview| request_text(&preview.request, str::to_owned));
    let [left, right] = comparison.comparable_prompts(pair, &texts[0], &texts[1]);
    let deadline = Instant::now() + limits::LINE_COMPARISON_TIME;
    (left != right).then(|| unified_diff(&left, &right, deadline))
}

/// Returns the unified diff of the lines of two texts. Two long texts without equal lines take
/// quadratic time, so the search for equal lines stops at `deadline`. All lines after that point
/// appear as differences.
pub fn unified_diff(left: &str, right: &str, deadline: Instant) -> String {
    let diff = TextDiff::configure().deadline(deadline).diff_lines(left, right);
    diff.unified_diff().missing_newline_hint(false).context_radius(CONTEXT_LINES).to_string()
}

/// Writes the parts of a request as text, each under its name. `heading` formats the name, for
/// example to emphasise it.
pub fn request_text(request: &ModelRequest, heading: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    out.push_str(&format!("{}\n{}\n", heading("system"), request.system));
    for message in &request.messages {
        out.push_str(&format!("\n{}\n", heading(message.role.as_str())));
        for block in &message.blocks {
            let line = match block {
                ChatBlock::Text(text) => text.clone(),
                ChatBlock::Call(call) => {
                    format!("call {} {}({})", call.id, call.name, call.arguments)
                }
                ChatBlock::Result { id, text, .. } => format!("result of {id}\n{text}"),
                ChatBlock::Own(own) => format!("block of {}: {}", own.provider, own.json),
            };
            out.push_str(&line);
            out.push('\n');
        }
    }

    for tool in &request.tools {
        let head = format!("\n{} {}\n", heading("tool"), tool.name);
        out.push_str(&format!("{head}{}\n{}\n", tool.description, tool.parameters));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::unified_diff;

    #[test]
    fn long_texts_without_equal_lines_are_compared_in_bounded_time() {
        let text = |side: &str| (0..30_000).map(|n| format!("{side} {n}\n")).collect::<String>();
        let left = text("left");
        let right = text("right");
        let started = Instant::now();
        let diff = unified_diff(&left, &right, started + Duration::from_millis(100));
        // The exact comparison takes quadratic time, which would take far longer here.
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(diff.lines().filter(|line| line.starts_with("-left ")).count(), 30_000);
        assert_eq!(diff.lines().filter(|line| line.starts_with("+right ")).count(), 30_000);
    }
}
