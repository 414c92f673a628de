//! Counts tokens as the models of a family do. For a family without a public vocabulary, the count
//! is an estimate and marked as such.

use crate::limits;

use super::request::{ChatBlock, ModelRequest};

/// A family of models with the same tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TokenizerFamily {
    /// Models of OpenAI since 2024: `gpt-4o` and later, the `o` series, `gpt-oss`.
    O200k,
    /// Models of OpenAI before 2024: `gpt-4`, `gpt-3.5`.
    Cl100k,
    /// Models whose tokenizer this module does not know. Their tokens are estimated.
    #[default]
    Other,
}

/// The family of a model, by the beginning of the model's name. A provider's prefix, such as
/// `openai/`, is removed before the comparison. Longer beginnings come first.
const NAMES: [(&str, TokenizerFamily); 10] = [
    ("gpt-4o", TokenizerFamily::O200k),
    ("gpt-4.", TokenizerFamily::O200k),
    ("chatgpt-4o", TokenizerFamily::O200k),
    ("gpt-4", TokenizerFamily::Cl100k),
    ("gpt-3.5", TokenizerFamily::Cl100k),
    ("gpt-35", TokenizerFamily::Cl100k),
    ("gpt-", TokenizerFamily::O200k),
    ("o1", TokenizerFamily::O200k),
    ("o3", TokenizerFamily::O200k),
    ("o4", TokenizerFamily::O200k),
];

impl TokenizerFamily {
    /// Determines the family of a model from the provider's name for it, such as `gpt-4.1-mini` or
    /// `openai/gpt-4o`.
    pub fn of(model: &str) -> Self {
        let name = model.rsplit_once('/').map_or(model, |(_, name)| name).to_ascii_lowercase();
        let known = NAMES.iter().find(|(begin, _)| name.starts_with(begin));
        known.map(|(_, family)| *family).unwrap_or_default()
    }

    pub const fn is_estimate(self) -> bool {
        matches!(self, Self::Other)
    }

    /// Returns the name of the family's vocabulary, such as `o200k_base`, or `estimate` if the
    /// family has no public vocabulary.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
            Self::Other => "estimate",
        }
    }

    /// Counts the tokens of a text. The first count in a process loads the vocabulary, which takes
    /// 50 ms and 70 MB.
    pub fn count(self, text: &str) -> u64 {
        let vocabulary = match self {
            Self::Cl100k => bpe_openai::cl100k_base(),
            Self::O200k | Self::Other => bpe_openai::o200k_base(),
        };

        let tokens = u64::try_from(vocabulary.count(text)).unwrap_or(u64::MAX);
        if self.is_estimate() {
            tokens.saturating_mul(100 + limits::ESTIMATE_MARGIN_PERCENT).div_ceil(100)
        } else {
            tokens
        }
    }

    /// Counts the tokens of a request in two parts. [`RequestSize::schema`] is the size of the
    /// system prompt, the tools and the framing. [`RequestSize::payload`] is the size of the
    /// messages.
    pub fn size(self, request: &ModelRequest) -> RequestSize {
        let blocks = request.messages.iter().flat_map(|message| &message.blocks);
        let payload = blocks.map(|block| self.block(block)).sum();
        let tools = request.tools.iter().map(|tool| {
            let parameters = tool.parameters.to_string();
            let texts = [&tool.name, &tool.description, &parameters];
            texts.map(|text| self.count(text)).iter().sum::<u64>()
        });
        let schema = self.count(&request.system) + tools.sum::<u64>();
        let framing = framing(request);
        RequestSize { schema: schema + framing, payload, family: self }
    }

    /// Counts the tokens of a request as [`TokenizerFamily::size`] does, but counts `notice` in
    /// [`RequestSize::schema`]. The notice is a text at the end of this request. Later requests do
    /// not repeat the notice, so it is not part of the thread.
    pub fn size_with(self, request: &ModelRequest, notice: Option<&str>) -> RequestSize {
        let RequestSize { schema, payload, family } = self.size(request);
        let notice = notice.map_or(0, |notice| self.count(notice));
        RequestSize { schema: schema + notice, payload: payload.saturating_sub(notice), family }
    }

    fn block(self, block: &ChatBlock) -> u64 {
        parts(block).map(|text| self.count(text)).sum()
    }
}

/// Size of a request in tokens, in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSize {
    /// Tokens of the system prompt, the tools, the framing of messages, and the notice. The notice
    /// is a text at the end of this request, which later requests do not repeat.
    pub schema: u64,
    /// Tokens of the thread's messages.
    pub payload: u64,
    pub family: TokenizerFamily,
}

impl RequestSize {
    pub const fn total(&self) -> u64 {
        self.schema.saturating_add(self.payload)
    }
}

/// Returns an upper bound of a request's tokens, computed from the number of bytes, because no
/// token is shorter than a byte.
pub fn at_most(request: &ModelRequest) -> u64 {
    let bytes = u64::try_from(bytes(request)).unwrap_or(u64::MAX);
    bytes.saturating_add(framing(request))
}

/// Returns the size of all texts of a request, in bytes.
pub(super) fn bytes(request: &ModelRequest) -> usize {
    let texts = request.messages.iter().flat_map(|message| &message.blocks).flat_map(parts);
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len());
    request.system.len() + texts.map(str::len).sum::<usize>() + tools.sum::<usize>()
}

fn framing(request: &ModelRequest) -> u64 {
    let framed = request.messages.len() + request.tools.len() + 1;
    u64::try_from(framed).unwrap_or(u64::MAX).saturating_mul(limits::FRAMING_TOKENS)
}

fn parts(block: &ChatBlock) -> impl Iterator<Item = &str> {
    let parts: [&str; 2] = match block {
        ChatBlock::Text(text) => [text, ""],
        ChatBlock::Result { id, text, .. } => [id, text],
        ChatBlock::Call(call) => [&call.name, &call.arguments],
        ChatBlock::Own(own) => [&own.json, ""],
    };

    parts.into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_the_name_of_its_model() {
        for (model, family) in [
            ("gpt-4o-mini", TokenizerFamily::O200k),
            ("openai/gpt-4.1", TokenizerFamily::O200k),
            ("gpt-5", TokenizerFamily::O200k),
            ("gpt-oss:20b", TokenizerFamily::O200k),
            ("o3-mini", TokenizerFamily::O200k),
            ("gpt-4", TokenizerFamily::Cl100k),
            ("gpt-4-turbo", TokenizerFamily::Cl100k),
            ("GPT-3.5-turbo", TokenizerFamily::Cl100k),
            ("claude-sonnet-4-5", TokenizerFamily::Other),
            ("anthropic/claude-3-opus", TokenizerFamily::Other),
            ("llama3.2", TokenizerFamily::Other),
            ("olmo", TokenizerFamily::Other),
        ] {
            assert_eq!(TokenizerFamily::of(model), family, "{model}");
        }
    }

    #[test]
    fn tokens_are_those_of_the_vocabulary_and_estimates_err_upwards() {
        let text = "hello world";
        assert_eq!(TokenizerFamily::O200k.count(text), 2);
        assert_eq!(TokenizerFamily::Cl100k.count(text), 2);
        assert_eq!(TokenizerFamily::Other.count(text), 3);
        assert!(TokenizerFamily::Other.is_estimate() && !TokenizerFamily::O200k.is_estimate());
        assert_eq!(TokenizerFamily::O200k.count(""), 0);
    }
}
