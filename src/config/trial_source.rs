//! Location of the recorded threads that a trial runs again under another config.

use std::path::PathBuf;

/// Location of the recorded threads of a trial, and whether the trial may call models.
#[derive(Debug, Clone)]
pub struct TrialSource {
    /// Data directory of each journal that has some of the threads.
    pub journals: Vec<PathBuf>,
    /// Whether models on the network may answer prompts that have no recorded answer.
    pub asks_models: bool,
}
