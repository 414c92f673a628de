//! Tokens, counted as a family of models counts them. Where a family keeps its vocabulary to
//! itself, the count is an estimate, and says so.

use crate::limits;

use super::request::{Block, Request};

/// Models that cut text into the same tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Family {
    /// OpenAI's since 2024: `gpt-4o` and later, the `o` series, `gpt-oss`.
    O200k,
    /// OpenAI's before: `gpt-4`, `gpt-3.5`.
    Cl100k,
    /// Anybody else's.
    #[default]
    Other,
}

/// How names of models begin, the longer ones first, after what says who serves them.
const NAMES: [(&str, Family); 10] = [
    ("gpt-4o", Family::O200k),
    ("gpt-4.", Family::O200k),
    ("chatgpt-4o", Family::O200k),
    ("gpt-4", Family::Cl100k),
    ("gpt-3.5", Family::Cl100k),
    ("gpt-35", Family::Cl100k),
    ("gpt-", Family::O200k),
    ("o1", Family::O200k),
    ("o3", Family::O200k),
    ("o4", Family::O200k),
];

impl Family {
    /// By what a provider calls the model, such as `gpt-4.1-mini` or `openai/gpt-4o`.
    pub fn of(model: &str) -> Self {
        let name = model.rsplit_once('/').map_or(model, |(_, name)| name).to_ascii_lowercase();
        let known = NAMES.iter().find(|(begin, _)| name.starts_with(begin));
        known.map(|(_, family)| *family).unwrap_or_default()
    }

    pub const fn is_estimate(self) -> bool {
        matches!(self, Self::Other)
    }

    /// Such as `o200k_base`, the vocabulary; `estimate` without one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
            Self::Other => "estimate",
        }
    }

    /// The tokens of a text. The first count of a process reads the vocabulary: 50 ms and 70 MB.
    pub fn count(self, text: &str) -> u64 {
        let vocabulary = match self {
            Self::Cl100k => bpe_openai::cl100k_base(),
            Self::O200k | Self::Other => bpe_openai::o200k_base(),
        };
        let tokens = u64::try_from(vocabulary.count(text)).unwrap_or(u64::MAX);
        match self.is_estimate() {
            true => tokens.saturating_mul(100 + limits::ESTIMATE_MARGIN_PERCENT).div_ceil(100),
            false => tokens,
        }
    }

    /// The tokens of a request: what is said anew with every turn, and what the thread holds.
    pub fn size(self, request: &Request) -> Size {
        let said = request.messages.iter().flat_map(|said| &said.blocks);
        let payload = said.map(|block| self.block(block)).sum();
        let tools = request.tools.iter().map(|tool| {
            let parameters = tool.parameters.to_string();
            let texts = [&tool.name, &tool.description, &parameters];
            texts.map(|text| self.count(text)).iter().sum::<u64>()
        });
        let schema = self.count(&request.system) + tools.sum::<u64>();
        let framing = framing(request);
        Size { schema: schema + framing, payload, family: self }
    }

    /// As [`Family::size`]; `notice`, which the request ends with, is said anew with every turn.
    pub fn size_with(self, request: &Request, notice: Option<&str>) -> Size {
        let Size { schema, payload, family } = self.size(request);
        let notice = notice.map_or(0, |notice| self.count(notice));
        Size { schema: schema + notice, payload: payload.saturating_sub(notice), family }
    }

    fn block(self, block: &Block) -> u64 {
        parts(block).map(|text| self.count(text)).sum()
    }
}

/// What a request takes, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Of the system prompt, the tools, the notice and what stands around messages.
    pub schema: u64,
    /// Of what was said.
    pub payload: u64,
    pub family: Family,
}

impl Size {
    pub const fn total(&self) -> u64 {
        self.schema.saturating_add(self.payload)
    }
}

/// More than a request takes, without counting: no vocabulary has tokens shorter than a byte.
pub fn at_most(request: &Request) -> u64 {
    let bytes = u64::try_from(bytes(request)).unwrap_or(u64::MAX);
    bytes.saturating_add(framing(request))
}

/// Of everything a model is sent.
pub(super) fn bytes(request: &Request) -> usize {
    let said = request.messages.iter().flat_map(|said| &said.blocks).flat_map(parts);
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len());
    request.system.len() + said.map(str::len).sum::<usize>() + tools.sum::<usize>()
}

fn framing(request: &Request) -> u64 {
    let framed = request.messages.len() + request.tools.len() + 1;
    u64::try_from(framed).unwrap_or(u64::MAX).saturating_mul(limits::FRAMING_TOKENS)
}

fn parts(block: &Block) -> impl Iterator<Item = &str> {
    let parts: [&str; 2] = match block {
        Block::Text(text) => [text, ""],
        Block::Result { id, text, .. } => [id, text],
        Block::Call(call) => [&call.name, &call.arguments],
        Block::Own(own) => [&own.json, ""],
    };
    parts.into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_the_name_of_its_model() {
        for (model, family) in [
            ("gpt-4o-mini", Family::O200k),
            ("openai/gpt-4.1", Family::O200k),
            ("gpt-5", Family::O200k),
            ("gpt-oss:20b", Family::O200k),
            ("o3-mini", Family::O200k),
            ("gpt-4", Family::Cl100k),
            ("gpt-4-turbo", Family::Cl100k),
            ("GPT-3.5-turbo", Family::Cl100k),
            ("claude-sonnet-4-5", Family::Other),
            ("anthropic/claude-3-opus", Family::Other),
            ("llama3.2", Family::Other),
            ("olmo", Family::Other),
        ] {
            assert_eq!(Family::of(model), family, "{model}");
        }
    }

    #[test]
    fn tokens_are_those_of_the_vocabulary_and_estimates_err_upwards() {
        let text = "hello world";
        assert_eq!(Family::O200k.count(text), 2);
        assert_eq!(Family::Cl100k.count(text), 2);
        assert_eq!(Family::Other.count(text), 3);
        assert!(Family::Other.is_estimate() && !Family::O200k.is_estimate());
        assert_eq!(Family::O200k.count(""), 0);
    }
}
