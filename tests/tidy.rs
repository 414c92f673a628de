//! Checks of the repository's own rules: floors, sizes, names, docs, codes, links and the table of
//! requirements. Each justified exception is listed with its reason.
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that panics has failed, which is what is wanted"
)]

#[path = "tidy/conformance.rs"]
mod conformance;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/index.rs"]
mod index;
#[path = "tidy/items.rs"]
mod items;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/manner.rs"]
mod manner;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/pins.rs"]
mod pins;
#[path = "tidy/plain.rs"]
mod plain;
#[path = "tidy/portable.rs"]
mod portable;
#[path = "tidy/ratchet.rs"]
mod ratchet;
#[path = "tidy/requirements.rs"]
mod requirements;
#[path = "tidy/scripts.rs"]
mod scripts;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/wire.rs"]
mod wire;

/// Fails if `wrong` contains violations of `rule`. The message lists all of them, one per line.
#[track_caller]
fn nothing(wrong: Vec<String>, rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n  {}\n", wrong.join("\n  "));
}
