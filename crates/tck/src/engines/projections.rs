//! Projections (R7 through `tidelock_core::projections`). Rows equal the fold of the log, both inline and
//! asynchronously. A new version replaces the old one in one step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidelock_core::events::{Aggregate, Events, EventsError};
use tidelock_core::projections::{Projection, Projections, ProjectionsError, ReadModel};
use tidelock_core::reactions::{Operator, ReactionFilter};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::prelude::*;
use crate::reacting::until;

#[derive(Clone, Debug, Default)]
struct Sale {
    sold: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum SaleEvent {
    Sold { item: String, n: i64 },
}
use SaleEvent::Sold;

impl Aggregate for Sale {
    const KIND: &'static str = "sale";
    type Event = SaleEvent;

    fn apply(&mut self, event: &SaleEvent) {
        let Sold { n, .. } = event;
        self.sold += n;
    }
}

/// A row: the number of items sold and the number of sales. The first version does not count sales.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Item {
    sold: i64,
    #[serde(default)]
    sales: Option<i64>,
}

type Table = BTreeMap<String, Item>;

/// Returns a projection. The first version counts items, and the second one also counts sales.
fn items(name: &str, version: u32) -> Projection {
    Projection::new(name, version, move |fact, rows| {
        let Sold { item, n } = fact.read()?;
        let mut deltas = vec![Delta::inc("/sold", n)];
        let mut initial = json!({ "sold": 0 });
        if version > 1 {
            initial = json!({ "sold": 0, "sales": 0 });
            deltas.push(Delta::inc("/sales", 1));
        }
        rows.merge([item], &initial, deltas)?;
        Ok(())
    })
    .streams(KeyPrefix::kind(Sale::KIND))
}

/// Returns the fold of the log.
async fn folded(conn: &Conn, version: u32) -> Table {
    let mut table = Table::new();
    let sales = KeyPrefix::kind(Sale::KIND);
    for event in conn.log().await.iter().filter(|event| sales.contains(&event.stream)) {
        let Sold { item, n } = tidelock_core::events::decode(&event.event_type, &event.payload).unwrap();
        let row = table.entry(item).or_default();
        row.sold += n;
        if version > 1 {
            *row.sales.get_or_insert_default() += 1;
        }
    }
    table
}

/// Returns all rows, page by page.
async fn table(model: &ReadModel) -> Table {
    let (mut all, mut after) = (Table::new(), None::<Vec<Arg>>);
    loop {
        let page = model.rows::<Item>(after.as_deref(), 2).await.unwrap();
        for (args, row) in &page.rows {
            let [Arg::Str(item)] = args.as_slice() else { panic!("{args:?}") };
            all.insert(item.clone(), row.clone());
        }
        after = page.rows.last().map(|(args, _)| args.clone());
        if !page.more {
            return all;
        }
    }
}

/// Returns all rows of one version, and that version. A write in flight when its process died may still swap versions.
async fn whole_version(model: &ReadModel) -> (u32, Table) {
    loop {
        let version = model.version().await.unwrap();
        let rows = table(model).await;
        if model.version().await.unwrap() == version {
            return (version, rows);
        }
    }
}

fn projections(store: &SharedStore) -> Projections {
    Projections::new(Arc::clone(store)).poll_interval(Duration::from_millis(5))
}

fn model(conn: &Conn, name: &str) -> ReadModel {
    ReadModel::new(Arc::clone(&conn.0), name)
}

/// Sells on a few streams.
async fn sell(events: &Events, count: i64) {
    for n in 0..count {
        let sold = Sold { item: format!("item-{}", n % 3), n: n + 1 };
        events.append::<Sale>(n % 4, [sold]).await.unwrap();
    }
}

/// Asynchronous: while two processes run the projection and others append, the rows converge to the fold of the log.
pub async fn r7_a_projection_is_the_fold_of_the_log(env: &Env) {
    let running = [&env.store, &env.other].map(|conn| projections(&conn.0).with(items("fold", 1)));
    let [here, there] = running;
    let (here, there) = (here.start().await.unwrap(), there.start().await.unwrap());
    let work = |_: usize, conn: Conn| async move { sell(&Events::new(conn.0), 12).await };
    env.race(2, 4, work).await;
    here.quiesce().await.unwrap();
    let expected = folded(&env.store, 1).await;
    assert_eq!(expected.len(), 3);
    assert_eq!(table(&model(&env.other, "fold")).await, expected);
    assert_eq!(model(&env.store, "fold").get::<Item>(["nothing"]).await.unwrap(), None);
    let unknown = model(&env.store, "folded").get::<Item>(["item-0"]).await;
    assert!(matches!(unknown, Err(ProjectionsError::Unknown { .. })), "{unknown:?}");
    here.shutdown().await;
    there.shutdown().await;
}

/// Inline: a read after a command sees its effects, even in races, and a rejected command has none.
pub async fn r7_an_inline_projection_is_right_at_once(env: &Env) {
    let engine = |conn: &Conn| Events::new(Arc::clone(&conn.0)).inline(items("inline", 1).inline());
    let (events, rows) = (engine(&env.store), ReadModel::of_version(Arc::clone(&env.other.0), "inline", 1));
    let sold = |n| Sold { item: "one".to_owned(), n };
    let sum = async || rows.get::<Item>(["one"]).await.unwrap().map(|row| row.sold);
    events.append::<Sale>("a", [sold(1), sold(2)]).await.unwrap();
    assert_eq!(sum().await, Some(3));
    events.execute("a", |_: &Sale| Ok::<_, String>([sold(4)])).await.unwrap();
    assert_eq!(sum().await, Some(7));
    let no = events.execute("a", |sale: &Sale| Err::<[SaleEvent; 0], _>(format!("{} are enough", sale.sold)));
    assert!(no.await.is_err());
    let batch = events.decide("b", |_: &Sale| Ok::<_, String>([sold(8)])).await.unwrap();
    assert_eq!(sum().await, Some(7), "it is not sent yet");
    env.store.done(batch).await;
    let unit = events.together(|unit| async move {
        unit.load::<Sale>("c").await?;
        unit.emit::<Sale>("c", [Sold { item: "one".to_owned(), n: 16 }])?;
        Ok::<_, EventsError>(())
    });
    unit.await.unwrap();
    assert_eq!(sum().await, Some(31));
    let work = |_: usize, conn: Conn| {
        let events = engine(&conn);
        async move {
            for n in 0..5 {
                let sold = |_: &Sale| Ok::<_, String>([Sold { item: "race".to_owned(), n }]);
                events.execute("race", sold).await.unwrap();
            }
        }
    };
    env.race(2, 4, work).await;
    assert_eq!(table(&rows).await, folded(&env.store, 1).await);
}

/// An event that an inline projection cannot decode is not appended.
pub async fn r7_an_inline_projection_that_fails_refuses_the_command(env: &Env) {
    let failing = Projection::new("failing", 1, |_, _| Err("never".into()));
    let events = Events::new(Arc::clone(&env.store.0)).inline(failing.inline());
    let refused = events.append::<Sale>("x", [Sold { item: "x".to_owned(), n: 1 }]).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("never")));
    assert!(env.store.history(&Sale::stream("x").unwrap()).await.is_empty());
}

/// Returns a second version that fails on every event until it is mended.
fn mendable(name: &str, mended: &Arc<AtomicBool>) -> Projection {
    let (right, mended) = (items(name, 2).inline(), Arc::clone(mended));
    let kind = format!("{name}/v2");
    Projection::new(name, 2, move |fact, rows| {
        if !mended.load(Ordering::SeqCst) {
            return Err("not yet".into());
        }
        // The same changes as those of the correct projection.
        let mut event = NewEvent::new(fact.event_type.clone(), fact.payload.clone());
        event.id = fact.id;
        for effect in right(fact.stream, &[event])?.effects() {
            if let Effect::Merge { key, deltas, missing: Missing::Create(initial) } = effect {
                assert_eq!(key.kind(), kind);
                rows.merge(key.args(), &initial.parse::<serde_json::Value>()?, deltas.clone())?;
            }
        }
        Ok(())
    })
    .streams(KeyPrefix::kind(Sale::KIND))
}

/// Readers see the old version while the new one is built, and the old one stays up to date. Then they see the new one.
/// No reader ever misses a row. Afterwards nothing is left of the old version.
pub async fn r7_a_new_version_is_built_beside_the_old_one(env: &Env) {
    let (events, name) = (Events::new(Arc::clone(&env.store.0)), "beside");
    let old = projections(&env.store.0).with(items(name, 1)).start().await.unwrap();
    sell(&events, 9).await;
    old.quiesce().await.unwrap();
    let mended = Arc::new(AtomicBool::new(false));
    let new = projections(&env.other.0).with(mendable(name, &mended)).start().await.unwrap();
    let (rows, operator) = (model(&env.other, name), Operator::new(Arc::clone(&env.store.0)));
    let reaction = ReactionFilter::of(format!("projection:{name}/v2"));
    until("the new one is stuck", async || operator.count_blocked(&reaction).await > 0).await;
    let early = rows.swap_to(2).await;
    assert!(matches!(early, Err(ProjectionsError::Behind { version: 2, live: 1, .. })), "{early:?}");
    sell(&events, 5).await;
    until("the live version continues", async || table(&rows).await == folded(&env.store, 1).await).await;
    assert_eq!(rows.version().await.unwrap(), 1);
    let reading = tokio::spawn({
        let rows = model(&env.store, name);
        async move {
            let mut versions = Vec::new();
            while versions.last() != Some(&2) {
                let row = rows.get::<Item>(["item-0"]).await.unwrap().expect("no reader misses a row");
                assert!(row.sold > 0);
                let page = rows.rows::<Item>(None, 9).await.unwrap();
                assert_eq!(page.rows.len(), 3, "no reader sees half a table");
                versions.push(page.version);
                tokio::task::yield_now().await;
            }
            assert!(versions.is_sorted());
        }
    });
    mended.store(true, Ordering::SeqCst);
    until("the new one is read", async || {
        operator.unblock(&reaction).await.unwrap();
        rows.version().await.unwrap() == 2
    })
    .await;
    reading.await.unwrap();
    assert_eq!(table(&rows).await, folded(&env.store, 2).await);
    until("the old rows are gone", async || left_of_the_first(env, name).await == (0, 0)).await;
    sell(&events, 3).await;
    new.quiesce().await.unwrap();
    assert_eq!(table(&rows).await, folded(&env.store, 2).await);
    old.shutdown().await;
    let again = projections(&env.store.0).with(items(name, 1)).start().await.unwrap();
    again.quiesce().await.unwrap();
    assert_eq!(
        (rows.version().await.unwrap(), left_of_the_first(env, name).await),
        (2, (0, 0)),
        "it is over"
    );
    again.shutdown().await;
    new.shutdown().await;
}

/// Returns the number of rows of the first version, and of the reactions that maintain them.
async fn left_of_the_first(env: &Env, name: &str) -> (usize, usize) {
    let rows = env.store.documents(&KeyPrefix::kind(&format!("{name}/v1")), Page::first(100)).await.unwrap();
    let reactions = Operator::new(Arc::clone(&env.store.0)).reactions().await.unwrap();
    let first = format!("projection:{name}/v1");
    (rows.rows.len(), reactions.iter().filter(|reaction| reaction.name == first).count())
}

/// The second version of a projection, which is built beside the first one and replaces it.
struct Rebuild;

const REBUILT: &str = "rebuilt";

#[async_trait(?Send)]
impl Scenario for Rebuild {
    async fn prepare(&self, env: &Env) {
        sell(&Events::new(Arc::clone(&env.store.0)), 8).await;
        let old = projections(&env.store.0).with(items(REBUILT, 1)).start().await.unwrap();
        old.quiesce().await.unwrap();
        old.shutdown().await;
    }

    async fn live(&self, process: &Process) {
        let (env, rows) = (&process.env, model(&process.env.store, REBUILT));
        let running = projections(&process.store).with(items(REBUILT, 2)).start().await.unwrap();
        until("it is read, and the old one is gone", async || {
            rows.version().await.unwrap() == 2 && left_of_the_first(env, REBUILT).await == (0, 0)
        })
        .await;
        running.quiesce().await.unwrap();
        running.shutdown().await;
    }

    /// Readers see a complete version.
    async fn crashed(&self, env: &Env) {
        let (version, seen) = whole_version(&model(&env.other, REBUILT)).await;
        assert_eq!(seen, folded(&env.store, version).await);
    }

    async fn end(&self, env: &Env, _: &Outside) -> Value {
        let (version, rows) = whole_version(&model(&env.other, REBUILT)).await;
        assert_eq!(rows, folded(&env.store, 2).await);
        json!({ "version": version, "rows": rows })
    }
}

/// The process crashes at every point of building, swapping and deleting. Readers always see a complete version. The next
/// process continues until the new version is the fold of the log.
pub async fn r7_every_crash_point_of_a_rebuild(env: &Env) {
    every_crash_point("a rebuild", env, Rebuild).await;
}

/// Helper methods for the operator's view.
trait Blocked {
    async fn count_blocked(&self, which: &ReactionFilter) -> usize;
}

impl Blocked for Operator {
    async fn count_blocked(&self, which: &ReactionFilter) -> usize {
        let found = self.keys(&which.clone().blocked_only(), Page::first(100)).await;
        found.map_or(0, |page| page.rows.len())
    }
}
