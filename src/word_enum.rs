//! A macro for enums whose variants each have a word, in records, URLs, configs or commands.

/// Declares an enum whose variants each have a word. The macro adds the constant `ALL` and the
/// functions `as_str` and `parse`, so that each word is written once.
///
/// ```text
/// word_enum! {
///     /// The phase of a job.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum JobPhase {
///         Running = "running",
///         /// The job has ended.
///         Done = "done",
///     }
/// }
///
/// JobPhase::ALL              [JobPhase::Running, JobPhase::Done]
/// JobPhase::Done.as_str()    "done"
/// JobPhase::parse("done")    Some(JobPhase::Done)
/// ```
///
/// In a serialised enum, the word of a variant is its name on the wire:
///
/// ```text
///         /// The job has ended.
///         #[serde(rename = "done")]
///         Done,
/// ```
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$variant_meta])* $variant,)+ }

        $crate::word_enum::word_enum!(@words $name { $($variant = $word,)+ });
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[doc = $doc:literal])* #[serde(rename = $word:literal)] $variant:ident,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $name { $($(#[doc = $doc])* #[serde(rename = $word)] $variant,)+ }

        $crate::word_enum::word_enum!(@words $name { $($variant = $word,)+ });
    };
    (@words $name:ident { $($variant:ident = $word:literal,)+ }) => {
        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the word of the variant.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Returns the variant whose word is `text`, or `None` if no variant has this word.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.as_str() == text)
            }
        }
    };
}

pub(crate) use word_enum;

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    word_enum! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum PlainWord {
            First = "first",
            /// The second variant.
            Other = "one-more",
        }
    }

    word_enum! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        enum WireWord {
            #[serde(rename = "first")]
            First,
            /// The second variant.
            #[serde(rename = "one-more")]
            Other,
        }
    }

    #[test]
    fn an_enum_has_its_words_in_their_order() {
        assert_eq!(PlainWord::ALL, [PlainWord::First, PlainWord::Other]);
        assert_eq!(PlainWord::ALL.map(PlainWord::as_str), ["first", "one-more"]);
        assert_eq!(PlainWord::parse("one-more"), Some(PlainWord::Other));
        assert_eq!(PlainWord::parse("Other"), None);
    }

    #[test]
    fn a_serialised_enum_has_the_same_words_on_the_wire() {
        for word in WireWord::ALL {
            let json = format!("\"{}\"", word.as_str());
            assert_eq!(serde_json::to_string(&word).unwrap(), json);
            assert_eq!(serde_json::from_str::<WireWord>(&json).unwrap(), word);
            assert_eq!(WireWord::parse(word.as_str()), Some(word));
        }
    }
}
