//! Files that the program carries with it: schemas, listeners, and projects to start from.
//!
//! These files are part of the program, so an installation needs no source tree. This module must
//! not know the meaning of the files.

mod listeners;
mod manifest;
mod projects;
mod schemas;
mod workflows;

pub use listeners::{LISTENERS, ShippedListener, listener};
pub use manifest::{ListenerManifest, MANIFEST, ManifestError};
pub use projects::{AGENT, CREW, GREETER};
pub use schemas::{SCHEMA_PREFIX, SCHEMAS, ShippedSchema, schema};
pub use workflows::{WORKFLOWS, WorkflowProject, workflow};

/// Version of this program, and of everything that it ships.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file of a project or of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ShippedFile {
    /// Path of the file, relative to the directory of the project or listener.
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

/// A file to be written to disk: its path and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Path of the file, relative to the directory of the project or listener.
    pub path: String,
    pub text: String,
    pub is_executable: bool,
}

impl From<&ShippedFile> for WrittenFile {
    fn from(file: &ShippedFile) -> Self {
        Self {
            path: file.path.to_owned(),
            text: file.text.to_owned(),
            is_executable: file.is_executable,
        }
    }
}
