//! The rule for a config that was edited while its organism runs. A command with the edited config
//! can begin no new work until a reload or a restart puts that config in force. Requests about work
//! under way are still accepted.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism refuses new work from a command, because the two have different configs.
/// `running` is the digest of the organism's config, and `command` is the digest of the command's
/// config. If the command's config does not load, `command` is `None`, and the organism refuses new
/// work.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
