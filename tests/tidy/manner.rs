//! Rules about doc comments and pages for users: they state in plain sentences what a thing is,
//! without riddle openings and verbs of telling.

use crate::nothing;
use crate::ratchet::{Offence, only_shrinks};
use crate::source::{line_of, product_strings};
use crate::tree::{File, files, product, rust};

/// Maximum length of a key in a list; the rest of the sentence is cut off.
const KEY_CHARS_MAX: usize = 100;

/// Words that must not open a doc comment. A doc comment opens with a noun or a verb.
const RIDDLE_OPENINGS: &[&str] = &["Of", "What", "Who", "Whom", "Whose"];

const BE: &[&str] = &["is", "are", "was", "were", "be", "been", "being"];

const VERBS_OF_TELLING: &[&str] = &["told", "said", "heard", "asked"];

const NOBODYS: &[&str] = &["nobody", "whoever", "whomever", "everybody", "somebody"];

const VERBS_OF_TELLING_ON_PAGES: &[&str] = &["told", "said", "heard"];

/// A run of lines with `///` or `//!`, as one text.
struct DocComment {
    line: usize,
    text: String,
}

fn doc_comments(text: &str) -> Vec<DocComment> {
    let mut found: Vec<DocComment> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("//!").or(line.strip_prefix("///"));
        let Some(doc) = doc.filter(|doc| !doc.starts_with('/')) else {
            is_open = false;
            continue;
        };
        match found.last_mut() {
            Some(comment) if is_open => {
                comment.text.push(' ');
                comment.text.push_str(doc.trim());
            }
            _ => found.push(DocComment { line: index + 1, text: doc.trim().to_owned() }),
        }
        is_open = true;
    }
    found
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(". ").map(str::trim).filter(|sentence| !sentence.is_empty())
}

fn is_inverted(words: &[String]) -> bool {
    let is_participle = |word: &String| {
        let opens = word.starts_with(char::is_uppercase);
        opens && (word.ends_with("ed") || word.ends_with("en") || word == "Told" || word == "Said")
    };
    let is_verb = |word: &String| matches!(word.as_str(), "is" | "are" | "was" | "were");
    words.first().is_some_and(is_participle) && words.get(1).is_some_and(is_verb)
}

/// The names of the rules that a sentence breaks.
fn broken_rules(sentence: &str, is_first: bool) -> Vec<&'static str> {
    let words: Vec<String> = sentence
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`').to_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let lower: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let is_in = |list: &[&str], word: &String| list.contains(&word.as_str());

    let mut broken = Vec::new();
    if is_first && words.first().is_some_and(|word| is_in(RIDDLE_OPENINGS, word)) {
        broken.push("opening");
    }
    if is_inverted(&words) {
        broken.push("inverted");
    }
    if lower.windows(2).any(|pair| is_in(BE, &pair[0]) && is_in(VERBS_OF_TELLING, &pair[1])) {
        broken.push("telling");
    }
    if lower.iter().any(|word| is_in(NOBODYS, word)) {
        broken.push("nobody");
    }
    if lower.iter().any(|word| word == "manieth") {
        broken.push("manieth");
    }
    broken
}

fn offences<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in files {
        for comment in doc_comments(&file.text) {
            for (index, sentence) in sentences(&comment.text).enumerate() {
                for rule in broken_rules(sentence, index == 0) {
                    let start: String = sentence.chars().take(KEY_CHARS_MAX).collect();
                    let place = format!("{}:{}", file.path, comment.line);
                    found.push(Offence { key: format!("{rule}: {}", start.trim_end()), place });
                }
            }
        }
    }
    found
}

/// Whether users read the file: pages, configs that come with organism, and help texts. The texts
/// of models in recordings, the changelog and the decisions are not held to the rule.
fn is_for_users(path: &str) -> bool {
    let is_exempt = path.starts_with("docs/decisions/")
        || path == "docs/CHANGELOG.md"
        || path.ends_with("recording.toml");
    let folders = ["docs/", "config/", "src/shipped/init/", "src/cli/"];
    let ends = [".md", ".toml", ".rs", ".yaml", ".service"];
    let is_in_folder = folders.iter().any(|folder| path.starts_with(folder));
    let is_page = is_in_folder && ends.iter().any(|end| path.ends_with(end));
    let is_readme = path.ends_with("README.md") && !path.starts_with("tests/");
    (is_page || is_readme) && !is_exempt
}

/// The words of telling in a text for users, each with its line.
fn words_of_telling(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        let forbidden = words.filter(|word| {
            let word = word.as_str();
            VERBS_OF_TELLING_ON_PAGES.contains(&word) || NOBODYS.contains(&word)
        });
        found.extend(forbidden.map(|word| (index + 1, word)));
    }
    found
}

/// Files whose texts go on record or into prompts, or are names for tests. New words for them need
/// a new version of the core or of the renderer.
const RECORDED_TEXTS: &[&str] = &[
    "src/agent/protocol/xml_final/mod.rs",
    "src/agent/system_prompt/native_prompt_sections.rs",
    "src/agent/system_prompt/prompt_sections.rs",
    "src/model/router/mod.rs",
    "src/mutant.rs",
];

/// The words of telling in the texts that the code of a Rust file writes, each with its line. A
/// literal without a space is a name, such as the name of a mutant or of a key on the wire.
fn words_of_telling_in_strings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (start, literal) in product_strings(text) {
        if literal.contains(' ') {
            let line = line_of(text, start) - 1;
            let words = words_of_telling(literal).into_iter();
            found.extend(words.map(|(within, word)| (line + within, word)));
        }
    }
    found
}

#[test]
fn pages_for_users_contain_no_words_of_telling() {
    let pages: Vec<_> = files().iter().filter(|file| is_for_users(&file.path)).collect();
    assert!(pages.len() > 100, "the pages were found");
    let mut wrong = Vec::new();
    for page in pages {
        let words = words_of_telling(&page.text).into_iter();
        wrong.extend(words.map(|(line, word)| format!("{}:{line}: {word}", page.path)));
    }
    for file in product().filter(|file| !RECORDED_TEXTS.contains(&file.path.as_str())) {
        let words = words_of_telling_in_strings(&file.text).into_iter();
        wrong.extend(words.map(|(line, word)| format!("{}:{line}: {word}", file.path)));
    }
    nothing(wrong, "words of telling on pages for users: name the thing, use an active verb");
}

#[test]
fn words_of_telling_are_found_on_a_page() {
    let text = "A client gets it.\nNobody's caller is told, `said`.\nThe word somebodyness.\n";
    let found = words_of_telling(text);
    let expected = [(2, "nobody"), (2, "told"), (2, "said")];
    assert_eq!(found, expected.map(|(line, word)| (line, word.to_owned())));
    let code = "// nobody\nf(\"a b\",\n    \"it \\\n     said no\"); m(\"heard\");\n\
                #[cfg(test)]\nmod tests { f(\"nobody knows\"); }\n";
    assert_eq!(words_of_telling_in_strings(code), [(4, "said".to_owned())]);
    assert!(is_for_users("docs/errors/busy.md"));
    assert!(!is_for_users("docs/CHANGELOG.md"));
    assert!(!is_for_users("src/pump/core/holds.rs"));
}

#[test]
fn doc_comments_are_plain_sentences() {
    only_shrinks(
        "doc-comments",
        offences(rust()),
        "doc comments in the old manner (`opening`: begins with Of, What or Who; `inverted`: a participle \
         before its verb; `telling`: is told, said, heard, asked; `nobody`: nobody, whoever, everybody, \
         somebody; `manieth`): name the thing, use an active verb",
    );
}

#[test]
fn each_old_manner_is_found_and_a_plain_sentence_is_not() {
    let broken = |sentence: &str| broken_rules(sentence, true).join(" ");
    assert_eq!(broken("Of model calls."), "opening");
    assert_eq!(broken("What came of its answer."), "opening");
    assert_eq!(broken("Whose it is."), "opening");
    assert_eq!(broken("Balanced is what nobody wants."), "inverted nobody");
    assert_eq!(broken("Its caller is told."), "telling");
    assert_eq!(broken("The how manieth connection it was published on."), "manieth");
    assert_eq!(broken("Maximum model calls per call."), "");
    assert_eq!(broken("Offset of what the caller sent."), "");
    assert_eq!(broken("Whether this is a rate-limit error."), "");
}

#[test]
fn a_doc_comment_of_several_lines_is_one_text() {
    let text = "/// Returns the\n/// reply. Who waits\n/// is told.\nfn f() {}\n// Of this\n//// Of that\n/// Of those.\n";
    let file = File { path: "a.rs".to_owned(), text: text.to_owned(), code: String::new() };
    let found: Vec<_> =
        offences(std::iter::once(&file)).into_iter().map(|o| (o.key, o.place)).collect();
    let expected = [("telling: Who waits is told.", "a.rs:1"), ("opening: Of those.", "a.rs:7")];
    assert_eq!(found, expected.map(|(key, place)| (key.to_owned(), place.to_owned())));
}
