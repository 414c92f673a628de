//! The source of a trial: the journals with the recorded threads that the trial runs again under
//! another config.

use std::path::PathBuf;

/// The journals whose recorded threads a trial runs again, and whether the trial may call models.
#[derive(Debug, Clone)]
pub struct TrialSource {
    /// Data directories of the journals with the recorded threads.
    pub journals: Vec<PathBuf>,
    /// Whether a model on the network may be called for a prompt that has no recorded answer.
    pub asks_models: bool,
}
