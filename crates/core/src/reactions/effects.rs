//! Return values of handlers: the effects.

use crate::store::Batch;

/// The changes that a handler makes in the store: appends, documents and work. They are committed under the lease in one
/// batch with the progress of the reaction or the record of the task. The batch is applied once, as a whole or not at all.
///
/// A handler may also return a [`Batch`] or `()`. The operation id of a batch is ignored, because the position of the
/// reaction shows whether the batch was applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects(pub(crate) Batch);

impl Effects {
    /// Returns effects that change nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl From<Batch> for Effects {
    fn from(batch: Batch) -> Self {
        Self(batch)
    }
}

impl From<()> for Effects {
    fn from((): ()) -> Self {
        Self::none()
    }
}
