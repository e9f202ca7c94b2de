//! `unblock`, `reset`, `retry` and `prioritize` of work rows. The command changes exactly the rows that it counted and
//! confirmed: it passes their keys to the store and does not search again.

use anyhow::Result;
use tidelock::key::reserved::is_own;
use tidelock::prelude::*;
use tidelock::store::{Operation, Selection, WorkFilter, WorkRow, limits};

use super::blocked::{Line, table};
use super::filter;
use super::report::{FIRST, Report};
use crate::args::WorkOperate;
use crate::exit::{Exit, UsageError};
use crate::output;

/// The number of rows read in one page.
const PAGE: usize = 1_000;

/// Runs an operator command, or prints its preview.
pub(super) async fn run(options: &WorkOperate, name: &'static str, operation: Operation) -> Result<Exit> {
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
struct Selected {
    rows: Vec<WorkRow>,
    /// The number of internal rows.
    skipped: u64,
    /// A named key that does not exist.
    missing: Option<Key>,
}

impl Verb {
    fn new(options: &WorkOperate, name: &'static str, operation: Operation) -> Result<Self> {
        let mut keys = options.keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        let all = keys.is_empty() && options.rows.queue.is_none() && options.rows.pattern.is_none();
        let (blocked, leased) = match operation {
            Operation::Prioritize(_) if all => {
                let reason = "no rows are selected; give keys, --queue or --pattern";
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
                    "{key} is an internal row; for a key of a reaction, use `tidelock reactions {name} REACTION KEY`"
                );
                Err(UsageError(reason).into())
            }
        }
    }

    async fn run(&self, store: &dyn Store, options: &WorkOperate) -> Result<Exit> {
        let Selected { rows, skipped, missing } = self.selected(store).await?;
        if let Some(key) = missing {
            eprintln!("error: there is no work {}; nothing was changed", output::key(&key));
            eprintln!("hint: `tidelock work blocked` lists blocked work");
            return Ok(Exit::NotFound);
        }
        let now = store.now().await?;
        let changes = |row: &&WorkRow| self.operation.on((*row).clone(), now).as_ref() != Some(*row);
        let would_change = rows.iter().filter(changes).count() as u64;
        let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        let mut report = Report {
            operation: self.name,
            reaction: None,
            dry_run: options.consent.dry_run,
            selected: rows.len() as u64,
            would_change,
            changed: 0,
            skipped,
            rows: rows.into_iter().take(FIRST).map(Line::of).collect(),
        };
        if options.consent.dry_run {
            return report.print_preview("rows", options.place.output, table);
        }
        let why = if self.all { " (no condition was given)" } else { "" };
        if !report.agreed("rows", why, self.all, options.consent.yes)? {
            return Ok(Exit::Failed);
        }
        if !keys.is_empty() {
            let batch = Batch::new().operate(Selection::Keys(keys), self.operation);
            report.changed = store.apply(batch).await?.operated.first().copied().unwrap_or_default();
        }
        report.print("rows", options.place.output)
    }

    async fn selected(&self, store: &dyn Store) -> Result<Selected> {
        match &self.which {
            Chosen::Filter(filter) => self.matching(store, filter).await,
            Chosen::Keys(keys) => {
                let mut selected = Selected::default();
                for key in keys {
                    match store.work(key).await? {
                        Some(row) => selected.rows.push(row),
                        None => return Ok(Selected { missing: Some(key.clone()), ..selected }),
                    }
                }
                Ok(selected)
            }
        }
    }

    async fn matching(&self, store: &dyn Store, filter: &WorkFilter) -> Result<Selected> {
        let (mut selected, mut page) = (Selected::default(), Page::first(PAGE));
        loop {
            let found = store.works(filter, page).await?;
            for row in found.rows {
                match self.may(&row.key) {
                    true => selected.rows.push(row),
                    false => selected.skipped += 1,
                }
            }
            if selected.rows.len() > limits::OPERATE_ROWS {
                let most = output::number(limits::OPERATE_ROWS as u64);
                let reason = format!(
                    "more than {most} rows are selected, which is the limit of one command; use --queue or --pattern"
                );
                return Err(UsageError(reason).into());
            }
            let Some(next) = found.next else { return Ok(selected) };
            page = Page::after(&next, PAGE);
        }
    }
}
