//! Resolves the payload names in the declarations of members, and builds the contracts. A member
//! declares the payloads that it accepts, and those with which it replies. The schemas of the
//! config must declare each of these payloads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::contract::{
    AGENT_NAMESPACE, Approval, Contract, Contracts, Role, WORKFLOW_NAMESPACE, goal_answer,
};
use crate::ids::{Digest, ListenerName, PayloadName};
use crate::schema::{SHORT_FORM_NAMESPACE, SchemaCompiler, SchemaProblem, Schemas, short_form_xsd};
use crate::shipped::SCHEMA_PREFIX;
use crate::{envelope, system};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::did_you_mean_value;
use super::load::KeyRequirement;
use super::members::DeclaredMember;
use super::sections::DeclaredSections;
use super::short_types::DeclaredPayloads;
use super::source_text::{ConfigSource, SourceRange};
use super::stored::portable;
use super::tree::{ExpandedText, Located};
use super::undo;
use super::{budgets, file, shipped_schemas, vocabulary};

/// A resolver that finds, for each payload name in a config, the payload that the schemas declare.
pub(super) struct PayloadResolver {
    directory: PathBuf,
    /// Whether the config comes from a journal.
    is_stored: bool,
    pub schemas: Schemas,
    compiler: SchemaCompiler,
    /// Payload names that each file declares; `None` for a file with a problem that is already
    /// reported.
    files: HashMap<PathBuf, Option<Vec<PayloadName>>>,
    digests: BTreeMap<String, Digest>,
    /// Texts of all schema documents, by their portable names. A portable name stands for the path
    /// of a document, and is valid on every machine.
    pub documents: BTreeMap<String, String>,
    /// Folders from which any schema may import, each with its real path and its portable name. The
    /// portable name is valid on every machine.
    catalogue: Vec<(PathBuf, String)>,
    finals: HashMap<ListenerName, PayloadName>,
    /// Names of the payloads that the section `payloads` declares. Every member of the config may
    /// use these names, for example in `accepts`.
    declared: Vec<PayloadName>,
    /// Whether all payloads of the section `payloads` could be read; `None` if the config has no
    /// such section.
    section: Option<bool>,
    /// Notes for the author of the config about settings that are valid but may surprise.
    pub notes: Vec<String>,
}

/// Returns the folders from which any schema may import, each with its real path and its portable
/// name. Reports missing folders.
fn catalogue(
    directory: &Path,
    folders: &[Located<ExpandedText>],
    problems: &mut ConfigProblems,
) -> Vec<(PathBuf, String)> {
    let mut catalogue = Vec::new();
    for folder in folders {
        let name = portable::directory_name(&folder.value.value);
        match directory.join(&folder.value.value).canonicalize() {
            Ok(real) if real.is_dir() => catalogue.push((real, name)),
            _ => {
                let message = format!("the catalogue `{}` is no directory", folder.value.written);
                let problem =
                    ConfigProblem::new(ProblemCode::SchemaMissing, &folder.place, message);
                problems.push(problem.help(file::PATH_RULE));
            }
        }
    }

    catalogue
}

impl PayloadResolver {
    pub fn new(
        (directory, keys): (&Path, KeyRequirement),
        catalogue: &[Located<ExpandedText>],
        problems: &mut ConfigProblems,
    ) -> Self {
        let mut schemas = Schemas::default();
        schemas.reserve(&RESERVED);
        let catalogue = self::catalogue(directory, catalogue, problems);
        let folders = catalogue.iter().map(|(real, _)| real.clone()).collect();
        let compiler = SchemaCompiler::with_catalogue(folders)
            .permitting_costly_patterns(keys == KeyRequirement::Stored);
        Self {
            directory: directory.to_owned(),
            is_stored: keys == KeyRequirement::Stored,
            schemas,
            compiler,
            documents: BTreeMap::new(),
            catalogue,
            files: HashMap::new(),
            digests: BTreeMap::new(),
            finals: HashMap::new(),
            declared: Vec::new(),
            section: None,
            notes: Vec::new(),
        }
    }

    /// Registers the payloads of the section `payloads`.
    pub fn declare(&mut self, payloads: &DeclaredPayloads, problems: &mut ConfigProblems) {
        let Some(place) = &payloads.place else { return };
        self.section = Some(!payloads.has_unread);
        if payloads.types.is_empty() {
            return;
        }

        let types: Vec<_> = payloads.types.iter().map(|(name, of)| (name.as_str(), of)).collect();
        let text = short_form_xsd(SHORT_FORM_NAMESPACE, &types);
        match self.schemas.add_generated(&mut self.compiler, SECTION, &text) {
            Ok(names) => {
                self.digests.insert(SECTION.to_owned(), Digest::of(text.as_bytes()));
                self.declared = names;
            }
            Err(found) => {
                self.section = Some(false);
                for one in found {
                    let message = format!("{} ({})", one.message, one.code);
                    let help = "the payloads of this section become one schema; one that is too \
                                large is split by moving payloads into XSD files of their listeners";
                    let problem = ConfigProblem::new(ProblemCode::SchemaBroken, place, message);
                    problems.push(problem.help(help));
                }
            }
        }
    }

    /// Returns the name of the payload with which an agent ends its call. Returns `None` if the
    /// config has no such agent, or if the agent's final payload is unknown.
    pub fn final_of(&self, agent: &ListenerName) -> Option<PayloadName> {
        self.finals.get(agent).cloned()
    }

    pub fn digests(&self) -> BTreeMap<String, Digest> {
        self.digests.clone()
    }

    /// Registers a schema that was generated from a part of the config.
    pub fn add_generated(&mut self, label: &str, text: &str) -> Result<(), String> {
        match self.schemas.add_generated(&mut self.compiler, label, text) {
            Ok(_) => {
                self.digests.insert(label.to_owned(), Digest::of(text.as_bytes()));
                Ok(())
            }
            Err(found) => {
                let found: Vec<_> = found.iter().map(ToString::to_string).collect();
                Err(found.join("; "))
            }
        }
    }

    /// Resolves the payload names of all members. Returns the contracts of the members, together
    /// with the contracts in `workflows`. Leaves out the contract of each member whose declaration
    /// has a problem. Returns `None` if the contracts do not fit together.
    pub fn contracts(
        &mut self,
        sections: &DeclaredSections,
        workflows: Vec<Contract>,
        problems: &mut ConfigProblems,
    ) -> Option<Contracts> {
        let mut resolved = Vec::new();
        for member in &sections.members {
            let is_valid = !sections.invalid.contains(member.name.value.as_str());
            let mut member_resolved = self.resolve(member, is_valid, problems);
            if let Some(found) = &mut member_resolved {
                let unpriced = budgets::unpriced_models(member, sections);
                found.contract.has_unpriced_model = !unpriced.is_empty();
            }
            resolved.extend(member_resolved);
        }

        let contracts = resolved.iter().map(|r| r.contract.clone()).chain(workflows).collect();
        vocabulary::forward_cycles(&resolved, problems);

        match Contracts::new(contracts) {
            Ok(contracts) => Some(contracts),
            Err(errors) => {
                for error in errors {
                    problems.push(vocabulary::problem(&error, &resolved));
                }
                None
            }
        }
    }

    /// Resolves the payload names of a member, and builds its contract. `is_valid` states whether
    /// the member's declaration has no problem so far. Returns `None` if `is_valid` is false or a
    /// name cannot be resolved, because the contract is then unknown. For a stored config, returns
    /// the contract even then.
    fn resolve<'d>(
        &mut self,
        member: &'d DeclaredMember,
        is_valid: bool,
        problems: &mut ConfigProblems,
    ) -> Option<ResolvedMember<'d>> {
        let names = self.known_of(&member.schema, is_valid, problems);
        let accepts = names.all(&member.accepts, problems);
        let mut replies = names.all(&member.replies, problems);
        let mut is_known = is_valid
            && accepts.len() == member.accepts.len()
            && replies.len() == member.replies.len();
        if let Some(agent) = &member.agent {
            let own = agent.final_name.as_ref().filter(|text| text.value.value != FINAL_DEFAULT);
            let ends = match own {
                Some(text) => names
                    .resolve_name(text, problems)
                    .map(|name| Located { value: name, place: text.place.clone() }),
                None => {
                    let place = agent.final_name.as_ref().map(|text| text.place.clone());
                    let place = place.unwrap_or_else(|| member.name.place.clone());
                    Some(Located { value: goal_answer(), place })
                }
            };
            is_known &= ends.is_some();
            if let Some(ends) = ends {
                self.finals.insert(member.name.value.clone(), ends.value.clone());
                replies.insert(0, ends);
            }
        }

        // A stored config may have names that nothing declares, see `known_of`.
        if !is_known && !self.is_stored {
            return None;
        }

        let approval = self.approval(member, &accepts, problems);
        let undo = undo::resolve(member, &accepts, problems);
        let contract = Contract { approval, undo, ..contract(member, &accepts, &replies) };
        Some(ResolvedMember { member, contract, accepts, replies })
    }

    /// Decides which calls to a member need approval:
    /// - If the member has the setting `approval`, this setting decides.
    /// - Otherwise, if the member is a listener that accepts a payload which can contain the
    ///   attribute `is_dangerous`, at any depth, `Approval::Dangerous` decides.
    /// - Otherwise, no call to the member needs approval.
    fn approval(
        &mut self,
        member: &DeclaredMember,
        accepts: &[Located<PayloadName>],
        problems: &mut ConfigProblems,
    ) -> Approval {
        let has_flag = |name: &PayloadName| self.schemas.can_contain(name, Approval::FLAG);
        let flagged = match member.role {
            Role::Listener => accepts.iter().find(|name| has_flag(&name.value)),
            Role::Agent | Role::Client | Role::Human | Role::Workflow => None,
        };

        let by_default = match flagged {
            Some(_) => Approval::Dangerous,
            None => Approval::Never,
        };

        let approval = member.approval.unwrap_or(by_default);

        if let (Some(place), true) = (&member.patience_place, approval.is_never()) {
            let message = "there is a time-out for approvals that are never asked for";
            let problem = ConfigProblem::new(ProblemCode::MissingKey, place, message);
            let help = "add approval = \"always\" or approval = \"dangerous\"";
            problems.push(problem.help(help));
        }

        if let (Some(place), true) = (&member.previews_place, approval.is_never()) {
            let message = "there are previews of calls that are never held";
            let problem = ConfigProblem::new(ProblemCode::MissingKey, place, message);
            let help = "add approval = \"always\" or approval = \"dangerous\"";
            problems.push(problem.help(help));
        }

        if let (Some(name), Some(place), true) =
            (flagged, &member.approval_place, approval.is_never())
        {
            let listener = &member.name.value;
            let payload = &name.value.local;
            let (line, _) = place.line_and_column();
            self.notes.push(format!(
                "listener {listener}: approval = \"never\" (line {line}) gives up the approval that \
                 `{payload}` would have by default, as it can contain the attribute {}: every call \
                 runs at once",
                Approval::FLAG
            ));
        }

        approval
    }

    /// Returns the payload names that the given schemas and the section `payloads` declare.
    /// `is_valid` states whether the declaration of the member or workflow that names these schemas
    /// has no problem so far.
    pub fn known_of(
        &mut self,
        schemas: &[Located<ExpandedText>],
        is_valid: bool,
        problems: &mut ConfigProblems,
    ) -> KnownPayloads {
        // The problem may concern the key that names the schemas.
        let may_lack_schemas = schemas.is_empty() && !is_valid;
        // Earlier versions of the program ignored names in a config that declares no payloads.
        let is_ignored = schemas.is_empty() && self.section.is_none() && self.is_stored;
        let mut known = KnownPayloads {
            schemas: self.schemas.clone(),
            names: self.declared.clone(),
            is_complete: self.section.unwrap_or(true) && !may_lack_schemas && !is_ignored,
            files: Vec::new(),
        };
        for schema in schemas {
            known.files.push(schema.value.written.clone());
            match self.load(schema, problems) {
                Some(names) => known.names.extend(names),
                None => known.is_complete = false,
            }
        }

        known.files.extend(self.section.map(|_| SECTION.to_owned()));
        known
    }

    fn load(
        &mut self,
        schema: &Located<ExpandedText>,
        problems: &mut ConfigProblems,
    ) -> Option<Vec<PayloadName>> {
        let path = self.directory.join(&schema.value.value);
        if let Some(names) = self.files.get(&path) {
            return names.clone();
        }

        let names = self.read(&path, schema, problems);
        self.files.insert(path, names.clone());
        names
    }

    fn read(
        &mut self,
        path: &Path,
        schema: &Located<ExpandedText>,
        problems: &mut ConfigProblems,
    ) -> Option<Vec<PayloadName>> {
        if schema.value.value.starts_with(SCHEMA_PREFIX) {
            let shipped = shipped_schemas::find(schema, problems)?;
            return self.register(Path::new(shipped.name), schema, shipped.text, problems);
        }

        let code = ProblemCode::SchemaMissing;
        let text = file::named_text(schema, &self.directory, "schema", code, problems)?;
        self.register(path, schema, &text, problems)
    }

    /// Registers the schema file at `path`, whose content is `text`. Returns the payload names that
    /// the file declares; `None` if the schema has a problem, which is reported.
    fn register(
        &mut self,
        path: &Path,
        schema: &Located<ExpandedText>,
        text: &str,
        problems: &mut ConfigProblems,
    ) -> Option<Vec<PayloadName>> {
        match self.schemas.add_file_with(&mut self.compiler, path) {
            Ok(names) => {
                self.note_documents(&names, schema);
                Some(names)
            }
            Err(found) => {
                for one in found {
                    problems.push(self.broken(&one, schema, text));
                }
                None
            }
        }
    }

    /// Stores the text and the digest of each document of the schema file `schema`, under the
    /// document's portable name, which is valid in any directory. `names` are the payload names
    /// that the file declares. If `names` is empty, stores nothing.
    fn note_documents(&mut self, names: &[PayloadName], schema: &Located<ExpandedText>) {
        let Some(file) = names.first().and_then(|name| self.schemas.file_of(name)) else { return };
        let file = Arc::clone(file);
        let written = schema.value.value.as_str();
        let own = file.documents().next().and_then(|document| document.path.clone());
        let folder = own.as_deref().and_then(Path::parent);
        let above = Path::new(written).parent().and_then(Path::to_str).unwrap_or_default();
        let above = portable::directory_name(above);

        for (index, document) in file.documents().enumerate() {
            let name = match (index, folder, document.path.as_deref()) {
                (0, ..) | (_, None, _) | (_, _, None) => portable::file_name(written),
                (_, Some(folder), Some(path)) => match path.strip_prefix(folder) {
                    Ok(below) => portable::beneath(&above, &below.to_string_lossy()),
                    Err(_) => self.name_in_catalogue(path),
                },
            };
            let digest = Digest::of(document.text.as_bytes());
            self.digests.insert(portable::schema_name(&name), digest);
            self.documents.insert(name, document.text.clone());
        }
    }

    /// Returns the portable name of a schema document in a folder of the catalogue. The catalogue
    /// is the list of folders from which any schema may import.
    fn name_in_catalogue(&self, path: &Path) -> String {
        let mut found = self.catalogue.iter().filter_map(|(real, name)| {
            let below = path.strip_prefix(real).ok()?;
            Some(portable::beneath(name, &below.to_string_lossy()))
        });
        found.next().unwrap_or_else(|| portable::file_name(&path.to_string_lossy()))
    }

    /// Converts a problem of a schema to a problem of the config, which points to the faulty place
    /// in the schema. Makes paths relative to the config's directory.
    fn broken(
        &self,
        found: &SchemaProblem,
        schema: &Located<ExpandedText>,
        text: &str,
    ) -> ConfigProblem {
        let here = format!("{}/", self.directory.display());
        let name = found.file.strip_prefix(&here).unwrap_or(&found.file);
        let source = if name == schema.value.value {
            ConfigSource::new(&schema.value.written, text)
        } else {
            let other = file::text(&self.directory.join(&found.file)).unwrap_or_default();
            ConfigSource::new(name, other)
        };

        let place = SourceRange::of_line(&source, found.line, found.column);
        let (line, _) = schema.place.line_and_column();
        let message = format!("{} ({})", found.message.replace(&here, ""), found.code);
        let help = format!("the schema is named at {}:{line}", schema.place.source.name());
        ConfigProblem::new(ProblemCode::SchemaBroken, &place, message).help(help)
    }
}

/// Name of the section `[payloads]`, as messages and records show it.
const SECTION: &str = "[payloads]";
/// Namespaces that only the program's own schemas may declare.
const RESERVED: [&str; 4] =
    [system::NAMESPACE, envelope::NAMESPACE, AGENT_NAMESPACE, WORKFLOW_NAMESPACE];
/// Local name of the final payload of agents whose config names no final payload.
const FINAL_DEFAULT: &str = "attempt_completion";

/// A member with its contract and its resolved payload names.
pub(super) struct ResolvedMember<'d> {
    pub member: &'d DeclaredMember,
    pub contract: Contract,
    pub accepts: Vec<Located<PayloadName>>,
    pub replies: Vec<Located<PayloadName>>,
}

fn contract(
    member: &DeclaredMember,
    accepts: &[Located<PayloadName>],
    replies: &[Located<PayloadName>],
) -> Contract {
    let names =
        |list: &[Located<PayloadName>]| list.iter().map(|name| name.value.clone()).collect();
    let peers = member.peers.iter().filter_map(|p| ListenerName::parse(&p.value.value).ok());

    Contract {
        description: member.description.clone(),
        accepts: names(accepts),
        replies: names(replies),
        peers: peers.collect(),
        forward: member.forward,
        gather: member.gather,
        timeout: member.timeout,
        attempts: member.attempts,
        concurrency: member.concurrency,
        serial_per_thread: member.serial_per_thread,
        backlog: member.backlog,
        actions_per_turn: member.actions_per_turn,
        patience: member.patience,
        previews: member.previews,
        keys_for: member.keys_for,
        budget: member.budget,
        core: member.core.clone(),
        client: member.client.as_ref().and_then(|c| ListenerName::parse(&c.value.value).ok()),
        ..Contract::new(member.name.value.clone(), member.role)
    }
}

/// The payload names that the config may use in the declaration of a member or a workflow.
#[derive(Default)]
pub(super) struct KnownPayloads {
    schemas: Schemas,
    names: Vec<PayloadName>,
    /// Whether `names` contains all valid names. False if some schemas are missing or could not be
    /// read. If false, unknown names are not reported, because they may be valid.
    is_complete: bool,
    /// The schema files and config sections that declare the payload names. Error messages list
    /// them.
    files: Vec<String>,
}

impl KnownPayloads {
    fn all(
        &self,
        written: &[Located<ExpandedText>],
        problems: &mut ConfigProblems,
    ) -> Vec<Located<PayloadName>> {
        let mut names: Vec<Located<PayloadName>> = Vec::new();
        for text in written {
            let Some(name) = self.resolve_name(text, problems) else { continue };
            if names.iter().any(|known| known.value == name) {
                let message = format!("`{}` is in this list twice", text.value.written);
                let problem = ConfigProblem::new(ProblemCode::DuplicateEntry, &text.place, message);
                problems.push(problem.help("take one of them out"));
            } else {
                names.push(Located { value: name, place: text.place.clone() });
            }
        }

        names
    }

    pub fn resolve_name(
        &self,
        text: &Located<ExpandedText>,
        problems: &mut ConfigProblems,
    ) -> Option<PayloadName> {
        let written = &text.value.written;
        let Ok(name) = PayloadName::parse(&text.value.value) else {
            let message = format!("`{written}` is not a payload name");
            let help = "write the local name, such as \"search\", or \"{namespace}search\"";
            problems.push(
                ConfigProblem::new(ProblemCode::BadPayloadName, &text.place, message).help(help),
            );
            return None;
        };

        if self.schemas.is_reserved(&name.namespace) {
            let message = format!("`{written}` is a payload of the core");
            let help = "the core handles its own words; choose a namespace of your own";
            problems.push(
                ConfigProblem::new(ProblemCode::ReservedPayload, &text.place, message).help(help),
            );
            return None;
        }

        let qualified = text.value.value.starts_with('{');
        let fits = |known: &&PayloadName| {
            known.local == name.local && (!qualified || known.namespace == name.namespace)
        };
        let mut fitting: Vec<_> = self.names.iter().filter(fits).collect();
        fitting.sort();
        fitting.dedup();

        match fitting.as_slice() {
            [only] => Some((*only).clone()),
            [] => {
                if self.is_complete {
                    problems.push(self.undeclared(text, &name));
                }
                None
            }
            several => {
                let all: Vec<_> = several.iter().map(|name| format!("\"{name}\"")).collect();
                let message = format!("`{written}` is declared in {} namespaces", several.len());
                let problem =
                    ConfigProblem::new(ProblemCode::AmbiguousPayload, &text.place, message);
                problems.push(problem.help(format!("write one of {}", all.join(", "))));
                None
            }
        }
    }

    fn undeclared(&self, text: &Located<ExpandedText>, name: &PayloadName) -> ConfigProblem {
        let written = &text.value.written;
        let message = match self.files.as_slice() {
            [] => format!("`{written}` is not declared: there is neither a schema nor [payloads]"),
            files => format!("`{written}` is not declared in {}", files.join(", ")),
        };
        let locals: HashSet<&str> = self.names.iter().map(|known| &*known.local).collect();
        let same = self.names.iter().find(|known| known.local == name.local);
        let help = match same {
            Some(same) => format!("did you mean \"{same}\"?"),
            None => did_you_mean_value(&name.local, locals.iter().copied(), || {
                if locals.is_empty() {
                    return format!("add [payloads.{}]", name.local);
                }

                let mut locals: Vec<_> = locals.iter().copied().collect();
                locals.sort_unstable();
                format!("declared are {}", locals.join(", "))
            }),
        };

        ConfigProblem::new(ProblemCode::UndeclaredPayload, &text.place, message).help(help)
    }
}
