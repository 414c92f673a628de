//! Prints the result of a reload for people.

use crate::service::ReloadReport;

/// Prints the result of a reload to stderr.
pub fn note_reload(report: &ReloadReport) {
    match report {
        ReloadReport::Applied { before, config, changes } => {
            note!("the config {config} is in force, in place of {before}; changed:");
            changes.iter().for_each(|key| note!("  {key}"));
        }
        ReloadReport::Unchanged { config } => {
            note!(
                "the config is unchanged: {config} stays in force; an edited program takes effect \
                 when its process starts again"
            );
        }
        ReloadReport::Invalid { problems } => {
            problems.iter().for_each(|problem| note!("{problem}"));
            note!(
                "the config is invalid, and the organism goes on with the one in force; `organism \
                 check` shows each problem at its place"
            );
        }
        ReloadReport::NeedsRestart { keys, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            note!(
                "nothing was changed, because these differences take effect at a restart \
                 alone{reason}:"
            );
            keys.iter().for_each(|key| note!("  {key}"));
        }
    }
}
