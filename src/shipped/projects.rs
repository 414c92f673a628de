//! Projects that `organism init` writes.

use super::ShippedFile;

/// Text of the Python kit. Its file must be called `organism_listener.py`, the name by which
/// listeners import the kit.
pub(super) const PYTHON_KIT: &str = include_str!("../../listeners/python/organism_listener.py");

/// Text of a file that explains the directory for checkpoint copies. The file also keeps the
/// directory in Git, which does not store empty directories.
const CHECKPOINTS_README: &str = include_str!("init/checkpoints.md");

/// The files of the project that `organism init` writes.
pub const GREETER: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("init/greeter/organism.toml")),
    ShippedFile::program("greeter.py", include_str!("init/greeter/greeter.py")),
    ShippedFile::new("schema/greeter.xsd", include_str!("init/greeter/greeter.xsd")),
    ShippedFile::new("hello.xml", include_str!("init/greeter/hello.xml")),
    ShippedFile::new("README.md", include_str!("init/greeter/README.md")),
];

/// The files of the project that `organism init --agent` writes.
pub const AGENT: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("init/agent/organism.toml")),
    ShippedFile::new("tools/days.py", include_str!("init/agent/tools/days.py")),
    ShippedFile::new("tools/organism_listener.py", PYTHON_KIT),
    ShippedFile::new("question.xml", include_str!("init/agent/question.xml")),
    ShippedFile::new("recording.toml", include_str!("init/agent/recording.toml")),
    ShippedFile::new("checkpoints/README.md", CHECKPOINTS_README),
    ShippedFile::new("README.md", include_str!("init/agent/README.md")),
];

/// The files of the project that `organism init --crew` writes.
pub const CREW: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("init/crew/organism.toml")),
    ShippedFile::new("cases.toml", include_str!("init/crew/cases.toml")),
    ShippedFile::new("tools/run_tests.py", include_str!("init/crew/tools/run_tests.py")),
    ShippedFile::new("tools/organism_listener.py", PYTHON_KIT),
    ShippedFile::new("project/greeting.py", include_str!("init/crew/project/greeting.py")),
    ShippedFile::new(
        "project/test_greeting.py",
        include_str!("init/crew/project/test_greeting.py"),
    ),
    ShippedFile::new("recording.toml", include_str!("init/crew/recording.toml")),
    ShippedFile::new("checkpoints/README.md", CHECKPOINTS_README),
    ShippedFile::new("README.md", include_str!("init/crew/README.md")),
];

/// Config lines for real models, as comments. The config of an example project uses recorded model
/// answers. To use a real model, a user replaces the line of the recording with one of these lines.
pub(super) const MODEL_LINES: &str = include_str!("init/models.toml");
