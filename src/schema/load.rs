//! Loads a schema file, with all documents that it includes and imports, as one bundle.
//!
//! Documents come only from three places: the folder of the file, the folders in the catalogue of
//! the config, and the built-in catalogue. If a document cannot be found, the whole bundle has a
//! problem.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::link::{self, LinkKind, SchemaLink};
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::{XSD, XSI};
use crate::ids::Digest;
use crate::limits;
use crate::xml::element::Element;
use crate::xml::findings::TextLocation;
use crate::xml::write::XML_NAMESPACE;

/// Built-in schemas, by namespace. A schema may import them without a file in its folder.
const CATALOGUE: &[(&str, &str, &str)] = &[
    (XML_NAMESPACE, "built-in xml.xsd", include_str!("../../schemas/catalogue/xml.xsd")),
    // The published file has a document type declaration, which no schema may have.
    (
        "http://www.w3.org/2000/09/xmldsig#",
        "built-in xmldsig-core-schema.xsd",
        include_str!("../../schemas/catalogue/xmldsig-core-schema.xsd"),
    ),
];

/// Namespaces that every schema knows without an import.
const KNOWN: &[&str] = &[XSD, XSI];

/// All documents of one schema. The schema file itself comes first.
#[derive(Debug, Clone)]
pub struct SchemaBundle {
    pub sources: Vec<SchemaDocument>,
    /// Links between the documents.
    pub links: Vec<SchemaLink>,
    /// The documents in the form that libxml2 compiles. First come the source documents, in which
    /// each location is replaced by the index of a document. Generated documents follow, each of
    /// which collects the imports of one namespace.
    pub compiled: Vec<Vec<u8>>,
    pub digest: Digest,
}

impl SchemaBundle {
    /// Loads a schema file. The file may import documents from its own folder and from the folders
    /// in `catalogue`. Returns all problems at once.
    pub fn open(path: &Path, catalogue: &[PathBuf]) -> Result<Self, Vec<SchemaProblem>> {
        let label = path.display().to_string();
        let real = path.canonicalize().map_err(|error| {
            let message = format!("the schema cannot be read: {error}");
            vec![SchemaProblem::new(&label, 0, "schema-unreadable", message)]
        })?;
        let first = SchemaDocument::read(&real, &label).map_err(|problem| vec![problem])?;
        let folder = real.parent().map(Path::to_owned);
        let shown = path.parent().map(Path::to_owned).unwrap_or_default();
        let loader = BundleLoader::new(folder, shown);
        BundleLoader { catalogue: catalogue.to_vec(), ..loader }.load(first)
    }

    /// Loads a schema that is part of the program.
    pub fn builtin(label: &str, text: &str) -> Result<Self, Vec<SchemaProblem>> {
        let first = SchemaDocument::builtin(text, label).map_err(|p| vec![p])?;
        BundleLoader::new(None, PathBuf::new()).load(first)
    }

    /// Loads a schema that was generated from a config.
    pub fn generated(label: &str, text: &str) -> Result<Self, Vec<SchemaProblem>> {
        let first = SchemaDocument::parse(text.as_bytes(), label, None).map_err(|p| vec![p])?;
        let first = SchemaDocument { is_recorded: true, ..first };
        BundleLoader::new(None, PathBuf::new()).load(first)
    }

    pub fn main(&self) -> Option<&SchemaDocument> {
        self.sources.first()
    }

    /// Returns the indices of the first document and of all documents that it includes, directly or
    /// through other documents. All of them share one namespace.
    pub fn included(&self) -> impl Iterator<Item = usize> {
        link::reachable(0, &self.links).into_iter()
    }
}

struct BundleLoader {
    /// The folder of the first document, from which further documents may be loaded. `None` if the
    /// first document is not a file.
    folder: Option<PathBuf>,
    catalogue: Vec<PathBuf>,
    shown: PathBuf,
    sources: Vec<SchemaDocument>,
    links: Vec<SchemaLink>,
    by_path: HashMap<PathBuf, usize>,
    by_namespace: HashMap<String, usize>,
    bytes: usize,
    problems: Vec<SchemaProblem>,
}

impl BundleLoader {
    fn new(folder: Option<PathBuf>, shown: PathBuf) -> Self {
        Self {
            folder,
            catalogue: Vec::new(),
            shown,
            sources: Vec::new(),
            links: Vec::new(),
            by_path: HashMap::new(),
            by_namespace: HashMap::new(),
            bytes: 0,
            problems: Vec::new(),
        }
    }

    fn load(mut self, first: SchemaDocument) -> Result<SchemaBundle, Vec<SchemaProblem>> {
        self.take(first);
        let mut next = 0;
        while let Some(source) = self.sources.get(next) {
            // Most documents have no links, and a copy of a document takes long.
            if source.root.children().any(|element| LinkKind::of(element).is_some()) {
                self.follow_links(next, &source.clone());
            }
            if self.bytes > limits::SCHEMA_BYTES_MAX
                || self.sources.len() > limits::SCHEMA_DOCUMENTS_MAX
            {
                self.problems.extend(self.sources.get(next).map(|source| self.too_large(source)));
                break;
            }
            next += 1;
        }

        self.settle_unlocated();
        if !self.problems.is_empty() {
            self.problems.truncate(limits::FINDINGS_MAX);
            return Err(self.problems);
        }

        let compiled = link::absolute(&self.sources, &self.links);
        let digest = digest(&self.sources);
        Ok(SchemaBundle { sources: self.sources, links: self.links, compiled, digest })
    }

    fn follow_links(&mut self, from: usize, source: &SchemaDocument) {
        for element in source.root.children() {
            let Some(kind) = LinkKind::of(element) else { continue };
            match self.follow(source, element, kind) {
                Ok(to) => self.links.push(SchemaLink::new(from, element, kind, to)),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    fn too_large(&self, source: &SchemaDocument) -> SchemaProblem {
        let message = format!(
            "the schema with its includes has more than {} documents or {} bytes; split it",
            limits::SCHEMA_DOCUMENTS_MAX,
            limits::SCHEMA_BYTES_MAX
        );
        SchemaProblem::new(&source.label, 1, "schema-too-large", message)
    }

    fn take(&mut self, source: SchemaDocument) -> usize {
        let index = self.sources.len();
        self.bytes += source.text.len();
        if let Some(path) = &source.path {
            self.by_path.insert(path.clone(), index);
        }

        self.sources.push(source);
        index
    }

    /// Returns the index of the document to which a link leads. Returns `None` in two cases:
    ///
    /// - The link is an import of a namespace that is built into XML Schema.
    /// - The link is an import without a location, and this program has no built-in document of its
    ///   namespace.
    fn follow(
        &mut self,
        from: &SchemaDocument,
        element: &Element,
        kind: LinkKind,
    ) -> Result<Option<usize>, SchemaProblem> {
        let namespace = element.attribute("namespace").unwrap_or_default();
        if kind == LinkKind::Import {
            if KNOWN.contains(&namespace) {
                return Ok(None);
            }
            if let Some(built_in) = CATALOGUE.iter().find(|built_in| built_in.0 == namespace)
                && self.prefers_built_in(from, element, built_in)
            {
                let (namespace, label, text) = built_in;
                return self.built_in(namespace, label, text).map(Some);
            }
        }

        let Some(location) = element.attribute("schemaLocation") else {
            if kind == LinkKind::Import {
                return Ok(None);
            }
            let message = "`schemaLocation` is missing; name a file in the schema's folder";
            return Err(from.problem(element, "schema-import-missing", message));
        };

        let path = self.inside(from, element, location.trim())?;

        match self.by_path.get(&path) {
            Some(index) => Ok(Some(*index)),
            None => {
                let label = self.label(&path);
                let source = SchemaDocument::read(&path, &label)?;
                Ok(Some(self.take(source)))
            }
        }
    }

    /// Whether an import loads the built-in document of its namespace instead of a file of the
    /// user. Returns true in these cases:
    ///
    /// - The namespace is that of XML, or the built-in document of the namespace is already loaded.
    /// - The import names no permitted file.
    /// - The import names a file with a document type declaration, such as the published schema of
    ///   XML signatures.
    fn prefers_built_in(
        &self,
        from: &SchemaDocument,
        element: &Element,
        (namespace, ..): &(&str, &str, &str),
    ) -> bool {
        if *namespace == XML_NAMESPACE || self.by_namespace.contains_key(*namespace) {
            return true;
        }

        let location = element.attribute("schemaLocation").map(str::trim);
        let path = location.and_then(|location| self.inside(from, element, location).ok());
        match path.map(|path| SchemaDocument::read(&path, &self.label(&path))) {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(problem)) => problem.code == "schema-doctype",
        }
    }

    fn built_in(
        &mut self,
        namespace: &str,
        label: &str,
        text: &str,
    ) -> Result<usize, SchemaProblem> {
        if let Some(index) = self.by_namespace.get(namespace) {
            return Ok(*index);
        }

        let source = SchemaDocument::parse(text.as_bytes(), label, None)?;
        let index = self.take(source);
        self.by_namespace.insert(namespace.to_owned(), index);
        Ok(index)
    }

    /// Returns the real path of the file that `location` names. If `location` is an address or
    /// leads elsewhere, uses the file of the same name in the catalogue folders. Refuses a path
    /// outside the folder of the first document and the catalogue folders.
    fn inside(
        &self,
        from: &SchemaDocument,
        element: &Element,
        location: &str,
    ) -> Result<PathBuf, SchemaProblem> {
        let outside = || {
            let message = format!(
                "`{location}` is outside the schema's folder; copy the file there and name it \
                 relatively, or name its folder in `catalogue` of [organism]"
            );
            from.problem(element, "schema-import-outside", message)
        };

        let Some(folder) = &self.folder else { return Err(outside()) };
        let base = from.path.as_deref().and_then(Path::parent).unwrap_or(folder);
        let written = Path::new(location);
        let scheme = location.split_once(':').is_some_and(|(s, _)| !s.contains('/'));
        if scheme || written.is_absolute() || location.contains('\\') || location.is_empty() {
            return self.in_catalogue(location).ok_or_else(outside);
        }

        let joined = lexical(&base.join(written));
        let is_inside = |path: &Path| {
            path.starts_with(folder) || self.catalogue.iter().any(|c| path.starts_with(c))
        };
        if !is_inside(&joined) {
            return self.in_catalogue(location).ok_or_else(outside);
        }

        let real = joined.canonicalize().map_err(|_| {
            let message = format!("`{location}` is not there; put it into the schema's folder");
            from.problem(element, "schema-import-missing", message)
        })?;
        if is_inside(&real) { Ok(real) } else { Err(outside()) }
    }

    /// Finds a file in the catalogue folders, but not in their subfolders. The file name is the
    /// last part of `location`, which may be a path or an address. Returns `None` if no folder
    /// contains the file.
    fn in_catalogue(&self, location: &str) -> Option<PathBuf> {
        let name = location.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..")?;
        self.catalogue.iter().find_map(|folder| {
            let real = folder.join(name).canonicalize().ok()?;
            real.starts_with(folder).then_some(real)
        })
    }

    fn label(&self, path: &Path) -> String {
        let folder = self.folder.as_deref().unwrap_or(path);
        let below = path.strip_prefix(folder).unwrap_or(path);
        self.shown.join(below).display().to_string()
    }

    /// Resolves each import without a location. If another import of the same namespace leads to a
    /// document, uses this document. Otherwise, uses the main document if it has this namespace. If
    /// neither applies, reports a problem.
    fn settle_unlocated(&mut self) {
        let Some(main) = self.sources.first().map(|s| s.target().to_owned()) else { return };
        for at in 0..self.links.len() {
            let Some(link) = self.links.get(at) else { continue };
            let known = KNOWN.contains(&link.namespace.as_str());
            if link.kind != LinkKind::Import || link.to.is_some() || known {
                continue;
            }

            // An include states no namespace, just as an import of elements without one.
            let is_import = |other: &&SchemaLink| {
                other.kind == LinkKind::Import && other.namespace == link.namespace
            };
            let elsewhere = self
                .links
                .iter()
                .filter(is_import)
                .find_map(|other| other.to)
                .or_else(|| (main == link.namespace).then_some(0));

            match elsewhere {
                Some(to) => {
                    if let Some(link) = self.links.get_mut(at) {
                        link.to = Some(to);
                    }
                }
                None => self.report_unlocated(at),
            }
        }
    }

    fn report_unlocated(&mut self, at: usize) {
        let Some(link) = self.links.get(at) else { return };
        let Some(source) = self.sources.get(link.from) else { return };
        let message = format!(
            "nothing says where the schema of namespace `{}` is; add `schemaLocation`",
            link.namespace
        );
        let line = TextLocation::at(source.text.as_bytes(), link.tag.start).line;
        let problem = SchemaProblem::new(&source.label, line, "schema-import-missing", message);
        self.problems.push(problem);
    }
}

/// Removes `.` and `..` from `path`, without access to the file system.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }

    out
}

/// Returns the digest of all documents, in the order in which they were found. Does not depend on
/// their paths.
fn digest(sources: &[SchemaDocument]) -> Digest {
    let each: Vec<Digest> = sources.iter().map(|s| Digest::of(s.text.as_bytes())).collect();
    match each.as_slice() {
        [one] => *one,
        several => {
            let parts: Vec<&[u8]> = several.iter().map(|d| d.0.as_slice()).collect();
            Digest::of_parts(&parts)
        }
    }
}
