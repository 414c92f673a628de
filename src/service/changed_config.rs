//! The rule for a config that was edited while its organism runs. A command with the edited config
//! can begin no new work until a reload or a restart puts this config in force. It can still send
//! requests about work under way.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism refuses new work from a command, because their configs differ. `running` is
/// the digest of the organism's config, and `command` that of the command's config. If `command` is
/// `None`, the command's config does not load, and new work is refused, too.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
