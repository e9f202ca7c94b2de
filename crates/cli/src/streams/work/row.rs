//! `unblock`, `reset`, `retry` and `prioritize` of work rows. The command changes exactly the rows that it counted and
//! confirmed: it passes their keys to the store and does not search again.

use anyhow::Result;
use tidelock::key::reserved::is_own;
use tidelock::prelude::*;
use tidelock::store::{Operation, Selection, WorkFilter, WorkRow, limits};

use super::blocked::{Line, table};
use super::call::{FIRST, Report};
use crate::args::StreamsOperate;
use crate::exit::{Exit, UsageError};
use crate::output;
use crate::work::filter;

/// The number of rows read in one page.
const PAGE: usize = 1_000;

/// Runs an operator command, or prints its preview.
pub(super) async fn operate(
    options: &StreamsOperate,
    name: &'static str,
    operation: Operation,
) -> Result<Exit> {
    let verb = Verb::new(options, name, operation)?;
    let opened = options.place.open().await?;
    let ended = verb.run(&*opened.shared(), options).await;
    opened.close().await;
    ended
}

/// A command: its name, its operation, and its selection of rows.
struct Verb {
    name: &'static str,
    operation: Operation,
    which: Chosen,
    /// Whether the selection is unrestricted.
    all: bool,
}

/// The selection of rows.
enum Chosen {
    Keys(Vec<Key>),
    Filter(WorkFilter),
}

/// The selected rows.
#[derive(Default)]
struct Meant {
    rows: Vec<WorkRow>,
    /// Rows that belong to Tidelock itself.
    left_alone: u64,
    /// A named key that does not exist.
    missing: Option<Key>,
}

impl Verb {
    fn new(options: &StreamsOperate, name: &'static str, operation: Operation) -> Result<Self> {
        let mut keys = options.keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        let all = keys.is_empty() && options.rows.lane.is_none() && options.rows.like.is_none();
        let (blocked, leased) = match operation {
            Operation::Prioritize(_) if all => {
                let reason = "which work is meant? Give names, --lane, --like or --reaction";
                return Err(UsageError(reason.to_owned()).into());
            }
            Operation::RetryNow => (Some(false), Some(false)),
            Operation::Reset | Operation::Prioritize(_) if !all => (None, None),
            _ => (Some(true), None),
        };
        let which = match keys.is_empty() {
            true => Chosen::Filter(filter(&options.rows, blocked, leased)?),
            false => Chosen::Keys(keys),
        };
        let verb = Self { name, operation, which, all };
        verb.check_named()?;
        Ok(verb)
    }

    /// Returns whether the command may change this row. Resetting a reaction requires more than changing its row.
    fn may(&self, key: &Key) -> bool {
        self.operation == Operation::Unblock || !is_own(key)
    }

    fn check_named(&self) -> Result<()> {
        let Chosen::Keys(keys) = &self.which else { return Ok(()) };
        match keys.iter().find(|key| !self.may(key)) {
            None => Ok(()),
            Some(key) => {
                let (name, key) = (self.name, output::key(key));
                let reason = format!(
                    "{key} is Tidelock's own row; to {name} the key of a reaction, write --reaction NAME and the key itself"
                );
                Err(UsageError(reason).into())
            }
        }
    }

    async fn run(&self, store: &dyn Store, options: &StreamsOperate) -> Result<Exit> {
        let Meant { rows, left_alone, missing } = self.meant(store).await?;
        if let Some(key) = missing {
            eprintln!("error: there is no work {}; nothing was changed", output::key(&key));
            eprintln!("hint: `tidelock streams blocked` shows what is stuck");
            return Ok(Exit::NotFound);
        }
        let now = store.now().await?;
        let changes = |row: &&WorkRow| self.operation.on((*row).clone(), now).as_ref() != Some(*row);
        let would_change = rows.iter().filter(changes).count() as u64;
        let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        let mut report = Report {
            operation: self.name,
            reaction: None,
            dry_run: options.dry_run,
            meant: rows.len() as u64,
            would_change,
            changed: 0,
            left_alone,
            rows: rows.into_iter().take(FIRST).map(Line::of).collect(),
        };
        if options.dry_run {
            return report.tell_dry("rows", options.place.output, table);
        }
        let why = if self.all { " (no condition was given)" } else { "" };
        if !report.agreed("rows", why, self.all, options.yes)? {
            return Ok(Exit::Failed);
        }
        if !keys.is_empty() {
            let batch = Batch::new().operate(Selection::Keys(keys), self.operation);
            report.changed = store.apply(batch).await?.operated.first().copied().unwrap_or_default();
        }
        report.tell("rows", options.place.output)
    }

    async fn meant(&self, store: &dyn Store) -> Result<Meant> {
        match &self.which {
            Chosen::Filter(filter) => self.matching(store, filter).await,
            Chosen::Keys(keys) => {
                let mut meant = Meant::default();
                for key in keys {
                    match store.work(key).await? {
                        Some(row) => meant.rows.push(row),
                        None => return Ok(Meant { missing: Some(key.clone()), ..meant }),
                    }
                }
                Ok(meant)
            }
        }
    }

    async fn matching(&self, store: &dyn Store, filter: &WorkFilter) -> Result<Meant> {
        let (mut meant, mut page) = (Meant::default(), Page::first(PAGE));
        loop {
            let found = store.works(filter, page).await?;
            for row in found.rows {
                match self.may(&row.key) {
                    true => meant.rows.push(row),
                    false => meant.left_alone += 1,
                }
            }
            if meant.rows.len() > limits::OPERATE_ROWS {
                let most = output::number(limits::OPERATE_ROWS as u64);
                let reason = format!(
                    "more than {most} rows are meant, which is the most at once; use --lane or --like"
                );
                return Err(UsageError(reason).into());
            }
            let Some(next) = found.next else { return Ok(meant) };
            page = Page::after(&next, PAGE);
        }
    }
}
