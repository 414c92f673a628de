//! The rule for a config that was edited while its organism runs. A command with the edited config
//! can begin no new work until a reload or a restart puts that config in force. Requests about work
//! under way are still accepted.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism refuses new work from a command, because the config of the command is not
/// the config of the organism. `running` is the digest of the organism's config. `command` is the
/// digest of the command's config; it is `None` if this config does not load, and the organism then
/// refuses new work, too.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
