//! Final payloads, with which an agent ends its call. Finds the agent's report in a final payload,
//! and checks the report against the configured format.

use serde_json::{Value as Json, json};

use super::feedback::{
    FINAL_EMPTY, FINAL_FORMAT, FINAL_INVALID, FINAL_NOT_JSON, FINAL_STATUS, FINAL_UNCLOSED,
};
use super::parse_turn::TurnAction;
use super::vocabulary::AgentVocabulary;
use crate::agent::{FinalFormat, FinalMode, RendererVersion};
use crate::ids::PayloadName;
use crate::mutant::mutant;
use crate::schema::{JsonSchemaForm, PayloadDescription, Schemas, repeated_member};
use crate::xml::element::Element;
use crate::xml::extract::{ExtractedItem, Extraction};
use crate::xml::findings::{Finding, TextLocation};

/// The final payloads with which one agent may end its calls.
#[derive(Debug, Clone)]
pub struct AgentFinals {
    pub format: FinalFormat,
    pub by: FinalMode,
    words: Vec<FinalPayload>,
    schemas: Schemas,
    /// Version of the renderer that writes the prompts about these payloads.
    version: RendererVersion,
}

#[derive(Debug, Clone)]
struct FinalPayload {
    name: PayloadName,
    report: Option<ReportPlace>,
}

/// The part of a final payload in which the agent writes its report.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReportPlace {
    Content,
    Child(String),
}

impl ReportPlace {
    /// Returns the part of a payload that contains the report. If the payload itself has text, the
    /// report is this text. Otherwise, the report is the only required child element, if this child
    /// contains only text. Returns `None` if the payload has another required part, or no place for
    /// a report.
    fn of(description: &PayloadDescription) -> Option<Self> {
        let mut needed = description.parameters.iter().filter(|p| p.required || p.alternative);
        if description.text.is_some() {
            return needed.next().is_none().then_some(Self::Content);
        }

        let only = needed.next().filter(|p| !p.attribute && !p.repeated && p.required)?;
        let plain = only.parameters.is_empty() && only.content.kind == "text";
        (plain && needed.next().is_none()).then(|| Self::Child(only.name.clone()))
    }

    /// Returns the name of the JSON property that contains the report, if the payload is written as
    /// JSON of the given form. Returns `None` if there is no such property.
    fn key(
        &self,
        payload: &PayloadName,
        schemas: &Schemas,
        form: JsonSchemaForm,
    ) -> Option<String> {
        match self {
            Self::Content => schemas.content_key(payload, form),
            Self::Child(child) => schemas.child_key(payload, child, form),
        }
    }

    fn read(&self, payload: &Element) -> String {
        match self {
            Self::Content => payload.text(),
            Self::Child(name) => payload.child(name).map(Element::text).unwrap_or_default(),
        }
    }
}

impl AgentFinals {
    pub fn new(
        vocabulary: &AgentVocabulary,
        schemas: &Schemas,
        format: FinalFormat,
        version: RendererVersion,
    ) -> Self {
        // An outline may leave out what a final requires.
        let form = version.description_form();
        let described = |name| schemas.whole_description_in(name, form);
        let words = vocabulary.finals().map(|word| FinalPayload {
            name: word.name.clone(),
            report: ReportPlace::of(&described(&word.name)),
        });

        Self {
            format,
            by: FinalMode::Action,
            words: words.collect(),
            schemas: schemas.clone(),
            version,
        }
    }

    #[must_use]
    pub fn ended_by(self, by: FinalMode) -> Self {
        Self { by, ..self }
    }

    /// Adapts the final payloads to the transport `xml-final`. With this transport, the model
    /// writes its report into a slot, an element in its text. If no final payload can contain a
    /// plain-text report, sets the format to XML: the slot then contains a whole final payload.
    /// Otherwise, the format stays unchanged.
    #[must_use]
    pub fn in_slot(self) -> Self {
        match self.of_text() {
            Some(_) => self,
            None => Self { format: FinalFormat::Xml, ..self },
        }
    }

    /// Returns the names of the final payloads as tags, joined for a sentence, such as
    /// `<a> or <b>`.
    fn tags(&self) -> String {
        let tags: Vec<_> = self.words.iter().map(|word| format!("<{}>", word.name.local)).collect();
        tags.join(" or ")
    }

    /// Reads a final payload that the model has written as XML into a slot. A slot is an element
    /// for reports in the model's text.
    ///
    /// # Errors
    ///
    /// Returns a finding if the slot does not contain exactly one final payload of the agent, or if
    /// that payload is not valid by its schema.
    pub fn declared(
        &self,
        extraction: &Extraction,
        place: &TextLocation,
    ) -> Result<TurnAction, Finding> {
        let wrong = |message: String| Finding::new(FINAL_INVALID, place.clone(), message);
        if let Some(broken) = extraction.broken().next() {
            let message = format!("the final report is broken: {}", broken.finding.message);
            return Err(wrong(message));
        }

        let is_blank = |item: &ExtractedItem| matches!(item, ExtractedItem::Text(text) if text.trim().is_empty());
        let mut items = extraction.items.iter().filter(|item| !is_blank(item));
        let only = match (items.next(), items.next()) {
            (Some(ExtractedItem::Action(action)), None) => Some(action),
            _ => None,
        };
        let name = only.map(|action| PayloadName::from(action.name()));
        let name = name.filter(|name| self.words.iter().any(|word| word.name == *name));
        let (Some(action), Some(name)) = (only, name) else {
            let message =
                format!("the final report is exactly one {}, and nothing else", self.tags());
            return Err(wrong(message));
        };

        let payload = action.payload();
        match self.schemas.validate(&name, payload.as_bytes()) {
            Ok(()) => Ok(TurnAction { name, payload: payload.into_bytes() }),
            Err(found) => {
                let found = found.first().map_or_else(String::new, |one| one.message.clone());
                Err(wrong(format!("the final report does not fit its schema: {found}")))
            }
        }
    }

    /// Returns the name of the JSON property that contains the report if the final payload `name`
    /// is written as JSON, for example as the arguments of a native call. Returns `None` if the
    /// payload has no place for a report.
    fn report_key(&self, name: &PayloadName) -> Option<String> {
        self.report(name)?.key(name, &self.schemas, self.version.json_form())
    }

    fn report(&self, name: &PayloadName) -> Option<&ReportPlace> {
        self.words.iter().find(|word| word.name == *name)?.report.as_ref()
    }

    /// Returns the first final payload that can contain a plain-text report; `None` if none can.
    pub fn of_text(&self) -> Option<&PayloadName> {
        self.words.iter().find(|word| word.report.is_some()).map(|word| &word.name)
    }

    /// Checks the report inside a final payload. Does nothing if the payload is not a final
    /// payload, or contains no report.
    pub fn check(
        &self,
        name: &PayloadName,
        payload: &str,
        place: TextLocation,
    ) -> Result<(), Finding> {
        let Some(report) = self.report(name) else { return Ok(()) };
        let Some(payload) = Element::read(payload) else { return Ok(()) };
        self.check_format(&report.read(&payload), place)
    }

    /// Fails if a report is empty or does not have the configured format. Does not check whether
    /// the report claims success, because the system decides whether the call succeeded.
    pub fn check_format(&self, report: &str, place: TextLocation) -> Result<(), Finding> {
        if report.trim().is_empty() {
            let message = "the final report is empty; write everything the asker needs to know";
            return Err(Finding::new(FINAL_EMPTY, place, message));
        }

        let Some(schema) = self.format.schema() else { return Ok(()) };
        let json: Json = match serde_json::from_str(report) {
            Ok(json) => json,
            Err(error) => {
                let message = format!("the final report is no JSON: {error}");
                return Err(Finding::new(FINAL_NOT_JSON, place, message));
            }
        };

        // The schema checks only one member of each name, and a reader may use another one.
        if let Some(path) = repeated_member(report) {
            let message = format!("the final report gives `{path}` twice");
            return Err(Finding::new(FINAL_INVALID, place, message));
        }

        let mistakes = schema.mistakes(&json);
        if mistakes.is_empty() {
            return Ok(());
        }

        let message = format!("the final report does not fit its schema: {}", mistakes.join("; "));
        Err(Finding::new(FINAL_INVALID, place, message))
    }

    /// Fails if the `format` attribute of a slot is missing or differs from the configured format.
    pub fn check_slot_format(
        &self,
        written: Option<&str>,
        place: TextLocation,
    ) -> Result<(), Finding> {
        let wanted = self.format.as_str();
        let message = match written {
            Some(written) if written == wanted => return Ok(()),
            _ if mutant("guess-the-format") => return Ok(()),
            Some(written) => format!("format `{written}` is not taken; write format=\"{wanted}\""),
            None => format!("the final report has no format; write format=\"{wanted}\""),
        };

        Err(Finding::new(FINAL_FORMAT, place, message))
    }

    /// Whether the schema of the payload `name` accepts `payload`.
    pub fn is_valid(&self, name: &PayloadName, payload: &str) -> bool {
        self.schemas.validate(name, payload.as_bytes()).is_ok()
    }

    /// Makes the final payload that contains the given report.
    pub fn write(&self, report: &str, place: TextLocation) -> Result<TurnAction, Finding> {
        let nowhere = || {
            let message = "this agent has no final that takes a report";
            Finding::new(FINAL_INVALID, place.clone(), message)
        };

        let name = self.of_text().ok_or_else(nowhere)?;
        let key = self.report_key(name).ok_or_else(nowhere)?;
        let arguments = json!({key: report}).to_string();

        match self.schemas.to_xml(name, &arguments) {
            Ok(xml) => Ok(TurnAction { name: name.clone(), payload: xml.into_bytes() }),
            Err(found) => {
                let message = found.first().map_or_else(String::new, |one| one.message.clone());
                Err(Finding::new(FINAL_INVALID, place, message))
            }
        }
    }

    /// Returns the parameters of the native tool for the final payload `name`. `schema` is the JSON
    /// schema of the payload, in which the report is a string. If the agent's reports are JSON,
    /// replaces the schema of this string by the schema of the reports.
    pub fn parameters(&self, name: &PayloadName, mut schema: Json) -> Json {
        if let (Some(key), Some(own)) = (self.report_key(name), self.format.schema())
            && let Some(place) = schema.pointer_mut(&format!("/properties/{key}"))
        {
            *place = own.json().clone();
        }
        schema
    }

    /// Returns the arguments of a native call for the final payload `name`, with the report as a
    /// string. A model may also write a JSON report as the JSON value itself. If the agent's
    /// reports are not JSON, the arguments stay unchanged. Otherwise, the function converts the
    /// report to its JSON text in two cases:
    /// - The report is no string.
    /// - The report is a string, and the schema of the reports accepts this string as a report. The
    ///   text in the string is not the JSON text of a valid report.
    ///
    /// Any other report stays unchanged.
    ///
    /// # Errors
    ///
    /// If the agent's reports are JSON, returns a finding if an object in the arguments contains a
    /// name twice.
    pub fn arguments(&self, name: &PayloadName, arguments: &str) -> Result<String, Finding> {
        let is_fitting =
            |json: &Json| self.format.schema().is_some_and(|own| own.mistakes(json).is_empty());
        let is_text = |report: &Json| {
            let inner = report.as_str().map(serde_json::from_str::<Json>);
            let is_json = inner.and_then(Result::ok).is_some_and(|inner| is_fitting(&inner));
            report.is_string() && (is_json || !is_fitting(report))
        };

        let key = self.report_key(name).filter(|_| self.format.schema().is_some());
        if let Some(path) = key.as_ref().and_then(|_| repeated_member(arguments)) {
            let message = format!("`{path}` is given twice");
            return Err(Finding::new("json-duplicate", TextLocation::default(), message));
        }

        let unpacked = key.and_then(|key| {
            let mut json: Json = serde_json::from_str(arguments).ok()?;
            let place = json.as_object_mut()?.get_mut(&key)?;
            if !is_text(place) {
                *place = Json::String(place.to_string());
            }
            Some(json.to_string())
        });
        Ok(unpacked.unwrap_or_else(|| arguments.to_owned()))
    }
}

/// Returns a phrase that names the format of the final report, such as `, in markdown`. From the
/// eighth renderer version on, the phrase is empty if no final payload of the agent can contain a
/// plain-text report.
pub fn in_format(finals: &AgentFinals, version: RendererVersion) -> String {
    if finals.of_text().is_some() || version < RendererVersion::V8 {
        format!(", in {}", finals.format.words())
    } else {
        String::new()
    }
}

/// Whether a payload with the description `description` can contain a plain-text report.
pub fn takes_report(description: &PayloadDescription) -> bool {
    ReportPlace::of(description).is_some()
}

/// Fails if the model wrote a `status` with its report. A status is refused because the system, and
/// not the model, decides whether the call succeeded.
pub fn status(written: Option<&str>, place: TextLocation) -> Result<(), Finding> {
    match written {
        None => Ok(()),
        Some(_) => {
            let message = "the final report has a status; the system decides on that, leave it out";
            Err(Finding::new(FINAL_STATUS, place, message))
        }
    }
}

/// Creates the finding for a model's text that ends before the report is complete.
pub fn unclosed(place: TextLocation, why: &str) -> Finding {
    Finding::new(FINAL_UNCLOSED, place, format!("the final report is not closed: {why}"))
}
