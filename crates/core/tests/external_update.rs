//! External updates: no push of another writer is lost, and only rejections are retried.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::external_update::{self, Push, UpdateError, UpdateOptions};
use tidelock_core::lock::{LockClass, LockKey, Locks};
use tidelock_core::model::retry::RetryPolicy;

static REMOTE: LockClass = LockClass::new("remote");

/// A list with a version, which rejects pushes that are based on an old version.
#[derive(Default)]
struct Remote {
    kept: Mutex<(u64, Vec<u32>)>,
    pushes: AtomicU32,
}

impl Remote {
    fn fetch(&self) -> (u64, Vec<u32>) {
        self.kept.lock().unwrap().clone()
    }

    fn push(&self, (version, list): (u64, Vec<u32>)) -> Push {
        self.pushes.fetch_add(1, Ordering::SeqCst);
        let mut kept = self.kept.lock().unwrap();
        if kept.0 != version {
            return Push::Rejected(format!("it is at {}, not at {version}", kept.0));
        }
        *kept = (version + 1, list);
        Push::Accepted
    }
}

fn options(attempts: u32) -> UpdateOptions {
    let retry = RetryPolicy {
        max_attempts: attempts,
        base: Duration::from_micros(100),
        cap: Duration::from_millis(2),
        ..RetryPolicy::default()
    };
    UpdateOptions { locks: Locks::new(), retry }
}

fn remote() -> LockKey {
    REMOTE.key(["origin"]).expect("once")
}

async fn add(options: &UpdateOptions, remote: &Remote, number: u32) -> Result<usize, UpdateError<io::Error>> {
    let term = self::remote();
    let fetch = async || Ok(remote.fetch());
    let transform = async |copy: &mut (u64, Vec<u32>)| {
        tokio::task::yield_now().await;
        copy.1.push(number);
        Ok(copy.1.len())
    };
    let push = async |copy| {
        tokio::task::yield_now().await;
        Ok(remote.push(copy))
    };
    external_update::update(options, &term, fetch, transform, push).await
}

#[tokio::test]
async fn tasks_of_one_process_queue_and_are_never_rejected() {
    let (options, remote) = (options(1), Remote::default());
    let all = (0..50).map(|number| tidelock_core::lock::scope(add(&options, &remote, number)));
    let lengths: Vec<usize> =
        futures_join(all).await.into_iter().map(|result| result.expect("accepted")).collect();
    assert_eq!(lengths, (1..=50).collect::<Vec<_>>(), "in the order of arrival");
    assert_eq!(remote.pushes.load(Ordering::SeqCst), 50);
}

#[tokio::test]
async fn others_are_met_by_the_rejected_push_and_nothing_is_lost() {
    // Two lock tables are independent of each other, like two processes.
    let (left, right, remote) = (options(1_000), options(1_000), Remote::default());
    let all = (0..100).map(|number| {
        tidelock_core::lock::scope(add(if number % 2 == 0 { &left } else { &right }, &remote, number))
    });
    for result in futures_join(all).await {
        result.expect("accepted in the end");
    }
    let mut kept = remote.fetch().1;
    kept.sort_unstable();
    assert_eq!(kept, (0..100).collect::<Vec<_>>());
    assert!(remote.pushes.load(Ordering::SeqCst) > 100, "some were rejected");
}

#[tokio::test]
async fn attempts_are_bounded() {
    let (options, term, tries) = (options(3), remote(), AtomicU32::new(0));
    let push = async |_| {
        tries.fetch_add(1, Ordering::SeqCst);
        Ok(Push::Rejected("stale".to_owned()))
    };
    let result: Result<(), UpdateError<io::Error>> =
        external_update::update(&options, &term, async || Ok(()), async |_| Ok(()), push).await;
    let error = result.expect_err("every attempt is rejected");
    assert!(
        matches!(&error, UpdateError::Rejected { attempts: 3, reason, .. } if reason == "stale"),
        "{error}"
    );
    assert_eq!((tries.load(Ordering::SeqCst), error.outcome()), (3, Outcome::NotApplied));
}

#[tokio::test]
async fn other_errors_are_not_tried_again() {
    let (options, term, tries) = (options(5), remote(), AtomicU32::new(0));
    let fail = |what: &'static str| {
        tries.fetch_add(1, Ordering::SeqCst);
        Err::<Push, _>(io::Error::other(what))
    };
    let result: Result<(), _> = external_update::update(
        &options,
        &term,
        async || Ok(()),
        async |_| Ok(()),
        async |_| fail("no route"),
    )
    .await;
    let error = result.expect_err("it fails");
    assert_eq!((error.to_string().as_str(), tries.load(Ordering::SeqCst)), ("no route", 1));
    assert_eq!(error.outcome(), Outcome::Unknown(None), "the push may have arrived");
    assert!(options.locks.try_lock(&term).is_ok(), "the lock is free again");
}

#[tokio::test]
async fn an_update_inside_of_itself_is_reported() {
    let (options, term) = (options(5), remote());
    let nested = async |_: &mut ()| {
        let again: Result<(), UpdateError<io::Error>> = external_update::update(
            &options,
            &term,
            async || Ok(()),
            async |_| Ok(()),
            async |()| Ok(Push::Accepted),
        )
        .await;
        Ok(matches!(again, Err(UpdateError::Lock(error)) if error.is_reentrant()))
    };
    let result: Result<bool, UpdateError<io::Error>> =
        external_update::update(&options, &term, async || Ok(()), nested, async |()| Ok(Push::Accepted))
            .await;
    assert!(result.expect("accepted"));
}

/// Runs futures concurrently.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut running {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if running.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
