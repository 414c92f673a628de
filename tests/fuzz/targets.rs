//! The fuzz targets with their properties. A target is a plain function of bytes, which panics if
//! its property is violated, and otherwise returns a short name of the outcome.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use organism::audit;
use organism::cli::debug::ExtractTurn;
use organism::config::{ConfigEnvironment, load};
use organism::ids::{Digest, Position};
use organism::journal::sqlite::{DATABASE, JournalReader};
use organism::pump::gate::Gate;
use organism::schema::{SchemaCompiler, SchemaFile, SchemaVerdict, Schemas, parse_check};
use organism::xml::extract::{ActionGrammar, ExtractedItem, Extraction, Extractor};
use organism::xml::scan::scan;
use organism::xml::shape::ShapeArena;
use tempfile::TempDir;

use crate::driver::Dice;
use crate::stage::{data, name};

/// Checks each text that the gate accepts. libxml2 must accept the payload of the text. The gate
/// must accept the payload a second time, with the same name and meaning.
pub fn gate(gate: &Gate, bytes: &[u8]) -> String {
    let mut said = String::new();
    for sender in ["client", "desk", "calc", "nobody"] {
        let sender = name(sender);
        match gate.check(&sender, bytes) {
            Ok(checked) => {
                let text = checked.payload().as_str();
                assert_eq!(parse_check(text.as_bytes()), Ok(()), "taken: {text}");
                let again = gate.check(&sender, text.as_bytes()).expect("taken a second time");
                assert_eq!(again.payload().as_str(), text);
                assert_eq!((again.name(), again.meaning()), (checked.name(), checked.meaning()));
                assert!(gate.schemas.validate(checked.name(), text.as_bytes()).is_ok(), "{text}");
                said.push_str(&format!(" {}", checked.name()));
            }
            Err(refusal) => {
                let again = gate.check(&sender, bytes).expect_err("refused a second time");
                assert_eq!(again, refusal);
                assert_eq!(refusal.digest, Digest::of(bytes));
                said.push_str(&format!(" {}", refusal.rule));
            }
        }
    }
    said
}

/// A grammar with every kind of name: for elements with children, for elements with text alone, for
/// elements with a namespace, and for reasoning.
pub fn grammar() -> Arc<ActionGrammar> {
    let turn = r#"{
        "known_tags": {
            "search": {"query": "text", "path": "text", "allow_tests": "text"},
            "extract": {"file_path": "text", "line": "text", "@kind": "text"},
            "execute_command": {"command": "text"},
            "write_to_file": {"path": "text", "content": "text"},
            "attempt_completion": "text",
            "{urn:org:calc:v1}add": {"{urn:org:calc:v1}a": "text", "{urn:org:calc:v1}b": "text"}
        },
        "reasoning": ["thinking", "think"],
        "reserved": ["system"]
    }"#;
    let turn: ExtractTurn = serde_json::from_str(turn).unwrap();
    Arc::new(turn.grammar())
}

fn extracted<'a>(
    grammar: &Arc<ActionGrammar>,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Extraction {
    let mut extractor = Extractor::new(Arc::clone(grammar));
    let mut settled: Vec<ExtractedItem> = Vec::new();
    for chunk in chunks {
        extractor.push(chunk);
        let now = extractor.settled();
        assert_eq!(now[..settled.len()], settled, "settled items changed");
        settled.extend_from_slice(&now[settled.len()..]);
    }
    extractor.finish()
}

/// Checks that the extraction gives the same result for the whole input at once, for single bytes
/// and for chunks of random sizes. Also checks that every extracted action is one element.
pub fn extract(grammar: &Arc<ActionGrammar>, bytes: &[u8]) -> String {
    let whole = extracted(grammar, std::iter::once(bytes));
    let seed = bytes.iter().fold(1, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(*byte));
    let mut dice = Dice::new(seed);
    let mut rest = bytes;
    let chunks = std::iter::from_fn(|| {
        let (chunk, after) = rest.split_at((1 + dice.below(24)).min(rest.len()));
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    });
    assert_eq!(extracted(grammar, chunks), whole, "depends on the chunking");
    if bytes.len() < 2_000 {
        assert_eq!(extracted(grammar, bytes.chunks(1)), whole, "byte by byte it is another");
    }
    for action in whole.actions() {
        let payload = action.payload();
        assert!(scan(payload.as_bytes()).is_ok(), "no payload: {payload}");
    }
    let defects: Vec<_> = whole.defects().map(|finding| finding.code.as_str()).collect();
    format!("{} actions, {defects:?}, {} items", whole.actions().count(), whole.items.len())
}

pub struct Loader {
    home: TempDir,
    compiler: SchemaCompiler,
}

impl Loader {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), compiler: SchemaCompiler::default() }
    }

    /// Checks that a schema either is refused with a problem, or gives a description and a JSON
    /// form for each payload. Examples that the schema gives must be valid.
    pub fn schema(&mut self, bytes: &[u8]) -> String {
        let path = self.home.path().join("fuzzed.xsd");
        std::fs::write(&path, bytes).unwrap();
        let file = match SchemaFile::open(&mut self.compiler, &path) {
            Ok(file) => file,
            Err(problems) => {
                assert!(!problems.is_empty(), "refused for nothing");
                let codes: Vec<_> = problems.iter().map(|problem| problem.code.as_str()).collect();
                return format!("{codes:?}");
            }
        };
        for name in file.names() {
            if let Some(example) = file.example(name) {
                let verdict = file.validate(Some(name), example.as_bytes());
                assert_eq!(verdict, SchemaVerdict::Valid, "{example}");
            }
            assert_eq!(file.describe(name).name, *name);
            assert!(file.json(name).is_object(), "{name}");
            file.shape(name, &mut ShapeArena::default());
        }
        format!("{} names, {} warnings", file.names().len().min(3), file.warnings().len().min(3))
    }
}

pub struct Vault {
    home: TempDir,
    /// The hash of each record of each undamaged journal.
    sound: Vec<Vec<Digest>>,
}

impl Vault {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/journal");
        let sound = ["sound.db", "sound-format-3.db", "sound-format-4.db"].map(|name| {
            std::fs::copy(corpus.join(name), home.path().join(DATABASE)).unwrap();
            let hashes = records(home.path()).expect("the sound one can be read");
            assert!(hashes.len() > 5, "the sound journal has records");
            hashes
        });
        Self { home, sound: sound.into() }
    }

    /// Checks that damage is reported, and that every readable record equals the written record.
    pub fn journal(&mut self, bytes: &[u8]) -> String {
        for stale in ["-wal", "-shm"] {
            std::fs::remove_file(self.home.path().join(format!("{DATABASE}{stale}"))).ok();
        }
        std::fs::write(self.home.path().join(DATABASE), bytes).unwrap();
        if let Ok(hashes) = records(self.home.path()) {
            let is_sound = |sound: &Vec<Digest>| sound.starts_with(&hashes);
            assert!(self.sound.iter().any(is_sound), "another story");
        }
        match audit::verify(self.home.path(), None, &mut |_, _| {}) {
            Ok(report) => match report.broken {
                None => "sound".to_owned(),
                Some(broken) => format!("broken: {}", without_numbers(&broken.detail)),
            },
            Err(error) => without_numbers(&error.to_string()),
        }
    }
}

fn records(data: &Path) -> Result<Vec<Digest>, organism::journal::Error> {
    let reader = JournalReader::open(data)?;
    let records = reader.records(Position(1), reader.last()?)?;
    Ok(records.into_iter().map(|sealed| sealed.hash).collect())
}

/// Returns the first words of a message, but leaves out words that contain a digit or another
/// symbol. With such words, every message would count as a different outcome.
fn without_numbers(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic));
    words.take(6).collect::<Vec<_>>().join(" ")
}

pub struct FuzzSetup {
    home: TempDir,
    around: ConfigEnvironment,
}

impl FuzzSetup {
    /// A directory with all files that the configs of the corpus name.
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(data("config")).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                std::fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        let directory = home.path().to_owned();
        let user_home = Some(directory.clone());
        let around =
            ConfigEnvironment { directory, home: user_home, ..ConfigEnvironment::default() };
        Self { home, around }
    }

    /// Checks that a config either is valid, or has at least one problem and a text for each
    /// problem.
    pub fn config(&mut self, bytes: &[u8]) -> String {
        std::fs::write(self.home.path().join("organism.toml"), bytes).unwrap();
        match load(Path::new("organism.toml"), &self.around) {
            Ok(config) => {
                let known = |schemas: &Schemas| schemas.names().count();
                assert_eq!(config.digest, Digest::of(config.text.as_bytes()));
                format!("good, {} names", known(&config.schemas))
            }
            Err(problems) => {
                assert!(problems.iter().count() > 0, "refused for nothing");
                let codes: Vec<_> = problems.iter().map(|p| p.code.to_string()).collect();
                assert!(problems.iter().all(|p| !p.to_string().is_empty()));
                format!("{codes:?}")
            }
        }
    }
}
