//! The priority of background threads. No message waits for their work.

/// Lowers the priority of the calling thread, whose work `work` names in the log. Does nothing
/// where a niceness applies to the whole process, as on macOS, because the pump must not become
/// slower.
pub fn lower(niceness: i32, work: &str) {
    if !cfg!(target_os = "linux") {
        return;
    }
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!("could not lower the priority of {work}: {error}");
    }
}
