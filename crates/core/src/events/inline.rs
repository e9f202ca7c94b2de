//! Effects that belong to events, in the commit that appends them.

use std::sync::Arc;

use super::Events;
use super::error::EventsError;
use crate::error::InvalidInput;
use crate::id::OpId;
use crate::key::Key;
use crate::store::{Batch, Effect, NewEvent};

/// From the events of an append to the effects that belong to them.
type Hook = Arc<dyn Fn(&Key, &[NewEvent]) -> Result<Batch, InvalidInput> + Send + Sync>;

/// What is called for each append.
#[derive(Clone, Default)]
pub(super) struct Hooks(Arc<[Hook]>);

impl Events {
    /// The same, with more effects in every commit that appends events through it: by commands, by
    /// [`append`](Self::append), by [`decide`](Self::decide) and in units. The function gets the stream and the new events of
    /// each append, and gives effects: documents that are to be right as soon as the events are there.
    ///
    /// It may run several times for events that are appended once, so it changes nothing else. Effects that expect something
    /// of a document refuse the whole commit when it is not so; [`Batch::merge`] and [`Expect::Any`](crate::store::Expect)
    /// never do. Events that other programs append without it have no such effects: to be sure of all, use a reaction.
    #[must_use]
    pub fn inline(
        mut self,
        effects: impl Fn(&Key, &[NewEvent]) -> Result<Batch, InvalidInput> + Send + Sync + 'static,
    ) -> Self {
        let more = self.inline.0.iter().cloned().chain([Arc::new(effects) as Hook]);
        self.inline = Hooks(more.collect());
        self
    }

    /// The batch with the effects that belong to its events.
    pub(super) fn inlined(&self, mut batch: Batch) -> Result<Batch, EventsError> {
        let mut more = Batch::new();
        for hook in &*self.inline.0 {
            for effect in batch.effects() {
                let Effect::Append { stream, events, .. } = effect else { continue };
                let effects = hook(stream, events)
                    .map_err(|reason| EventsError::Unwritable { stream: stream.clone(), reason })?;
                more = more.and(effects);
            }
        }
        batch = batch.and(more);
        Ok(batch)
    }

    /// The same, named when it does more than append: only so is it recognised when it is sent again.
    pub(super) fn named(&self, batch: Batch) -> Result<Batch, EventsError> {
        let batch = self.inlined(batch)?;
        let more = batch.effects().iter().any(|effect| !matches!(effect, Effect::Append { .. }));
        Ok(if more { batch.op_id(OpId::new()) } else { batch })
    }
}
