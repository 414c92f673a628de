//! The kits whose listeners run as separate programs. The test listeners have the same names in
//! each language.

use std::process::Command;

use super::harness::{repository, script};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KitLanguage {
    Python,
    TypeScript,
}

impl KitLanguage {
    pub const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Creates the command that starts a test listener of this kit as a child process.
    pub fn listener(self, program: &str) -> Command {
        match self {
            Self::Python => self.with_kit("python3".as_ref(), program),
            Self::TypeScript => self.on_nats(program),
        }
    }

    /// Creates the command that starts a test listener of this kit on NATS. The kit's client for
    /// NATS is installed beside the tests.
    pub fn on_nats(self, program: &str) -> Command {
        match self {
            Self::Python => self.with_kit(super::remote::python().get_program(), program),
            Self::TypeScript => self.with_kit("node".as_ref(), program),
        }
    }

    fn with_kit(self, interpreter: &std::ffi::OsStr, program: &str) -> Command {
        let mut command = Command::new(interpreter);
        match self {
            Self::Python => {
                command.arg(script(&format!("{program}.py")));
                command.env("PYTHONPATH", repository().join("listeners/python"));
            }
            Self::TypeScript => {
                let compiled = repository().join(format!("target/typescript/try/{program}.mjs"));
                assert!(
                    compiled.is_file(),
                    "the TypeScript kit is not built; run .ci/typescript (make test does)"
                );
                // The optimizing compiler costs a third of a start, and little of its code would run.
                command.arg("--no-opt").arg(compiled);
            }
        }
        command
    }

    /// The name under which listeners of this kit report their errors.
    pub fn module(self) -> &'static str {
        match self {
            Self::Python => "organism_bus",
            Self::TypeScript => "organism-listener",
        }
    }
}
