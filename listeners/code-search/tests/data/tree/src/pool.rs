//! A pool of connections.

use std::collections::VecDeque;

/// How many connections are kept.
pub const KEPT_MAX: usize = 8;

pub const NAMES: [&str; 2] = [
    "first; still a string {",
    r#"raw " brace { "#,
];

/// Keeps connections for reuse.
#[derive(Debug)]
pub struct Pool<'a> {
    idle: VecDeque<&'a str>,
}

impl<'a> Pool<'a> {
    /// Takes an idle connection.
    pub fn take(&mut self) -> Option<&'a str> {
        let brace = '{';
        if self.idle.is_empty() && brace != '}' {
            return None;
        }
        self.idle.pop_front()
    }

    pub async fn login(&self) {}
}

struct Other;

impl Other {
    fn take(&self) -> u8 {
        // A comment with a brace: }
        7
    }
}

macro_rules! twice {
    ($e:expr) => {
        ($e, $e)
    };
}

fn free() -> (u8, u8) {
    twice!(1)
}

impl Other {
    pub const fn new() -> Self {
        Self
    }
}
