//! Parses one action according to its shape, which describes its attributes, children and values.

use std::borrow::Cow;
use std::ops::Range;

use super::close_tags::{ActionDefect, ParentElement, TurnWalk, WalkStop};
use super::codes::{ExtractCode, RawFinding};
use super::decode;
use super::namespace_scope::{PrefixScope, WrittenName, declared_prefix};
use super::tag::{OpenTag, TagOpening};
use crate::limits;
use crate::xml::element::{Element, Node};
use crate::xml::shape::{QName, ShapeContent, ShapeId};
use crate::xml::write::XSI_NAMESPACE;

/// State of parsing one action.
pub(super) struct ActionReading {
    pub scope: PrefixScope,
    /// Whether the root element of the action was written without a namespace. If so, the parser
    /// finds children that were written without a namespace by their local names alone.
    pub bare: bool,
    pub depth: usize,
    /// The first flaw of the action, a defect after which the parser could go on; `None` if no flaw
    /// was found. An action with a flaw is not executed, but reported as broken.
    pub flaw: Option<RawFinding>,
    /// Findings about values that contain both raw and escaped characters.
    pub half_escaped: Vec<RawFinding>,
}

impl ActionReading {
    pub fn new(scope: PrefixScope, bare: bool) -> Self {
        Self { scope, bare, depth: 0, flaw: None, half_escaped: Vec::new() }
    }

    pub fn note(&mut self, note: RawFinding) {
        self.flaw.get_or_insert(note);
    }

    /// Records a finding for a value that begins at `start`, in the element or attribute `name`.
    /// The value was not decoded, because it contains a raw `<` or `&` beside an escaped character,
    /// such as `&lt;`.
    fn note_half_escaped(&mut self, start: usize, name: &str) {
        let message = format!(
            "`{name}` holds both raw and escaped characters; it was taken as it stands, and nothing \
             in it was unescaped"
        );
        self.half_escaped.push(RawFinding::new(ExtractCode::HalfEscaped, start, message));
    }
}

impl TurnWalk<'_> {
    /// Parses the element that begins with the open tag `tag`, whose namespace declarations must
    /// already be in scope. Returns the element, and the offset after the element. `parent`, the
    /// enclosing element, is needed only to find the end of a text-only element.
    fn element(
        &mut self,
        tag: &OpenTag,
        id: ShapeId,
        parent: &ParentElement<'_>,
        reading: &mut ActionReading,
    ) -> Result<(Element, usize), WalkStop> {
        let Some(shape) = self.grammar.shape(id) else {
            return Err(
                RawFinding::new(ExtractCode::UnknownParam, tag.start, "no such element").into()
            );
        };

        if reading.depth >= limits::XML_DEPTH_MAX {
            return Err(RawFinding::new(
                ExtractCode::TooDeep,
                tag.start,
                "elements are nested too deep",
            )
            .into());
        }

        let mut element = Element::new(shape.name.clone());
        element.attributes = self.attributes(tag, reading);
        let own_name = self.source.slice(tag.name.clone());
        // The attribute may choose a type with other children, and its value may depend on a prefix,
        // so the content is kept as written, with its bindings.
        let typed = ShapeContent::Any { unqualified: false };
        let content = if has_type_attribute(&element) { &typed } else { &shape.content };
        let next = match content {
            ShapeContent::Text if tag.empty => {
                element = element.with_text("");
                tag.end
            }
            ShapeContent::Text => {
                // The tag after the value belongs to a sibling, so the bindings of this element end
                // here.
                reading.scope.leave(parent.scope_depth);
                let close = self.value_close(own_name, tag.end, parent, &mut reading.scope)?;
                element = element.with_text(self.leaf(tag, tag.end..close.at, reading));
                close.next
            }
            ShapeContent::Elements(_) if tag.empty => tag.end,
            ShapeContent::Elements(_) => {
                let scope_depth = reading.scope.depth();
                let outer = Some(parent);
                let bare = reading.bare;
                let inside = ParentElement { outer, shape: id, name: own_name, bare, scope_depth };
                let (children, next) = self.children(&inside, tag.end, reading)?;
                element.content = children;
                next
            }
            ShapeContent::Any { unqualified } => {
                let (verbatim, next) = self.verbatim(tag, &shape.name, *unqualified, reading)?;
                element.verbatim = Some(Box::new(verbatim));
                next
            }
        };

        Ok((element, next))
    }

    /// Parses the root element of an action.
    pub fn root_element(
        &mut self,
        tag: &OpenTag,
        id: ShapeId,
        reading: &mut ActionReading,
    ) -> Result<(Element, usize), WalkStop> {
        let name = self.source.slice(tag.name.clone());
        let scope_depth = reading.scope.depth();
        let bare = reading.bare;
        let nothing_around = ParentElement { outer: None, shape: id, name, bare, scope_depth };
        self.element(tag, id, &nothing_around, reading)
    }

    /// Parses the children of an element up to its close tag. Returns the offset after the close
    /// tag.
    fn children(
        &mut self,
        parent: &ParentElement<'_>,
        from: usize,
        reading: &mut ActionReading,
    ) -> Result<(Vec<Node>, usize), WalkStop> {
        let source = self.source;
        let mut children = Vec::new();
        let mut at = from;
        reading.depth += 1;

        loop {
            let Some(next) = source.skip_blank(at)? else { return Err(self.unclosed(parent, at)) };
            at = next;
            if let Some(behind) = source.closes(at, parent.name)? {
                reading.depth -= 1;
                return Ok((children, behind));
            }
            let tag = self.child_tag(parent, at)?;
            let depth = reading.scope.depth();
            reading.scope.enter(source, &tag);
            let id = self.child_shape(&tag, parent, reading)?;
            let (child, next) = self.element(&tag, id, parent, reading)?;
            reading.scope.leave(depth);
            children.push(Node::Element(child));
            at = next;
        }
    }

    /// Parses the open tag of a child at the offset `at`. If no open tag begins there, fails with a
    /// defect of the element `parent`.
    fn child_tag(&mut self, parent: &ParentElement<'_>, at: usize) -> Result<OpenTag, WalkStop> {
        let source = self.source;
        match source.byte(at) {
            None => return Err(self.unclosed(parent, at)),
            Some(b'<') => {}
            Some(_) => return Err(text_between(parent, at)),
        }

        if let Some((name, after)) = source.closing(at)? {
            let found = source.lossy(name);
            let expected = String::from_utf8_lossy(parent.name);
            let message = format!("expected `</{expected}>`, found `</{found}>`");
            let note = RawFinding::new(ExtractCode::MismatchedClose, at, message);
            return Err(WalkStop::Defect(ActionDefect { note, resume: Some(after) }));
        }

        match self.opening(at)? {
            TagOpening::Tag(tag) => Ok(tag),
            TagOpening::Cut(_) => Err(self.unclosed(parent, at)),
            TagOpening::Interrupted(name) => {
                let message = format!("the tag `<{}` has no `>`", source.lossy(name));
                Err(RawFinding::new(ExtractCode::MalformedTag, at, message).into())
            }
            TagOpening::Text if source.is_cut_tag(at) => Err(self.unclosed(parent, at)),
            TagOpening::Text => Err(text_between(parent, at)),
        }
    }

    fn child_shape(
        &self,
        tag: &OpenTag,
        parent: &ParentElement<'_>,
        reading: &ActionReading,
    ) -> Result<ShapeId, WalkStop> {
        let name = self.source.lossy(tag.name.clone());
        let written = reading.scope.element(&name);
        if let Some(id) = self.grammar.child(parent.shape, &written, parent.bare) {
            return Ok(id);
        }

        let within = String::from_utf8_lossy(parent.name);
        let is_action = self.grammar.is_action(&name, &written);
        let known = self.grammar.child_names(parent.shape);
        let message = match (known.as_slice(), &written) {
            ([], _) => format!("`{within}` has no children, found `{name}`"),
            (known, WrittenName::Bound(uri, local)) => {
                let known = known.join("`, `");
                format!("`{within}` has no child `{local}` in `{uri}`; it has `{known}`")
            }
            (known, _) => {
                format!("`{within}` has no child `{name}`; it has `{}`", known.join("`, `"))
            }
        };

        let note = RawFinding::new(ExtractCode::UnknownParam, tag.start, message);
        Err(WalkStop::Defect(ActionDefect { note, resume: is_action.then_some(tag.start) }))
    }

    fn unclosed(&self, parent: &ParentElement<'_>, at: usize) -> WalkStop {
        let name = String::from_utf8_lossy(parent.name);
        let message = format!("the text ends inside `{name}`; close it with `</{name}>`");
        RawFinding::new(ExtractCode::UnclosedAction, at, message).into()
    }

    /// Returns the decoded attributes of a tag, without namespace declarations. Records each flaw
    /// of the attributes in `reading`. A flaw is a defect that does not stop the parser.
    pub fn attributes(&self, tag: &OpenTag, reading: &mut ActionReading) -> Vec<(QName, String)> {
        if let Some(fault) = &tag.fault {
            let name = self.source.lossy(tag.name.clone());
            let message = format!("in `<{name}>`: {}", fault.message);
            reading.note(RawFinding::new(fault.code, fault.at, message));
        }

        let mut attributes = Vec::with_capacity(tag.attributes.len());
        for attribute in &tag.attributes {
            let name = self.source.lossy(attribute.name.clone());
            if declared_prefix(&name).is_some() {
                continue;
            }
            let raw = self.characters(attribute.value.clone(), &attribute.name, reading);
            if decode::is_half_escaped_attribute(raw) {
                reading.note_half_escaped(attribute.value.start, &name);
            }
            let value = decode::attribute(raw).into_owned();
            let name = match reading.scope.attribute(&name) {
                WrittenName::Bare(local) => QName::new(None, local),
                WrittenName::Bound(uri, local) => QName::new(Some(&uri), local),
                WrittenName::Unbound(name) => {
                    let message = format!("the prefix of the attribute `{name}` is not bound");
                    reading.note(RawFinding::new(
                        ExtractCode::UnboundPrefix,
                        attribute.name.start,
                        message,
                    ));
                    QName::new(None, name)
                }
            };
            self.check_legal(&value, attribute.value.start, || (*name.local).into(), reading);
            attributes.push((name, value));
        }

        attributes
    }

    /// Returns the decoded value of a text-only element. Records each flaw of the value.
    pub fn leaf(&self, tag: &OpenTag, range: Range<usize>, reading: &mut ActionReading) -> String {
        let name = || self.source.lossy(tag.name.clone());
        let start = range.start;
        let raw = self.characters(range, &tag.name, reading);
        let value = decode::simple_content(raw);
        let limit = self.grammar.limits.max_leaf_bytes;
        if value.len() > limit {
            let size = value.len();
            let name = name();
            let message = format!("`{name}` has {size} bytes; at most {limit} are read");
            reading.note(RawFinding::new(ExtractCode::ParamTooLarge, start, message));
            return String::new();
        }

        let opened = raw.trim_start().starts_with("<![CDATA[");
        if opened && !raw.contains("]]>") {
            let message = format!("the CDATA section in `{}` has no `]]>`", name());
            reading.note(RawFinding::new(ExtractCode::UnclosedCdata, start, message));
        }

        if decode::is_half_escaped(raw) {
            reading.note_half_escaped(start, &name());
        }

        self.check_legal(&value, start, name, reading);
        value.into_owned()
    }

    /// Returns the text in a byte range. If the bytes are not valid UTF-8, records a flaw and
    /// returns an empty text.
    fn characters(
        &self,
        range: Range<usize>,
        name: &Range<usize>,
        reading: &mut ActionReading,
    ) -> &str {
        let start = range.start;
        self.source.utf8(range).unwrap_or_else(|error| {
            let name = self.source.lossy(name.clone());
            let message = format!("`{name}` holds bytes that are not UTF-8");
            let at = start + error.valid_up_to();
            reading.note(RawFinding::new(ExtractCode::IllegalCharacter, at, message));
            ""
        })
    }

    /// Records a flaw if `value` contains a character that XML does not allow. `name` is the
    /// element or attribute with this value.
    pub fn check_legal<'n>(
        &self,
        value: &str,
        at: usize,
        name: impl FnOnce() -> Cow<'n, str>,
        reading: &mut ActionReading,
    ) {
        if let Some(c) = decode::illegal(value) {
            let name = name();
            let code = u32::from(c);
            let message = format!("`{name}` holds U+{code:04X}, which XML cannot carry");
            reading.note(RawFinding::new(ExtractCode::IllegalCharacter, at, message));
        }
    }
}

/// Whether the element chooses its own type with `xsi:type`.
fn has_type_attribute(element: &Element) -> bool {
    element
        .attributes
        .iter()
        .any(|(name, _)| name.namespace() == XSI_NAMESPACE && &*name.local == "type")
}

fn text_between(parent: &ParentElement<'_>, at: usize) -> WalkStop {
    let name = String::from_utf8_lossy(parent.name);
    let message = format!("`{name}` holds elements only; this text belongs to none of them");
    RawFinding::new(ExtractCode::UnexpectedText, at, message).into()
}
