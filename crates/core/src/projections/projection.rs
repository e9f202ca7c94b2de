//! Builder of a projection.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::keys;
use crate::error::InvalidInput;
use crate::events::{Aggregate, EventNames, Upcasters, decode};
use crate::failure::Failure;
use crate::id::{EventId, EventType};
use crate::key::{Arg, Key, KeyPrefix};
use crate::payload::Payload;
use crate::reactions::Reaction;
use crate::store::{Batch, Delta, Event, Expect, NewEvent};

/// The most events that are projected in one commit.
const TOGETHER: usize = 100;

type Project = Arc<dyn Fn(&ProjectionEvent<'_>, &mut Rows) -> Result<(), Failure> + Send + Sync>;
type Choose = Arc<dyn Fn(&Event) -> Option<Key> + Send + Sync>;

/// The fields of an event that are known both before and after its commit.
#[derive(Clone, Copy, Debug)]
pub struct ProjectionEvent<'a> {
    /// The stream.
    pub stream: &'a Key,
    /// The type of the event.
    pub event_type: &'a EventType,
    /// Its payload.
    pub payload: &'a Payload,
    /// Its id.
    pub id: EventId,
    /// Its correlation id.
    pub correlation: Option<&'a str>,
}

impl ProjectionEvent<'_> {
    /// Decodes the event as a variant of an enum, like the events of aggregates.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the enum has no such variant, or the payload does not match it.
    pub fn read<E: DeserializeOwned>(&self) -> Result<E, InvalidInput> {
        decode(self.event_type, self.payload)
    }
}

/// Changes to the rows of a projection. The changes have no version conditions, so concurrent changes never refuse them.
/// Use [`merge`](Self::merge) for counters.
#[derive(Debug)]
pub struct Rows {
    kind: String,
    batch: Batch,
}

impl Rows {
    /// Writes a row.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the name or the value is invalid.
    pub fn put<A: Into<Arg>>(
        &mut self,
        row: impl IntoIterator<Item = A>,
        value: &impl Serialize,
    ) -> Result<(), InvalidInput> {
        let (key, value) = (self.key(row)?, Payload::of(value)?);
        self.change(|batch| batch.put(&key, Expect::Any, value));
        Ok(())
    }

    /// Changes parts of a row, whatever its current value is. A row that does not exist starts as `initial`.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the name or the value is invalid.
    pub fn merge<A: Into<Arg>>(
        &mut self,
        row: impl IntoIterator<Item = A>,
        initial: &impl Serialize,
        deltas: impl IntoIterator<Item = Delta>,
    ) -> Result<(), InvalidInput> {
        let (key, initial) = (self.key(row)?, Payload::of(initial)?);
        self.change(|batch| batch.merge_or_create(&key, initial, deltas));
        Ok(())
    }

    /// Deletes a row.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the name is invalid.
    pub fn delete<A: Into<Arg>>(&mut self, row: impl IntoIterator<Item = A>) -> Result<(), InvalidInput> {
        let key = self.key(row)?;
        self.change(|batch| batch.delete(&key, Expect::Any));
        Ok(())
    }

    fn key<A: Into<Arg>>(&self, row: impl IntoIterator<Item = A>) -> Result<Key, InvalidInput> {
        Key::new(&self.kind, row)
    }

    fn change(&mut self, change: impl FnOnce(Batch) -> Batch) {
        self.batch = change(std::mem::take(&mut self.batch));
    }
}

/// A read model made of documents: a function from an event to changes of rows.
#[must_use = "it does nothing before it is given to Projections, or inline to Events"]
#[derive(Clone)]
pub struct Projection {
    pub(super) name: String,
    pub(super) version: u32,
    types: Vec<String>,
    names: Option<EventNames>,
    streams: Option<KeyPrefix>,
    to: Option<Choose>,
    upcasters: Upcasters,
    project: Project,
}

impl Projection {
    /// Creates a version of a projection, starting at 1. Raise the version when the function changes. Its rows are
    /// documents of the kind `name/v1`, `name/v2` and so on.
    ///
    /// The function is deterministic, so a retry would fail in the same way: a failure blocks the key at once. Only
    /// [`retry_after`](Failure::retry_after) and [`defer`](Failure::defer) let it run again.
    pub fn new(
        name: impl Into<String>,
        version: u32,
        project: impl Fn(&ProjectionEvent<'_>, &mut Rows) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        let (types, project) = (Vec::new(), Arc::new(project));
        let upcasters = Upcasters::default();
        Self { name: name.into(), version, types, names: None, streams: None, to: None, upcasters, project }
    }

    /// Subscribes to events of these types. Without a call, the projection receives all events except Tidelock's own.
    pub fn on<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// Restricts the projection to events of the streams in this range.
    pub fn streams(mut self, range: KeyPrefix) -> Self {
        self.streams = Some(range);
        self
    }

    /// Converts events of this aggregate to their current shape, as [`Reaction::upcast`] does.
    pub fn upcast<A: Aggregate>(mut self) -> Self {
        self.upcasters = self.upcasters.with::<A>();
        self
    }

    /// Sets the names that the types are checked against at the start.
    pub(super) fn names(mut self, names: EventNames) -> Self {
        self.names = Some(names);
        self
    }

    /// Sets the function that chooses the key of an event, as [`Reaction::to`] does. Events of one key are projected in the
    /// order of the log; by default the key is the stream. If events of several streams write a row, choose the row as the
    /// key. An inline projection ignores the key, because the order of the commits applies.
    pub fn to(mut self, choose: impl Fn(&Event) -> Option<Key> + Send + Sync + 'static) -> Self {
        self.to = Some(Arc::new(choose));
        self
    }

    /// Returns the function for [`Events::inline`](crate::events::Events::inline), which changes the rows in the commit
    /// that appends the events. Read the rows with [`ReadModel::of_version`](super::ReadModel::of_version). An inline
    /// projection must exist from the first event on, and is never rebuilt. Its rows lack events that are appended without
    /// it.
    ///
    /// A [typed](Self::of) projection that subscribes to an unknown event refuses every append.
    pub fn inline(self) -> impl Fn(&Key, &[NewEvent]) -> Result<Batch, InvalidInput> + Send + Sync + 'static {
        let checked = self.reaction().check_names();
        move |stream, events| {
            if let Err(error) = &checked {
                return Err(InvalidInput::name("projection", &self.name, error.to_string()));
            }
            let mut rows = self.rows();
            for event in events {
                let NewEvent { id, event_type, payload, correlation, .. } = event;
                let correlation = correlation.as_deref();
                if self.wants(stream, event_type) {
                    let fact = ProjectionEvent { stream, event_type, payload, id: *id, correlation };
                    (self.project)(&fact, &mut rows).map_err(|error| {
                        let reason = format!("the projection {:?} cannot read it: {error}", self.name);
                        InvalidInput::Payload { reason }
                    })?;
                }
            }
            Ok(rows.batch)
        }
    }

    fn wants(&self, stream: &Key, event_type: &EventType) -> bool {
        let name = event_type.as_str();
        let of_type = match self.types.as_slice() {
            [] => !name.starts_with("tidelock."),
            types => types.iter().any(|wanted| wanted == name),
        };
        of_type && self.streams.as_ref().is_none_or(|range| range.contains(stream))
    }

    fn rows(&self) -> Rows {
        Rows { kind: keys::kind(&self.name, self.version), batch: Batch::new() }
    }

    /// Returns the reaction that writes the rows after the commit.
    pub(super) fn reaction(&self) -> Reaction {
        let mut reaction = Reaction::new(keys::reaction(&self.name, self.version))
            .on(self.types.clone())
            .names(self.names)
            .upcasters(self.upcasters.clone())
            .ends_for_good()
            .together(TOGETHER);
        if let Some(range) = &self.streams {
            reaction = reaction.streams(range.clone());
        }
        if let Some(choose) = self.to.clone() {
            reaction = reaction.to(move |event| choose(event));
        }
        let projection = self.clone();
        reaction.each_answer(move |_, event| {
            let mut rows = projection.rows();
            let Event { stream, event_type, payload, id, correlation, .. } = &event;
            let fact =
                ProjectionEvent { stream, event_type, payload, id: *id, correlation: correlation.as_deref() };
            let projected = (projection.project)(&fact, &mut rows).map_err(conclusive);
            Box::pin(ready(projected.map(|()| rows.batch.into())))
        })
    }
}

/// Makes a failure permanent, unless it names the time of a retry: the function is deterministic.
fn conclusive(failure: Failure) -> Failure {
    match (failure.minimum_wait(), failure.deferral()) {
        (None, None) => Failure::permanent(failure.message()),
        _ => failure,
    }
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, types, streams, .. } = self;
        f.debug_struct("Projection")
            .field("name", name)
            .field("version", version)
            .field("types", types)
            .field("streams", streams)
            .finish_non_exhaustive()
    }
}
