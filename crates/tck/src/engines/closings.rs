//! Resumed closings (E7): a closing that another call has started is finished in the same way, or refused.

use std::sync::Arc;

use tidelock_core::archive::Archiver;

use crate::fault_proxy::{Detour, Fuse};
use crate::ledger::*;
use crate::prelude::*;

/// A closing that started without an archive is not resumed with one, and vice versa. Removed events cannot be
/// archived, and events to be archived must not be removed. Resumed with the same setting, it is finished.
pub async fn e7_a_closing_is_resumed_with_the_archive_it_began_with(env: &Env) {
    for discards in [true, false] {
        let id = format!("mixed-{discards}");
        let stream = stream(&id);
        book(&here(env), &id, 7).await;
        // It dies before the events are removed or archived: after the lease and the progress record.
        let fuse = Fuse::new(1);
        let dying = engine(&Detour::over(Arc::clone(&fuse), &env.store.0));
        let shelf = Shelf::default();
        let begun = async {
            if discards {
                Archiver::new(dying.clone()).close(&stream).discard().keep_last::<Ledger>(2).await
            } else {
                closing(&dying, &stream, &shelf).keep_last::<Ledger>(2).await
            }
        };
        tokio::select! {
            biased;
            () = fuse.died() => {}
            closed = begun => panic!("it should die: {closed:?}"),
        }
        env.pass(secs(40));
        if discards {
            // One step of a removal that has several.
            env.store.done(Batch::new().truncate(&stream, StreamVersion(3))).await;
        }
        let other = async {
            if discards {
                closing(&there(env), &stream, &shelf).keep_last::<Ledger>(2).await
            } else {
                Archiver::new(there(env)).close(&stream).discard().keep_last::<Ledger>(2).await
            }
        };
        let error = other.await.unwrap_err();
        assert_eq!(error.code().as_str(), "TL0813", "{error}");
        assert_eq!(there(env).load::<Ledger>(id.as_str()).await.unwrap().state.sum, 28);
        let closed = if discards {
            Archiver::new(there(env)).close(&stream).discard().keep_last::<Ledger>(2).await.unwrap()
        } else {
            closing(&there(env), &stream, &shelf).keep_last::<Ledger>(2).await.unwrap()
        };
        assert!(closed.resumed);
        assert_eq!((closed.archived, closed.removed), if discards { (0, 2) } else { (5, 5) });
        assert_eq!(versions(&env.store.history(&stream).await), [5, 6]);
        assert_eq!(there(env).load::<Ledger>(id.as_str()).await.unwrap().state.sum, 28);
    }
}

/// Events removed by hand before they were archived are skipped; the others are archived.
pub async fn e7_an_archive_passes_over_events_that_are_gone(env: &Env) {
    let (events, stream, shelf) = (here(env), stream("holes"), Shelf::default());
    book(&events, "holes", 9).await;
    let fuse = Fuse::new(1);
    let dying = engine(&Detour::over(Arc::clone(&fuse), &env.store.0));
    tokio::select! {
        biased;
        () = fuse.died() => {}
        closed = closing(&dying, &stream, &Shelf::default()).keep_last::<Ledger>(2) => panic!("{closed:?}"),
    }
    env.pass(secs(40));
    env.store.done(Batch::new().truncate(&stream, StreamVersion(5))).await;
    let closed = closing(&there(env), &stream, &shelf).keep_last::<Ledger>(2).await.unwrap();
    assert_eq!((closed.archived, shelf.versions()), (2, vec![5, 6]));
    assert_eq!(there(env).load::<Ledger>("holes").await.unwrap().state.sum, 45);
}
