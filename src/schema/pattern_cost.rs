//! Limits the cost of matching a pattern. libxml2 tries one alternative after another. So a
//! repetition inside a repetition can take exponential time if a text almost matches.

use crate::limits;

/// Checks the cost of matching a pattern. If it can be too high, returns an error that states the
/// defect of the pattern and the remedy.
pub fn check(pattern: &str) -> Result<(), String> {
    if pattern.len() > limits::PATTERN_BYTES_MAX {
        return Err(format!("the pattern is longer than {} bytes", limits::PATTERN_BYTES_MAX));
    }

    let mut scan =
        PatternScan { rest: pattern.chars().peekable(), open: vec![OpenGroup::default()] };
    while let Some(c) = scan.rest.next() {
        scan.take(c)?;
    }

    Ok(())
}

/// State of a group in a pattern before its closing parenthesis is read.
#[derive(Debug, Clone, Copy, Default)]
struct OpenGroup {
    /// Number of pieces read so far in the current branch of the group.
    pieces: u32,
    /// Whether the latest piece of the current branch may be repeated without an upper limit:
    /// because of its own quantifier, or because it is a group with `bare` set.
    endless: bool,
    /// Whether a branch of the group is a single piece that may be repeated without an upper limit,
    /// as in `(a*)`. If the whole group may also be repeated without an upper limit, matching takes
    /// exponential time.
    bare: bool,
    /// Largest product of nested bounded repetitions within the group, such as 6 for `(a{2}){3}`.
    repeats: u64,
}

impl OpenGroup {
    fn end_branch(&mut self) {
        self.bare |= self.pieces == 1 && self.endless;
        self.pieces = 0;
        self.endless = false;
    }
}

struct PatternScan<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    open: Vec<OpenGroup>,
}

impl PatternScan<'_> {
    fn take(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => {
                self.open.push(OpenGroup::default());
                if self.open.len() > limits::PATTERN_DEPTH_MAX {
                    let most = limits::PATTERN_DEPTH_MAX;
                    return Err(format!("the pattern nests deeper than {most} parentheses"));
                }
                return Ok(());
            }
            '|' => {
                if let Some(group) = self.open.last_mut() {
                    group.end_branch();
                }
                return Ok(());
            }
            ')' if self.open.len() > 1 => {
                let mut group = self.open.pop().unwrap_or_default();
                group.end_branch();
                return self.piece(group.bare, group.repeats);
            }
            '\\' => self.escape(),
            '[' => self.class(),
            _ => {}
        }

        self.piece(false, 0)
    }

    /// Parses the quantifier after a piece, and adds the piece to the current branch. `bare` and
    /// `inner` are the values `bare` and `repeats` of the piece, if it is a group. Returns an error
    /// if the repetitions make matching too costly.
    fn piece(&mut self, bare: bool, inner: u64) -> Result<(), String> {
        let (most, endless) = self.quantifier();
        if endless && bare {
            let message = "the pattern repeats a repetition without bound, which takes exponential time; repeat it once";
            return Err(message.to_owned());
        }

        let repeats = if most > 1 { inner.max(1).saturating_mul(most) } else { inner };
        if inner > 1 && repeats > limits::PATTERN_REPEATS_MAX {
            let most = limits::PATTERN_REPEATS_MAX;
            return Err(format!("counted repetitions in the pattern multiply beyond {most}"));
        }

        if let Some(group) = self.open.last_mut() {
            group.pieces += 1;
            group.endless = endless || bare;
            group.repeats = group.repeats.max(repeats);
        }

        Ok(())
    }

    /// Parses a quantifier. Returns a number of repetitions, and whether there is no upper limit.
    /// If there is an upper limit, the number is this limit. Otherwise, it is the minimum of
    /// `{n,}`, or 1 for `*` and `+`.
    fn quantifier(&mut self) -> (u64, bool) {
        match self.rest.peek() {
            Some('*' | '+') => {
                self.rest.next();
                (1, true)
            }
            Some('?') => {
                self.rest.next();
                (1, false)
            }
            Some('{') => {
                self.rest.next();
                let inside: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                let (low, high) = inside.split_once(',').unwrap_or((&inside, &inside));
                let number = |text: &str| text.parse().unwrap_or(u64::MAX);
                if high.is_empty() { (number(low), true) } else { (number(high), false) }
            }
            _ => (1, false),
        }
    }

    fn escape(&mut self) {
        let escaped = self.rest.next();
        if matches!(escaped, Some('p' | 'P')) && self.rest.peek() == Some(&'{') {
            self.rest.by_ref().take_while(|c| *c != '}').for_each(drop);
        }
    }

    /// Skips to the end of a character class, including subtracted classes.
    fn class(&mut self) {
        let mut depth = 1;
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => {
                    self.rest.next();
                }
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}
