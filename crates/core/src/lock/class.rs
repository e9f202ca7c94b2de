//! Lock classes and lock keys. A functor is a class of lockable things, declared once in a process; a term names one
//! thing of it.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::error::LockKeyError;
use super::modes::{EXCLUSIVE, Mode, Modes};
use crate::key::{Arg, Key};

/// The index of a functor that is not registered yet.
const UNKNOWN: u32 = 0;
/// The tally index of terms without a functor.
pub(super) const NO_FUNCTOR: u32 = 0;

/// A class of lockable things, such as carts or repositories: a `static`, declared once in the process.
///
/// The name is registered on first use. A second functor with the same name is rejected with an error that names both
/// source locations. To get that error when the program starts, pass all functors to [`declare`].
///
/// ```
/// use tidelock_core::lock::{LockClass, Locks, Modes, READ};
///
/// static CART: LockClass = LockClass::new("cart");
/// static INDEX: LockClass = LockClass::new("index").modes(Modes::READ_WRITE).rank(10);
///
/// # futures_executor();
/// # fn futures_executor() {
/// let locks = Locks::new();
/// let index = INDEX.key(["products"]).expect("declared once");
/// let guard = locks.try_lock(index.mode(READ)).expect("the lock is free");
/// assert_eq!(guard.mode(), READ);
/// # }
/// ```
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    modes: Modes,
    rank: Option<u32>,
    place: &'static Location<'static>,
    /// The index among the registered functors.
    index: AtomicU32,
}

impl LockClass {
    /// Creates a functor with one mode, [`EXCLUSIVE`], and no rank.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        let place = Location::caller();
        Self { name, modes: Modes::EXCLUSIVE, rank: None, place, index: AtomicU32::new(UNKNOWN) }
    }

    /// Sets the modes.
    #[must_use]
    pub const fn modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// Sets the rank. A task that holds a term of this functor may acquire only functors of higher rank. Functors
    /// without a rank are exempt from the order.
    #[must_use]
    pub const fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Returns the term of one thing of this class.
    ///
    /// # Errors
    /// [`LockKeyError::Twice`] when another functor has this name, [`LockKeyError::Key`] when the arguments do not form a
    /// key.
    pub fn key<A: Into<Arg>>(
        &'static self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<LockKey, LockKeyError> {
        self.of(&args.into_iter().map(Into::into).collect::<Vec<Arg>>())
    }

    /// Returns the term of one thing of this class, from arguments of several types.
    ///
    /// # Errors
    /// As [`key`](Self::key).
    pub fn of(&'static self, args: &[Arg]) -> Result<LockKey, LockKeyError> {
        self.register()?;
        Ok(LockKey::new(Key::of(self.name, args)?, Some(self)))
    }

    /// Returns the term of the only thing of this class.
    ///
    /// # Errors
    /// As [`key`](Self::key).
    pub fn single(&'static self) -> Result<LockKey, LockKeyError> {
        self.of(&[])
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the source location of the declaration.
    #[must_use]
    pub const fn place(&self) -> &'static Location<'static> {
        self.place
    }

    /// Registers the functor and returns its index, starting at 1.
    fn register(&'static self) -> Result<u32, LockKeyError> {
        let index = self.index.load(Ordering::Acquire);
        if index != UNKNOWN {
            return Ok(index);
        }
        let mut registry = REGISTRY.lock();
        let next = registry.len();
        let known = registry.entry(self.name).or_insert(self);
        // A declaration has two addresses when it is a constant that is used twice.
        let same = known.place == self.place && known.modes == self.modes && known.rank == self.rank;
        if !same {
            return Err(LockKeyError::Twice { name: self.name, first: known.place, second: self.place });
        }
        let index = match known.index.load(Ordering::Acquire) {
            UNKNOWN => u32::try_from(next).unwrap_or(u32::MAX - 1) + 1,
            index => index,
        };
        known.index.store(index, Ordering::Release);
        self.index.store(index, Ordering::Release);
        Ok(index)
    }
}

static REGISTRY: LazyLock<Mutex<BTreeMap<&'static str, &'static LockClass>>> = LazyLock::new(Mutex::default);

/// Registers functors when the program starts, so that two declarations of one name are found before any of them is
/// used.
///
/// # Errors
/// [`LockKeyError::Twice`] with both source locations.
pub fn declare(functors: &[&'static LockClass]) -> Result<(), LockKeyError> {
    functors.iter().try_for_each(|functor| functor.register().map(|_| ()))
}

/// Returns the names of the registered functors with their indices.
pub(super) fn registered() -> Vec<(u32, &'static str)> {
    REGISTRY.lock().iter().map(|(name, functor)| (functor.index.load(Ordering::Acquire), *name)).collect()
}

/// A lock key: a functor with arguments. Terms compare structurally, so `f("a,b")` and `f("a", "b")` are always
/// different.
///
/// Build a term once and reuse it: it stores its hash, and clones share the text.
#[derive(Clone)]
pub struct LockKey {
    key: Key,
    functor: Option<&'static LockClass>,
    hash: u64,
}

/// The hash seed is random per process, so that an attacker cannot choose keys that collide in one shard.
static HASHES: LazyLock<foldhash::fast::RandomState> = LazyLock::new(foldhash::fast::RandomState::default);

impl LockKey {
    fn new(key: Key, functor: Option<&'static LockClass>) -> Self {
        let hash = HASHES.hash_one((key.canonical(), functor.is_some()));
        Self { key, functor, hash }
    }

    /// Combines the term with a mode of its functor.
    #[must_use]
    pub fn mode(&self, mode: Mode) -> LockRequest<'_> {
        LockRequest { term: self, mode }
    }

    /// Returns the term as a key. The same key can name leases, documents and streams.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the functor; `None` for a term that was built from a key.
    #[must_use]
    pub fn functor(&self) -> Option<&'static LockClass> {
        self.functor
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn modes(&self) -> &'static Modes {
        self.functor.map_or(&Modes::EXCLUSIVE, |functor| &functor.modes)
    }

    pub(super) fn rank(&self) -> Option<u32> {
        self.functor.and_then(|functor| functor.rank)
    }

    pub(super) fn index(&self) -> u32 {
        self.functor.map_or(NO_FUNCTOR, |functor| functor.index.load(Ordering::Relaxed))
    }
}

/// Builds a term from a key that is known only at run time. It is exclusive, has no rank, and never equals a functor's
/// term.
impl From<Key> for LockKey {
    fn from(key: Key) -> Self {
        Self::new(key, None)
    }
}

impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        let (mine, others) = (self.key.canonical(), other.key.canonical());
        // Clones share their text.
        self.hash == other.hash
            && (std::ptr::eq(mine, others) || mine == others)
            && self.functor.is_some() == other.functor.is_some()
    }
}

impl Eq for LockKey {}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.key, f)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.key, f)
    }
}

/// A lock request: a term and the requested mode.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    pub(super) term: &'a LockKey,
    pub(super) mode: Mode,
}

impl<'a> From<&'a LockKey> for LockRequest<'a> {
    fn from(term: &'a LockKey) -> Self {
        Self { term, mode: EXCLUSIVE }
    }
}
