//! The shapes of values: the elements, attributes and texts that a value can have.

use crate::schema::{BOOLEAN_WORDS, PartCoverage, PayloadParameter, ShortType};

/// The shape of a value: which child elements and attributes the value may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueShape {
    /// The value may have any children and attributes: the schema permits any content, or is not
    /// known.
    Open,
    /// The value has only text, without child elements and attributes. It may be any text.
    Leaf,
    /// The value has only text, and this text is a boolean: `true`, `false`, `1` or `0`, perhaps
    /// with white space around it.
    Boolean,
    /// The value has only text, and this text is one of these words.
    Words(Vec<String>),
    /// The value may have exactly these children and attributes. Names of attributes begin with
    /// `@`. The name [`ANY_ATTRIBUTE`] stands for attributes of any other name.
    Children(Vec<(String, Self)>),
}

/// Name that stands for attributes of any name.
pub const ANY_ATTRIBUTE: &str = "@*";

impl ValueShape {
    pub fn of_type(short_type: &ShortType) -> Self {
        match short_type {
            ShortType::Fields(fields) => {
                let children = fields.iter();
                Self::Children(
                    children
                        .map(|field| (field.name.clone(), Self::of_type(&field.short_type)))
                        .collect(),
                )
            }
            ShortType::Boolean => Self::Boolean,
            ShortType::Words(words) => Self::Words(words.clone()),
            ShortType::Text | ShortType::Integer | ShortType::Decimal | ShortType::Date => {
                Self::Leaf
            }
        }
    }

    /// Whether the value has only text, without child elements and attributes.
    pub fn is_text(&self) -> bool {
        match self {
            Self::Leaf | Self::Boolean | Self::Words(_) => true,
            Self::Open | Self::Children(_) => false,
        }
    }

    /// Returns the texts that a value of this shape can have, without white space around them.
    /// `None` if it can have any text.
    pub(super) fn words(&self) -> Option<Vec<&str>> {
        match self {
            Self::Boolean => Some(vec!["true", "false", "1", "0"]),
            Self::Words(words) => Some(words.iter().map(|word| word.trim()).collect()),
            Self::Open | Self::Leaf | Self::Children(_) => None,
        }
    }

    /// Returns the shape of an element. `parameters` are the children and attributes in its
    /// description. `coverage` states whether the element may have others.
    pub fn of_parameters(parameters: &[PayloadParameter], coverage: PartCoverage) -> Self {
        let is_open = matches!(coverage, PartCoverage::DeclaredType | PartCoverage::Partial);
        if is_open || parameters.iter().any(PayloadParameter::is_any_element) {
            return Self::Open;
        }

        let children = parameters.iter().map(|parameter| {
            let shape = match Self::of_parameters(&parameter.parameters, parameter.coverage) {
                Self::Leaf if parameter.content.kind == BOOLEAN_WORDS => Self::Boolean,
                shape => shape,
            };
            (parameter.key(), shape)
        });
        let has_any_attribute = coverage == PartCoverage::AnyAttribute;
        let any_attribute = has_any_attribute.then(|| (ANY_ATTRIBUTE.to_owned(), Self::Leaf));
        let children: Vec<_> = children.chain(any_attribute).collect();
        if children.is_empty() { Self::Leaf } else { Self::Children(children) }
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Children(children) => {
                let named = |wanted: &str| children.iter().find(|(known, _)| known == wanted);
                let any = if name.starts_with('@') { named(ANY_ATTRIBUTE) } else { None };
                named(name).or(any).map(|(_, shape)| shape)
            }
            Self::Open | Self::Leaf | Self::Boolean | Self::Words(_) => None,
        }
    }
}
