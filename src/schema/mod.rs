//! Schemas: full XSD 1.0 through libxml2, and everything derived from a schema.
//!
//! **Invariant:** `libxml2.rs`, with its submodule, contains the only `unsafe` code of the source
//! tree. No schema is ever fetched from a network.

mod attribute_search;
mod bounded_outline;
mod bounds;
mod character_set;
mod compared_types;
mod compile_cost;
mod compiled_per_thread;
mod costly_values;
mod describe;
mod described_types;
mod example;
mod file;
mod form;
mod from;
mod json;
mod libxml2;
mod libxml2_diagnostic;
mod libxml2_messages;
mod link;
mod lint;
mod load;
mod matching_cost;
mod model;
mod outline;
mod part_coverage;
mod particle_place;
mod pattern;
mod pattern_automaton;
mod pattern_cost;
mod pattern_term;
mod read;
mod required;
mod sample;
mod sample_time;
mod schema_problem;
mod shape;
mod short_form;
mod source;
mod text_comparison;
mod trial_compile;
mod undescribed_parts;
mod value_comparison;
mod xpath;
mod xpath_numbers;
mod xsd;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub use describe::{
    BOOLEAN_WORDS, DescriptionForm, PayloadDescription, PayloadParameter, TextContent,
};
pub use file::{SchemaFile, SchemaVerdict, parse_check};
pub use form::{FormField, choice_groups, fill, has_form, path_of_choice};
pub use from::{
    ConversionError, ConvertedSchema, SchemaOrigin, convert as convert_schema, origin_of,
};
pub use json::{COMMENT as LEFT_OUT, JsonSchemaForm, UnsupportedPart, members, repeated_member};
pub use part_coverage::PartCoverage;
pub use schema_problem::SchemaProblem;
pub use short_form::{
    FieldCount, NAMESPACE as SHORT_FORM_NAMESPACE, ShortField, ShortType, is_element_name,
    xsd as short_form_xsd,
};
pub use trial_compile::{COMPILE_ARGUMENTS, SchemaCompiler, serve as serve_compiler};
pub use xpath::{XPathDocument, XPathError, XPathNode, XPathValue, check_expression, last_line};

use crate::ids::{Digest, PayloadName};
use crate::xml::findings::Finding;
use crate::xml::shape::{ShapeArena, ShapeId};

/// The schemas of an organism, by payload name. Cheap to clone. All OS threads share this value,
/// and each of them compiles its own copy of a schema at the first use.
#[derive(Clone, Default)]
pub struct Schemas {
    by_name: Arc<BTreeMap<PayloadName, Arc<SchemaFile>>>,
    /// Namespaces in which schema files must not define payload names. A namespace that extends one
    /// of them by `/` and a name is also reserved.
    reserved: Arc<Vec<String>>,
    warnings: Arc<Vec<SchemaProblem>>,
}

impl std::fmt::Debug for Schemas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Schemas {
    /// Reserves the given namespaces, and all namespaces that extend one of them by `/` and a name.
    /// A schema file that is added later must not define payload names in them.
    pub fn reserve(&mut self, namespaces: &[&str]) {
        let reserved = Arc::make_mut(&mut self.reserved);
        reserved.extend(namespaces.iter().map(|ns| (*ns).to_owned()));
    }

    /// Whether `namespace` is reserved, or extends a reserved one, so that schema files must not
    /// define payload names in it.
    pub fn is_reserved(&self, namespace: &str) -> bool {
        self.reserved.iter().any(|reserved| {
            let beneath = namespace.strip_prefix(reserved.as_str());
            beneath.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Loads and registers a schema file. Returns the payload names that the file declares.
    pub fn add_file(&mut self, path: &Path) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        self.add_file_with(&mut SchemaCompiler::default(), path)
    }

    /// Loads and registers a schema file as [`Schemas::add_file`] does. Uses the given compiler,
    /// because several files load faster with the same one.
    pub fn add_file_with(
        &mut self,
        compiler: &mut SchemaCompiler,
        path: &Path,
    ) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        let file = SchemaFile::open(compiler, path)?;
        if self.is_reserved(file.namespace()) {
            let message = format!(
                "namespace `{}` is reserved for the core; choose another for your payloads",
                file.namespace()
            );
            let label = file.label();
            return Err(vec![SchemaProblem::new(label, 1, "schema-reserved-namespace", message)]);
        }

        self.register(Arc::new(file))
    }

    /// Registers a schema that is part of the program. The schema is compiled without a time limit.
    pub fn add_builtin(
        &mut self,
        label: &str,
        text: &'static str,
    ) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        self.register(SchemaFile::builtin(label, text)?)
    }

    /// Registers a schema that was generated from a config. The journal stores the text of the
    /// generated schema, as it does for a schema file.
    pub fn add_generated(
        &mut self,
        compiler: &mut SchemaCompiler,
        label: &str,
        text: &str,
    ) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        self.register(Arc::new(SchemaFile::generated(compiler, label, text)?))
    }

    /// Registers a generated schema. If a schema was registered before for one of its payload
    /// names, the generated schema replaces it for this name.
    pub fn replace_generated(
        &mut self,
        compiler: &mut SchemaCompiler,
        label: &str,
        text: &str,
    ) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        let file = SchemaFile::generated(compiler, label, text)?;
        let by_name = Arc::make_mut(&mut self.by_name);
        for name in file.names() {
            by_name.remove(name);
        }
        self.register(Arc::new(file))
    }

    fn register(&mut self, file: Arc<SchemaFile>) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
        let names = file.names().to_vec();
        let taken = |name: &&PayloadName| {
            self.by_name.get(*name).is_some_and(|other| other.digest() != file.digest())
        };

        if let Some(name) = names.iter().find(taken) {
            let other = self.by_name.get(name).map(|f| f.label().to_owned()).unwrap_or_default();
            let message = format!(
                "`{name}` is also an element of {other}, which has other documents; one name has \
                     one schema: declare the element in one file, and share its type alone"
            );
            let label = file.label();
            return Err(vec![SchemaProblem::new(label, 1, "schema-duplicate-name", message)]);
        }

        Arc::make_mut(&mut self.warnings).extend_from_slice(file.warnings());
        let by_name = Arc::make_mut(&mut self.by_name);
        for name in &names {
            by_name.insert(name.clone(), file.clone());
        }

        Ok(names)
    }

    /// Returns all registered payload names, in order.
    pub fn names(&self) -> impl Iterator<Item = &PayloadName> {
        self.by_name.keys()
    }

    pub fn contains(&self, name: &PayloadName) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns the digest of all documents of the schema that defines `name`; `None` if no schema
    /// defines `name`.
    pub fn digest_of(&self, name: &PayloadName) -> Option<Digest> {
        self.file_of(name).map(|file| file.digest())
    }

    /// Returns the schema file that defines `name`; `None` if no schema file defines `name`.
    pub fn file_of(&self, name: &PayloadName) -> Option<&Arc<SchemaFile>> {
        self.by_name.get(name)
    }

    /// Returns the warnings about all registered schemas.
    pub fn warnings(&self) -> &[SchemaProblem] {
        &self.warnings
    }

    /// Returns the texts of all schema documents that the journal stores, each text once. Leaves
    /// out the documents that are built into the program.
    pub fn documents(&self) -> BTreeSet<&str> {
        let documents = self.by_name.values().flat_map(|file| file.documents());
        documents.map(|document| document.text.as_str()).collect()
    }

    /// Checks whether `text` is one well-formed element that is valid as the payload `name`.
    ///
    /// # Errors
    ///
    /// Returns between 1 and 16 findings. The code of each is `not-well-formed` or
    /// `not-namespace-well-formed`, or begins with `schema-`.
    pub fn validate(&self, name: &PayloadName, text: &[u8]) -> Result<(), Vec<Finding>> {
        match self.by_name.get(name) {
            Some(file) => file.validate(Some(name), text).into_result(),
            None => Err(without_schema(name)),
        }
    }

    /// Checks whether libxml2 accepts `text` as well-formed and namespace-well-formed, without a
    /// schema.
    pub fn parse_check(&self, text: &[u8]) -> Result<(), Vec<Finding>> {
        parse_check(text)
    }

    /// Returns the description of a payload. For a payload name without a schema, the description
    /// is empty.
    pub fn describe(&self, name: &PayloadName) -> PayloadDescription {
        match self.by_name.get(name) {
            Some(file) => file.describe(name),
            None => PayloadDescription {
                name: name.clone(),
                doc: String::new(),
                text: None,
                default: None,
                fixed: false,
                parameters: Vec::new(),
                coverage: PartCoverage::Partial,
                left_out: None,
            },
        }
    }

    /// Returns the description of a payload in the given form, without a bound on its length.
    pub fn whole_description_in(
        &self,
        name: &PayloadName,
        form: DescriptionForm,
    ) -> PayloadDescription {
        match self.by_name.get(name) {
            Some(file) => file.whole_description_in(name, form),
            None => self.describe(name),
        }
    }

    /// Whether a payload `name` can contain the attribute `attribute`, at any depth. In doubt,
    /// returns true. Returns false if `name` has no schema, or if no document of the schema
    /// declares the attribute.
    pub fn can_contain(&self, name: &PayloadName, attribute: &str) -> bool {
        self.by_name.get(name).is_some_and(|file| file.can_contain(name, attribute))
    }

    /// Returns the description of a payload for prompts. The length of the description is bounded.
    pub fn outline(&self, name: &PayloadName) -> PayloadDescription {
        match self.by_name.get(name) {
            Some(file) => file.outline(name),
            None => self.describe(name),
        }
    }

    /// Returns the description of a payload as prompts show it in the given form.
    pub fn description_in(&self, name: &PayloadName, form: DescriptionForm) -> PayloadDescription {
        match self.by_name.get(name) {
            Some(file) => file.description_in(name, form),
            None => self.describe(name),
        }
    }

    /// Generates a valid instance of `name`; `None` if no valid instance could be generated.
    pub fn example(&self, name: &PayloadName) -> Option<String> {
        self.by_name.get(name)?.example(name)
    }

    /// Returns the JSON Schema of a payload, for native tool calls.
    pub fn json(&self, name: &PayloadName) -> serde_json::Value {
        self.json_in(name, JsonSchemaForm::Current)
    }

    /// Returns the JSON Schema of a payload in the given form.
    pub fn json_in(&self, name: &PayloadName, form: JsonSchemaForm) -> serde_json::Value {
        match self.by_name.get(name) {
            Some(file) => file.json_in(name, form),
            None => serde_json::json!({"type": "object"}),
        }
    }

    /// Returns the name of the property that holds the whole content of the payload `name` in a
    /// JSON Schema of the given form. Returns `None` if there is no such property.
    pub fn content_key(&self, name: &PayloadName, form: JsonSchemaForm) -> Option<String> {
        self.by_name.get(name)?.content_key(name, form)
    }

    /// Returns the name of the property that holds the child element `child` of the payload `name`
    /// in a JSON Schema of the given form. Returns `None` if there is no such property.
    pub fn child_key(
        &self,
        name: &PayloadName,
        child: &str,
        form: JsonSchemaForm,
    ) -> Option<String> {
        self.by_name.get(name)?.child_key(name, child, form)
    }

    /// Converts the arguments of a native tool call to a payload; see [`SchemaFile::to_xml`].
    ///
    /// # Errors
    ///
    /// Returns a finding for each part that does not fit the JSON Schema, with its JSON path.
    pub fn to_xml(&self, name: &PayloadName, arguments: &str) -> Result<String, Vec<Finding>> {
        match self.by_name.get(name) {
            Some(file) => file.to_xml(name, arguments),
            None => Err(without_schema(name)),
        }
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
        match self.by_name.get(name) {
            Some(file) => file.to_json_in(name, payload, form),
            None => Err(without_schema(name)),
        }
    }

    /// Returns the parts of the payload `name` that native tool calls cannot express, or can
    /// express only as XML.
    pub fn gaps(&self, name: &PayloadName) -> Vec<UnsupportedPart> {
        self.by_name.get(name).map(|file| file.gaps(name)).unwrap_or_default()
    }

    /// Adds the shape of the payload `name` to `shapes`, and returns its id; `None` for an unknown
    /// payload. The shape states which children each element may have. Does not add the id to
    /// `shapes.roots`, the list of the elements that can be actions.
    pub fn shape(&self, name: &PayloadName, shapes: &mut ShapeArena) -> Option<ShapeId> {
        self.by_name.get(name)?.shape(name, shapes)
    }
}

fn without_schema(name: &PayloadName) -> Vec<Finding> {
    let message = format!("there is no schema for `{name}`");
    vec![Finding::new("schema-root", Default::default(), message)]
}
