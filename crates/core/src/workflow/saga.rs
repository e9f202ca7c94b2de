//! Sagas: a compensation is noted when its step is done. Compensations run in reverse order when the workflow fails or is cancelled.

use std::fmt;
use std::pin::Pin;

use super::ctx::Ctx;
use super::step::Step;
use crate::failure::Failure;
use crate::failure::step_error::StepError;

/// The beginning of the names of compensation steps.
pub(super) const UNDO: &str = "undo ";

type Undo<'a> =
    Box<dyn FnOnce(Ctx) -> Pin<Box<dyn Future<Output = Result<(), StepError>> + Send + 'a>> + Send + 'a>;

/// A list of compensations for the completed steps of a workflow.
///
/// ```
/// use tidelock_core::workflow::{Ctx, Failure};
///
/// async fn trip(cx: &Ctx, city: String) -> Result<(), Failure> {
///     let mut saga = cx.saga();
///     let booked = async {
///         let room = cx.step("book room", async |_| Ok(17)).await?;
///         saga.undo("room", move |step| async move { cancel_room(room, &step.key()).await });
///         cx.step("book flight", async |_| Err::<(), _>(Failure::permanent(format!("no flight to {city}")))).await?;
///         Ok(())
///     };
///     let booked = booked.await;
///     saga.finish(booked).await // cancels room 17 once, despite crashes, and fails as the flight did
/// }
///
/// async fn cancel_room(room: u32, key: &str) -> Result<(), Failure> {
///     println!("room {room} is free again ({key})");
///     Ok(())
/// }
/// ```
#[must_use = "nothing is taken back unless finish() is awaited"]
pub struct Saga<'a> {
    cx: Ctx,
    undo: Vec<Undo<'a>>,
}

impl Ctx {
    /// Creates a saga without compensations.
    pub fn saga<'a>(&self) -> Saga<'a> {
        Saga { cx: self.shielded(), undo: Vec::new() }
    }
}

impl<'a> Saga<'a> {
    /// Adds the compensation of the step that was just done. It runs as a separate step, whose name is `undo` and this name.
    pub fn undo<F, Fut>(&mut self, name: &str, undo: F)
    where
        F: FnOnce(Step) -> Fut + Clone + Send + Sync + 'a,
        Fut: Future<Output = Result<(), Failure>> + Send + 'a,
    {
        let name = format!("{UNDO}{name}");
        self.undo.push(Box::new(move |cx: Ctx| {
            Box::pin(async move { cx.step(&name, async move |step| undo(step).await).await })
        }));
    }

    /// Returns a success unchanged. After a failure, also of a cancelled run, runs the compensations in reverse order and returns
    /// the failure.
    ///
    /// # Errors
    /// The given failure. Its message includes the compensations that failed; the others run all the same.
    pub async fn finish<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let Err(mut failure) = result else { return result };
        for undo in self.undo.into_iter().rev() {
            if let Err(error) = undo(self.cx.clone()).await {
                failure = failure.and(error);
            }
        }
        Err(failure)
    }
}

impl fmt::Debug for Saga<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga").field("undo", &self.undo.len()).finish_non_exhaustive()
    }
}
