//! Compares the JSON that commands write in tests with its schemas in `schemas/json`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::Value as Json;

/// The validator for the JSON of a command; `None` if the command has no schema.
pub fn validator(command: &str) -> Option<Arc<Validator>> {
    static VALIDATORS: OnceLock<Mutex<HashMap<String, Option<Arc<Validator>>>>> = OnceLock::new();
    // Lock: shared by all tests, because a schema takes long to compile.
    let mut validators = VALIDATORS.get_or_init(Mutex::default).lock().unwrap();
    let validator = validators.entry(command.to_owned()).or_insert_with(|| {
        let file = format!("schemas/json/{}.json", command.replace(' ', "-"));
        let text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).ok()?;
        let schema = serde_json::from_slice(&text).unwrap();
        Some(Arc::new(jsonschema::validator_for(&schema).unwrap()))
    });
    validator.clone()
}

/// Returns the one-word or two-word name of the command in `arguments`. Returns `None` if the
/// output of the command is not JSON.
fn command_of(arguments: &[&str]) -> Option<String> {
    if !arguments.contains(&"--json") && !arguments.contains(&"jsonl") {
        return None;
    }
    let words: Vec<&str> =
        arguments.iter().copied().take_while(|word| !word.starts_with('-')).take(2).collect();
    let known = |words: &[&str]| Some(words.join(" ")).filter(|name| validator(name).is_some());
    known(&words).or_else(|| known(words.get(..1)?))
}

/// Asserts that each value of a command's output follows the schema of the command (issue 17, 4.7).
/// Ignores output without JSON, and a last line that a closed pipe cut off.
pub fn assert_described(arguments: &[&str], output: &str) {
    let Some(command) = command_of(arguments) else { return };
    let validator = validator(&command).unwrap();
    let values = serde_json::Deserializer::from_str(output).into_iter::<Json>();
    for value in values.map_while(Result::ok) {
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{arguments:?}: {errors:?}\n{value:#}");
    }
}
