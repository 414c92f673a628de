//! Locks a mutex whose earlier holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if a thread panicked while it held the lock. The panic was reported where it
/// happened, and must not make every later use of the value panic, too.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_locked_after_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut value = locked(&mutex);
                *value = 2;
                panic!("the holder of the lock panics");
            });
            assert!(holder.join().is_err());
        });

        assert!(mutex.is_poisoned());
        assert_eq!(*locked(&mutex), 2);
    }
}
