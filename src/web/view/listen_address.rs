//! Checks the address of a web view. Other machines may reach the view only over TLS and under a
//! known name.

use super::{ViewError, ViewOptions};
use crate::mutant::mutant;

/// Refuses an address that other machines can reach, if the options contain no TLS. Refuses an
/// unspecified address, such as `0.0.0.0`, if the options contain no host name.
pub(super) fn check(options: &ViewOptions) -> Result<(), ViewError> {
    let address = options.listen;
    if address.ip().is_loopback() {
        return Ok(());
    }
    if options.tls.is_none() && !mutant("serve-without-tls") {
        return Err(ViewError::NotLoopback(address));
    }
    if address.ip().is_unspecified() && options.hosts.is_empty() {
        return Err(ViewError::NoHost(address));
    }
    Ok(())
}
