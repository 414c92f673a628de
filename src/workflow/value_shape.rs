//! The shapes of values: the elements, attributes and texts that a value can have.

use crate::schema::{BOOLEAN_WORDS, PayloadParameter, ShortType};

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
    /// `@`.
    Children(Vec<(String, Self)>),
}

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

    /// Returns the shape of an element. `parameters` are the children and attributes that the
    /// element may have.
    pub fn of_parameters(parameters: &[PayloadParameter]) -> Self {
        if parameters.iter().any(PayloadParameter::is_any_element) {
            return Self::Open;
        }

        let children = parameters.iter().map(|parameter| {
            let shape = match parameter.content.kind.as_str() {
                "anything" => Self::Open,
                BOOLEAN_WORDS if parameter.parameters.is_empty() => Self::Boolean,
                _ => Self::of_parameters(&parameter.parameters),
            };
            (parameter.key(), shape)
        });
        let children: Vec<_> = children.collect();
        if children.is_empty() { Self::Leaf } else { Self::Children(children) }
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Children(children) => {
                children.iter().find(|(known, _)| known == name).map(|(_, shape)| shape)
            }
            Self::Open | Self::Leaf | Self::Boolean | Self::Words(_) => None,
        }
    }
}
