//! Tasks and OS threads that end with the value that owns them.

/// A spawned task that is aborted when this value is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl AbortOnDrop {
    pub fn new(task: tokio::task::JoinHandle<()>) -> Self {
        Self(task)
    }

    pub fn abort(&self) {
        self.0.abort();
    }

    /// Returns when the task has ended.
    pub async fn ended(&mut self) {
        (&mut self.0).await.ok();
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort();
    }
}

/// An OS thread that is joined when this value is dropped.
///
/// Ordering rule: the OS thread ends when its channel closes. So a struct must declare the sender
/// of the channel before its `JoinOnDrop` field. Rust drops fields in the order of their
/// declaration, so the channel closes before the join.
#[derive(Debug)]
pub struct JoinOnDrop(Option<std::thread::JoinHandle<()>>);

impl JoinOnDrop {
    pub fn new(thread: std::thread::JoinHandle<()>) -> Self {
        Self(Some(thread))
    }
}

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        let Some(thread) = self.0.take() else { return };
        let name = thread.thread().name().unwrap_or("without a name").to_owned();
        if thread.join().is_err() {
            tracing::error!("the thread {name} panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[tokio::test]
    async fn a_task_ends_with_its_owner() {
        let (held, mut released) = tokio::sync::mpsc::channel::<()>(1);
        let task = AbortOnDrop::new(tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));

        drop(task);
        assert_eq!(released.recv().await, None);
    }

    #[test]
    fn a_thread_has_ended_once_its_owner_is_dropped() {
        let has_ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_ended);
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = JoinOnDrop::new(std::thread::spawn(move || {
            stopped.recv().ok();
            flag.store(true, Ordering::Release);
        }));

        drop(stop);
        drop(thread);
        assert!(has_ended.load(Ordering::Acquire));
    }
}
