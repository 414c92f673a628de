//! A schema file that compiles, and that validates texts on any OS thread.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use memchr::memmem::Finder;

use super::attribute_search;
use super::bounded_outline;
use super::bounds;
use super::compiled_per_thread;
use super::costly_values::CostlyValues;
use super::describe::{self, DescriptionForm, PayloadDescription};
use super::json::{self, JsonSchemaForm, UnsupportedPart};
use super::libxml2::ParsedDocument;
use super::libxml2_messages;
use super::lint;
use super::load::SchemaBundle;
use super::model::SchemaModel;
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::trial_compile::SchemaCompiler;
use super::xsd::SchemaElement;
use super::{example, read, required, shape};
use crate::ids::{Digest, PayloadName};
use crate::limits;
use crate::locks::locked;
use crate::shipped::{self, SCHEMA_PREFIX};
use crate::xml::findings::{Finding, TextLocation};
use crate::xml::shape::{ShapeArena, ShapeId};

/// Searcher for `schemaLocation` and `noNamespaceSchemaLocation`, the attributes that state the
/// location of a schema. It searches for the part that both names have in common. Created once,
/// because creating a searcher costs more than a search in a short text.
static SCHEMA_HINT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("chemaLocation"));

/// A schema file with all documents that it includes and imports.
pub struct SchemaFile {
    bundle: SchemaBundle,
    names: Vec<PayloadName>,
    namespaces: Vec<String>,
    warnings: Vec<SchemaProblem>,
    /// Data about the values that are matched against costly patterns. Empty for a schema that was
    /// not loaded from a file.
    costly: CostlyValues,
    model: OnceLock<SchemaModel>,
    /// Local names of the attributes that the schema declares.
    attributes: OnceLock<HashSet<String>>,
    /// The prompt texts of each payload, in the order of `names`.
    prompt_texts: Vec<PromptTexts>,
}

/// Texts that describe a payload in prompts. Each text is made on first use and then kept, because
/// it occurs in the prompts of all agents that know the payload.
#[derive(Default)]
struct PromptTexts {
    outline: OnceLock<PayloadDescription>,
    example: OnceLock<Option<String>>,
}

/// Result of validating a text against a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaVerdict {
    Valid,
    /// The text is well-formed, but the schema does not permit it.
    Invalid(Vec<Finding>),
    /// The text is not well-formed, or not namespace-well-formed.
    Malformed(Vec<Finding>),
}

impl SchemaVerdict {
    pub fn into_result(self) -> Result<(), Vec<Finding>> {
        match self {
            Self::Valid => Ok(()),
            Self::Invalid(findings) | Self::Malformed(findings) => Err(findings),
        }
    }
}

impl SchemaFile {
    /// Loads a schema file, and checks with `compiler` that the schema compiles. A path such as
    /// `organism:actions.xsd` is the name of a shipped schema. Returns all problems at once.
    pub fn open(compiler: &mut SchemaCompiler, path: &Path) -> Result<Self, Vec<SchemaProblem>> {
        if let Some(name) = path.to_str().filter(|name| name.starts_with(SCHEMA_PREFIX)) {
            return Self::shipped(name);
        }

        let file = Self::checked(compiler, SchemaBundle::open(path, compiler.catalogue())?)?;
        let mut file = file.with_costly_values(compiler)?;
        file.warnings.extend(lint::check(&file.bundle));
        Ok(file)
    }

    /// Loads the text of a schema that a person will save as a file. Refuses each text that
    /// [`Self::open`] would refuse. Such a schema is not linted.
    pub fn draft(
        compiler: &mut SchemaCompiler,
        label: &str,
        text: &str,
    ) -> Result<Self, Vec<SchemaProblem>> {
        Self::generated(compiler, label, text)?.with_costly_values(compiler)
    }

    /// Analyses the patterns of the schema. Returns a problem for each pattern that is too costly
    /// even for a short text, unless `compiler` permits such patterns.
    fn with_costly_values(self, compiler: &SchemaCompiler) -> Result<Self, Vec<SchemaProblem>> {
        let (costly, problems) = CostlyValues::of(&self.bundle.sources);
        if !problems.is_empty() && !compiler.permits_costly_patterns() {
            return Err(problems);
        }

        Ok(Self { costly, ..self })
    }

    /// Loads a schema that is part of the program. Each is read once in a process.
    pub fn builtin(label: &str, text: &'static str) -> Result<Arc<Self>, Vec<SchemaProblem>> {
        type ByLabelAndText = BTreeMap<(String, &'static str), Arc<SchemaFile>>;
        // Lock: held while a schema is read, so that no other thread reads it, too.
        static READ: Mutex<ByLabelAndText> = Mutex::new(BTreeMap::new());
        let mut read = locked(&READ);
        let key = (label.to_owned(), text);
        if let Some(file) = read.get(&key) {
            return Ok(file.clone());
        }

        let file = Arc::new(Self::new(SchemaBundle::builtin(label, text)?, Vec::new()));
        read.insert(key, file.clone());
        Ok(file)
    }

    /// Loads a shipped schema by its name, such as `organism:actions.xsd`. Its text is stored in
    /// the journal like the text of a file, because another version of the program may ship another
    /// text.
    pub fn shipped(name: &str) -> Result<Self, Vec<SchemaProblem>> {
        let Some(schema) = shipped::schema(name) else {
            let message = "there is no shipped schema of this name";
            return Err(vec![SchemaProblem::new(name, 0, "schema-unreadable", message)]);
        };
        SchemaBundle::generated(name, schema.text).map(|bundle| Self::new(bundle, Vec::new()))
    }

    /// Loads a schema that was generated from a config. Such a schema is not linted, because there
    /// is no author who could follow a warning.
    pub fn generated(
        compiler: &mut SchemaCompiler,
        label: &str,
        text: &str,
    ) -> Result<Self, Vec<SchemaProblem>> {
        Self::checked(compiler, SchemaBundle::generated(label, text)?)
    }

    /// Returns a schema if it stays within the bounds and `compiler` can compile it. Not used for
    /// schemas that are part of the program.
    fn checked(
        compiler: &mut SchemaCompiler,
        bundle: SchemaBundle,
    ) -> Result<Self, Vec<SchemaProblem>> {
        let beyond = bounds::check(&bundle.sources);
        if !beyond.is_empty() {
            return Err(beyond);
        }

        let warnings = compiler.check(&bundle)?;
        Ok(Self::new(bundle, warnings))
    }

    fn new(bundle: SchemaBundle, warnings: Vec<SchemaProblem>) -> Self {
        let names = names(&bundle);
        let namespaces = libxml2_messages::namespaces(&bundle);
        let prompt_texts = names.iter().map(|_| PromptTexts::default()).collect();
        let costly = CostlyValues::default();
        let model = OnceLock::new();
        let attributes = OnceLock::new();
        Self { bundle, names, namespaces, warnings, costly, model, attributes, prompt_texts }
    }

    pub fn label(&self) -> &str {
        self.bundle.main().map_or("", |source| source.label.as_str())
    }

    /// Returns the documents of the schema, the schema file first. Leaves out documents that are
    /// part of the program.
    pub fn documents(&self) -> impl Iterator<Item = &SchemaDocument> {
        self.bundle.sources.iter().filter(|source| source.is_recorded)
    }

    /// Returns the target namespace; empty if there is none.
    pub fn namespace(&self) -> &str {
        self.bundle.main().map_or("", SchemaDocument::target)
    }

    /// Returns the declared payload names: the global elements that are not abstract.
    pub fn names(&self) -> &[PayloadName] {
        &self.names
    }

    pub fn digest(&self) -> Digest {
        self.bundle.digest
    }

    pub fn warnings(&self) -> &[SchemaProblem] {
        &self.warnings
    }

    /// Parses and validates `text`. The root must be `name`, or any declared name if `name` is
    /// `None`.
    pub fn validate(&self, name: Option<&PayloadName>, text: &[u8]) -> SchemaVerdict {
        let document = match ParsedDocument::parse(text) {
            Ok(document) => document,
            Err(diagnostics) => {
                return SchemaVerdict::Malformed(libxml2_messages::unreadable(text, &diagnostics));
            }
        };

        if document.has_doctype() {
            let message = "a payload may have no document type declaration";
            let finding = Finding::new("not-well-formed", TextLocation::at(text, 0), message);
            return SchemaVerdict::Malformed(vec![finding]);
        }

        if let Some(name) = name.filter(|n| !document.root_is(&n.namespace, &n.local)) {
            return SchemaVerdict::Invalid(vec![wrong_root(&document, name, text)]);
        }

        // libxml2 cannot be interrupted, so the cost of its work is checked before it begins.
        let finding = std::str::from_utf8(text).ok().and_then(|text| self.costly.check(text));
        if let Some(finding) = finding {
            return SchemaVerdict::Invalid(vec![finding]);
        }

        let grammar = match compiled_per_thread::schema_of(&self.bundle) {
            Ok(grammar) => grammar,
            Err(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let finding =
                    Finding::new("schema-invalid", TextLocation::default(), lines.join("; "));
                return SchemaVerdict::Invalid(vec![finding]);
            }
        };

        let mut grammar = grammar.borrow_mut();
        let result = grammar.validate(&document);
        if SCHEMA_HINT.find(text).is_some() {
            // libxml2 does not follow the hint, but its context would remember it.
            grammar.forget();
        }

        match result {
            Ok(()) => SchemaVerdict::Valid,
            Err(diagnostics) => {
                let mut findings = libxml2_messages::invalid(text, &diagnostics, &self.namespaces);
                let (namespace, local) = document.root();
                let name = PayloadName::new(&namespace, &local);
                required::complete(&mut findings, text, || self.describe(&name));
                SchemaVerdict::Invalid(findings)
            }
        }
    }

    /// Returns the model of the schema, read on first use.
    fn model(&self) -> &SchemaModel {
        self.model.get_or_init(|| read::model(&self.bundle))
    }

    /// Whether a payload `name` can contain the attribute `attribute`, at any depth. In doubt,
    /// returns true. Returns false if no document of the schema declares the attribute.
    pub fn can_contain(&self, name: &PayloadName, attribute: &str) -> bool {
        let documents = &self.bundle.sources;
        // Kept, because one schema may declare hundreds of payloads, and each of them is searched.
        let declared =
            self.attributes.get_or_init(|| attribute_search::declared_attributes(documents));
        declared.contains(attribute)
            && attribute_search::can_contain(documents, &name.local, attribute)
    }

    pub fn describe(&self, name: &PayloadName) -> PayloadDescription {
        self.whole_description_in(name, DescriptionForm::Current)
    }

    /// Returns the description of a payload in the given form, without a bound on its length.
    pub fn whole_description_in(
        &self,
        name: &PayloadName,
        form: DescriptionForm,
    ) -> PayloadDescription {
        describe::payload(self.model(), name, form)
    }

    /// Returns the description of a payload as prompts show it in the given form.
    pub fn description_in(&self, name: &PayloadName, form: DescriptionForm) -> PayloadDescription {
        match form {
            DescriptionForm::Early => self.whole_description_in(name, form),
            DescriptionForm::GroupsAsLevels => bounded_outline::outline(self.model(), name, form),
            DescriptionForm::Current => self.outline(name),
        }
    }

    /// Returns the description of a payload for prompts, with a bound on its length.
    pub fn outline(&self, name: &PayloadName) -> PayloadDescription {
        let form = DescriptionForm::Current;
        let outline = || bounded_outline::outline(self.model(), name, form);
        self.prompt_texts(name)
            .map_or_else(outline, |texts| texts.outline.get_or_init(outline).clone())
    }

    /// Returns a valid example of the payload `name`; `None` if no valid example could be
    /// generated. Prefers an example that is short enough for a prompt.
    pub fn example(&self, name: &PayloadName) -> Option<String> {
        let example = || self.new_example(name);
        self.prompt_texts(name)
            .map_or_else(example, |texts| texts.example.get_or_init(example).clone())
    }

    /// Returns the prompt texts of a payload; `None` if the schema does not declare the payload.
    fn prompt_texts(&self, name: &PayloadName) -> Option<&PromptTexts> {
        self.prompt_texts.get(self.names.binary_search(name).ok()?)
    }

    fn new_example(&self, name: &PayloadName) -> Option<String> {
        let mut candidates = example::candidates(self.model(), name);
        // The sort is stable, so candidates of the same kind keep their order.
        candidates.sort_by_key(|text| text.len() > limits::EXAMPLE_BYTES_MAX);
        let good =
            |text: &String| self.validate(Some(name), text.as_bytes()) == SchemaVerdict::Valid;
        candidates.into_iter().find(good)
    }

    /// Returns the JSON Schema of a payload.
    pub fn json(&self, name: &PayloadName) -> serde_json::Value {
        self.json_in(name, JsonSchemaForm::Current)
    }

    /// Returns the JSON Schema of a payload in the given form.
    pub fn json_in(&self, name: &PayloadName, form: JsonSchemaForm) -> serde_json::Value {
        json::schema(self.model(), name, form)
    }

    /// Returns the name of the property that holds the content of a payload in a JSON Schema of the
    /// given form. Returns `None` if no property holds the content as a whole.
    pub fn content_key(&self, name: &PayloadName, form: JsonSchemaForm) -> Option<String> {
        json::content_key(self.model(), name, form)
    }

    /// Returns the name of the property that holds a child in a JSON Schema of the given form.
    /// `child` is the local name of the child. Returns `None` if there is no such property.
    pub fn child_key(
        &self,
        name: &PayloadName,
        child: &str,
        form: JsonSchemaForm,
    ) -> Option<String> {
        json::child_key(self.model(), name, child, form)
    }

    /// Converts the arguments of a native tool call to the payload that they describe. `arguments`
    /// is the JSON that the model wrote. The caller must validate the returned payload.
    ///
    /// # Errors
    ///
    /// Returns a finding for each part that does not fit the JSON Schema, with its JSON path.
    pub fn to_xml(&self, name: &PayloadName, arguments: &str) -> Result<String, Vec<Finding>> {
        json::to_xml(self.model(), name, arguments)
    }

    /// Converts a payload to the arguments of the native tool call that would produce the payload.
    ///
    /// # Errors
    ///
    /// Returns a finding for each part that JSON cannot express.
    pub fn to_json(
        &self,
        name: &PayloadName,
        payload: &str,
    ) -> Result<serde_json::Value, Vec<Finding>> {
        self.to_json_in(name, payload, JsonSchemaForm::Current)
    }

    /// Converts a payload as [`Self::to_json`] does, to arguments that fit the JSON Schema of the
    /// given form.
    ///
    /// # Errors
    ///
    /// Returns a finding for each part that JSON cannot express.
    pub fn to_json_in(
        &self,
        name: &PayloadName,
        payload: &str,
        form: JsonSchemaForm,
    ) -> Result<serde_json::Value, Vec<Finding>> {
        json::to_json(self.model(), name, payload, form)
    }

    /// Returns the parts of a payload that native tool calls cannot express, or can express only as
    /// XML.
    pub fn gaps(&self, name: &PayloadName) -> Vec<UnsupportedPart> {
        json::gaps(self.model(), name)
    }

    /// Adds the shape of `name` to `shapes`, and returns its id; `None` if the schema does not
    /// declare `name`. The shape states which children each element may have. Shapes are used to
    /// extract payloads from a model's text.
    pub fn shape(&self, name: &PayloadName, shapes: &mut ShapeArena) -> Option<ShapeId> {
        shape::add(self.model(), name, shapes)
    }
}

/// Checks that `text` is well-formed and namespace-well-formed for libxml2. If it is not, returns
/// the findings.
pub fn parse_check(text: &[u8]) -> Result<(), Vec<Finding>> {
    match ParsedDocument::parse(text) {
        Ok(_) => Ok(()),
        Err(diagnostics) => Err(libxml2_messages::unreadable(text, &diagnostics)),
    }
}

fn wrong_root(document: &ParsedDocument, name: &PayloadName, text: &[u8]) -> Finding {
    let (namespace, local) = document.root();
    let path = Some(format!("/{local}"));
    let found = PayloadName::new(&namespace, &local);
    let place = TextLocation { path, ..TextLocation::at(text, 0) };
    Finding::new("schema-root", place, format!("the root is `{found}`; expected is `{name}`"))
}

/// Returns the names of all payloads, sorted. A payload is a global element that is not abstract.
/// Its declaration is in the first document, or in a document that the first document includes.
fn names(bundle: &SchemaBundle) -> Vec<PayloadName> {
    let target = bundle.main().map_or("", SchemaDocument::target);
    let mut names = Vec::new();
    for index in bundle.included() {
        let Some(source) = bundle.sources.get(index) else { continue };
        for element in source.root.all("element") {
            let concrete = !matches!(element.attribute("abstract"), Some("true" | "1"));
            if let Some(local) = element.attribute("name").filter(|_| concrete) {
                names.push(PayloadName::new(target, local.trim()));
            }
        }
    }

    names.sort();
    names.dedup();
    names
}
