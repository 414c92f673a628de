//! The rule for a config that was edited while its organism runs. A command with the edited config
//! can begin no new work until a reload or a restart puts this config in force. The command can
//! still send requests about work under way.

use crate::ids::Digest;
use crate::mutant::mutant;

/// Whether an organism refuses new work from a command because the two have different configs.
/// `running` is the digest of the organism's config, and `command` is the digest of the command's
/// config. If the command's config does not load, `command` is `None`, and the organism refuses new
/// work, too.
pub fn forbids_new_work(running: Digest, command: Option<Digest>) -> bool {
    command != Some(running) && !mutant("send-under-any-config")
}
