//! Errors at the start, and starts under the name of an earlier reaction.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::error::Explain as _;
use crate::failure::Failure;
use crate::id::QueueName;
use crate::reactions::{Operator, ReactionFilter, ReactionsError};

async fn refused(reactions: Reactions) -> ReactionsError {
    reactions.start().await.map(drop).unwrap_err()
}

#[tokio::test]
async fn invalid_reactions_are_rejected() {
    let store = store();
    let twice = reactions(&store).with(noting("a")).with(noting("b")).with(noting("a"));
    assert_eq!(refused(twice).await, ReactionsError::Twice { name: "a".to_owned() });
    let idle = reactions(&store).with(Reaction::new("idle"));
    assert_eq!(refused(idle).await, ReactionsError::NoHandler { name: "idle".to_owned() });
    for name in ["", "a\nb", &"x".repeat(129)] {
        let error = refused(reactions(&store).with(noting(name))).await;
        assert!(matches!(error, ReactionsError::Name { .. }), "{name:?}: {error}");
    }
    let nameless = refused(reactions(&store).with(noting("a").on([""]))).await;
    assert_eq!(nameless.code().as_str(), "TL0103", "{nameless}");
    let nothing = store.works(&WorkFilter::default(), Page::first(9)).await.unwrap().rows;
    assert!(nothing.is_empty(), "nothing is left of what was refused: {nothing:?}");
}

#[test]
fn there_must_be_a_runtime() {
    let starting = pin!(reactions(&store()).with(noting("a")).start());
    let answer = starting.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Err(ReactionsError::NoRuntime))));
}

#[tokio::test]
async fn a_reaction_cannot_choose_keys_where_it_followed_streams() {
    let (store, stream) = (store(), key("s"));
    append(&store, &stream, 0..3).await;
    let running = reactions(&store).with(noting("r")).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
    let choosing = || reactions(&store).with(noting("r").to(|_| Some(key("all"))));
    assert!(matches!(refused(choosing()).await, ReactionsError::Changed { .. }));
    assert_eq!(Operator::new(store.clone()).reset_reaction("r").await, Ok(1));
    let running = choosing().start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(noted(&store).await, [0, 1, 2, 0, 1, 2]);
    running.shutdown().await;
    assert!(matches!(refused(reactions(&store).with(noting("r"))).await, ReactionsError::Changed { .. }));
}

#[tokio::test]
async fn rows_that_have_something_to_do_move_to_a_new_lane() {
    let (store, stream) = (store(), key("s"));
    append(&store, &stream, 0..3).await;
    let bad = Reaction::new("r").each(async |_, _| Err::<(), _>(Failure::permanent("no")));
    let running = reactions(&store).with(bad).start().await.unwrap();
    assert_eq!(running.quiesce().await.unwrap().blocked, 1);
    running.shutdown().await;
    let queue = QueueName::new("elsewhere").unwrap();
    let running = reactions(&store).with(noting("r").queue(queue.clone())).start().await.unwrap();
    assert_eq!(row(&store, "r", &stream).await.queue, queue);
    assert_eq!(Operator::new(store.clone()).unblock(&ReactionFilter::blocked()).await, Ok(1));
    running.quiesce().await.unwrap();
    assert_eq!(noted(&store).await, [0, 1, 2]);
    running.shutdown().await;
}

#[tokio::test]
async fn rows_of_unknown_reactions_are_deferred() {
    let (store, stream) = (store(), key("s"));
    let queue = || QueueName::new("shared").unwrap();
    let both = reactions(&store).with(noting("known").queue(queue())).with(noting("unknown").queue(queue()));
    let running = both.start().await.unwrap();
    append(&store, &stream, [0]).await;
    running.quiesce().await.unwrap();
    running.shutdown().await;
    let job = keys::row("unknown", &stream).unwrap();
    store.apply(Batch::new().enqueue(NewWork::standing(job, queue()))).await.unwrap();
    let running = reactions(&store).with(noting("known").queue(queue())).start().await.unwrap();
    let now = store.now().await.unwrap();
    until("the row is deferred", async || {
        row(&store, "unknown", &stream).await.due.is_some_and(|due| due > now)
    })
    .await;
    let row = row(&store, "unknown", &stream).await;
    assert_eq!((row.attempts, row.blocked), (0, None), "it is not its fault");
    assert_eq!(noted(&store).await, [0, 0]);
    in_time("others settle", running.quiesce()).await.unwrap();
    running.shutdown().await;
}
