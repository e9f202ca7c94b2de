//! The baselines of each backend: the device and the bare driver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidelock_console::bench::claim_baseline::{PostgresJobs, SqliteJobs};
use tidelock_console::bench::directory::WorkDirectory;
use tidelock_console::bench::flush::Flusher;
use tidelock_console::bench::handwritten::{self, Strategy};
use tidelock_console::bench::memory_baseline::appends_per_second;
use tidelock_console::bench::postgres_baseline::{Pool, Writers};
use tidelock_console::bench::server::MeasuredServer;
use tidelock_console::bench::sqlite_baseline::DriverBaseline;

use super::Plan;

/// Rates per second, by the name in the ratios.
pub(super) type Rates = BTreeMap<&'static str, f64>;

/// The baselines of a backend.
pub(super) enum Baselines {
    /// A map behind a mutex.
    Memory,
    /// `fdatasync`, and the bare driver.
    Sqlite { flusher: Flusher, driver: Box<DriverBaseline>, jobs: SqliteJobs },
    /// Handwritten SQL.
    Postgres { pool: Arc<Pool>, writers: Vec<(&'static str, Writers)>, jobs: PostgresJobs },
}

impl Baselines {
    /// Creates the files of the baselines.
    pub(super) async fn on_disk(plan: &Plan, directory: &WorkDirectory) -> Result<Self> {
        Ok(Self::Sqlite {
            flusher: Flusher::new(directory)?,
            driver: Box::new(DriverBaseline::new(&directory.file("driver.db"), plan.streams).await?),
            jobs: SqliteJobs::create(&directory.file("jobs.db"), plan.rows)?,
        })
    }

    /// Creates the tables of the baselines in a schema.
    pub(super) async fn on_server(plan: &Plan, server: &MeasuredServer, schema: &str) -> Result<Self> {
        handwritten::create_tables(server.schemas().admin(), schema).await?;
        let writers = |strategy, kind, count| Writers::new(strategy, kind, count, plan.streams);
        Ok(Self::Postgres {
            pool: Arc::new(Pool::new(server.url(), schema).await?),
            writers: vec![
                ("plain", writers(Strategy::Plain, "many", plan.producers)?),
                ("single_statement", writers(Strategy::SingleStatement, "many", plan.producers)?),
                ("single_statement1", writers(Strategy::SingleStatement, "solo", 1)?),
            ],
            jobs: PostgresJobs::create(server.url(), schema, plan.rows).await?,
        })
    }

    /// Returns the number of phases.
    pub(super) fn phases(&self) -> u64 {
        match self {
            Self::Memory => 2,
            Self::Sqlite { .. } | Self::Postgres { .. } => 4,
        }
    }

    /// Returns whether commits wait for a disk.
    pub(super) fn flushes(&self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Measures every baseline once. `group` is the mean commit group of the store, which the driver repeats.
    pub(super) async fn measure(&mut self, plan: &Plan, group: usize, length: Duration) -> Result<Rates> {
        match self {
            Self::Memory => Ok(Rates::from([
                ("map", appends_per_second(plan.producers, length).await?),
                ("map1", appends_per_second(1, length).await?),
            ])),
            Self::Sqlite { flusher, driver, jobs } => tokio::task::block_in_place(|| {
                let flushes = flusher.append(length)?.max(flusher.overwrite(length)?);
                Ok(Rates::from([
                    ("fdatasync", flushes),
                    ("floor", driver.slice(group, length)?),
                    ("claim_ack", jobs.slice(length)?),
                ]))
            }),
            Self::Postgres { pool, writers, jobs } => {
                let mut rates = Rates::new();
                for (name, writers) in writers {
                    rates.insert(name, writers.slice(pool, length).await?.commits()?.per_s);
                }
                rates.insert("claim_ack", jobs.slice(length).await?);
                Ok(rates)
            }
        }
    }
}
