//! The crate `lockable`, in both of its forms. Its keys are Tidelock's, which it clones with each call. That is cheaper
//! for it than owned text.

use std::sync::Arc;

use lockable::{AsyncLimit, LockPool, Lockable, LockableHashMap};
use tidelock_core::key::Key;

use super::{Failed, HoldAll, Keyed, keys};

/// A pool of locks without values.
#[derive(Clone)]
pub struct Pool(Arc<LockPool<Key>>);

impl Keyed for Pool {
    type Key = Key;
    type Guard<'a> = <LockPool<Key> as Lockable<Key, ()>>::Guard<'a>;

    fn with_keys(count: u32) -> Result<(Self, Vec<Key>), Failed> {
        Ok((Self(Arc::new(LockPool::new())), keys(count)?))
    }

    async fn lock<'a>(&'a self, key: &'a Key) -> Result<Self::Guard<'a>, Failed> {
        Ok(self.0.async_lock(key.clone()).await)
    }
}

/// A map whose entries can be locked.
#[derive(Clone)]
pub struct HashMap(Arc<LockableHashMap<Key, ()>>);

type OwnedGuard = <LockableHashMap<Key, ()> as Lockable<Key, ()>>::OwnedGuard;

impl Keyed for HashMap {
    type Key = Key;
    type Guard<'a> = <LockableHashMap<Key, ()> as Lockable<Key, ()>>::Guard<'a>;

    fn with_keys(count: u32) -> Result<(Self, Vec<Key>), Failed> {
        Ok((Self(Arc::new(LockableHashMap::new())), keys(count)?))
    }

    async fn lock<'a>(&'a self, key: &'a Key) -> Result<Self::Guard<'a>, Failed> {
        Ok(self.0.async_lock(key.clone(), AsyncLimit::no_limit()).await?)
    }
}

impl HoldAll for HashMap {
    type Owned = OwnedGuard;

    async fn hold(&self, key: &Key) -> Result<OwnedGuard, Failed> {
        Ok(self.0.async_lock_owned(key.clone(), AsyncLimit::no_limit()).await?)
    }
}
