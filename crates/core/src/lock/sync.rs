//! Mutex and thread-local primitives of the lock table: from parking_lot and std, or from a model checker. The
//! checkers see no other synchronisation, so everything that they must explore goes through these.

#[cfg(not(any(tidelock_loom, tidelock_shuttle)))]
pub(super) use parking_lot::{Mutex, MutexGuard};

#[cfg(any(tidelock_loom, tidelock_shuttle))]
pub(super) use self::checked::{Mutex, MutexGuard};

#[cfg(tidelock_loom)]
pub(super) use loom::thread_local as task_local;
#[cfg(tidelock_shuttle)]
pub(super) use shuttle::thread_local as task_local;

#[cfg(any(tidelock_loom, tidelock_shuttle))]
mod checked {
    #[cfg(tidelock_loom)]
    use loom::sync as inner;
    #[cfg(tidelock_shuttle)]
    use shuttle::sync as inner;

    pub(in super::super) use inner::MutexGuard;

    /// A mutex that a model checker observes, with the interface of parking_lot's.
    #[derive(Debug)]
    pub(in super::super) struct Mutex<T>(inner::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(inner::Mutex::new(value))
        }

        pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }
}
