//! Schemas that a config names as `organism:NAME.xsd`.

/// Prefix of the names of shipped schemas, in a config and in commands.
pub const SCHEMA_PREFIX: &str = "organism:";

/// A schema that the program carries with it.
#[derive(Debug, Clone, Copy)]
pub struct ShippedSchema {
    /// Name with the prefix, such as `organism:actions.xsd`.
    pub name: &'static str,
    pub text: &'static str,
    /// Whether the schema declares payload names of the core, the part of the pump that sends
    /// system payloads. A listener must not use such a schema.
    pub is_core: bool,
}

macro_rules! schema {
    ($name:literal, $path:literal, core) => {
        schema!($name, $path, true)
    };
    ($name:literal, $path:literal) => {
        schema!($name, $path, false)
    };
    ($name:literal, $path:literal, $is_core:literal) => {
        ShippedSchema {
            name: concat!("organism:", $name),
            text: include_str!(concat!("../../", $path)),
            is_core: $is_core,
        }
    };
}

/// All shipped schemas.
pub const SCHEMAS: &[ShippedSchema] = &[
    schema!("actions.xsd", "schemas/actions.xsd"),
    schema!("calculator.xsd", "listeners/calculator/schema/calculator.xsd"),
    schema!("code-search.xsd", "listeners/code-search/schema/code-search.xsd"),
    schema!("judge.xsd", "schemas/judge.xsd"),
    schema!("shell-echo.xsd", "listeners/shell-echo/schema/shell-echo.xsd"),
    schema!("travel.xsd", "listeners/travel/schema/travel.xsd"),
    schema!("workspace.xsd", "listeners/workspace/schema/workspace.xsd"),
    schema!("agent.xsd", "schemas/agent.xsd", core),
    schema!("core.xsd", "schemas/core.xsd", core),
    schema!("envelope.xsd", "schemas/envelope.xsd", core),
    schema!("workflow.xsd", "schemas/workflow.xsd", core),
];

/// Returns the shipped schema with this name, which includes the prefix `organism:`. Returns `None`
/// if there is no such schema.
pub fn schema(name: &str) -> Option<&'static ShippedSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}
