//! Finds where a definition begins and ends: by brackets, by indentation or by headings.

/// How a language ends its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockShape {
    Braces(LexicalRules),
    Indented,
    Headings,
    /// The language is unknown. If one of the first two lines of a definition ends with `{`, its
    /// block ends at the closing brace. Otherwise, the indentation shows where the block ends.
    Guessed,
}

/// The lexical rules that distinguish brackets in code from brackets in strings and comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LexicalRules {
    /// Whether a line break may end a statement that has no `;`.
    newline_ends: bool,
    /// Characters that begin a comment. The comment lasts to the end of the line.
    line_comment: &'static str,
    /// Whether the language has the literals and lifetimes of Rust. If so, `'` may begin a
    /// lifetime, and a string in double quotes may span several lines.
    lifetimes: bool,
    /// Whether `'…'` is a string literal rather than a character literal.
    single_quoted: bool,
    /// Whether `` `…` `` is a string that may contain line breaks.
    backticks: bool,
}

const C: LexicalRules = LexicalRules {
    newline_ends: false,
    line_comment: "//",
    lifetimes: false,
    single_quoted: false,
    backticks: false,
};

impl BlockShape {
    pub const C: Self = Self::Braces(C);
    pub const RUST: Self = Self::Braces(LexicalRules { lifetimes: true, ..C });
    pub const GO: Self = Self::Braces(LexicalRules { newline_ends: true, backticks: true, ..C });
    pub const SCRIPT: Self = Self::Braces(LexicalRules {
        newline_ends: true,
        single_quoted: true,
        backticks: true,
        ..C
    });
    pub const SHELL: Self = Self::Braces(LexicalRules {
        newline_ends: true,
        single_quoted: true,
        line_comment: "#",
        ..C
    });
}

/// Returns the index of the last line of the block that begins at line `start`. If the block has no
/// end, returns the index of the last line of the file.
pub fn end(lines: &[&str], start: usize, shape: BlockShape) -> usize {
    match shape {
        BlockShape::Braces(lexis) => braces_end(lines, start, lexis),
        BlockShape::Indented => indented_end(lines, start),
        BlockShape::Headings => headings_end(lines, start),
        BlockShape::Guessed => {
            let opens = lines.iter().skip(start).take(2).any(|line| line.trim_end().ends_with('{'));
            if opens { braces_end(lines, start, C) } else { indented_end(lines, start) }
        }
    }
}

/// Finds the comments, attributes and decorators directly above line `start`, and returns the index
/// of their first line. If there are none, returns `start`.
pub fn lead(lines: &[&str], start: usize, shape: BlockShape) -> usize {
    let belongs = |line: &str| {
        let line = line.trim_start();
        match shape {
            BlockShape::Headings => false,
            BlockShape::Indented => line.starts_with('@') || line.starts_with('#'),
            BlockShape::Braces(_) | BlockShape::Guessed => {
                // `#include` and similar directives do not belong to the next line.
                let directive = line.starts_with("#include") || line.starts_with("#define");
                ["//", "#", "@", "/*", "* ", "*/"].iter().any(|lead| line.starts_with(lead))
                    && !directive
            }
        }
    };

    let above = lines.iter().take(start).rev().take_while(|line| belongs(line)).count();
    start - above
}

/// Returns for each line whether the line begins in code, and not inside a string, a comment or a
/// fenced block of Markdown.
pub fn code_lines(lines: &[&str], shape: BlockShape) -> Vec<bool> {
    let mut scan = CodeScanner::default();
    let mut fences = FenceScanner::default();
    let each = |line: &&str| match shape {
        BlockShape::Braces(lexis) => {
            let code = scan.inside.is_none();
            scan.line(line, lexis, |_| {});
            code
        }
        BlockShape::Indented => {
            let code = scan.inside.is_none();
            scan.python(line);
            code
        }
        BlockShape::Headings => !fences.line(line),
        BlockShape::Guessed => true,
    };

    lines.iter().map(each).collect()
}

fn braces_end(lines: &[&str], start: usize, lexis: LexicalRules) -> usize {
    let mut scan = CodeScanner::default();
    for (at, line) in lines.iter().enumerate().skip(start) {
        if at == start && line.trim_start().starts_with('#') && lexis.line_comment != "#" {
            return directive_end(lines, start);
        }
        let mut closed = false;
        let mut depth = scan.depth;
        scan.line(line, lexis, |token| {
            match token {
                '{' | '(' | '[' => {
                    depth += 1;
                    closed = false;
                }
                '}' | ')' | ']' => {
                    depth -= 1;
                    closed |= token == '}' && depth <= 0;
                }
                ';' if depth <= 0 => closed = true,
                _ => {}
            };
        });
        if closed || depth < 0 {
            return at;
        }
        let ends = lexis.newline_ends && depth == 0 && scan.inside.is_none();
        if ends && !goes_on(line, lines.get(at + 1).copied()) {
            return at;
        }
    }

    lines.len().saturating_sub(1).max(start)
}

/// Returns the index of the last line of a preprocessor directive, including its continuation
/// lines.
fn directive_end(lines: &[&str], start: usize) -> usize {
    let continued = lines.iter().skip(start).take_while(|l| l.trim_end().ends_with('\\')).count();
    (start + continued).min(lines.len().saturating_sub(1))
}

/// Whether the statement on `line` has no `;` and continues on the next line.
fn goes_on(line: &str, next: Option<&str>) -> bool {
    let open_end = line.trim_end().ends_with(['=', ',', '|', '&', '(', '+', '?', ':', '>', '\\']);
    let next = next.map(str::trim_start).unwrap_or_default();
    open_end || next.starts_with(['{', '|', '&', '.', '?']) || next.starts_with("extends")
}

fn indented_end(lines: &[&str], start: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = lines.get(start).map_or(0, |line| indent(line));
    let mut scan = CodeScanner::default();
    let mut last = start;

    for (at, line) in lines.iter().enumerate().skip(start) {
        let fresh = scan.depth <= 0 && scan.inside.is_none();
        let blank = line.trim().is_empty();
        let comment = line.trim_start().starts_with('#');
        if at > start && fresh && !blank && indent(line) <= own {
            if !comment || indent(line) < own {
                return last;
            }
            continue;
        }
        scan.python(line);
        if !blank {
            last = at;
        }
    }

    last
}

fn headings_end(lines: &[&str], start: usize) -> usize {
    let level = |line: &str| line.len() - line.trim_start_matches('#').len();
    let own = lines.get(start).map_or(1, |line| level(line));
    // A heading is never inside a fenced block, so no line above `start` has to be read.
    let mut fences = FenceScanner::default();
    let mut is_next = |line: &str| {
        let fenced = fences.line(line);
        let depth = level(line);
        let heading = depth > 0 && line.trim_start_matches('#').starts_with(' ');
        heading && depth <= own && !fenced
    };

    let mut after = lines.iter().enumerate().skip(start + 1);
    let next = after.find(|(_, line)| is_next(line)).map_or(lines.len(), |(at, _)| at);
    let body = lines.get(start..next).unwrap_or_default();
    let blank = body.iter().rev().take_while(|line| line.trim().is_empty()).count();
    (next - blank).saturating_sub(1).max(start)
}

/// Scans Markdown line by line, and tracks whether a fenced block is open.
#[derive(Default)]
struct FenceScanner {
    /// The character of the mark that opened the block, and the length of this mark. `None` outside
    /// of a block.
    open: Option<(char, usize)>,
}

impl FenceScanner {
    /// Scans a line. Returns whether the line is a fence, or is inside a fenced block. The first
    /// line of a block begins with a mark: three or more backticks, or three or more tildes. The
    /// last line contains only this mark, at least as long as in the first line.
    fn line(&mut self, line: &str) -> bool {
        let text = line.trim();
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let fence = mark.and_then(|mark| {
            let info = text.trim_start_matches(mark);
            let count = text.len() - info.len();
            // Three backticks with another one behind them are code in a line of text.
            let is_fence = count >= 3 && !(mark == '`' && info.contains('`'));
            is_fence.then_some((mark, count, info.is_empty()))
        });

        match (self.open, fence) {
            (None, Some((mark, count, _))) => {
                self.open = Some((mark, count));
                true
            }
            (None, None) => false,
            (Some((mark, count)), fence) => {
                let is_end = |(other, times, is_bare)| other == mark && times >= count && is_bare;
                if fence.is_some_and(is_end) {
                    self.open = None;
                }
                true
            }
        }
    }
}

/// A string or comment that began on an earlier line and continues on this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenLiteral {
    Comment,
    /// A string that ends with this character.
    Text(char),
    /// A Rust raw string that ends with `"` and this many `#`.
    Raw(usize),
    /// A string that ends with this character three times in a row.
    Triple(char),
}

/// Scans code line by line, and counts its brackets outside strings and comments.
#[derive(Default)]
struct CodeScanner {
    inside: Option<OpenLiteral>,
    /// Number of open brackets of all kinds. Negative if more brackets were closed than opened.
    depth: i32,
}

impl CodeScanner {
    /// Scans a line. Calls `token` for every bracket and semicolon outside strings and comments.
    fn line(&mut self, line: &str, lexis: LexicalRules, mut token: impl FnMut(char)) {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let step = match self.inside {
                Some(inside) => self.step_inside(inside, rest, c),
                None if rest.starts_with(lexis.line_comment) => rest.len(),
                None => self.step_code(rest, c, line.len() - rest.len(), line, lexis, &mut token),
            };
            rest = rest.get(step..).unwrap_or_default();
        }

        // Only these strings may span lines.
        let spans = match self.inside {
            Some(OpenLiteral::Text(quote)) => quote == '`' || lexis.lifetimes && quote == '"',
            _ => true,
        };

        if !spans {
            self.inside = None;
        }
    }

    /// Scans the token at the beginning of `rest`, outside strings and comments. `c` is the first
    /// character of `rest`. Returns the length of the token in bytes.
    fn step_code(
        &mut self,
        rest: &str,
        c: char,
        at: usize,
        line: &str,
        lexis: LexicalRules,
        token: &mut impl FnMut(char),
    ) -> usize {
        if rest.starts_with("/*") && lexis.line_comment == "//" {
            self.inside = Some(OpenLiteral::Comment);
            return 2;
        }

        match c {
            '"' => {
                let before = line.get(..at).unwrap_or_default();
                let hashes = before.len() - before.trim_end_matches('#').len();
                let raw = before.trim_end_matches('#').ends_with('r') && lexis.lifetimes;
                self.inside =
                    Some(if raw { OpenLiteral::Raw(hashes) } else { OpenLiteral::Text('"') });
            }
            '\'' if lexis.single_quoted => self.inside = Some(OpenLiteral::Text('\'')),
            '\'' => return character(rest),
            '`' if lexis.backticks => self.inside = Some(OpenLiteral::Text('`')),
            '{' | '(' | '[' => {
                self.depth += 1;
                token(c);
            }
            '}' | ')' | ']' => {
                self.depth -= 1;
                token(c);
            }
            ';' => token(c),
            _ => {}
        }

        c.len_utf8()
    }

    fn step_inside(&mut self, inside: OpenLiteral, rest: &str, c: char) -> usize {
        let closes = match inside {
            OpenLiteral::Comment => rest.starts_with("*/").then_some(2),
            OpenLiteral::Text(_) if c == '\\' => {
                return 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
            }
            OpenLiteral::Text(quote) => (c == quote).then_some(1),
            OpenLiteral::Raw(hashes) => {
                let hash =
                    rest.strip_prefix('"').map(|r| r.len() - r.trim_start_matches('#').len());
                hash.is_some_and(|found| found >= hashes).then_some(1 + hashes)
            }
            OpenLiteral::Triple(quote) => {
                (rest.chars().take(3).filter(|found| *found == quote).count() == 3).then_some(3)
            }
        };

        if closes.is_some() {
            self.inside = None;
        }

        closes.unwrap_or(c.len_utf8())
    }

    /// Scans a line of Python. Updates the number of open brackets and the open string.
    fn python(&mut self, line: &str) {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let step = match self.inside {
                Some(inside) => self.step_inside(inside, rest, c),
                None if c == '#' => rest.len(),
                None if rest.starts_with(r#"""""#) || rest.starts_with("'''") => {
                    self.inside = Some(OpenLiteral::Triple(c));
                    3
                }
                None => {
                    match c {
                        '"' | '\'' => self.inside = Some(OpenLiteral::Text(c)),
                        '{' | '(' | '[' => self.depth += 1,
                        '}' | ')' | ']' => self.depth -= 1,
                        _ => {}
                    }
                    c.len_utf8()
                }
            };
            rest = rest.get(step..).unwrap_or_default();
        }

        if matches!(self.inside, Some(OpenLiteral::Text(_))) {
            self.inside = None;
        }
    }
}

/// Returns the length of a character literal such as `'{'` or `'\''`. Returns 1 for a single quote
/// that begins a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), Some(escaped)) => {
            let after = 2 + escaped.len_utf8();
            let close = rest.get(after..).and_then(|tail| tail.find('\''));
            close.map_or(1, |close| after + close + 1)
        }
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_markdown_ends_with_its_own_fence_alone() {
        let fenced = |lines: &[&str]| {
            let mut fences = FenceScanner::default();
            lines.iter().map(|line| if fences.line(line) { 'f' } else { 't' }).collect::<String>()
        };
        let cases: [(&[&str], &str); 5] = [
            (&["```sh", "# a", "```", "# b"], "ffft"),
            (&["~~~sh", "# a", "```", "~~~", "# b"], "fffft"),
            (&["````md", "```sh", "```", "````", "# b"], "fffft"),
            (&["```", "```sh", "`````", "# b"], "ffft"),
            (&["```cargo test``` passes.", "# b"], "tt"),
        ];
        for (lines, expected) in cases {
            assert_eq!(fenced(lines), expected, "{lines:?}");
        }

        let lines = ["# Install", "~~~sh", "# fetch it", "~~~", "More.", "# Use"];
        assert_eq!(headings_end(&lines, 0), 4);
        assert_eq!(
            code_lines(&lines, BlockShape::Headings),
            [true, false, false, false, true, true]
        );
    }
}
