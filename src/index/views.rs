//! The SQL views of an index. The views are the public schema of the index.

/// Version of the views. It increases with each new view, and when a name, a column or a unit
/// changes.
pub const SCHEMA_VERSION: u32 = 2;

const VIEWS: &str = include_str!("views.sql");

/// Abbreviations such as `@time(column)` that the SQL of the views uses. Each entry contains the
/// beginning of an abbreviation, and the SQL that replaces the abbreviation. In the replacement,
/// `?` stands for the column.
const ABBREVIATIONS: [(&str, &str); 5] = [
    (
        "@uuid(",
        "lower(substr(hex(?), 1, 8) || '-' || substr(hex(?), 9, 4) || '-' || \
         substr(hex(?), 13, 4) || '-' || substr(hex(?), 17, 4) || '-' || substr(hex(?), 21))",
    ),
    // Milliseconds are cut as in all outputs, because SQLite would round microseconds.
    ("@time(", "strftime('%Y-%m-%dT%H:%M:%fZ', ? / 1000 / 1e3, 'unixepoch')"),
    ("@name(", "(SELECT text FROM name WHERE n = ?)"),
    ("@local(", "(SELECT local FROM name WHERE n = ?)"),
    ("@hex(", "lower(hex(?))"),
];

/// Returns the statements that create the views.
pub fn definitions() -> String {
    ABBREVIATIONS.iter().fold(VIEWS.to_owned(), |text, (short, long)| expand(&text, short, long))
}

fn expand(text: &str, short: &str, long: &str) -> String {
    let mut parts = text.split(short);
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (column, rest) = column_and_rest(part);
        // `hex` of NULL is an empty text, but a missing id is NULL.
        let is_blob = long.contains("hex(");
        let whole = if is_blob {
            format!("CASE WHEN {column} IS NOT NULL THEN {} END", long.replace('?', column))
        } else {
            long.replace('?', column)
        };
        expanded.push_str(&whole);
        expanded.push_str(rest);
    }
    expanded
}

/// Splits `part`, the text after the opening of an abbreviation such as `@time(`. Returns the
/// database column before the closing parenthesis, and the text after the parenthesis.
fn column_and_rest(part: &str) -> (&str, &str) {
    let mut depth = 1_u32;
    for (at, char) in part.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (part.get(..at).unwrap_or(part), part.get(at + 1..).unwrap_or_default());
        }
    }
    (part, "")
}
