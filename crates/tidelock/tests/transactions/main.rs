//! Your own transaction: rows of the user's table, a batch and a started run are one commit, on every kind of transaction.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
mod foreign;
mod kinds;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlx")]
mod steps;

/// Runs every case on a kind of transaction.
macro_rules! cases {
    ($($module:ident: $kind:ty => [$($case:ident),* $(,)?];)*) => {$(
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::cases::$case::<$kind>().await;
                }
            )*
        }
    )*};
}

macro_rules! on_every_kind {
    ($($cases:tt)*) => {
        cases! { rusqlite: crate::kinds::Rusqlite => [$($cases)*]; }
        #[cfg(feature = "postgres")]
        cases! { tokio_postgres: crate::postgres::TokioPostgres => [$($cases)*]; }
        #[cfg(feature = "sqlx")]
        cases! { sqlx: crate::postgres::Sqlx => [$($cases)*]; }
    };
}

on_every_kind! {
    a_commit_shows_the_row_the_event_and_the_run_together,
    a_rollback_leaves_nothing,
    a_refused_batch_leaves_the_transaction_usable,
    an_operation_is_applied_once,
    a_run_is_executed_after_the_commit_and_not_before,
    a_run_that_exists_is_found_and_another_one_is_refused,
    every_kind_of_row_and_value_is_written,
}

#[cfg(feature = "postgres")]
mod cancelled {
    #[tokio::test]
    async fn tokio_postgres() {
        crate::cases::a_cancelled_call_leaves_nothing::<crate::postgres::TokioPostgres>().await;
    }

    #[cfg(feature = "sqlx")]
    #[tokio::test]
    async fn sqlx() {
        crate::cases::a_cancelled_call_leaves_nothing::<crate::postgres::Sqlx>().await;
    }
}
