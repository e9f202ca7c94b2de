//! State scopes: a kind and an id, with states by name.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::codec::{Codec, Plain, Value};
use super::combiner::{Check, Combiner};
use super::document::{Document, Record, WithSchema};
use super::handle::State;
use super::history::History;
use super::observe::Observer;
use super::registry::Registry;
use super::schema::Schema;
use super::{StateOptions, StateValue};
use crate::error::InvalidInput;
use crate::key::{Arg, IntoKey, Key};
use crate::store::SharedStore;

/// The owner of state: a kind, such as a session or a user, and an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    kind: String,
    id: Arg,
}

impl Scope {
    /// Creates a scope of a custom kind.
    #[must_use]
    pub fn new(kind: &str, id: impl Into<Arg>) -> Self {
        Self { kind: kind.to_owned(), id: id.into() }
    }

    /// Returns the scope of one request.
    #[must_use]
    pub fn request(id: impl Into<Arg>) -> Self {
        Self::new("request", id)
    }

    /// Returns the scope of one session.
    #[must_use]
    pub fn session(id: impl Into<Arg>) -> Self {
        Self::new("session", id)
    }

    /// Returns the scope of one user.
    #[must_use]
    pub fn user(id: impl Into<Arg>) -> Self {
        Self::new("user", id)
    }

    /// Returns the scope of one organisation.
    #[must_use]
    pub fn org(id: impl Into<Arg>) -> Self {
        Self::new("org", id)
    }

    /// Returns the key of a record in this scope: `session("s-1", "cart")`.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or the key is too long.
    pub fn key(&self, name: &str) -> Result<Key, InvalidInput> {
        Key::of(&self.kind, &[self.id.clone(), Arg::from(name)])
    }
}

/// The state of a program in a store. Clones share it.
#[derive(Clone)]
pub struct StateRegistry {
    store: SharedStore,
    options: StateOptions,
    observer: Option<Arc<dyn Observer>>,
    history: bool,
    /// The records in use, so that all states of one record share its queue.
    registry: Arc<Mutex<Registry>>,
}

impl StateRegistry {
    /// Creates a handle to the state in this store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self {
            store,
            options: StateOptions::default(),
            observer: None,
            history: false,
            registry: Arc::default(),
        }
    }

    /// Sets the options. Call it before you create states.
    #[must_use]
    pub fn options(mut self, options: StateOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets an observer of all mutations. Call it before you create states.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Enables a history: every write also appends an event, in the same commit, to the stream that
    /// [`history_key`](super::history_key) names. Call it before you create states. It needs a store with streams.
    #[must_use]
    pub fn with_history(mut self) -> Self {
        self.history = true;
        self
    }

    /// Returns the state of a name in a scope.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or the key is too long.
    pub fn state<T: StateValue>(&self, scope: &Scope, name: &str) -> Result<State<T>, InvalidInput> {
        Ok(self.at(&scope.key(name)?))
    }

    /// Returns the state of a record by its key. The operations of a state with an invalid key return the error.
    #[must_use]
    pub fn at<T: StateValue>(&self, key: impl IntoKey) -> State<T> {
        match key.into_key() {
            Ok(key) => State::stored(self.combiner(&key, None, || Arc::new(Plain::new()))),
            Err(error) => State::invalid(error),
        }
    }

    /// Returns the state of a record by its key, with a check of new values. The check of the first state
    /// counts, as long as any state of the record is in use.
    #[must_use]
    pub fn checked<T: StateValue>(
        &self,
        key: &Key,
        check: impl Fn(&T) -> Result<(), String> + Send + Sync + 'static,
    ) -> State<T> {
        State::stored(self.combiner(key, Some(Arc::new(check)), || Arc::new(Plain::new())))
    }

    /// Returns the document of a key. The schema of the first document counts, as long as any document of the key is in
    /// use.
    #[must_use]
    pub fn document<T: Record>(&self, key: &Key, schema: Schema) -> Document<T> {
        Document::stored(self.combiner(key, None, || Arc::new(WithSchema::new(schema))))
    }

    fn combiner<T: Value>(
        &self,
        key: &Key,
        check: Option<Check<T>>,
        codec: impl FnOnce() -> Arc<dyn Codec<T>>,
    ) -> Arc<Combiner<T>> {
        self.registry.lock().get_or_insert(key, TypeId::of::<T>(), || {
            let mut combiner =
                Combiner::new(Arc::clone(&self.store), key.clone(), self.options.clone(), codec());
            combiner.check = check;
            combiner.observer.clone_from(&self.observer);
            combiner.history = self.history.then(|| History::of(key));
            combiner
        })
    }
}

impl fmt::Debug for StateRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateRegistry { store, options, .. } = self;
        f.debug_struct("StateRegistry")
            .field("store", store)
            .field("options", options)
            .finish_non_exhaustive()
    }
}
