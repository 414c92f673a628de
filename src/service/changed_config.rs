//! The rule for a config that was edited under a running organism: the edited config opens no new
//! work until the organism is restarted. Requests about work under way are taken as before.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism with the config `running` refuses new work of a command with the config
/// `command`. A command whose config does not load has none.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
