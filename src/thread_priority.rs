//! The priority of background threads. No message waits for their work.

/// Lowers the priority of the operating-system thread that calls this function. `work` names the
/// work of this thread in the log. Does nothing on systems where a niceness applies to the whole
/// process, such as macOS, because the pump must not become slower.
pub fn lower(niceness: i32, work: &str) {
    if !cfg!(target_os = "linux") {
        return;
    }
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!("could not lower the priority of {work}: {error}");
    }
}
