//! Kinds of transactions, as the cases see them.

use tidelock::prelude::*;
use tidelock::sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use tidelock::workflow::{RunHandle, StartRequest};

pub(crate) type Outcome<T> = Result<T, tidelock::Error>;

/// A store, and a connection of the user to the same database with a table `invoices`.
pub(crate) struct Site<K: Kind> {
    pub(crate) tide: Tidelock,
    pub(crate) mine: K::Connection,
    pub(crate) place: K::Database,
}

/// A kind of transaction.
pub(crate) trait Kind: Sized {
    /// The database; it is removed when this is dropped.
    type Database;
    type Connection;
    type Tx<'c>;

    async fn open() -> Site<Self>;
    async fn connect(place: &Self::Database) -> Self::Connection;
    async fn begin(site: &mut Site<Self>) -> (Tidelock, Self::Tx<'_>);
    async fn insert(tx: &mut Self::Tx<'_>);
    async fn count(site: &mut Site<Self>) -> i64;
    async fn commit(tx: Self::Tx<'_>);
    async fn roll_back(tx: Self::Tx<'_>);
    async fn apply(tide: &Tidelock, tx: &mut Self::Tx<'_>, batch: Batch) -> Outcome<Receipt>;
    async fn start<O>(start: StartRequest<O>, tx: &mut Self::Tx<'_>) -> Outcome<RunHandle<O>>;
}

/// A transaction of `rusqlite`.
pub(crate) struct Rusqlite;

impl Kind for Rusqlite {
    type Database = tempfile::TempDir;
    type Connection = Connection;
    type Tx<'c> = Transaction<'c>;

    async fn open() -> Site<Self> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("shop.db");
        let tide = Tidelock::open(path.to_str().unwrap()).await.unwrap();
        let mine = Self::connect(&place).await;
        mine.execute_batch("CREATE TABLE invoices (total INTEGER)").unwrap();
        Site { tide, mine, place }
    }

    async fn connect(place: &tempfile::TempDir) -> Connection {
        Connection::open(place.path().join("shop.db")).unwrap()
    }

    async fn begin(site: &mut Site<Self>) -> (Tidelock, Self::Tx<'_>) {
        let tx = site.mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        (site.tide.clone(), tx)
    }

    async fn insert(tx: &mut Self::Tx<'_>) {
        tx.execute("INSERT INTO invoices VALUES (1)", []).unwrap();
    }

    async fn count(site: &mut Site<Self>) -> i64 {
        site.mine.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0)).unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) {
        tx.commit().unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        tx.rollback().unwrap();
    }

    async fn apply(tide: &Tidelock, tx: &mut Self::Tx<'_>, batch: Batch) -> Outcome<Receipt> {
        tide.apply_in(tx, batch)
    }

    async fn start<O>(start: StartRequest<O>, tx: &mut Self::Tx<'_>) -> Outcome<RunHandle<O>> {
        start.within(tx)
    }
}
