//! The priority of background threads. No message waits for their work.

/// Lowers the priority of the OS thread that calls this function. `work` names the
/// work of this thread in the log. On Linux, a niceness applies to a single thread. On other
/// systems, the niceness may apply to the whole process and would slow the pump down. Therefore,
/// this function does nothing there.
pub fn lower(niceness: i32, work: &str) {
    if !cfg!(target_os = "linux") {
        return;
    }
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!("could not lower the priority of {work}: {error}");
    }
}
