//! Known providers: their addresses, the environment variables of their keys, and their deviations
//! from the wire formats.

use serde::{Deserialize, Serialize};

/// A provider that the config can name without stating an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderPreset {
    /// Name of the provider in the config.
    pub name: &'static str,
    pub wire: WireFormat,
    /// Base address; `None` if the config must state one.
    pub base_url: Option<&'static str>,
    /// Environment variable that usually contains the key; `None` if there is no usual one.
    pub key_variable: Option<&'static str>,
    /// Whether the provider requires a key.
    pub needs_key: bool,
}

/// Wire format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireFormat {
    /// OpenAI's format for chat completions. The value states how the format of this provider
    /// differs from OpenAI's format.
    #[serde(rename = "openai")]
    OpenAi(OpenAiQuirks),
    /// Anthropic's messages API.
    #[serde(rename = "anthropic")]
    Anthropic,
}

impl WireFormat {
    /// Returns the path of the API beneath the base address.
    pub const fn path(self) -> &'static str {
        match self {
            Self::OpenAi(_) => "/chat/completions",
            Self::Anthropic => "/messages",
        }
    }

    /// Returns the format of requests for `model`. Any server may require the rules of Mistral's
    /// models, because they are part of the prompt templates of these models.
    pub fn for_model(self, model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        match self {
            Self::OpenAi(quirks) if MISTRAL_MODELS.iter().any(|part| model.contains(part)) => {
                Self::OpenAi(OpenAiQuirks { has_mistral_rules: true, ..quirks })
            }
            format => format,
        }
    }

    /// Returns the format as versions of this program used it before they followed the rules for
    /// the results of native calls.
    pub const fn without_result_rules(self) -> Self {
        match self {
            Self::OpenAi(quirks) => Self::OpenAi(OpenAiQuirks {
                names_results: false,
                has_mistral_rules: false,
                ..quirks
            }),
            Self::Anthropic => Self::Anthropic,
        }
    }
}

/// Name of the JSON key that bounds the length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundKey {
    #[serde(rename = "max_tokens")]
    MaxTokens,
    #[serde(rename = "max_completion_tokens")]
    MaxCompletionTokens,
}

/// Deviations of a provider from OpenAI's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAiQuirks {
    /// The JSON key that bounds the tokens of an answer.
    #[serde(rename = "max_tokens")]
    pub max_tokens: BoundKey,
    /// Whether a request must contain the parameter `stream_options`, so that the provider reports
    /// the token usage of a stream. If false, the provider always reports the usage, and rejects
    /// this parameter.
    #[serde(rename = "asks_for_usage")]
    pub asks_for_usage: bool,
    /// Whether the provider is known to accept the JSON key that limits an answer to one call.
    #[serde(rename = "takes_one_call")]
    pub takes_one_call: bool,
    /// Whether the reasoning before a native call must be sent back together with the result of the
    /// call. A native call is a tool call in the form of the provider's API.
    #[serde(rename = "wants_reasoning_back")]
    pub wants_reasoning_back: bool,
    /// Whether the result of a native call must state the name of the called tool.
    #[serde(rename = "names_results", default, skip_serializing_if = "std::ops::Not::not")]
    pub names_results: bool,
    /// Whether a request must follow the rules of Mistral's models for native calls. The id of a
    /// call has nine letters and digits, and only an answer can stand between the result of a call
    /// and text of the user.
    #[serde(rename = "has_mistral_rules", default, skip_serializing_if = "std::ops::Not::not")]
    pub has_mistral_rules: bool,
}

/// Parts of the names of Mistral's models, in lower case.
const MISTRAL_MODELS: [&str; 7] =
    ["mistral", "ministral", "magistral", "devstral", "codestral", "mixtral", "pixtral"];

const USUAL: OpenAiQuirks = OpenAiQuirks {
    max_tokens: BoundKey::MaxTokens,
    asks_for_usage: true,
    takes_one_call: false,
    wants_reasoning_back: false,
    names_results: false,
    has_mistral_rules: false,
};
const SINGLE: OpenAiQuirks = OpenAiQuirks { takes_one_call: true, ..USUAL };
const NEW: OpenAiQuirks = OpenAiQuirks { max_tokens: BoundKey::MaxCompletionTokens, ..SINGLE };

const fn hosted(
    name: &'static str,
    quirks: OpenAiQuirks,
    base_url: &'static str,
    variable: &'static str,
) -> ProviderPreset {
    let wire = WireFormat::OpenAi(quirks);
    let base_url = Some(base_url);
    let key_variable = Some(variable);
    ProviderPreset { name, wire, base_url, key_variable, needs_key: true }
}

const fn local(
    name: &'static str,
    quirks: OpenAiQuirks,
    base_url: Option<&'static str>,
) -> ProviderPreset {
    ProviderPreset {
        name,
        wire: WireFormat::OpenAi(quirks),
        base_url,
        key_variable: None,
        needs_key: false,
    }
}

/// All known providers.
pub const PRESETS: &[ProviderPreset] = &[
    hosted("openai", NEW, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ProviderPreset {
        name: "anthropic",
        wire: WireFormat::Anthropic,
        base_url: Some("https://api.anthropic.com/v1"),
        key_variable: Some("ANTHROPIC_API_KEY"),
        needs_key: true,
    },
    local("ollama", USUAL, Some("http://localhost:11434/v1")),
    local("vllm", SINGLE, Some("http://localhost:8000/v1")),
    local("lm-studio", USUAL, Some("http://localhost:1234/v1")),
    hosted("openrouter", SINGLE, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    hosted("xai", NEW, "https://api.x.ai/v1", "XAI_API_KEY"),
    hosted("groq", NEW, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    hosted(
        "mistral",
        OpenAiQuirks { asks_for_usage: false, has_mistral_rules: true, ..SINGLE },
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
    ),
    hosted(
        "deepseek",
        OpenAiQuirks { wants_reasoning_back: true, ..USUAL },
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
    ),
    hosted(
        "gemini",
        OpenAiQuirks { names_results: true, ..USUAL },
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
    ),
    local("openai-compatible", USUAL, None),
];

impl ProviderPreset {
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}
