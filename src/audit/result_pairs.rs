//! Pairs the results of two threads. A judge can then decide for each pair whether both results
//! mean the same.

use super::event_content::ContentReader;
use super::finals::{finals, is_same_final};
use super::timeline::{ThreadTimeline, TimelineEvent};
use super::views::MessageView;
use crate::schema::Schemas;

/// Two corresponding results that clients got: `before` from the first of the compared threads, and
/// `after` from the second.
#[derive(Debug, Clone)]
pub struct ResultPair {
    /// Whether `before` and `after` have the same values according to their schema.
    pub is_equal: bool,
    /// The request that led to the result `before`; `None` if the request was redacted.
    pub request: Option<String>,
    pub before: String,
    pub after: String,
}

/// Why the results of two threads cannot be paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpairedResults {
    Number { before: usize, after: usize },
    Client,
    Kind,
    Redacted,
}

impl std::fmt::Display for UnpairedResults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number { before, after } => {
                write!(f, "{before} results are on record, and the run has {after}")
            }
            Self::Client => f.write_str("another client got a result"),
            Self::Kind => f.write_str("a fault stands against a reply"),
            Self::Redacted => f.write_str("a result is redacted"),
        }
    }
}

/// Pairs the results that clients got from two threads, in their order.
///
/// # Errors
///
/// Returns the reason if the results cannot be paired.
pub fn pair_results(
    left: &ThreadTimeline,
    right: &ThreadTimeline,
    schemas: &Schemas,
) -> Result<Vec<ResultPair>, UnpairedResults> {
    let left_ids = ContentReader::beside(left, right);
    let right_ids = ContentReader::beside(right, left);
    let results = finals(left);
    let others = finals(right);
    if results.len() != others.len() {
        return Err(UnpairedResults::Number { before: results.len(), after: others.len() });
    }

    let pairs = results.into_iter().zip(others).map(|(before, after)| {
        if before.to != after.to {
            return Err(UnpairedResults::Client);
        }
        if before.kind != after.kind {
            return Err(UnpairedResults::Kind);
        }
        let text = |message: &MessageView| message.payload.clone().ok_or(UnpairedResults::Redacted);
        Ok(ResultPair {
            is_equal: is_same_final(schemas, (before, &left_ids), (after, &right_ids)),
            request: request_of(left, before).and_then(|request| request.payload.clone()),
            before: text(before)?,
            after: text(after)?,
        })
    });
    pairs.collect()
}

/// Returns the request that a result answers; `None` if the timeline does not contain the request.
fn request_of<'t>(timeline: &'t ThreadTimeline, result: &MessageView) -> Option<&'t MessageView> {
    let messages = timeline.items.iter().filter_map(|item| match &item.what {
        TimelineEvent::Message(message) => Some(message),
        _ => None,
    });
    let mut messages = messages.filter(|message| Some(message.id) == result.cause);
    messages.next()
}
