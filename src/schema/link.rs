//! Links between the documents of a schema, and the documents in the form that libxml2 gets.
//!
//! libxml2 uses only one location for each imported namespace. It ignores further locations with a
//! warning. So if a schema imports several documents of one namespace, this module generates a
//! document that includes all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::libxml2::SCHEME;
use super::source::SchemaDocument;
use super::xsd::{XSD, is_xsd};
use crate::xml::element::Element;
use crate::xml::escape::escape_attribute;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    Include,
    Redefine,
    Import,
}

impl LinkKind {
    pub fn of(element: &Element) -> Option<Self> {
        if !is_xsd(&element.name) {
            return None;
        }

        match &*element.name.local {
            "include" => Some(Self::Include),
            "redefine" => Some(Self::Redefine),
            "import" => Some(Self::Import),
            _ => None,
        }
    }
}

/// A link from one schema document to another: an include, a redefine or an import.
#[derive(Debug, Clone)]
pub struct SchemaLink {
    pub from: usize,
    pub kind: LinkKind,
    /// The imported namespace; empty for an include or redefine.
    pub namespace: String,
    /// Index of the target document; `None` if the namespace is built into XML Schema.
    pub to: Option<usize>,
    pub tag: Range<usize>,
    end: usize,
}

impl SchemaLink {
    pub fn new(from: usize, element: &Element, kind: LinkKind, to: Option<usize>) -> Self {
        let namespace = match kind {
            LinkKind::Import => element.attribute("namespace").unwrap_or_default(),
            LinkKind::Include | LinkKind::Redefine => "",
        };

        Self {
            from,
            kind,
            namespace: namespace.to_owned(),
            to,
            tag: element.origin.tag.clone(),
            end: element.origin.end,
        }
    }
}

/// Returns the documents in the form that libxml2 gets: each location contains the index of a
/// document.
pub fn absolute(sources: &[SchemaDocument], links: &[SchemaLink]) -> Vec<Vec<u8>> {
    let main = sources.first().map(SchemaDocument::target).unwrap_or_default();
    let mut wanted: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for link in links.iter().filter(|l| l.kind == LinkKind::Import) {
        if let Some(to) = link.to {
            wanted.entry(&link.namespace).or_default().insert(to);
        }
    }

    let mut gathered = Vec::new();
    let mut entries: BTreeMap<&str, usize> = BTreeMap::new();

    for (namespace, documents) in &wanted {
        let start = if *namespace == main && documents.len() > 1 { Some(0) } else { None };
        let one = start.or_else(|| {
            documents.iter().copied().find(|d| documents.is_subset(&reachable(*d, links)))
        });
        let index = one.unwrap_or_else(|| {
            gathered.push(gather(namespace, documents));
            sources.len() + gathered.len() - 1
        });
        entries.insert(namespace, index);
    }

    if wanted.contains_key(main) {
        entries.insert(main, 0);
    }

    let mut out: Vec<Vec<u8>> = Vec::with_capacity(sources.len() + gathered.len());
    for (index, source) in sources.iter().enumerate() {
        let own = links.iter().filter(|link| link.from == index);
        out.push(rewrite(&source.text, own, &entries).into_bytes());
    }

    out.extend(gathered.into_iter().map(String::into_bytes));
    out
}

/// Returns the index of `document`, and the indices of all documents that it includes or redefines,
/// directly or through other documents.
pub fn reachable(document: usize, links: &[SchemaLink]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::from([document]);
    let mut open = vec![document];
    while let Some(at) = open.pop() {
        for link in links.iter().filter(|l| l.from == at && l.kind != LinkKind::Import) {
            if let Some(to) = link.to.filter(|to| seen.insert(*to)) {
                open.push(to);
            }
        }
    }

    seen
}

fn gather(namespace: &str, documents: &BTreeSet<usize>) -> String {
    let mut out = format!("<xs:schema xmlns:xs=\"{XSD}\"");
    if !namespace.is_empty() {
        let namespace = escape_attribute(namespace);
        out.push_str(&format!(" targetNamespace=\"{namespace}\""));
    }

    out.push('>');
    for document in documents {
        out.push_str(&format!("<xs:include schemaLocation=\"{SCHEME}{document}\"/>"));
    }

    out.push_str("</xs:schema>");
    out
}

fn rewrite<'a>(
    text: &str,
    links: impl Iterator<Item = &'a SchemaLink>,
    entries: &BTreeMap<&str, usize>,
) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for link in links {
        let to = match link.kind {
            LinkKind::Import => {
                entries.get(link.namespace.as_str()).copied().filter(|_| link.to.is_some())
            }
            LinkKind::Include | LinkKind::Redefine => link.to,
        };
        out.push_str(text.get(done..link.tag.start).unwrap_or_default());
        if link.kind == LinkKind::Include && link.to == Some(link.from) {
            // An include of the document itself has no effect, but libxml2 reports an error for it.
            let whole = text.get(link.tag.start..link.end).unwrap_or_default();
            out.push_str(&"\n".repeat(whole.matches('\n').count()));
            done = link.end;
            continue;
        }
        out.push_str(&retag(text.get(link.tag.clone()).unwrap_or_default(), to));
        done = link.tag.end;
    }

    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// Replaces the location in the start tag of a link, or removes it if `to` is `None`. The number of
/// lines of the tag stays the same.
fn retag(tag: &str, to: Option<usize>) -> String {
    let bare = match location(tag) {
        Some(range) => {
            let removed = tag.get(range.clone()).unwrap_or_default();
            let breaks = "\n".repeat(removed.matches('\n').count());
            let before = tag.get(..range.start);
            let after = tag.get(range.end..);
            format!("{} {breaks}{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        None => tag.to_owned(),
    };

    let Some(to) = to else { return bare };
    let name_end = bare.find([' ', '\t', '\n', '\r', '/', '>']).unwrap_or(bare.len());
    let (name, rest) = bare.split_at_checked(name_end).unwrap_or((&bare, ""));
    format!("{name} schemaLocation=\"{SCHEME}{to}\"{rest}")
}

/// Returns the byte range of `schemaLocation="…"` in a start tag; `None` if there is no such
/// attribute.
fn location(tag: &str) -> Option<Range<usize>> {
    const NAME: &str = "schemaLocation";
    for (start, _) in tag.match_indices(NAME) {
        let before = tag.get(..start)?;
        let after = tag.get(start + NAME.len()..)?.trim_start();
        let (Some(value), true) = (after.strip_prefix('='), before.ends_with(char::is_whitespace))
        else {
            continue;
        };
        let value = value.trim_start();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let inner = value.get(1..)?;
        let end = tag.len() - inner.len() + inner.find(quote)? + 1;
        return Some(start..end);
    }

    None
}
