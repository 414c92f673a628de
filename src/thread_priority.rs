//! The priority of OS threads for background work. No message waits for this work.

/// On Linux, lowers the priority of the OS thread that calls this function. On other systems, does
/// nothing, because the niceness may apply to the whole process there, and would slow the pump
/// down. `work` names the work of the thread in the log.
pub fn lower(niceness: i32, work: &str) {
    if !cfg!(target_os = "linux") {
        return;
    }
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!("could not lower the priority of {work}: {error}");
    }
}
