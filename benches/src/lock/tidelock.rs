//! Tidelock's locks.

use tidelock_core::lock::{Guard, LockClass, LockKey, Locks, OwnedGuard};

use super::{Failed, HoldAll, KIND, Keyed};

static FUNCTOR: LockClass = LockClass::new(KIND);

/// A table of Tidelock's locks.
#[derive(Clone, Debug, Default)]
pub struct Ours(Locks);

fn terms(count: u32) -> Result<Vec<LockKey>, Failed> {
    (0..count).map(|number| Ok(FUNCTOR.key([number])?)).collect()
}

impl Keyed for Ours {
    type Key = LockKey;
    type Guard<'a> = Guard<'a>;

    fn with_keys(count: u32) -> Result<(Self, Vec<LockKey>), Failed> {
        Ok((Self::default(), terms(count)?))
    }

    async fn lock<'a>(&'a self, key: &'a LockKey) -> Result<Guard<'a>, Failed> {
        Ok(self.0.lock(key).await?)
    }
}

impl HoldAll for Ours {
    type Owned = OwnedGuard;

    async fn hold(&self, key: &LockKey) -> Result<OwnedGuard, Failed> {
        Ok(self.0.lock_owned(key).await?)
    }
}
