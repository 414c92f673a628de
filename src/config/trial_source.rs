//! The source of an organism that tries its config on recorded threads.

use std::path::PathBuf;

/// Where the recorded threads are, and whether a trial may call models.
#[derive(Debug, Clone)]
pub struct TrialSource {
    /// Data directory of each journal that has some of the threads.
    pub journals: Vec<PathBuf>,
    /// Whether a model that uses the network may answer a prompt without an answer on record.
    pub asks_models: bool,
}
