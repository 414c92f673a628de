//! Names: each type has a unique name, no name has a forbidden word, and important nouns are in the
//! glossary.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{DeclaredItem, ItemKind, declared_items, words_of};
use crate::ratchet::{Offence, only_shrinks};
use crate::source::{line_of, without_text};
use crate::tree::{File, product, read, rust};

/// Names that several types may share, because the modules tell these types apart.
const SHARED_NAMES: &[&str] = &["Error", "Options", "Args", "Config", "Handle", "Service"];

/// Words that no code name may contain, because software engineers have another noun for the same
/// thing. Payload names and wire names are exempt.
const FORBIDDEN: &[&str] = &[
    "desk", "desks", "clerk", "clerks", "agency", "agencies", "outpost", "outposts", "guest",
    "guests", "works", "station", "stations", "door", "doors", "parcel", "parcels", "letter",
    "letters", "kin", "matter", "roll", "said", "told", "heard", "asked", "spoken",
];

fn offence(kind: &str, item: &DeclaredItem, file: &File) -> Offence {
    let place = format!("{}:{}", file.path, line_of(&file.text, item.at));
    Offence { key: format!("{kind} {}", item.name), place }
}

fn duplicates<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Offence> {
    let mut types: BTreeMap<String, Vec<Offence>> = BTreeMap::new();
    for file in files {
        let items = declared_items(&file.code).into_iter().filter(|item| item.kind.is_type());
        for item in items.filter(|item| !SHARED_NAMES.contains(&item.name.as_str())) {
            types.entry(item.name.clone()).or_default().push(offence("type", &item, file));
        }
    }
    types.into_values().filter(|places| places.len() > 1).flatten().collect()
}

fn has_forbidden_word(name: &str) -> bool {
    words_of(name).iter().any(|word| FORBIDDEN.contains(&word.as_str()))
}

fn forbidden<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in files {
        if file.path.split(['/', '.']).any(has_forbidden_word) {
            found.push(Offence { key: format!("file {}", file.path), place: file.path.clone() });
        }
        for item in declared_items(&without_text(&file.text)) {
            if has_forbidden_word(&item.name) {
                found.push(offence(item.kind.noun(), &item, file));
            }
        }
    }
    found
}

/// Words that the glossary explains: the first cell of each row of its table.
fn glossary(text: &str) -> BTreeSet<String> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| **"));
    cells.filter_map(|cell| cell.split("**").next()).map(str::to_owned).collect()
}

/// Nouns that readers know without the glossary, with their meaning.
const NOUNS: &[(&str, &str)] = &[
    ("acceptance", "damage that an operator accepts on record"),
    ("activity", "what a call does now, for people who watch"),
    ("admission", "whether something may begin, and the wait for it"),
    ("amount", "a number with its unit, as people read it"),
    ("archive", "a reader of what has ended"),
    ("block", "a part of a chat message, as the APIs of providers have it"),
    ("branch", "one of the ways of a choice"),
    ("break", "where a chain of hashes does not hold"),
    ("builder", "a function that makes something later"),
    ("bus", "carries messages between programs; the engine's first noun in README.md"),
    ("byte", "eight bits"),
    ("cache", "values that are kept because they would cost time to make again"),
    ("change", "a difference between two versions"),
    ("character", "a character of Unicode"),
    ("child", "a child process, as POSIX has it"),
    ("class", "one of the kinds into which things are sorted"),
    ("cli", "the command line"),
    ("clock", "where the time comes from"),
    ("code", "the stable word for a kind of error"),
    ("column", "a header of a table, with what it shows of each row"),
    ("comparison", "the result of comparing two things of one kind"),
    ("compiler", "makes a schema ready to validate with"),
    ("condition", "what decides a branch or the end of a loop"),
    ("config", "docs/CONFIG.md describes it"),
    ("content", "what stands inside an element"),
    ("context", "what surrounds a thing that is judged"),
    ("count", "how many"),
    ("counter", "a metric that only rises, as Prometheus has it"),
    ("coverage", "how far a check goes"),
    ("credential", "what proves who connects"),
    ("cursor", "where the next page of a list begins"),
    ("definition", "a workflow as its author wrote it"),
    ("description", "a text about a thing, for people and models"),
    ("difference", "where two things that are compared are not equal"),
    ("digest", "the output of a hash function"),
    ("document", "the text of a goal, or an XML document"),
    ("drop", "the end of a value, which ends something else"),
    ("element", "an XML element"),
    ("end", "how a stream or a call ended"),
    ("endpoint", "where a service is reached"),
    ("entry", "one row of a list"),
    ("environment", "the variables and the platform around a program"),
    ("error", "what the standard library calls it"),
    ("escape", "references in place of characters that XML would take for markup"),
    ("exit", "the status with which a process ends"),
    ("exporter", "what sends spans to a collector"),
    ("failpoint", "a place where a test makes the program fail"),
    ("failure", "why something did not succeed"),
    ("family", "the samples of one metric, as Prometheus has it"),
    ("field", "a child element, in the short form of a schema"),
    ("file", "a file of the file system"),
    ("filter", "the properties that everything in a list has"),
    ("folder", "a directory of the file system"),
    ("form", "how a goal is carried out, or a question's answer"),
    ("format", "how something is written"),
    ("future", "a value that is not there yet, as Rust has it"),
    ("gauge", "a metric that rises and falls, as Prometheus has it"),
    ("grant", "what an entry point allows a reader"),
    ("graph", "what depends on what"),
    ("guard", "does something when it is dropped"),
    ("handler", "what a listener does with a delivery"),
    ("header", "what stands before a body"),
    ("histogram", "a metric with buckets, as Prometheus has it"),
    ("history", "the earlier messages of a thread"),
    ("hit", "one result of a search"),
    ("http", "the protocol"),
    ("id", "an identifier"),
    ("input", "what something is made from"),
    ("item", "one element of a list"),
    ("jetstream", "the storage of NATS"),
    ("key", "a cryptographic key, or the client's key of a submission"),
    ("kind", "the variants of something, as in std::io::ErrorKind"),
    ("ledger", "what was accepted, settled and refused, counted"),
    ("limit", "an upper bound"),
    ("list", "values in an order"),
    ("load", "how busy a listener is"),
    ("map", "values by key, as Rust has it"),
    ("line", "a line of text"),
    ("live", "the module of the live channel, which docs/GLOSSARY.md has"),
    ("maker", "something that makes another thing"),
    ("mapping", "how a payload is made from values"),
    ("metric", "a counter, a gauge or a histogram"),
    ("model", "a language model"),
    ("moment", "a position or a time in the past"),
    ("monitor", "what watches the state of a pump"),
    ("mutant", "a deliberate break that a test must catch"),
    ("name", "what something is called"),
    ("nats", "the message server"),
    ("node", "a node of an XML document"),
    ("option", "what a caller may choose"),
    ("order", "what comes before what"),
    ("origin", "where something comes from"),
    ("output", "what a goal or a run results in"),
    ("page", "the text of all metrics, as Prometheus reads it"),
    ("pair", "two things at the same place"),
    ("parameter", "what a caller passes"),
    ("part", "a piece of a whole"),
    ("password", "a secret that a person or a file holds"),
    ("path", "where a file is"),
    ("phase", "a section of a process in time"),
    ("pool", "open connections that are used again"),
    ("search", "an attempt to find something, with its result"),
    ("sender", "the end of a channel that puts values in"),
    ("side", "one of two things that are compared"),
    ("verb", "the word for an action of an operator"),
    ("total", "a sum over many things"),
    ("word", "a payload of the core by its name, or a part of a text"),
    ("person", "a human, with or without a name in the config"),
    ("placed", "a value with its place in the config"),
    ("policy", "what follows from a failure"),
    ("price", "what a provider charges"),
    ("problem", "what is wrong with a config"),
    ("process", "a process of the operating system"),
    ("progress", "how far some work is"),
    ("protocol", "docs/PROTOCOL.md describes it"),
    ("provider", "a service that runs models"),
    ("range", "from one offset to another"),
    ("receiver", "the end of a channel that takes values out"),
    ("recovery", "making a state anew from a record of it"),
    ("report", "the answer of an agent in the form of a schema"),
    ("request", "what asks for a response"),
    ("reservation", "an amount set aside before it is used"),
    ("rest", "what a page leaves for the next one"),
    ("retry", "another attempt at something that failed"),
    ("route", "a provider and one of its models"),
    ("router", "chooses one of several providers"),
    ("row", "one line of a table or a view"),
    ("rule", "what a payload may break"),
    ("runtime", "what drives asynchronous tasks, as tokio has it"),
    ("schema", "an XSD"),
    ("scope", "how much something covers"),
    ("secret", "what proves a client"),
    ("selector", "which one of several is meant"),
    ("server", "what clients connect to"),
    ("set", "distinct values, as Rust has it"),
    ("setting", "what a config sets"),
    ("signature", "what a private key makes and a public key checks"),
    ("signer", "a key that signs checkpoints"),
    ("signing", "makes and checks signatures"),
    ("source", "a text with the name of its file or variable"),
    ("spec", "what a config declares about something"),
    ("sqlite", "the embedded database"),
    ("sse", "server-sent events, the format of a stream of HTTP"),
    ("state", "what something is now"),
    ("stats", "sums and percentiles of what is on record"),
    ("status", "what something is now, for people"),
    ("subscriber", "what receives the messages of a subject"),
    ("summary", "the main facts of something"),
    ("supervision", "who judges a goal's output"),
    ("target", "what carries a goal out"),
    ("telemetry", "spans on their way to a collector"),
    ("term", "what a provider grants and charges"),
    ("text", "characters, as their author wrote them"),
    ("time", "a point in time"),
    ("timeline", "what happened, in the order of time"),
    ("timer", "a reminder that is set and fires"),
    ("token", "a unit of a model's text"),
    ("tool", "a function that a model calls"),
    ("tracer", "makes spans"),
    ("type", "the form of a value"),
    ("unit", "what a number counts"),
    ("usage", "tokens used"),
    ("value", "a value of JSON"),
    ("version", "which form of something"),
    ("view", "a form of something for readers"),
    ("watch", "follows something for people"),
    ("web", "the HTTP server"),
    ("work", "what was done in a call, and when"),
    ("xml", "the language"),
];

fn is_known_noun(name: &str, glossary: &BTreeSet<String>) -> bool {
    let words = words_of(name);
    let Some(last) = words.last() else { return true };
    let singular = last.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let forms = [Some(last.clone()), last.strip_suffix('s').map(str::to_owned), singular];
    let is_known =
        |word: &str| glossary.contains(word) || NOUNS.iter().any(|(noun, _)| *noun == word);
    glossary.contains(&words.join(" ")) || forms.iter().flatten().any(|word| is_known(word))
}

/// Whether `path` is the root of a module of the library: `src/NAME.rs` or `src/NAME/mod.rs`.
fn is_module_root(path: &str) -> bool {
    let Some(inside) = path.strip_prefix("src/") else { return false };
    let inside = inside.strip_suffix("/mod.rs").or(inside.strip_suffix(".rs"));
    inside.is_some_and(|name| !name.contains('/') && name != "main")
}

/// Public modules, and main types: types that the root of a module declares `pub` or re-exports.
fn weighty<'a>(files: impl Iterator<Item = &'a File>) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for file in files.filter(|file| is_module_root(&file.path)) {
        let place = |at: usize| format!("{}:{}", file.path, line_of(&file.code, at));
        for item in declared_items(&file.code).into_iter().filter(|item| item.is_public) {
            if item.kind.is_type() || item.kind == ItemKind::Module {
                found.push((item.kind.noun().to_owned(), item.name.clone(), place(item.at)));
            }
        }
        for (at, _) in file.code.match_indices("pub use ") {
            let path = file.code[at + 8..].split(';').next().unwrap_or_default();
            let names = path.split(|c: char| !c.is_alphanumeric() && c != '_');
            let types = names.filter(|name| name.starts_with(char::is_uppercase));
            let types = types.filter(|name| name.contains(char::is_lowercase));
            found.extend(types.map(|name| ("type".to_owned(), name.to_owned(), place(at))));
        }
    }
    found
}

fn unexplained<'a>(
    files: impl Iterator<Item = &'a File>,
    glossary: &BTreeSet<String>,
) -> Vec<Offence> {
    let unknown = weighty(files).into_iter().filter(|(_, name, _)| !is_known_noun(name, glossary));
    unknown.map(|(kind, name, place)| Offence { key: format!("{kind} {name}"), place }).collect()
}

#[test]
fn no_two_types_share_a_name() {
    only_shrinks(
        "shared-names",
        duplicates(product()),
        "types of one name: say in two words what each is; only SHARED_NAMES may be shared",
    );
}

#[test]
fn no_name_contains_a_word_of_the_cast() {
    let rule = "names with a word of FORBIDDEN: use the field's noun";
    only_shrinks("forbidden-words", forbidden(rust()), rule);
}

#[test]
fn a_noun_that_carries_weight_is_explained() {
    let glossary = glossary(&read("docs/GLOSSARY.md"));
    assert!(glossary.len() > 50, "the glossary was found");
    only_shrinks(
        "nouns",
        unexplained(product(), &glossary),
        "public modules and main types whose noun stands neither in docs/GLOSSARY.md nor in NOUNS",
    );
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned(), code: crate::source::code(text) }
}

#[cfg(test)]
fn keys(offences: Vec<Offence>) -> Vec<String> {
    offences.into_iter().map(|offence| offence.key).collect()
}

#[test]
fn two_types_of_one_name_are_found_in_different_files() {
    let files = [
        file("src/a.rs", "struct Line; struct Error; struct Once;"),
        file("src/b.rs", "enum Line {} enum Error {} #[cfg(test)] mod t { struct Once; }"),
    ];
    assert_eq!(keys(duplicates(files.iter())), ["type Line", "type Line"]);
}

#[test]
fn a_forbidden_word_is_found_in_every_kind_of_name() {
    let text = "
        struct FrontDoor { said: u8 }
        enum Way { Told, Indoor }
        fn is_heard() {}
        const DESK: u8 = 1;
        #[cfg(test)] mod t { fn what_is_late_is_told() {} }
        // desk
        fn f() { let told = \"desk\"; }
    ";
    let files = [file("src/clerk/mod.rs", text)];
    let expected = [
        "file src/clerk/mod.rs",
        "type FrontDoor",
        "field said",
        "variant Told",
        "function is_heard",
        "constant DESK",
        "function what_is_late_is_told",
    ];
    assert_eq!(keys(forbidden(files.iter())), expected);
}

#[test]
fn an_unexplained_noun_is_found_at_a_modules_root_alone() {
    let glossary = glossary("| **journal** | x |\n| **payload name** | x |\n| **reply** | x |\n");
    let text = "pub struct OpenJournals; pub struct PayloadName; pub struct Replies; pub struct Blob; struct Own;
        pub mod sieve; mod own; pub use a::{b::Widget, LIMIT};";
    let files = [
        file("src/a.rs", text),
        file("src/a/mod.rs", "pub struct Gadget;"),
        file("src/a/b.rs", text),
    ];
    let expected = ["type Blob", "module sieve", "type Widget", "type Gadget"];
    assert_eq!(keys(unexplained(files.iter(), &glossary)), expected);
}

#[test]
fn every_reason_for_a_noun_is_still_needed() {
    let glossary = glossary(&read("docs/GLOSSARY.md"));
    let names: Vec<_> = weighty(product()).into_iter().map(|(_, name, _)| name).collect();
    let is_used = |noun: &str| {
        names.iter().any(|name| {
            let words = words_of(name);
            words.last().is_some_and(|last| last == noun || last.strip_suffix('s') == Some(noun))
        })
    };
    let idle = NOUNS.iter().filter(|(noun, _)| glossary.contains(*noun) || !is_used(noun));
    let idle = idle.map(|(noun, _)| (*noun).to_owned());
    crate::nothing(idle.collect(), "NOUNS that explain nothing, or stand in the glossary too");
}
