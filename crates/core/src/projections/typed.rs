//! Typed projections: functions of the events of one aggregate, decoded in their current shape.

use std::fmt;
use std::marker::PhantomData;

use super::projection::{Projection, Rows};
use crate::events::{Aggregate, EventDecoder, EventNames};
use crate::failure::Failure;
use crate::key::{Arg, KeyPrefix};

impl Projection {
    /// Creates a version of a projection of the events of an aggregate. The function receives decoded events in their
    /// current shape, as [`Aggregate::schema`] defines it. Name and version are as for [`new`](Self::new).
    pub fn of<A: Aggregate>(name: impl Into<String>, version: u32) -> TypedProjection<A> {
        TypedProjection { name: name.into(), version, names: Vec::new(), aggregate: PhantomData }
    }
}

/// A projection of the events of one aggregate that has no function yet. [`each`](Self::each) sets the function and returns
/// the [`Projection`], which has the other settings.
///
/// An event that does not fit the enum of the aggregate is a permanent failure: its key is blocked. An event of a newer
/// shape is deferred, so that a newer program can project it. A type that is not in the enum is skipped if the schema says
/// [`UnknownEvents::Skip`](crate::events::UnknownEvents::Skip).
#[must_use = "it does nothing without a function"]
pub struct TypedProjection<A> {
    name: String,
    version: u32,
    names: Vec<String>,
    aggregate: PhantomData<fn() -> A>,
}

impl<A: Aggregate> TypedProjection<A> {
    /// Subscribes to these events, by their current names; further calls add names. Without a call, the projection receives
    /// all events of the aggregate. A name that is not a variant of [`Aggregate::Event`] is
    /// [an error](crate::reactions::ReactionsError::UnknownEvent) when the projection is started.
    pub fn on<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the function. It receives the id of the aggregate, the event, and the rows to change.
    pub fn each(
        self,
        project: impl Fn(Arg, A::Event, &mut Rows) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Projection {
        let Self { name, version, names, .. } = self;
        let decoder = EventDecoder::<A>::new();
        let projection = Projection::new(name, version, move |fact, rows| {
            match decoder.decode(fact.stream, fact.event_type, fact.payload)? {
                Some((id, event)) => project(id, event, rows),
                None => Ok(()),
            }
        });
        let projection = projection.on(names).streams(KeyPrefix::kind(A::KIND)).upcast::<A>();
        projection.names(EventNames::of::<A>())
    }
}

impl<A> fmt::Debug for TypedProjection<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, names, .. } = self;
        f.debug_struct("TypedProjection")
            .field("name", name)
            .field("version", version)
            .field("names", names)
            .finish()
    }
}
