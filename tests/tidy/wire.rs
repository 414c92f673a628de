//! A serialised type states its wire form: each field and variant has a `rename`, so that a rename
//! in Rust changes no format.
//!
//! `today/wire-names.txt` lists members without a `rename` by their names in Rust. If such a member
//! is renamed in Rust, the new name is an offence until an attribute states the name on the wire.

use crate::items::{DeclaredItem, ItemKind, Member, declared_items, members};
use crate::ratchet::{Offence, only_shrinks};
use crate::source::{line_of, words};
use crate::tree::{File, product};

/// Attributes of a type whose members have no names on the wire.
const NAMELESS_TYPES: &[&str] = &["transparent", "from", "try_from"];

/// Attributes that make the wire form of a member explicit: they state its name on the wire, or
/// leave the member without one.
const EXPLICIT_MEMBERS: &[&str] = &["rename", "skip", "flatten", "other"];

fn has_word(text: &str, word: &str) -> bool {
    words(text, word).next().is_some()
}

/// The attributes directly before a type.
fn attributes_of<'a>(code: &'a str, item: &DeclaredItem) -> &'a str {
    let start = code[..item.at].rfind([';', '{', '}']).map_or(0, |end| end + 1);
    &code[start..item.at]
}

fn is_implicit(member: &Member) -> bool {
    EXPLICIT_MEMBERS.iter().all(|word| !has_word(&member.attributes, word))
}

/// Members whose name on the wire is their name in Rust, as `Type.member`.
fn implicit_names(code: &str, item: &DeclaredItem) -> Vec<(String, usize)> {
    let attributes = attributes_of(code, item);
    let is_serialised = has_word(attributes, "Serialize") || has_word(attributes, "Deserialize");
    if !is_serialised || NAMELESS_TYPES.iter().any(|word| has_word(attributes, word)) {
        return Vec::new();
    }

    let is_untagged = has_word(attributes, "untagged");
    let mut found = Vec::new();
    for member in members(code, item) {
        let path = format!("{}.{}", item.name, member.item.name);
        let is_named = member.item.kind == ItemKind::Field || !is_untagged;
        for field in member.fields.iter().filter(|field| is_implicit(field)) {
            found.push((format!("{path}.{}", field.item.name), field.item.at));
        }
        if is_named && is_implicit(&member) {
            found.push((path, member.item.at));
        }
    }
    found
}

fn offences<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in files {
        for item in declared_items(&file.code).iter().filter(|item| item.kind.is_type()) {
            for (key, at) in implicit_names(&file.code, item) {
                let place = format!("{}:{}", file.path, line_of(&file.code, at));
                found.push(Offence { key, place });
            }
        }
    }
    found
}

#[test]
fn every_serialised_member_names_its_wire_form() {
    only_shrinks(
        "wire-names",
        offences(product()),
        "fields and variants of serialised types without `#[serde(rename = \"…\")]`: say what each is \
         called on the wire",
    );
}

#[test]
fn a_member_without_a_wire_name_is_found() {
    let text = "
        #[derive(Clone, Serialize)]
        #[serde(rename_all = \"kebab-case\")]
        pub struct Lease { #[serde(rename = \"e\")] pub epoch: u64, #[serde(default)] pub owner: Map<u8, u8> }
        #[derive(Deserialize)]
        enum Line { #[serde(rename = \"head\")] Head { at: u8, #[serde(skip)] kept: u8 }, Tail(u8) }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Either { Left { a: u8 }, Right(u8) }
        #[derive(Serialize)]
        #[serde(transparent)]
        struct Id { text: String }
        #[derive(Clone)]
        struct Plain { a: u8 }
        #[derive(Serialize)]
        struct Whole { #[serde(flatten)] lease: Lease }
    ";
    let file = File {
        path: "src/a.rs".to_owned(),
        text: text.to_owned(),
        code: crate::source::code(text),
    };
    let keys: Vec<_> = offences(std::iter::once(&file)).into_iter().map(|o| o.key).collect();
    assert_eq!(keys, ["Lease.owner", "Line.Head.at", "Line.Tail", "Either.Left.a"]);
}
