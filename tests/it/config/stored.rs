//! Configs in the form that the journal stores: they load again, and contain no secret.

use std::path::Path;

use organism::config::{CONFIG_NAME, Config, load_for_servers};

use super::{data, surroundings};

fn loaded(directory: &Path, name: &str, variables: &[(&str, &str)]) -> Config {
    let around = surroundings(directory, variables);
    load_for_servers(Path::new(name), &around).unwrap_or_else(|found| panic!("{name}: {found}"))
}

/// Writes the stored form of a config to a directory, as `organism config --out` does.
fn written(config: &Config) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in config.stored.all_files() {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for name in config.stored.directories() {
        std::fs::create_dir_all(directory.path().join(name)).unwrap();
    }
    directory
}

/// Asserts that the stored form loads as the same config, in any directory and environment.
fn check_loads_again(config: &Config) {
    let again = config.stored.load().unwrap_or_else(|e| panic!("{e}\n{}", config.stored.toml));
    assert_eq!(again.text, config.text);

    let directory = written(config);
    let manifest = &config.stored.manifest;
    let variables: Vec<_> = manifest.variables.iter().map(|name| (name.as_str(), "x")).collect();
    // Files with keys are not stored.
    assert!(config.texts().iter().all(|text| !text.contains("hunter2")));
    std::fs::write(directory.path().join("token.txt"), "hunter2").unwrap();
    std::fs::copy(data().join("ca.pem"), directory.path().join("ca.pem")).unwrap();
    let around = surroundings(directory.path(), &variables);
    let again = load_for_servers(Path::new(CONFIG_NAME), &around);
    let again = again.unwrap_or_else(|found| panic!("{found}\n{}", config.stored.toml));
    assert_eq!(again.digest, config.digest);
    assert_eq!(again.stored.files, config.stored.files);
}

#[test]
fn every_good_config_loads_again_from_what_is_stored() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut checked = 0;
    for (directory, prefix) in [(data(), "good"), (examples, "")] {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".toml") && name.starts_with(prefix) {
                let variables = [("GREETING", "hello"), ("WORKSPACE", "/srv/work")];
                check_loads_again(&loaded(&directory, &name, &variables));
                checked += 1;
            }
        }
    }
    assert!(checked >= 15, "{checked}");
}

const WORDS: &str = r#"
[organism]
name = "desk"

[clients.user]
peers = ["essay", "writer"]

[payloads.note]
risk = "low | high"

[agents.writer]
model = "recorded"
accepts = ["note"]

[models.recorded]
provider = "playback"
recording = "../turns.toml"

[workflows.essay]
input = { topic = "low | high" }
[workflows.essay.goals]
draft = { agent = "writer", prompt = "On {{input/topic}}.", output = { risk = "low | high" } }
"#;

/// Earlier versions permitted these words, and a config that was stored by them still loads.
#[test]
fn a_stored_config_may_have_words_that_a_file_may_not_have() {
    let config = Project::new(WORDS).load(&[]);
    for words in ["low? | high?", "text | high?"] {
        let mut stored = (*config.stored).clone();
        assert_eq!(stored.toml.matches("low | high").count(), 3, "{}", stored.toml);
        stored.toml = stored.toml.replace("low | high", words);
        // The config is read, and only its digest is another one.
        let error = stored.load().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("in this version, which reads a config in another way"), "{error}");
    }
}

/// A project whose files lie inside and outside of its directory.
struct Project {
    above: tempfile::TempDir,
}

const XSD: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="NS"
    targetNamespace="NS" elementFormDefault="qualified">LINK<xs:element name="NAME" type="xs:string"/></xs:schema>"#;

impl Project {
    fn new(config: &str) -> Self {
        let project = Self { above: tempfile::tempdir().unwrap() };
        let xsd = |name: &str, link: &str| {
            let namespace = format!("urn:{name}");
            XSD.replace("NS", &namespace).replace("NAME", name).replace("LINK", link)
        };
        let import = |name: &str, path: &str| {
            format!("<xs:import namespace=\"urn:{name}\" schemaLocation=\"{path}\"/>")
        };
        project.write("common/ask.xsd", &xsd("ask", &import("parts", "types/parts.xsd")));
        project.write("common/types/parts.xsd", &xsd("parts", ""));
        project.write(
            "here/schemas/told.xsd",
            &xsd("told", &import("words", "https://example.org/words.xsd")),
        );
        project.write("words/words.xsd", &xsd("words", ""));
        project.write("words/unused.xsd", &xsd("unused", ""));
        project.write("here/prompts/rules.md", "Be brief.\n${not a variable} \"quoted\"\n");
        project.write("turns.toml", "recorded = \"for a test\"\n");
        let config = config.replace("ABOVE", project.above.path().to_str().unwrap());
        project.write("here/organism.toml", &config);
        project
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.above.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn load(&self, variables: &[(&str, &str)]) -> Config {
        loaded(&self.above.path().join("here"), "organism.toml", variables)
    }
}

const SCATTERED: &str = r#"
[organism]
name = "scattered"   # a secret remark
catalogue = ["../words"]

[clients.desk]
peers = ["writer"]

[listeners.files]
command = ["x", "${TOKEN}"]
schema = "organism:workspace.xsd"
accepts = ["show-changes"]
env = { KEY = "${TOKEN}", LITERAL = "sk-literal-secret", MIXED = "sk-mixed-${TOKEN}" }

[agents.writer]
model = "recorded"
schema = ["ABOVE/common/ask.xsd", "./schemas/told.xsd"]
accepts = ["ask"]
final = "told"

[agents.writer.prompt]
rules_file = "prompts/rules.md"
identity = """You are ${WHO:-nobody},
and "$${WHO}" is no name. \\ ${WHO}"""

[models.recorded]
provider = "playback"
recording = "../turns.toml"
"#;

#[test]
fn files_from_anywhere_come_back_within_one_directory() {
    let project = Project::new(SCATTERED);
    let config = project.load(&[("WHO", "Ada ${x}"), ("TOKEN", "sk-secret-token")]);
    check_loads_again(&config);

    let names: Vec<_> = config.stored.files.keys().collect();
    assert_eq!(names.len(), 7, "{names:?}");
    assert!(names.iter().all(|name| !name.contains("..") && !name.starts_with('/')), "{names:?}");
    for here in ["prompts/rules.md", "schemas/told.xsd", "outside/organism/workspace.xsd"] {
        assert!(config.stored.files.contains_key(here), "{names:?}");
    }

    // Neither the record nor what is written from it depends on where the project lies.
    let other = Project::new(&SCATTERED.replace("ABOVE/common", "../common"));
    let moved = Project::new(&SCATTERED.replace("ABOVE/common", "../common"));
    let variables = [("WHO", "Ada"), ("TOKEN", "other")];
    assert_eq!(other.load(&variables).texts(), moved.load(&variables).texts());
}

#[test]
fn secrets_are_left_as_references_or_replaced() {
    let config = Project::new(SCATTERED).load(&[("WHO", "Ada"), ("TOKEN", "sk-secret-token")]);
    for text in config.texts() {
        for secret in ["sk-secret", "sk-literal", "sk-mixed", "secret remark"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    let manifest = &config.stored.manifest;
    assert_eq!(manifest.withheld, ["listeners.files.env.LITERAL", "listeners.files.env.MIXED"]);
    assert_eq!(manifest.variables.iter().collect::<Vec<_>>(), ["TOKEN"]);
    assert!(config.stored.toml.contains("KEY = \"${TOKEN}\""), "{}", config.stored.toml);
}

#[test]
fn overrides_and_variables_are_stored_as_they_were_in_force() {
    let project = Project::new(SCATTERED);
    let plain = [("WHO", "Ada"), ("TOKEN", "t")];
    let overridden = [
        plain[0],
        plain[1],
        ("ORGANISM_AGENTS__WRITER__MAX_ITERATIONS", "3"),
        ("ORGANISM_AGENTS__WRITER__PROMPT__IDENTITY", "You are ${WHO}, \"literally\"."),
        ("ORGANISM_LISTENERS__FILES__ENV__NEW", "sk-override"),
    ];
    let config = project.load(&overridden);
    check_loads_again(&config);
    let again = config.stored.load().unwrap();
    assert_eq!(again.agents[0].max_iterations, 3);
    let identity = |config: &Config| config.agents[0].prompt[1].1.clone();
    assert_eq!(identity(&again), "You are ${WHO}, \"literally\".");
    assert!(!config.texts().iter().any(|text| text.contains("sk-override")));

    let again = project.load(&plain).stored.load().unwrap();
    assert_eq!(identity(&again), "You are Ada,\nand \"${WHO}\" is no name. \\ Ada");
}

#[test]
fn a_comment_changes_neither_the_config_nor_what_is_stored() {
    let variables = [("WHO", "Ada"), ("TOKEN", "t")];
    let without = SCATTERED.replace("ABOVE/common", "../common");
    let with = without.replace("# a secret remark", "# another") + "\n# and one more\n";
    let [one, other] = [without, with].map(|text| Project::new(&text).load(&variables));
    assert_eq!(one.digest, other.digest);
    assert_eq!(one.texts(), other.texts());
}

#[test]
fn a_recording_that_is_too_large_is_named_and_left_out() {
    let project = Project::new(SCATTERED);
    let comment = "#".repeat(organism::limits::STORED_RECORDING_BYTES_MAX);
    project.write("turns.toml", &format!("recorded = \"for a test\"\n{comment}\n"));
    let config = project.load(&[("WHO", "Ada"), ("TOKEN", "t")]);
    let manifest = &config.stored.manifest;
    assert_eq!(manifest.left_out.len(), 1);
    assert!(config.texts().iter().all(|text| !text.contains(&comment)));
    // The rest is loaded, under the recorded digest.
    assert_eq!(config.stored.load().unwrap().digest, config.digest);
}
