//! Events at the level of the store (E1–E7): expected versions, racing creations, several streams, and closing.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// A wrong expected version is rejected with the expected and the actual version.
pub async fn e1_a_wrong_version_reports_expected_and_actual(env: &Env) {
    let stream = key("e1");
    let absent = StreamFound::Absent;
    let head = |v| StreamFound::At(StreamVersion(v));
    for (expect, found) in [(at(0), absent), (Expect::Exists, absent)] {
        let refusal = env.store.refused(Batch::new().append(&stream, expect, events(1))).await;
        assert_eq!(refusal, Refusal::Stream { index: 0, stream: stream.clone(), expected: expect, found });
    }
    env.store.done(Batch::new().append(&stream, Expect::Absent, events(3))).await;
    for (expect, found) in [(at(1), head(2)), (at(3), head(2)), (Expect::Absent, head(2))] {
        let refusal = env.other.refused(Batch::new().append(&stream, expect, events(1))).await;
        assert_eq!(refusal, Refusal::Stream { index: 0, stream: stream.clone(), expected: expect, found });
    }
    for expect in [at(2), Expect::Exists, Expect::Any] {
        env.other.done(Batch::new().append(&stream, expect, events(1))).await;
    }
    assert_eq!(env.store.history(&stream).await.len(), 6);
}

/// All writers read the same head, then append. One wins; the others get the same error.
pub async fn e1_writers_that_read_the_same_head_have_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let stream = key(&format!("e1-{connections}"));
        env.store.done(Batch::new().append(&stream, Expect::Absent, events(1))).await;
        let work = |_: usize, conn: Conn| {
            let stream = stream.clone();
            async move {
                let head = conn.stream(&stream).await.unwrap().unwrap().head.unwrap();
                conn.apply(Batch::new().append(&stream, Expect::Exact(head), events(2))).await.map(|_| head)
            }
        };
        let answers = env.race(connections, 8, work).await;
        let won: Vec<u64> = answers.iter().flatten().map(|head| head.0).collect();
        let winners = won.len() as u64;
        assert_eq!(won.iter().filter(|head| **head == 0).count(), 1, "one winner for each head: {won:?}");
        assert_eq!(env.other.history(&stream).await.len() as u64, 1 + 2 * winners);
        for error in answers.into_iter().filter_map(Result::err) {
            stream_conflict(refusal(Err(error)));
        }
    }
}

/// Of racing creations of the same new stream, exactly one wins.
pub async fn e2_racing_creations_have_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        for round in 0..10 {
            let stream = key(&format!("e2-{connections}-{round}"));
            let work = |_: usize, conn: Conn| {
                let batch = Batch::new().append(&stream, Expect::Absent, events(2));
                async move { conn.apply(batch).await }
            };
            let (receipt, losers) = one_winner(env.race(connections, 4, work).await);
            assert_eq!(receipt.appended[0].first_version, StreamVersion(0));
            for loser in losers {
                assert_eq!(stream_conflict(loser), StreamFound::At(StreamVersion(1)));
            }
            assert_eq!(env.other.history(&stream).await.len(), 2);
        }
    }
}

/// Two deciders on one aggregate, each with the version it saw, never oversell the stock.
pub async fn e3_an_invariant_holds_under_racing_deciders(env: &Env) {
    const STOCK: usize = 5;
    for connections in ONE_AND_TWO {
        let stream = key(&format!("e3-{connections}"));
        let work = |_: usize, conn: Conn| {
            let stream = stream.clone();
            async move {
                let mut sold = 0;
                loop {
                    let history = conn.history(&stream).await;
                    if history.len() >= STOCK {
                        return sold;
                    }
                    let expect = history.last().map_or(Expect::Absent, |e| Expect::Exact(e.version));
                    // Other tasks also decide between this decision and its commit.
                    tokio::task::yield_now().await;
                    let batch = Batch::new().append(&stream, expect, [event("Sold", 1)]);
                    sold += usize::from(conn.apply(batch).await.is_ok());
                }
            }
        };
        let sold: usize = env.race(connections, 8, work).await.into_iter().sum();
        assert_eq!((sold, env.other.history(&stream).await.len()), (STOCK, STOCK));
    }
}

/// Several streams change in one commit or not at all, and the log never shows a part.
pub async fn e4_several_streams_commit_together(env: &Env) {
    let (a, b, c) = (key("e4-a"), key("e4-b"), key("e4-c"));
    let all = |expect_c| {
        let batch = Batch::new().append(&a, Expect::Any, events(1)).append(&b, Expect::Any, events(2));
        batch.append(&c, expect_c, events(1))
    };
    let receipt = env.store.done(all(Expect::Absent)).await;
    let streams: Vec<&Key> = receipt.appended.iter().map(|x| &x.stream).collect();
    assert_eq!(streams, [&a, &b, &c]);
    assert_eq!(receipt.last_position(), env.other.log().await.last().map(|e| e.position));
    let refusal = env.other.refused(all(Expect::Absent)).await;
    assert!(matches!(refusal, Refusal::Stream { index: 2, .. }));
    assert_eq!(env.store.log().await.len(), 4);
    let twice =
        Batch::new().append(&a, at(0), events(1)).append(&a, at(1), events(1)).append(&a, at(1), events(1));
    assert!(matches!(env.store.refused(twice).await, Refusal::Stream { index: 2, .. }));
    assert_eq!(env.store.history(&a).await.len(), 1);
}

/// Racing writers transfer between two streams, repeatedly and atomically.
pub async fn e4_racing_commits_on_two_streams_stay_whole(env: &Env) {
    for connections in ONE_AND_TWO {
        let (a, b) = (key(&format!("e4-{connections}-a")), key(&format!("e4-{connections}-b")));
        let work = |i: usize, conn: Conn| {
            // Half of the writers name the streams in reverse order: neither a deadlock nor a partial commit.
            let (first, second) =
                if i.is_multiple_of(2) { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) };
            async move {
                for n in 0..10 {
                    let one = || [event("Moved", (i * 100 + n) as i64)];
                    conn.done(Batch::new().append(&first, Expect::Any, one()).append(
                        &second,
                        Expect::Any,
                        one(),
                    ))
                    .await;
                }
            }
        };
        env.race(connections, 8, work).await;
        let moved = async |s: &Key| {
            let mut all: Vec<String> =
                env.other.history(s).await.iter().map(|e| e.payload.to_string()).collect();
            all.sort();
            all
        };
        let (of_a, of_b) = (moved(&a).await, moved(&b).await);
        assert_eq!((of_a.len(), &of_a), (80, &of_b));
    }
}

/// A closed stream rejects appends with its last version. Closing it again changes nothing.
pub async fn e7_a_closed_stream_refuses_appends(env: &Env) {
    let stream = key("e7");
    env.store.done(Batch::new().append(&stream, Expect::Absent, events(2))).await;
    let stale = env.store.refused(Batch::new().close(&stream, at(0))).await;
    assert_eq!(stream_conflict(stale), StreamFound::At(StreamVersion(1)));
    env.store.done(Batch::new().close(&stream, at(1))).await;
    let closed = env.other.stream(&stream).await.unwrap().unwrap();
    assert_eq!((closed.head, closed.closed_at), (Some(StreamVersion(1)), Some(env.now())));
    for expect in [Expect::Any, Expect::Exists, at(1)] {
        for list in [events(1), Vec::new()] {
            let refusal = env.other.refused(Batch::new().append(&stream, expect, list)).await;
            let head = Some(StreamVersion(1));
            assert_eq!(refusal, Refusal::StreamClosed { index: 0, stream: stream.clone(), head });
        }
    }
    env.pass(secs(5));
    env.other.done(Batch::new().close(&stream, Expect::Any)).await;
    assert_eq!(env.store.stream(&stream).await.unwrap(), Some(closed), "closed once, at the first instant");
    assert_eq!(env.store.history(&stream).await.len(), 2, "the events remain");
}

/// A stream may be closed before its first event. It is then a tombstone and does not exist.
pub async fn e7_a_stream_may_be_closed_before_it_begins(env: &Env) {
    let stream = key("e7-early");
    env.store.done(Batch::new().close(&stream, Expect::Absent)).await;
    let info = env.other.stream(&stream).await.unwrap().unwrap();
    assert_eq!((info.head, info.closed_at), (None, Some(env.now())));
    env.other.done(Batch::new().guard_stream(&stream, Expect::Absent)).await;
    let refusal = env.other.refused(Batch::new().append(&stream, Expect::Absent, events(1))).await;
    assert_eq!(refusal, Refusal::StreamClosed { index: 0, stream: stream.clone(), head: None });
}

/// Appends race with a close. Every acknowledged append precedes the close, and none follows it.
pub async fn e7_appends_and_a_close_race(env: &Env) {
    for connections in ONE_AND_TWO {
        let stream = key(&format!("e7-race-{connections}"));
        let work = |i: usize, conn: Conn| {
            let batch = Batch::new();
            let batch = if i == 4 {
                batch.close(&stream, Expect::Any)
            } else {
                batch.append(&stream, Expect::Any, events(1))
            };
            async move { conn.apply(batch).await }
        };
        let answers = env.race(connections, 9, work).await;
        assert!(answers[4].is_ok());
        let landed = answers.iter().flatten().filter(|r| !r.appended.is_empty()).count();
        assert_eq!(env.other.history(&stream).await.len(), landed);
        for error in answers.into_iter().filter_map(Result::err) {
            assert!(matches!(refusal(Err(error)), Refusal::StreamClosed { .. }));
        }
        env.other.refused(Batch::new().append(&stream, Expect::Any, events(1))).await;
    }
}

/// Closing a stream is one batch with its preconditions: rejected while a reaction is behind, repeatable afterwards.
pub async fn e7_closing_is_one_batch_with_its_guards(env: &Env) {
    let (stream, summary) = (key("e7-books"), key("e7-summary"));
    env.store
        .done(Batch::new().append(&stream, Expect::Absent, events(1)).enqueue(standing("e7-reaction")))
        .await;
    let id = OpId::new();
    let close = || {
        let batch = Batch::new().guard_document(&key("e7-pending"), Expect::Absent).close(&stream, at(0));
        batch.put(&summary, Expect::Absent, number(1)).op_id(id)
    };
    env.store.done(Batch::new().put(&key("e7-pending"), Expect::Any, number(1))).await;
    env.store.refused(close()).await;
    assert_eq!(env.store.stream(&stream).await.unwrap().unwrap().closed_at, None);
    env.store.done(Batch::new().delete(&key("e7-pending"), Expect::Any)).await;
    env.store.done(close()).await;
    assert!(env.other.done(close()).await.repeated, "a crash after the commit is resumed by asking again");
    assert_eq!(env.other.doc(&summary).await.unwrap().version, DocVersion(1));
}
