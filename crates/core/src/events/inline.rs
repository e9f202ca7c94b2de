//! Inline effects, in the commit that appends the events.

use std::sync::Arc;

use super::Events;
use super::error::EventsError;
use crate::error::InvalidInput;
use crate::id::OpId;
use crate::key::Key;
use crate::store::{Batch, Effect, NewEvent};

/// A function from the events of an append to their effects.
type Hook = Arc<dyn Fn(&Key, &[NewEvent]) -> Result<Batch, InvalidInput> + Send + Sync>;

/// The functions that are called for each append.
#[derive(Clone, Default)]
pub(super) struct Hooks(Arc<[Hook]>);

impl Events {
    /// Adds effects to every commit that appends events through this instance: by commands, [`append`](Self::append),
    /// [`decide`](Self::decide) and units. The function receives the stream and the new events of each append. It returns
    /// effects, such as documents that must be consistent with the events at once.
    ///
    /// The function may run several times for events that are appended once, so it must have no side effects. A failed
    /// expectation about a document refuses the whole commit; [`Batch::merge`] and [`Expect::Any`](crate::store::Expect)
    /// have none. Events that other programs append without it have no such effects. To cover all events, use a reaction.
    #[must_use]
    pub fn inline(
        mut self,
        effects: impl Fn(&Key, &[NewEvent]) -> Result<Batch, InvalidInput> + Send + Sync + 'static,
    ) -> Self {
        let more = self.inline.0.iter().cloned().chain([Arc::new(effects) as Hook]);
        self.inline = Hooks(more.collect());
        self
    }

    /// Adds the inline effects of the appended events to a batch.
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

    /// Adds the inline effects, and an operation id if the batch does more than append. Only the id identifies such a batch
    /// when it is sent again.
    pub(super) fn named(&self, batch: Batch) -> Result<Batch, EventsError> {
        let batch = self.inlined(batch)?;
        let more = batch.effects().iter().any(|effect| !matches!(effect, Effect::Append { .. }));
        Ok(if more { batch.op_id(OpId::new()) } else { batch })
    }
}
