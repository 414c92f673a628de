//! Carries out proposed changes and commands inside one directory.
//!
//! [`Workspace`] answers the payloads of `schemas/actions.xsd` and `schema/workspace.xsd`, and
//! `main.rs` serves them on the bus. The modules `edit`, `place` and `package` are pure. Only the
//! module `root` accesses the files of the workspace, and only the module `state` accesses the
//! state directory. This crate must not know the pump or any other listener.

mod action;
mod change;
mod command;
mod diff;
mod edit;
mod environment;
mod failure;
pub mod limits;
mod manifest;
mod output;
mod package;
mod place;
mod plan;
mod preview;
mod reply;
mod root;
mod self_running;
mod set;
mod state;
mod supervise;
mod workspace;

pub use failure::{ActionFailure, FailureCode};
pub use supervise::{SUPERVISE, become_subreaper, supervise};
pub use workspace::{Options, Workspace, WorkspaceCall};
