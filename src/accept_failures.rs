//! Reports failures to accept connections. They may last for long, for example while no file
//! descriptor is free.

use std::io;
use std::time::Instant;

use crate::limits;

/// The failures to accept a connection on one socket. Logs the first failure of a series and, at
/// the end of the series, their number.
#[derive(Debug)]
pub struct AcceptFailures {
    /// Description of the connections, such as `an HTTP connection`.
    connection: &'static str,
    /// Number of failures since the last logged end of a series.
    count: u64,
    /// Time and kind of the last failure; `None` outside of a series.
    last: Option<(Instant, io::ErrorKind)>,
}

impl AcceptFailures {
    pub fn new(connection: &'static str) -> Self {
        Self { connection, count: 0, last: None }
    }

    /// Notes a failure, and waits until the next attempt is due.
    pub async fn wait_after(&mut self, error: &io::Error) {
        if let Some(text) = self.note(error, Instant::now()) {
            tracing::warn!("{text}");
        }
        tokio::time::sleep(limits::BACKOFF_FIRST).await;
    }

    /// Notes that a connection was accepted.
    pub fn end(&mut self) {
        if let Some(text) = self.take(Instant::now()) {
            tracing::warn!("{text}");
        }
    }

    /// Notes a failure at `now`. Returns the text of the log line about it; `None` if it continues
    /// a series of the same kind.
    fn note(&mut self, error: &io::Error, now: Instant) -> Option<String> {
        self.count += 1;
        let last = self.last.replace((now, error.kind()));
        let continues = last.is_some_and(|(at, kind)| kind == error.kind() && !is_over(at, now));
        let text = || format!("could not accept {}: {error}; trying again", self.connection);
        (!continues).then(text)
    }

    /// Notes that a connection was accepted at `now`. If this ends a series of failures, returns
    /// the text of the log line about its end.
    fn take(&mut self, now: Instant) -> Option<String> {
        self.last.take_if(|(at, _)| is_over(*at, now))?;
        let count = std::mem::take(&mut self.count);
        Some(format!("accepted {} again; failures: {count}", self.connection))
    }
}

/// Whether a series whose last failure was at `last` is over at `now`. At the limit of file
/// descriptors, failures and accepted connections alternate quickly.
fn is_over(last: Instant, now: Instant) -> bool {
    now.duration_since(last) >= limits::ACCEPT_FAILURES_END
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "could not accept a connection: no descriptor is free; trying again";
    const LATER: &str = "could not accept a connection: no memory is free; trying again";

    fn no_descriptor() -> io::Error {
        io::Error::other("no descriptor is free")
    }

    #[test]
    fn consecutive_failures_are_logged_once_and_then_counted() {
        let mut failures = AcceptFailures::new("a connection");
        let mut now = Instant::now();
        for _ in 0..2 {
            assert_eq!(failures.take(now), None);
            assert_eq!(failures.note(&no_descriptor(), now).as_deref(), Some(FIRST));
            assert_eq!(failures.note(&no_descriptor(), now), None);
            assert_eq!(failures.note(&no_descriptor(), now), None);
            now += limits::ACCEPT_FAILURES_END;
            let end = "accepted a connection again; failures: 3";
            assert_eq!(failures.take(now).as_deref(), Some(end));
        }
    }

    #[test]
    fn failures_that_alternate_with_connections_are_logged_once() {
        let mut failures = AcceptFailures::new("a connection");
        let mut now = Instant::now();
        assert_eq!(failures.note(&no_descriptor(), now).as_deref(), Some(FIRST));
        for _ in 0..3 {
            now += limits::ACCEPT_FAILURES_END / 2;
            assert_eq!(failures.take(now), None);
            assert_eq!(failures.note(&no_descriptor(), now), None);
        }
        now += limits::ACCEPT_FAILURES_END;
        let end = "accepted a connection again; failures: 4";
        assert_eq!(failures.take(now).as_deref(), Some(end));
    }

    #[test]
    fn a_failure_of_another_kind_or_after_a_pause_is_logged() {
        let mut failures = AcceptFailures::new("a connection");
        let mut now = Instant::now();
        assert_eq!(failures.note(&no_descriptor(), now).as_deref(), Some(FIRST));
        let other = io::Error::new(io::ErrorKind::OutOfMemory, "no memory is free");
        assert_eq!(failures.note(&other, now).as_deref(), Some(LATER));
        assert_eq!(failures.note(&other, now), None);
        now += limits::ACCEPT_FAILURES_END;
        assert_eq!(failures.note(&other, now).as_deref(), Some(LATER));
    }
}
