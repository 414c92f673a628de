//! Configs of the pages, loaded as `organism check` loads them.
//!
//! Their directory has the files of `config/` in the repository and of `tests/data/docs`, and the
//! keys and secrets that the pages name. A text without `[organism]` is only a part of a config;
//! `surroundings.toml` completes it.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use organism::config::{ConfigEnvironment, ConfigProblems, load};
use organism::model::playback::PlaybackModel;
use tempfile::TempDir;
use toml::{Table, Value};

use super::blocks::{Block, BlockKind, block, read};

const WORKFLOWS: &str = "docs/WORKFLOWS.md";

/// End of a hexadecimal key that a page shortens. The ellipsis stands for the remaining digits.
const CUT: &str = "…\"";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn link_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Directory with everything that a config of a page may name.
fn project() -> TempDir {
    let root = TempDir::new().unwrap();
    symlink(repository().join("listeners"), root.path().join("listeners")).unwrap();
    let config = root.path().join("config");
    link_all(&repository().join("config"), &config);
    link_all(&repository().join("tests/data/docs"), &config);

    for name in ["nats", "schema", "checkpoints"] {
        std::fs::create_dir(config.join(name)).unwrap();
    }
    symlink(config.join("calculator.xsd"), config.join("schema/calculator.xsd")).unwrap();
    let program = repository().join("listeners/shell-echo/shell-echo");
    symlink(program, config.join("calculator.py")).unwrap();
    let seed = nkeys::KeyPair::new_user().seed().unwrap();
    for name in ["pump", "system"] {
        std::fs::write(config.join(format!("nats/{name}.nk")), &seed).unwrap();
    }
    let secret = config.join("desk.secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    root
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(table)) => merge(inner, table),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Completes each key of which the page shows only the first digits.
fn completed(text: &str) -> String {
    let mut parts = text.split(CUT);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = whole.len() - whole.rfind('"').unwrap() - 1;
        whole.push_str(&"0".repeat(64 - digits));
        whole.push('"');
        whole.push_str(part);
    }
    whole
}

/// The configs, recordings and cases of the pages in one project.
pub struct Project {
    root: TempDir,
}

impl Project {
    pub fn new() -> Self {
        Self { root: project() }
    }

    fn config(&self) -> PathBuf {
        self.root.path().join("config")
    }

    fn load(&self, config: &str, variables: &[(&str, &str)]) -> Result<(), ConfigProblems> {
        let file = self.config().join("organism.toml");
        std::fs::write(&file, config).unwrap();
        let home = ("HOME", self.root.path().to_str().unwrap());
        // A provider's key would stand there.
        let key = ("ANTHROPIC_API_KEY", "of-the-provider");
        let path = ("PATH", &*std::env::var("PATH").unwrap());
        let variables = [home, key, path].into_iter().chain(variables.iter().copied());
        let program = Path::new(env!("CARGO_BIN_EXE_organism"));
        let environment = ConfigEnvironment {
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            directory: self.config(),
            home: Some(self.root.path().to_owned()),
            program_directory: program.parent().map(Path::to_owned),
        };
        load(&file, &environment).map(drop)
    }

    /// Makes a whole config from the part of a config that a page shows.
    fn whole(part: &str) -> String {
        let table: Table = part.parse().unwrap();
        if table.contains_key("organism") {
            return part.to_owned();
        }

        let mut whole: Table = read("tests/data/docs/surroundings.toml").parse().unwrap();
        if table.contains_key("workflows") {
            // The goals of a workflow stay in the order of the page.
            return toml::to_string(&whole).unwrap() + part;
        }
        merge(&mut whole, table);
        toml::to_string(&whole).unwrap()
    }

    /// Runs test cases from a page. The cases use `config/essay.toml`, or the shorter config on the
    /// page.
    fn cases(&self, text: &str) -> Result<(), String> {
        // The path of the config is relative to the file of the cases.
        let folder = self.config().join("essay-page");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cases.toml"), text).unwrap();
        let mut test = Command::new(env!("CARGO_BIN_EXE_organism"));
        test.args(["workflow", "test", "cases.toml"]).current_dir(folder);
        let output = test.env("HOME", self.root.path()).output().unwrap();
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        output.status.success().then_some(()).ok_or_else(|| shown.into_owned())
    }

    /// Checks a block with a config, a part of a config, overrides, a recording or test cases.
    pub fn carry_out(&self, block: &Block, kind: &BlockKind) -> Result<(), String> {
        let text = completed(&block.text);
        match kind {
            BlockKind::Recording => {
                PlaybackModel::parse("page", &text).map(drop).map_err(|wrong| format!("{wrong:?}"))
            }
            BlockKind::Cases => self.cases(&text),
            BlockKind::Overrides => {
                let variables: Vec<_> =
                    text.lines().filter_map(|line| line.split_once('=')).collect();
                self.load(&Self::whole(""), &variables).map_err(|wrong| format!("{wrong:#?}"))
            }
            _ => self.load(&Self::whole(&text), &[]).map_err(|wrong| format!("{wrong:#?}")),
        }
    }
}

/// The workflow on the page sends a critic the document that the page shows. Workflow and document
/// are two blocks of the page.
#[test]
fn the_document_of_the_page_is_what_a_critic_gets() {
    let project = Project::new();
    let config = Project::whole(&block(WORKFLOWS, "# After config/essay.toml"));
    project.load(&config, &[]).unwrap();
    let config = config.replace("\"greeter\"]", "\"greeter\", \"essay\"]");
    std::fs::write(project.config().join("page.toml"), config).unwrap();

    let document = block(WORKFLOWS, "<workflow name=\"essay\">");
    let case = |document: &str| {
        format!(
            "config = \"../page.toml\"\n[[case]]\nname = \"a\"\nworkflow = \"essay\"\n\
             input = {{ topic = \"t\", readers = \"town councillors\", words = 150 }}\n\
             [case.answers]\noutline = \"Claim: a street without parking gains shops.\"\n\
             draft_1 = \"A space takes 12 m² & earns less than a café table…\"\n\
             critique_1 = \"PUBLISH\"\n[case.expect]\ndocuments.critique_1 = '''\n{document}'''\n"
        )
    };
    assert_eq!(project.cases(&case(&document)), Ok(()));
    assert!(project.cases(&case(&document.replace("PUBLISH", "SHIP"))).is_err());
}

#[test]
fn a_part_of_a_config_is_judged_in_its_surroundings() {
    let project = Project::new();
    let judged = |text: &str| {
        let page = format!("```toml\n{text}\n```\n");
        let block = super::blocks::blocks(&page).remove(0);
        project.carry_out(&block, &block.kind().unwrap())
    };
    assert_eq!(judged("[listeners.worker]\nattempts = 1"), Ok(()));
    assert_eq!(judged("[journal]\nknown_keys = [\"7f3a…\"]"), Ok(()));
    assert!(judged("[listeners.worker]\nattempt = 1").unwrap_err().contains("UnknownKey"));
    assert!(
        judged("[listeners.worker]\npeers = [\"nobody\"]").unwrap_err().contains("UnknownPeer")
    );
}
