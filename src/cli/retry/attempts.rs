//! Draws a table of the earlier attempts to handle a message. The command shows this table before
//! it asks whether to retry the message.

use crate::audit::EarlierAttempt;

use super::super::render::{RenderOutput, micros, table};

/// Draws the attempts as a table.
pub fn draw(attempts: &[EarlierAttempt]) -> String {
    if attempts.is_empty() {
        return "no attempt of it was delivered to a listener\n".to_owned();
    }
    let row = |earlier: &EarlierAttempt| {
        let EarlierAttempt { message, attempt } = earlier;
        vec![
            message.to_string(),
            attempt.attempt.to_string(),
            attempt.listener.clone(),
            attempt.handed_over.clone(),
            attempt.work_us.map_or_else(|| "-".to_owned(), micros),
            attempt.outcome.clone().unwrap_or_else(|| "in flight".to_owned()),
        ]
    };
    let rows: Vec<_> = attempts.iter().map(row).collect();
    let headers = ["message", "attempt", "listener", "handed over", ">worked", "outcome"];
    table(&RenderOutput::stderr(false), &headers, &rows)
}
