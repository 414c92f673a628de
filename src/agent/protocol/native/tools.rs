//! The native tools for an agent's vocabulary. Defines the tools, and converts calls of the tools
//! to payloads.

use serde_json::{Value as Json, json};

use super::super::feedback::UNKNOWN_TOOL;
use super::super::finals::AgentFinals;
use super::super::parse_turn::TurnAction;
use super::super::vocabulary::{AgentVocabulary, VocabularyEntry};
use crate::agent::RendererVersion;
use crate::contract::Meaning;
use crate::ids::PayloadName;
use crate::limits;
use crate::model::{ModelTool, ToolCall};
use crate::schema::{LEFT_OUT, Schemas, members};
use crate::system;
use crate::xml::findings::{Finding, TextLocation, offset_in};

/// Core payloads that contain an inner payload, each with the name of the tool parameter that takes
/// the inner payload.
const PLACES: [(&str, &str); 2] =
    [("spawn-thread", "initial-payload"), ("send-to-thread", "content")];

/// Attributes of `spawn-thread`, each with the first renderer version that mentions the attribute.
/// For `money`, see [`AgentVocabulary::mentions_money`].
const SINCE: [(RendererVersion, &str); 3] = [
    (RendererVersion::V5, "bound"),
    (RendererVersion::V6, "tokens"),
    (RendererVersion::V6, "timeout"),
];

/// The native tools of one agent.
#[derive(Debug, Clone)]
pub struct NativeTools {
    entries: Vec<NativeTool>,
    schemas: Schemas,
}

#[derive(Debug, Clone)]
struct NativeTool {
    tool: ModelTool,
    word: PayloadName,
    /// Name of the tool parameter for an inner payload; `None` if the tool's payload contains no
    /// other payload. The parameter is a JSON object with one property. The name of this property
    /// is the name of the tool for the inner payload.
    place: Option<&'static str>,
    /// Whether the receiver of the payload is either a peer or the agent itself.
    addressable: bool,
    /// Whether the payload opens a call to another listener: to a peer, or to the workflow that
    /// takes delegated tasks.
    is_call: bool,
    /// Whether the payload ends the call.
    is_final: bool,
}

impl NativeTools {
    /// Makes a tool for each payload name of the vocabulary, except for `thinking`, because
    /// reasoning needs no tool. If `with_finals` is false, payloads that end the call or report
    /// progress get no tool either.
    pub fn new(
        vocabulary: &AgentVocabulary,
        schemas: &Schemas,
        finals: &AgentFinals,
        with_finals: bool,
        version: RendererVersion,
    ) -> Self {
        let mut toolbox = Self { entries: Vec::new(), schemas: schemas.clone() };
        let offered = |word: &&VocabularyEntry| match word.meaning {
            Meaning::Reply => with_finals,
            Meaning::Note if word.name == system::name("thinking") => false,
            Meaning::Note if word.name == system::name("progress") => with_finals,
            _ => true,
        };

        for word in vocabulary.iter().filter(offered) {
            let mut parameters = schemas.json_in(&word.name, version.json_form());
            let is_final = word.meaning == Meaning::Reply;
            if is_final {
                parameters = finals.parameters(&word.name, parameters);
            }
            let tool_name = toolbox.free(&word.name.local);
            let mut description = description(word, version);
            if version >= RendererVersion::V14 && tool_name != *word.name.local {
                description = format!("{}: {description}", word.name.local);
            }
            if let Some(object) = parameters.as_object_mut() {
                object.remove("description");
                if let Some(Json::String(left_out)) = object.remove(LEFT_OUT) {
                    description = format!("{description} {left_out}").trim_start().to_owned();
                }
            }
            let core = PLACES.iter().find(|(local, _)| word.name == system::name(local));
            toolbox.entries.push(NativeTool {
                tool: ModelTool { name: tool_name, description, parameters },
                word: word.name.clone(),
                place: core.map(|(_, place)| *place),
                addressable: vocabulary.is_addressable(word),
                is_call: word.opens_call(),
                is_final,
            });
        }

        toolbox.fill_places(version);
        toolbox.keep_to(version, vocabulary);
        toolbox
    }

    /// Removes the parameters of `spawn-thread` that the prompt of the agent does not mention.
    fn keep_to(&mut self, version: RendererVersion, vocabulary: &AgentVocabulary) {
        let spawns = |entry: &&mut NativeTool| entry.word == system::name("spawn-thread");
        for entry in self.entries.iter_mut().filter(spawns) {
            let properties = entry.tool.parameters.pointer_mut("/properties");
            if let Some(properties) = properties.and_then(Json::as_object_mut) {
                for (_, attribute) in SINCE.iter().filter(|(since, _)| version < *since) {
                    properties.shift_remove(*attribute);
                }
                if !vocabulary.mentions_money(version) {
                    properties.shift_remove("money");
                }
            }
        }
    }

    /// Returns a tool name for the payload name `local`, in a form that providers accept. No other
    /// tool has the returned name.
    fn free(&self, local: &str) -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
        let wanted: String = local.chars().map(allowed).take(limits::TOOL_NAME_CHARS_MAX).collect();
        let mut name = wanted.clone();
        let mut n = 2;

        while self.entries.iter().any(|entry| entry.tool.name == name) {
            let suffix = format!("-{n}");
            let room = limits::TOOL_NAME_CHARS_MAX.saturating_sub(suffix.len());
            name = wanted.chars().take(room).collect::<String>() + &suffix;
            n += 1;
        }

        name
    }

    /// Changes the tools of core payloads that contain another payload, so that the model can write
    /// this inner payload as JSON. The JSON is an object with one property. The name of this
    /// property is the name of the tool for the inner payload.
    fn fill_places(&mut self, version: RendererVersion) {
        let inner = self.entries.iter().filter(|entry| entry.addressable);
        let schema = if version >= RendererVersion::V8 {
            let names: Vec<&str> = inner.map(|entry| entry.tool.name.as_str()).collect();
            named_payload(&names)
        } else {
            let inner: serde_json::Map<String, Json> = inner
                .map(|entry| (entry.tool.name.clone(), entry.tool.parameters.clone()))
                .collect();
            json!({
                "type": "object",
                "description": "one payload: exactly one property, named like the tool it is for",
                "properties": inner,
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false,
            })
        };

        for entry in &mut self.entries {
            if let Some(place) = entry.place
                && let Some(property) =
                    entry.tool.parameters.pointer_mut(&format!("/properties/{place}"))
            {
                *property = schema.clone();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the payload's tool has a parameter that is an object or a list of objects.
    pub fn has_nested_parameters(&self, word: &PayloadName) -> bool {
        let entry = self.entries.iter().find(|entry| entry.word == *word);
        let properties = entry.and_then(|entry| entry.tool.parameters.get("properties"));
        let properties = properties.and_then(Json::as_object).into_iter().flatten();
        properties
            .map(|(_, schema)| schema.get("items").unwrap_or(schema))
            .any(|schema| schema.get("type").is_some_and(|kind| kind == "object"))
    }

    pub fn tools(&self) -> Vec<ModelTool> {
        self.entries.iter().map(|entry| entry.tool.clone()).collect()
    }

    /// Returns the tools that end the call.
    pub fn ending(&self) -> Vec<ModelTool> {
        let finals = self.entries.iter().filter(|entry| entry.is_final);
        finals.map(|entry| entry.tool.clone()).collect()
    }

    /// Returns the names of the tools that send a payload to a peer.
    pub fn names(&self) -> Vec<String> {
        let called = self.entries.iter().filter(|entry| entry.is_call);
        called.map(|entry| entry.tool.name.clone()).collect()
    }

    pub fn finals(&self) -> Vec<String> {
        let finals = self.entries.iter().filter(|entry| entry.is_final);
        finals.map(|entry| entry.tool.name.clone()).collect()
    }

    /// Returns the name of the tool for a payload name; `None` if there is no such tool.
    pub fn name_of(&self, word: &PayloadName) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| entry.word == *word)?;
        Some(&entry.tool.name)
    }

    /// Returns an example call of the payload's tool, such as `search({"query":"x"})`. Returns
    /// `None` if there is no such tool, or no short example.
    pub fn example(&self, word: &PayloadName) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.word == *word)?;
        let arguments = match entry.place {
            None => {
                let xml = if &*word.namespace == system::NAMESPACE {
                    system::example(&word.local, || None)?
                } else {
                    self.schemas.example(word)?
                };
                self.schemas.to_json(word, &xml).ok()?
            }
            Some(place) => {
                let inner = self.entries.iter().find(|entry| entry.addressable)?;
                let xml = self.schemas.example(&inner.word)?;
                let arguments = self.schemas.to_json(&inner.word, &xml).ok()?;
                let mut outer = json!({ place: { inner.tool.name.as_str(): arguments } });
                if &*word.local == "send-to-thread" {
                    let thread = Json::from("sess-abcd1234.part-one");
                    outer.as_object_mut()?.insert("thread_id".to_owned(), thread);
                }
                outer
            }
        };

        Some(format!("{}({arguments})", entry.tool.name))
    }

    /// Describes each tool in one line of text.
    pub fn described(&self) -> Vec<String> {
        let lines = self.entries.iter().map(|entry| {
            let ModelTool { description, .. } = &entry.tool;
            let signature = signature(&entry.tool);
            if description.is_empty() { signature } else { format!("{signature}: {description}") }
        });
        lines.collect()
    }

    /// Returns a line for each tool, such as `search(query: string, path?: string)`.
    pub fn concise(&self) -> Vec<String> {
        self.entries.iter().map(|entry| signature(&entry.tool)).collect()
    }

    /// Builds the payload from a native call.
    ///
    /// # Errors
    ///
    /// Returns a single finding, which states that the tool is unknown, or what is wrong with the
    /// arguments. If the arguments violate the schema of the payload in several places, this
    /// finding lists all of them.
    pub fn read(&self, call: &ToolCall, finals: &AgentFinals) -> Result<TurnAction, Finding> {
        let Some(entry) = self.entries.iter().find(|entry| entry.tool.name == call.name) else {
            return Err(self.unknown(&call.name));
        };

        // Some providers write an empty text if a call has no arguments.
        let arguments = match call.arguments.trim() {
            "" => "{}",
            arguments => arguments,
        };

        let unpacked = match entry.place {
            Some(place) => self.unpack(arguments, place)?,
            None if entry.is_final => {
                UnpackedArguments::unchanged(finals.arguments(&entry.word, arguments)?)
            }
            None => UnpackedArguments::unchanged(arguments.to_owned()),
        };

        let payload = self
            .schemas
            .to_xml(&entry.word, &unpacked.text)
            .map_err(|found| unpacked.located_in(arguments, joined(&found)))?;
        if entry.is_final {
            finals.check(&entry.word, &payload, TextLocation::default())?;
        }

        Ok(TurnAction { name: entry.word.clone(), payload: payload.into_bytes() })
    }

    fn unknown(&self, name: &str) -> Finding {
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.tool.name.as_str()).collect();
        let near = names.iter().min_by_key(|known| strsim::osa_distance(known, name));
        let near = near.filter(|known| strsim::osa_distance(known, name) <= 2);
        let shown: String = name.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
        let message = match near {
            Some(near) => format!("`{shown}` is no tool; did you mean `{near}`?"),
            None if names.is_empty() => format!("`{shown}` is no tool; you have none"),
            None => format!("`{shown}` is no tool; you have {}", names.join(", ")),
        };

        Finding::new(UNKNOWN_TOOL, TextLocation::default(), message)
    }

    /// Converts the inner payload in the arguments of a native call from JSON to XML. The inner
    /// payload is the value of the argument `place`. A value that is a string stays unchanged,
    /// because it is XML already. The other arguments also stay unchanged.
    fn unpack(&self, arguments: &str, place: &str) -> Result<UnpackedArguments, Finding> {
        let outer = members(arguments).unwrap_or_default();
        let value = outer.iter().find(|(key, _)| key == place).map(|(_, value)| value.get());
        let inner = value.and_then(|value| Some((value, members(value)?)));
        let Some((value, inner)) = inner else {
            return Ok(UnpackedArguments::unchanged(arguments.to_owned()));
        };

        let written = Json::String(self.inner(arguments, &inner, place)?).to_string();
        let start = offset_in(arguments, value);
        let before = arguments.get(..start).unwrap_or_default();
        let after = arguments.get(start + value.len()..).unwrap_or_default();
        let text = format!("{before}{written}{after}");
        let replaced = Some(ReplacedValue { start, length: value.len(), written: written.len() });
        Ok(UnpackedArguments { text, replaced })
    }

    /// Converts an inner payload to XML. `arguments` are the arguments of the whole call, and the
    /// locations of findings are locations in this text.
    fn inner(
        &self,
        arguments: &str,
        members: &[(String, &serde_json::value::RawValue)],
        place: &str,
    ) -> Result<String, Finding> {
        let wrong = |message: String| Finding::new("json-type", TextLocation::default(), message);
        let [(name, value)] = members else {
            let count = members.len();
            return Err(wrong(format!(
                "`$.{place}` has {count} properties; exactly one is expected"
            )));
        };

        let entry = self.entries.iter().find(|e| e.addressable && e.tool.name == *name);
        let Some(entry) = entry else {
            let names = self.entries.iter().filter(|entry| entry.addressable);
            let names: Vec<_> = names.map(|entry| entry.tool.name.as_str()).collect();
            let message =
                format!("`$.{place}.{name}` is no payload; there are {}", names.join(", "));
            return Err(wrong(message));
        };

        self.schemas.to_xml(&entry.word, value.get()).map_err(|found| {
            let mut finding = joined(&found);
            let path = format!("$.{place}.{name}");
            finding.message = finding.message.replace("`$", &format!("`{path}"));
            if finding.place.line > 0 {
                let offset = offset_in(arguments, value.get()) + finding.place.offset;
                move_to(&mut finding.place, arguments, offset);
            }
            finding.place.path = finding.place.path.map(|inner| inner.replacen('$', &path, 1));
            finding
        })
    }
}

/// Arguments of a native call in which an inner payload, written as JSON, is replaced by its XML.
struct UnpackedArguments {
    text: String,
    /// The value that was replaced; `None` if the arguments are unchanged.
    replaced: Option<ReplacedValue>,
}

/// In the arguments of a native call, a value that was replaced by another text.
struct ReplacedValue {
    /// Byte offset of the value.
    start: usize,
    /// Length of the value in bytes.
    length: usize,
    /// Length of the text that replaces the value, in bytes.
    written: usize,
}

impl UnpackedArguments {
    fn unchanged(text: String) -> Self {
        Self { text, replaced: None }
    }

    /// Converts the location of a finding. The given location is in these arguments; the new one is
    /// in `original`, the arguments as the model wrote them.
    fn located_in(&self, original: &str, mut finding: Finding) -> Finding {
        if let Some(ReplacedValue { start, length, written }) = self.replaced
            && finding.place.line > 0
        {
            let offset = finding.place.offset;
            let offset = match offset.checked_sub(start + written) {
                Some(behind) => start + length + behind,
                None => offset.min(start),
            };
            move_to(&mut finding.place, original, offset);
        }
        finding
    }
}

/// Moves a location to the byte at `offset` in `text`. The path in the location stays unchanged.
fn move_to(place: &mut TextLocation, text: &str, offset: usize) {
    let path = place.path.take();
    *place = TextLocation { path, ..TextLocation::at(text.as_bytes(), offset) };
}

/// Returns the JSON schema for a payload inside a core payload. The schema lists only the names of
/// the permitted tools. The full schema of each inner payload is in the definition of its tool.
fn named_payload(names: &[&str]) -> Json {
    let description = format!(
        "One payload: exactly one property, whose name is a tool ({}) and whose value is that \
         tool's arguments.",
        names.join(", ")
    );
    json!({
        "type": "object",
        "description": description,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"type": "object"},
    })
}

/// Joins several findings into one finding at the location of the first finding.
fn joined(found: &[Finding]) -> Finding {
    let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
    match found.first() {
        Some(first) => Finding { message: messages.join("; "), ..first.clone() },
        None => Finding::new("json-type", TextLocation::default(), "the arguments do not fit"),
    }
}

fn description(word: &VocabularyEntry, version: RendererVersion) -> String {
    let mut out = word.description.doc.clone();
    let answered = match word.peers.as_slice() {
        [] => String::new(),
        _ => format!("Answered by: {}", word.answered_by(version)),
    };

    let about = match word.meaning {
        Meaning::Own => {
            "Goes on with your own work: recorded in this thread, and you are asked again."
        }
        Meaning::Reply => "Ends the task.",
        Meaning::Note => "A note: recorded, no action.",
        _ => answered.as_str(),
    };

    if !about.is_empty() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(about);
    }

    out
}

fn signature(tool: &ModelTool) -> String {
    let required = |key: &str| {
        let all = tool.parameters.get("required").and_then(Json::as_array);
        all.is_some_and(|all| all.iter().any(|one| one == key))
    };

    let properties = tool.parameters.get("properties").and_then(Json::as_object);
    let parameters = properties.into_iter().flatten().map(|(key, schema)| {
        let mark = if required(key) { "" } else { "?" };
        format!("{key}{mark}: {}", kind(schema))
    });
    format!("{}({})", tool.name, parameters.collect::<Vec<_>>().join(", "))
}

fn kind(schema: &Json) -> String {
    if let Some(choices) = schema.get("enum").and_then(Json::as_array) {
        let all: Vec<String> = choices.iter().map(ToString::to_string).collect();
        return all.join(" | ");
    }

    match schema.get("type").and_then(Json::as_str) {
        Some("array") => {
            format!("{}[]", schema.get("items").map_or_else(|| "any".to_owned(), kind))
        }
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}
