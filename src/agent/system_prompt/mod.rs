//! The system prompt, which is generated from the config and the schemas. It consists of sections
//! in a fixed order, each inside a tag. Prompts with the same options and the same date are equal,
//! byte for byte.

pub mod native_prompt_sections;
pub mod prompt_sections;

pub use prompt_sections::PromptInput;

use super::protocol::AgentProtocol;

/// The environment that an agent's prompt describes, as detected by the process that runs the
/// agent. The record of each turn contains the environment of the turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentEnvironment {
    pub os: String,
    pub shell: String,
    pub runtime: String,
    /// Date that the prompt shows as today's. If `None`, the prompt shows the day on which the
    /// thread began.
    pub date: Option<String>,
}

impl AgentEnvironment {
    /// Detects the platform that this process runs on.
    pub fn detect() -> Self {
        let shell = std::env::var("SHELL").unwrap_or_default();
        Self {
            os: format!("{} ({})", std::env::consts::OS, std::env::consts::ARCH),
            shell: shell.rsplit('/').next().unwrap_or_default().to_owned(),
            runtime: concat!("organism ", env!("CARGO_PKG_VERSION")).to_owned(),
            date: None,
        }
    }

    /// Parses the text that [`AgentEnvironment::lines`] writes.
    pub fn read(lines: &str) -> Self {
        let fact = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
            lines.lines().find_map(value)
        };

        Self {
            os: fact("OS").unwrap_or_default(),
            shell: fact("Shell").unwrap_or_default(),
            runtime: fact("Runtime").unwrap_or_default(),
            date: fact("Date"),
        }
    }

    /// Writes the operating system, the shell, the program version and the date, each as a line
    /// `NAME: VALUE`. Omits unknown values. `began` is the time at which the thread began; its day
    /// is written if `date` is `None`.
    pub fn lines(&self, began: Option<crate::clock::Time>) -> String {
        let day = || began.map(|time| time.to_string().chars().take(10).collect::<String>());
        let date = self.date.clone().or_else(day).unwrap_or_default();
        let facts = [
            ("OS", self.os.as_str()),
            ("Shell", self.shell.as_str()),
            ("Runtime", self.runtime.as_str()),
            ("Date", date.as_str()),
        ];
        let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
    }
}

/// Names of the standard sections, in the order of the prompt. Their text is generated, or has a
/// default.
pub const STANDARD_SECTIONS: [&str; 6] =
    ["identity", "capabilities", "rules", "tool_calling", "response_protocol", "environment"];

/// Writes the system prompt of one turn. `sections` come from the config:
/// - A section with the name `identity`, `capabilities` or `rules` replaces the default text of
///   this section.
/// - A section with the name of another standard section is appended to the generated text of that
///   section.
/// - Sections with any other name come last.
pub fn system(
    protocol: &AgentProtocol,
    sections: &[(String, String)],
    environment: &str,
) -> String {
    let prompt = protocol.prompt_input();
    let mut out = String::new();
    for name in STANDARD_SECTIONS {
        let given = sections.iter().find(|(called, _)| called == name).map(|(_, text)| text.trim());
        let text = match (name, given) {
            ("tool_calling", given) => joined(&protocol.tool_calling(), given),
            ("response_protocol", given) => joined(&protocol.response_protocol(), given),
            ("environment", given) => joined(environment, given),
            (_, Some(given)) => given.to_owned(),
            ("identity", None) => format!("You are {}. {}", prompt.name, prompt.description),
            ("capabilities", None) => prompt_sections::capabilities(prompt),
            (_, None) => prompt_sections::RULES.to_owned(),
        };
        section(&mut out, name, &text);
    }

    for (name, text) in
        sections.iter().filter(|(name, _)| !STANDARD_SECTIONS.contains(&name.as_str()))
    {
        section(&mut out, name, text.trim());
    }

    out
}

fn joined(generated: &str, given: Option<&str>) -> String {
    match given {
        Some(given) if generated.trim().is_empty() => given.to_owned(),
        Some(given) => format!("{}\n\n{given}", generated.trim_end()),
        None => generated.trim_end().to_owned(),
    }
}

fn section(out: &mut String, name: &str, text: &str) {
    if !text.trim().is_empty() {
        if !out.is_empty() {
            out.push_str("\n\n");
        }
        out.push_str(&format!("<{name}>\n{}\n</{name}>", text.trim_end()));
    }
}
