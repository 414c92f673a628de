//! Parses the content of elements that may contain any well-formed content (shape `Any`). The
//! content must be strict XML and is kept as written.

use super::action::ActionReading;
use super::close_tags::{TurnWalk, WalkStop};
use super::codes::{ExtractCode, RawFinding};
use super::decode;
use super::namespace_scope::WrittenName;
use super::tag::{OpenTag, TagOpening};
use crate::limits;
use crate::xml::element::Verbatim;
use crate::xml::shape::QName;

/// An open element, and the number of namespace bindings that are in scope outside of it.
struct OpenTagScope {
    name: std::ops::Range<usize>,
    outside: usize,
}

impl TurnWalk<'_> {
    /// Returns the content of the element that `tag` opens, and the offset after its close tag. The
    /// content must be well-formed. `unqualified` states whether the schema declares child
    /// elements, all without a namespace.
    pub fn verbatim(
        &mut self,
        tag: &OpenTag,
        name: &QName,
        unqualified: bool,
        reading: &mut ActionReading,
    ) -> Result<(Verbatim, usize), WalkStop> {
        let written = self.source.lossy(tag.name.clone()).into_owned();
        let written = Some(written).filter(|written| written.contains(':'));
        let bindings = reading.scope.visible();
        let (end, next) = if tag.empty {
            (tag.end, tag.end)
        } else {
            let depth = reading.scope.depth();
            let ends = self.well_formed(tag, reading)?;
            reading.scope.leave(depth);
            ends
        };

        let Ok(xml) = self.source.utf8(tag.end..end) else {
            return Err(ill(tag.end, "the text is not UTF-8"));
        };

        self.check_legal(xml, tag.end, || (*name.local).into(), reading);
        let mut verbatim = Verbatim { xml: xml.to_owned(), written, bindings };
        if reading.bare {
            bind_namespace(&mut verbatim, name, unqualified && has_child(xml));
        }
        Ok((verbatim, next))
    }

    /// Returns the offset of the close tag that belongs to `tag`, and the offset after the close
    /// tag.
    fn well_formed(
        &self,
        tag: &OpenTag,
        reading: &mut ActionReading,
    ) -> Result<(usize, usize), WalkStop> {
        let source = self.source;
        let outside = reading.scope.depth();
        let mut open = vec![OpenTagScope { name: tag.name.clone(), outside }];
        let mut at = tag.end;

        loop {
            let Some(found) = source.find_either(b'<', b'&', at)? else {
                return Err(ended(tag, at, self));
            };
            if memchr::memmem::find(source.slice(at..found), b"]]>").is_some() {
                return Err(ill(at, "`]]>` may not stand in text"));
            }
            at = found;
            if source.byte(at) == Some(b'&') {
                at = self.entity(at)?;
                continue;
            }
            if source.starts(at, b"</")? {
                let innermost = open.last().map(|open| open.name.clone()).unwrap_or_default();
                let Some(behind) = source.closes(at, source.slice(innermost.clone()))? else {
                    let expected = source.lossy(innermost);
                    return Err(ill(at, format!("expected `</{expected}>`")));
                };
                let outside = open.pop().map_or(0, |open| open.outside);
                reading.scope.leave(outside);
                if open.is_empty() {
                    return Ok((at, behind));
                }
                at = behind;
            } else if source.starts(at, b"<!--")? || source.starts(at, b"<![CDATA[")? {
                at = self.section(at, tag)?;
            } else {
                at = self.inner_tag(at, tag, &mut open, reading)?;
            }
        }
    }

    fn entity(&self, at: usize) -> Result<usize, WalkStop> {
        const LONGEST: usize = 12;
        let source = self.source;
        let end = source.len().min(at + LONGEST);
        let text = source.lossy(at..end);

        match decode::reference(&text) {
            Some((_, length)) => Ok(at + length),
            None if end < at + LONGEST && !source.ended => Err(WalkStop::More),
            None => Err(ill(at, "`&` must be written `&amp;`")),
        }
    }

    /// Returns the offset after the comment or CDATA section that begins at `at`.
    fn section(&self, at: usize, tag: &OpenTag) -> Result<usize, WalkStop> {
        let source = self.source;
        if source.starts(at, b"<![CDATA[")? {
            return source.cdata_end(at + 9)?.ok_or_else(|| ended(tag, at, self));
        }

        let end = source.comment_end(at + 4)?.ok_or_else(|| ended(tag, at, self))?;
        if memchr::memmem::find(source.slice(at + 4..end - 2), b"--").is_some() {
            return Err(ill(at, "`--` may not stand in a comment"));
        }

        Ok(end)
    }

    fn inner_tag(
        &self,
        at: usize,
        root: &OpenTag,
        open: &mut Vec<OpenTagScope>,
        reading: &mut ActionReading,
    ) -> Result<usize, WalkStop> {
        let source = self.source;
        let tag = match source.opening(at)? {
            TagOpening::Tag(tag) => tag,
            TagOpening::Cut(_) => return Err(ended(root, at, self)),
            _ => return Err(ill(at, "`<` must be written `&lt;` where it starts no tag")),
        };

        if let Some(fault) = &tag.fault {
            return Err(RawFinding::new(fault.code, fault.at, fault.message.clone()).into());
        }

        let is_strict = |attribute: &super::tag::RawAttribute| {
            let value = source.lossy(attribute.value.clone());
            decode::is_strict_attribute(&value)
        };

        if !tag.attributes.iter().all(is_strict) {
            return Err(ill(at, "`<` and `&` in an attribute must be escaped"));
        }

        let outside = reading.scope.depth();
        reading.scope.enter(source, &tag);
        let is_unbound = |name: &String| {
            let written = reading.scope.element(name);
            matches!(written, WrittenName::Unbound(_)) && !name.starts_with("xmlns:")
        };

        let names = tag.attributes.iter().map(|a| &a.name).chain([&tag.name]);
        let mut names = names.map(|name| source.lossy(name.clone()).into_owned());
        if let Some(name) = names.find(is_unbound) {
            let message = format!("the prefix of `{name}` is not bound");
            return Err(RawFinding::new(ExtractCode::UnboundPrefix, at, message).into());
        }

        if tag.empty {
            reading.scope.leave(outside);
        } else if open.len() + reading.depth >= limits::XML_DEPTH_MAX {
            return Err(
                RawFinding::new(ExtractCode::TooDeep, at, "elements are nested too deep").into()
            );
        } else {
            open.push(OpenTagScope { name: tag.name.clone(), outside });
        }

        Ok(tag.end)
    }
}

/// Binds the namespace of the element `name` in an action that was written without namespaces. If
/// `unqualified` is false, the namespace becomes the default one, so that it also applies to names
/// without a prefix in the content. If `unqualified` is true, these names have no namespace, so the
/// element gets a prefix instead.
fn bind_namespace(verbatim: &mut Verbatim, name: &QName, unqualified: bool) {
    let Verbatim { written, bindings, .. } = verbatim;
    let is_bound = |prefix: &str| bindings.iter().any(|(bound, _)| bound == prefix);
    let Some(namespace) = name.namespace.as_deref().filter(|_| !is_bound("")) else { return };
    if !unqualified {
        bindings.push((String::new(), namespace.to_owned()));
    } else if written.is_none() {
        let mut prefix = "p".to_owned();
        while is_bound(&prefix) {
            prefix.push('p');
        }
        *written = Some(format!("{prefix}:{}", name.local));
        bindings.push((prefix, namespace.to_owned()));
    }
}

/// Whether the well-formed content contains a child element.
fn has_child(xml: &str) -> bool {
    xml.split('<').skip(1).any(|rest| !rest.starts_with(['!', '/', '?']))
}

fn ill(at: usize, message: impl Into<String>) -> WalkStop {
    RawFinding::new(ExtractCode::NotWellFormed, at, message).into()
}

fn ended(tag: &OpenTag, at: usize, walk: &TurnWalk<'_>) -> WalkStop {
    let name = walk.source.lossy(tag.name.clone());
    let message = format!("the text ends inside `{name}`");
    RawFinding::new(ExtractCode::UnclosedAction, at, message).into()
}
