//! Finds the first unclosed part of a TOML text: a list or inline table without its closing
//! bracket, or a string inside a list or table without its closing quote. The parser reads the
//! lines after the beginning of an unclosed part as content of this part. Its errors in these lines
//! are only consequences of the missing end.

/// Quotes that delimit multi-line strings.
const MULTI_LINE: [&str; 2] = ["\"\"\"", "'''"];

/// A part of a TOML text that has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnclosedPart {
    /// A list that begins at this position.
    List(usize),
    /// An inline table that begins at this position.
    Table(usize),
    /// An unclosed single-line string within a list or an inline table. The position is the end of
    /// the line with the string.
    Text(usize),
    /// An unclosed multi-line string within a list or an inline table. The position is the
    /// beginning of the string.
    LongText(usize),
}

/// Finds the first part of `text` that has no end. Returns `None` if there is no such part.
pub(super) fn unclosed_part(text: &str) -> Option<UnclosedPart> {
    let mut scanner = BracketScanner::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let rest = text.get(start..).unwrap_or_default();
        if let Some(part) = scanner.scan_line(line, start, rest) {
            return Some(part);
        }
        start += line.len();
    }

    let string = scanner.quote.map(|(_, at)| UnclosedPart::LongText(at));
    scanner.innermost().map(|part| string.unwrap_or(part))
}

/// Returns for each line of `text` whether the line begins within a value of an earlier line: a
/// list, an inline table or a multi-line string. A part without an end goes on until a line shows
/// that its closing bracket is missing.
pub(super) fn continuation_lines(text: &str) -> impl Iterator<Item = bool> + '_ {
    let mut scanner = BracketScanner::default();
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let rest = text.get(start..).unwrap_or_default();
        let is_in_string = scanner.quote.is_some();
        let is_in_brackets =
            scanner.innermost().is_some() && !scanner.is_interrupted_by(line, rest);
        let is_continuation = is_in_string || is_in_brackets;
        if !is_continuation {
            scanner = BracketScanner::default();
        }

        // After a line with a mistake, what is open stays open.
        let _ = scanner.scan_line(line, start, rest);
        start += line.len();
        is_continuation
    })
}

/// Scans a TOML text line by line, and keeps track of the brackets and quotes that are open.
#[derive(Default)]
struct BracketScanner {
    /// Lists and inline tables that are open, outermost first.
    open: Vec<UnclosedPart>,
    /// Opening quote of the multi-line string that is open, and the position of this string; `None`
    /// outside of such a string.
    quote: Option<(&'static str, usize)>,
}

impl BracketScanner {
    fn innermost(&self) -> Option<UnclosedPart> {
        self.open.last().copied()
    }

    /// Scans the line that begins at the position `start`. `text` is the rest of the source from
    /// this line on. If the line shows that an open part is never closed, returns this part.
    fn scan_line(&mut self, line: &str, start: usize, text: &str) -> Option<UnclosedPart> {
        if self.quote.is_none() {
            if self.open.is_empty() && is_begun_by_bracket(line) {
                return None;
            }
            if self.is_interrupted_by(line, text) {
                return self.innermost();
            }
        }

        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let at = start + line.len() - rest.len();
            if let Some((quote, _)) = self.quote {
                // The last characters of such a string may be quotes, too.
                rest = after_string(rest, quote)?.trim_start_matches(['"', '\'']);
                self.quote = None;
                continue;
            }
            if let Some(quote) = MULTI_LINE.into_iter().find(|quote| rest.starts_with(*quote)) {
                self.quote = Some((quote, at));
                rest = rest.get(quote.len()..).unwrap_or_default();
                continue;
            }

            let behind = rest.get(first.len_utf8()..).unwrap_or_default();
            rest = match first {
                '#' => return None,
                '"' | '\'' => {
                    let quote = if first == '"' { "\"" } else { "'" };
                    let Some(after) = after_string(behind, quote) else {
                        let end = start + line.trim_end_matches('\n').len();
                        return self.innermost().map(|_| UnclosedPart::Text(end));
                    };
                    after
                }
                _ => {
                    if let Some(part) = self.scan_bracket(first, at) {
                        return Some(part);
                    }
                    behind
                }
            };
        }
        None
    }

    /// Processes the character `bracket`, which is outside of strings. If `bracket` is a closing
    /// bracket of the wrong kind for the innermost open part, such as `}` for a list, returns this
    /// open part. Otherwise, returns `None`.
    fn scan_bracket(&mut self, bracket: char, at: usize) -> Option<UnclosedPart> {
        match (bracket, self.innermost()) {
            ('[', _) => self.open.push(UnclosedPart::List(at)),
            ('{', _) => self.open.push(UnclosedPart::Table(at)),
            (']', Some(UnclosedPart::List(_))) | ('}', Some(UnclosedPart::Table(_))) => {
                self.open.pop();
            }
            (']' | '}', Some(part)) => return Some(part),
            _ => {}
        }
        None
    }

    /// Whether the line shows that the innermost open list or table lacks its closing bracket.
    /// `text` is the rest of the source from this line on.
    /// - For a list, returns true if the line is the header of a section. Also returns true if the
    ///   line is a setting (`key = value`) and no later line closes the list. If a later line
    ///   closes the list, the setting is an inline table that lacks its braces.
    /// - For a table, returns true only if the line is the header of a section.
    fn is_interrupted_by(&self, line: &str, text: &str) -> bool {
        match self.innermost() {
            Some(UnclosedPart::List(_)) => {
                is_header(line) || is_setting(line) && !closes_list(text)
            }
            Some(UnclosedPart::Table(_)) => is_header(line),
            Some(UnclosedPart::Text(_) | UnclosedPart::LongText(_)) | None => false,
        }
    }
}

/// Whether the first character of the line is a bracket, as in the header of a section.
fn is_begun_by_bracket(line: &str) -> bool {
    line.trim_start_matches(['\u{feff}', ' ', '\t']).starts_with('[')
}

/// Returns the text after the end of a string; `None` if `text` does not contain the end.
fn after_string<'t>(text: &'t str, quote: &str) -> Option<&'t str> {
    let has_escapes = quote.starts_with('"');
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix(quote) {
            return Some(after);
        }
        let mut chars = rest.chars();
        if chars.next()? == '\\' && has_escapes {
            chars.next();
        }
        rest = chars.as_str();
    }
}

/// Whether the line is the header of a section, such as `[listeners.search]`. Returns false for a
/// line that may be a list within a list, such as `[true]`.
fn is_header(line: &str) -> bool {
    let line = line.trim();
    let header = line.strip_prefix("[[").or_else(|| line.strip_prefix('['));
    let Some((name, rest)) = header.and_then(|header| header.split_once(']')) else {
        return false;
    };

    let name = name.trim();
    let rest = rest.trim_start_matches(']').trim_start();
    let is_value = ["true", "false", "inf", "nan"].contains(&name);
    let is_begun_as_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_line_end = rest.is_empty() || rest.starts_with('#');
    is_begun_as_name && !is_value && is_line_end && name.chars().all(is_of_key)
}

/// Whether a line of `text` closes a list that began before `text`. Such a line contains only the
/// bracket and perhaps a comma. The search ends at the next section header.
fn closes_list(text: &str) -> bool {
    let mut begun = 0;
    for line in text.lines().take_while(|line| !is_header(line)) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.ends_with('[') {
            begun += 1;
        } else if line == "]" || line == "]," {
            if begun == 0 {
                return true;
            }
            begun -= 1;
        }
    }
    false
}

/// Whether the line begins with a key and `=`.
fn is_setting(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim();
    let is_balanced = |quote: char| key.matches(quote).count().is_multiple_of(2);
    !key.is_empty() && key.chars().all(is_of_key) && is_balanced('"') && is_balanced('\'')
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.\"' ".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_without_an_end_is_found() {
        for (text, expected) in [
            ("a = [\"x\"\nb = 1\n", Some(UnclosedPart::List(4))),
            ("a = [\n  \"x\",\n\n[clients.user]\n", Some(UnclosedPart::List(4))),
            ("a = [\"x\"\n[[schedules]] # daily\n", Some(UnclosedPart::List(4))),
            ("a = [\"x\"", Some(UnclosedPart::List(4))),
            ("a = { b = [\"x\" }\n", Some(UnclosedPart::List(10))),
            ("a = { b = 1\nc = 2\n[clients.user]\n", Some(UnclosedPart::Table(4))),
            ("a = [{ b = 1 ]\n", Some(UnclosedPart::Table(5))),
            ("a = [\"x]\nb = 1\n", Some(UnclosedPart::Text(8))),
            ("a = [\n  \"x=y\", # [\n  'c = [',\n]\nb = 1\n", None),
            ("a = [[1], [true]]\nb = \"\"\"\n[ \\\"[ \"\"\"\n[c]\n", None),
            ("a = [\n  b = \"x\"\n  c = \"y\"\n]\n", None),
            ("a = [\nb = 1\n], # end\n\n[c]\n", None),
            ("a = [\nb = 1\n\n[c]\nd = [\n1\n]\n", Some(UnclosedPart::List(4))),
            ("a = [\nb = [\n1,\n]\n", Some(UnclosedPart::List(4))),
            ("a = [\"\"\"b\nc = 1\n", Some(UnclosedPart::LongText(5))),
            ("a = \"\"\"b\nc = 1\n", None),
            ("a = { b = 1,\n  c = 2 }\n", None),
            ("a = '''\n[ { '''\n\n[listeners.search\nb = \"x\n", None),
        ] {
            assert_eq!(unclosed_part(text), expected, "{text}");
        }
    }

    #[test]
    fn a_line_within_a_value_continues_it_until_the_value_ends_or_is_interrupted() {
        for (text, expected) in [
            ("a = 1\nb = 2\n", ".."),
            ("a = '''\n[x]\nb = 1''' c\nd = 1\n", ".++."),
            ("a = { b = \"\"\"\n\"\"\", c = '''\n''' d }\ne = 1\n", ".++."),
            ("a = { b = 1 c,\n  d = \"e\n  f = 1 }\ng = 1\n", ".++."),
            ("a = { b = 1,\n  c = 2\n[d]\ne = 1\n", ".+.."),
            ("a = [\n  \"x\"\nb = 1\n", ".+."),
            ("a = '''\n[x]\n", ".+"),
        ] {
            let shown = continuation_lines(text).map(|is_within| if is_within { '+' } else { '.' });
            assert_eq!(shown.collect::<String>(), expected, "{text}");
        }
    }
}
