//! Given-when-then tests of aggregates, without a store.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use tidelock_core::events::{Aggregate, fixture::given_events};
//! # #[derive(Clone, Default)]
//! # struct Door { open: bool }
//! # #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! # enum DoorEvent { Opened, Closed }
//! # impl Aggregate for Door {
//! #     const KIND: &'static str = "door";
//! #     type Event = DoorEvent;
//! #     fn apply(&mut self, event: &DoorEvent) { self.open = *event == DoorEvent::Opened; }
//! # }
//! # impl Door {
//! #     fn close(&self) -> Result<Vec<DoorEvent>, String> {
//! #         if self.open { Ok(vec![DoorEvent::Closed]) } else { Err("it is closed".to_owned()) }
//! #     }
//! # }
//! given_events::<Door>([DoorEvent::Opened]).when(Door::close).then([DoorEvent::Closed]);
//! given_events::<Door>([DoorEvent::Opened, DoorEvent::Closed]).when(Door::close).then_error("it is closed");
//! ```

use std::fmt::{Debug, Display};

use super::aggregate::Aggregate;
use super::codec::{decode, encode};

/// Returns an aggregate with these past events.
///
/// # Panics
/// Panics when an event cannot be encoded and decoded, because a store would lose it.
#[must_use]
#[expect(clippy::panic, reason = "a fixture fails its test by panicking")]
pub fn given_events<A: Aggregate>(events: impl IntoIterator<Item = A::Event>) -> Given<A> {
    let mut state = A::default();
    for event in events {
        let again =
            encode(&event).and_then(|(event_type, payload)| decode::<A::Event>(&event_type, &payload));
        match again {
            Ok(again) => state.apply(&again),
            Err(error) => panic!("an event of {} cannot be written and read: {error}", A::KIND),
        }
    }
    Given(state)
}

/// An aggregate with past events.
#[derive(Clone, Debug)]
pub struct Given<A>(A);

impl<A: Aggregate> Given<A> {
    /// Returns the state.
    pub fn state(&self) -> &A {
        &self.0
    }

    /// Runs a command on the state.
    #[must_use]
    pub fn when<E, I>(self, decide: impl FnOnce(&A) -> Result<I, E>) -> Decision<A, E>
    where
        I: IntoIterator<Item = A::Event>,
    {
        let said = decide(&self.0).map(|events| events.into_iter().collect());
        Decision { state: self.0, said }
    }
}

/// The decision of a command.
#[derive(Debug)]
pub struct Decision<A: Aggregate, E> {
    state: A,
    said: Result<Vec<A::Event>, E>,
}

#[expect(clippy::panic, reason = "a fixture fails its test by panicking")]
impl<A: Aggregate, E: Display> Decision<A, E> {
    /// Asserts that the command returned exactly these events, and returns the state after them.
    ///
    /// # Panics
    /// Panics when the command returned other events or an error.
    #[track_caller]
    pub fn then(mut self, expected: impl IntoIterator<Item = A::Event>) -> A
    where
        A::Event: Debug + PartialEq,
    {
        let expected: Vec<_> = expected.into_iter().collect();
        match self.said {
            Ok(events) => {
                assert_eq!(events, expected, "the command gave other events");
                events.iter().for_each(|event| self.state.apply(event));
                self.state
            }
            Err(error) => panic!("the command said no: {error}"),
        }
    }

    /// Asserts that the command returned an error with exactly this text.
    ///
    /// # Panics
    /// Panics when the command returned events or another error.
    #[track_caller]
    pub fn then_error(self, expected: &str)
    where
        A::Event: Debug,
    {
        match self.said {
            Ok(events) => panic!("the command gave {events:?}, and should say no: {expected}"),
            Err(error) => assert_eq!(error.to_string(), expected, "the command said no for another reason"),
        }
    }
}
