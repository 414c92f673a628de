//! The address of a web view: loopback, or one that others reach with TLS and by a name.

use super::{ViewError, ViewOptions};
use crate::mutant::mutant;

/// Refuses an address that others reach without TLS, and one without a name to reach it by.
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
