//! Files that the program carries with it: schemas, and the projects that `organism init` writes.
//!
//! Everything here works after an installation without the source tree. Must not know what the
//! files mean.

/// A file of a project or of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ShippedFile {
    /// Path relative to the directory that it is written to.
    pub path: &'static str,
    pub text: &'static str,
    pub is_executable: bool,
}

impl ShippedFile {
    const fn new(path: &'static str, text: &'static str) -> Self {
        Self { path, text, is_executable: false }
    }

    const fn program(path: &'static str, text: &'static str) -> Self {
        Self { path, text, is_executable: true }
    }
}

/// Prefix of the names of shipped schemas, in a config and in commands.
pub const SCHEMA_PREFIX: &str = "organism:";

/// A schema that the program carries with it.
#[derive(Debug, Clone, Copy)]
pub struct ShippedSchema {
    /// Name with the prefix, such as `organism:actions.xsd`.
    pub name: &'static str,
    pub text: &'static str,
    /// Whether it declares the core's own words, which no listener may accept.
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
            text: include_str!(concat!("../", $path)),
            is_core: $is_core,
        }
    };
}

/// All shipped schemas.
pub const SCHEMAS: &[ShippedSchema] = &[
    schema!("actions.xsd", "schemas/actions.xsd"),
    schema!("calculator.xsd", "listeners/calculator/schema/calculator.xsd"),
    schema!("code-search.xsd", "listeners/code-search/schema/code-search.xsd"),
    schema!("shell-echo.xsd", "listeners/shell-echo/schema/shell-echo.xsd"),
    schema!("travel.xsd", "listeners/travel/schema/travel.xsd"),
    schema!("workspace.xsd", "listeners/workspace/schema/workspace.xsd"),
    schema!("agent.xsd", "schemas/agent.xsd", core),
    schema!("core.xsd", "schemas/core.xsd", core),
    schema!("envelope.xsd", "schemas/envelope.xsd", core),
    schema!("workflow.xsd", "schemas/workflow.xsd", core),
];

/// The shipped schema with this name, which begins with the prefix.
pub fn schema(name: &str) -> Option<&'static ShippedSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

/// The Python kit, under the name by which listeners import it.
const PYTHON_KIT: &str = include_str!("../listeners/python/organism_listener.py");

/// Explains the directory for copies of checkpoints, and keeps it in a copy of the project by git.
const CHECKPOINTS_README: &str = include_str!("shipped/init/checkpoints.md");

/// The project of `organism init`.
pub const GREETER: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("shipped/init/greeter/organism.toml")),
    ShippedFile::program("greeter.py", include_str!("shipped/init/greeter/greeter.py")),
    ShippedFile::new("schema/greeter.xsd", include_str!("shipped/init/greeter/greeter.xsd")),
    ShippedFile::new("hello.xml", include_str!("shipped/init/greeter/hello.xml")),
    ShippedFile::new("README.md", include_str!("shipped/init/greeter/README.md")),
];

/// The project of `organism init --agent`.
pub const AGENT: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("shipped/init/agent/organism.toml")),
    ShippedFile::new("tools/days.py", include_str!("shipped/init/agent/tools/days.py")),
    ShippedFile::new("tools/organism_listener.py", PYTHON_KIT),
    ShippedFile::new("question.xml", include_str!("shipped/init/agent/question.xml")),
    ShippedFile::new("recording.toml", include_str!("shipped/init/agent/recording.toml")),
    ShippedFile::new("checkpoints/README.md", CHECKPOINTS_README),
    ShippedFile::new("README.md", include_str!("shipped/init/agent/README.md")),
];

/// The project of `organism init --crew`.
pub const CREW: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("shipped/init/crew/organism.toml")),
    ShippedFile::new("cases.toml", include_str!("shipped/init/crew/cases.toml")),
    ShippedFile::new("tools/run_tests.py", include_str!("shipped/init/crew/tools/run_tests.py")),
    ShippedFile::new("tools/organism_listener.py", PYTHON_KIT),
    ShippedFile::new("project/greeting.py", include_str!("shipped/init/crew/project/greeting.py")),
    ShippedFile::new(
        "project/test_greeting.py",
        include_str!("shipped/init/crew/project/test_greeting.py"),
    ),
    ShippedFile::new("recording.toml", include_str!("shipped/init/crew/recording.toml")),
    ShippedFile::new("checkpoints/README.md", CHECKPOINTS_README),
    ShippedFile::new("README.md", include_str!("shipped/init/crew/README.md")),
];
