//! The rule for a config that was edited under a running organism: a command with the edited config
//! can begin no new work until the organism is restarted. Requests about work under way are still
//! accepted.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism with the config `running` refuses new work of a command with the config
/// `command`, which is `None` if the command's config does not load.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
