//! Sample data for every page of the inspector, for its tests and screenshots: a blocked key, runs whose worker was killed, a
//! deadlock, schedules, documents with a history, leases, and hostile names.
//!
//! `cargo run -p tidelock-server --example inspector_host -- STORE PORT [read] [empty]`. It prints its address and a token, and
//! reads commands from standard input: `mend` lets the failing handler succeed, `long` starts a run of many steps, `quit` ends the
//! program.
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::io::BufRead as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::lease;
use tidelock::lock::{LockClass, LockKey, Locks};
use tidelock::model::retry::RetryPolicy;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::state::{HistoryChange, history_batch};
use tidelock::store::Delta;
use tidelock::workflow::{Ctx, Failure, Signal, Worker, Workflow, WorkflowClient};
use tidelock_server::{Conflicts, Server, ServerOptions, Token, Tokens};

type Done = Result<(), Box<dyn Error>>;

static ACCOUNT: LockClass = LockClass::new("account");
static CART: LockClass = LockClass::new("cart");

const ORDER: Workflow<u32, String> = Workflow::new("order");
const APPROVAL: Workflow<String, String> = Workflow::new("approval").accepts(APPROVED);
/// More steps than fit on a page.
const LONG: Workflow<u32, u32> = Workflow::new("long");
const APPROVED: Signal<bool> = Signal::new("approved");
/// A kind of key that contains markup.
const HOSTILE: &str = "<img src=x onerror=\"window.hurt=1\">";

/// Whether the mail server answers.
static MENDED: AtomicBool = AtomicBool::new(false);
/// Whether this process is the one that is killed.
static VICTIM: AtomicBool = AtomicBool::new(false);

async fn order(cx: &Ctx, apples: u32) -> Result<String, Failure> {
    cx.step("reserve", async |_| Ok(json!({"apples": apples}))).await?;
    cx.step("charge", async |step| Ok(step.key().to_string())).await?;
    cx.step("ship", async |_| {
        if VICTIM.load(Ordering::SeqCst) {
            println!("in the third step");
            std::future::pending::<()>().await;
        }
        Ok("DHL 00340".to_owned())
    })
    .await?;
    if apples == 13 {
        return Err(Failure::permanent("no courier delivers thirteen apples"));
    }
    Ok(format!("{apples} apples are on their way"))
}

async fn approval(cx: &Ctx, what: String) -> Result<String, Failure> {
    cx.step("ask", async |_| Ok(format!("asked about {what}"))).await?;
    let yes = cx.signal(APPROVED).await?;
    Ok(if yes { "approved".to_owned() } else { "refused".to_owned() })
}

async fn long(cx: &Ctx, steps: u32) -> Result<u32, Failure> {
    for number in 0..steps {
        cx.step(&format!("part-{number}"), async |_| Ok(number)).await?;
    }
    Ok(steps)
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cart {
    items: Vec<String>,
    total: u32,
}

#[tokio::main]
async fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let file = args.first().ok_or("name a file for the store")?.clone();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let store: SharedStore = Arc::new(SqliteStore::open(&file, SqliteOptions::default()).await?);
    if has("victim") {
        VICTIM.store(true, Ordering::SeqCst);
        let _driving = worker(&store).start().await?;
        return std::future::pending::<Done>().await;
    }
    let port: u16 = args.get(1).map_or(Ok(0), |port| port.parse())?;
    let (locks, conflicts) = (Locks::new(), Conflicts::new());
    let mut live = Vec::new();
    if !has("empty") {
        live = fill(&store, &file, &locks, &conflicts).await?;
    }
    serve(store, port, has("read"), (!has("alone")).then_some((&locks, &conflicts))).await?;
    drop(live);
    Ok(())
}

async fn serve(store: SharedStore, port: u16, read: bool, seen: Option<(&Locks, &Arc<Conflicts>)>) -> Done {
    let token = std::env::var("INSPECTED_TOKEN").map_or_else(|_| Token::generate(), Token::new)?;
    let options = if read {
        ServerOptions::new(Tokens::none().read(&token))
    } else {
        ServerOptions::new(Tokens::none().write(&token)).allow_writes()
    };
    let client = WorkflowClient::new(Arc::clone(&store));
    let mut server = Server::new(store, options);
    if let Some((locks, conflicts)) = seen {
        server = server.locks(locks).conflicts(conflicts);
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("{}", json!({"url": format!("http://{}", listener.local_addr()?), "token": token.reveal()}));
    Ok(server.serve(listener, run_commands(client)).await?)
}

/// Executes the commands from standard input until it is closed.
async fn run_commands(client: WorkflowClient) {
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = said.recv().await {
        match line.trim() {
            "mend" => MENDED.store(true, Ordering::SeqCst),
            "long" => {
                if let Err(error) = client.start(LONG, &520).id("long-1").await {
                    println!("the long run was not started: {error}");
                }
            }
            "quit" => return,
            _ => {}
        }
    }
}

/// Guards and handles that must stay alive.
type Live = Vec<Box<dyn std::any::Any + Send>>;

async fn fill(
    store: &SharedStore,
    file: &str,
    locks: &Locks,
    conflicts: &Arc<Conflicts>,
) -> Result<Live, Box<dyn Error>> {
    let mut live: Live = Vec::new();
    let before = store.document(&Key::single("filled")?).await?.is_some();
    if !before {
        orders(store).await?;
        runs(store, file).await?;
        documents(store, conflicts).await?;
    }
    live.push(Box::new(
        Reactions::new(Arc::clone(store))
            .with(mails())
            .with(stock())
            .with(labels())
            .poll_interval(Duration::from_millis(200))
            .start()
            .await?,
    ));
    live.push(Box::new(worker(store).start().await?));
    live.push(Box::new(scheduler(store).start().await?));
    if !before {
        Box::pin(held(store)).await?.into_iter().for_each(|lease| live.push(lease));
        store.apply(Batch::new().put(&Key::single("filled")?, Expect::Any, Payload::null())).await?;
    }
    cycle(locks).await?;
    refused_cycle(locks).await?;
    Ok(live)
}

fn event(name: &str, says: &serde_json::Value) -> Result<NewEvent, Box<dyn Error>> {
    Ok(NewEvent::new(name.parse()?, Payload::of(says)?))
}

async fn orders(store: &SharedStore) -> Done {
    for number in 1..=40 {
        let key = Key::new("order", [format!("o-{number}")])?;
        let placed = event(
            "placed",
            &json!({"item": "apples", "count": number, "mail": format!("c{number}@example.com")}),
        )?;
        let paid = event("paid", &json!({"cents": number * 120, "by": "card"}))?;
        store.apply(Batch::new().append(&key, Expect::Absent, [placed, paid])).await?;
    }
    let big = event("counted", &json!({"left": u64::MAX, "note": "\u{202e}desrever"}))?;
    let key = Key::new("order", ["\u{202e}txt.exe", HOSTILE])?;
    store.apply(Batch::new().append(&key, Expect::Absent, [big])).await?;
    // Keys that every JavaScript object has.
    let odd = Key::new("odd", ["keys"])?;
    let first = event("noted", &json!({"constructor": 1, "kept": true}))?;
    let second = event("noted", &json!({"toString": 2, "__proto__": {"x": 1}, "kept": true}))?;
    store.apply(Batch::new().append(&odd, Expect::Absent, [first, second])).await?;
    let mended = event("placed", &json!({"item": HOSTILE, "count": 1}))?;
    store
        .apply(Batch::new().append(&Key::new("order", ["bad-\u{202e}1"])?, Expect::Absent, [mended]))
        .await?;
    Ok(())
}

/// Fails for two orders until the mail server answers again.
fn mails() -> Reaction {
    let budget = RetryPolicy { max_attempts: 2, base: Duration::from_millis(10), ..RetryPolicy::default() };
    Reaction::new("send-mail").on(["placed"]).retry(budget).each(async |turn, _| {
        let name = turn.key().to_string();
        if !MENDED.load(Ordering::SeqCst) && (name.contains("o-7\"") || name.contains("bad-")) {
            return Err(Failure::retry("smtp: 451 the mailbox of <b>ada</b> is full\u{202e}"));
        }
        Ok(Batch::new())
    })
}

/// Fails for one order, and is tried again much later.
fn labels() -> Reaction {
    // Upper bound of the random backoff, longer than any test.
    let month = Duration::from_secs(30 * 24 * 3600);
    let patient = RetryPolicy { base: month, cap: month, ..RetryPolicy::default() };
    Reaction::new("print-label").on(["placed"]).retry(patient).each(async |turn, _| {
        if turn.key().to_string().contains("o-9\"") {
            return Err(Failure::retry("the printer does not answer\n  at tray 2\n  of the warehouse"));
        }
        Ok(Batch::new())
    })
}

fn stock() -> Reaction {
    Reaction::new("reserve-stock").on(["placed", "paid"]).each(async |turn, event| {
        let reserved = Key::new("reserved", [turn.key().to_string()])?;
        Ok(Batch::new().put(&reserved, Expect::Any, event.payload))
    })
}

fn worker(store: &SharedStore) -> Worker {
    Worker::new(Arc::clone(store))
        .lease_ttl(Duration::from_secs(1))
        .register(ORDER, order)
        .register(APPROVAL, approval)
        .register(LONG, long)
}

/// Runs that another process began, which was killed in their third step.
async fn runs(store: &SharedStore, file: &str) -> Done {
    let client = WorkflowClient::new(Arc::clone(store));
    let mut victim =
        Command::new(std::env::current_exe()?).args([file, "victim"]).stdout(Stdio::piped()).spawn()?;
    let said = victim.stdout.take().ok_or("it talks")?;
    // The workflows are known once a worker has registered them.
    client.start(ORDER, &3).id("order-17").attribute("customer", "c-17").await?;
    client.start(ORDER, &13).id("order-13").await?;
    for line in std::io::BufReader::new(said).lines().take(2) {
        line?;
    }
    victim.kill()?;
    victim.wait()?;
    for (number, what) in [(1, "a new chair"), (2, "a new desk")] {
        client.start(APPROVAL, &what.to_owned()).id(format!("approval-{number}")).await?;
    }
    for number in 1..=6 {
        client.start(ORDER, &number).id(format!("order-2{number}")).await?;
    }
    Ok(())
}

async fn documents(store: &SharedStore, conflicts: &Arc<Conflicts>) -> Done {
    let states = StateRegistry::new(Arc::clone(store)).with_history().observer(Arc::clone(conflicts) as _);
    // A second set of states stands for another process, so that changes meet.
    let others = StateRegistry::new(Arc::clone(store)).with_history().observer(Arc::clone(conflicts) as _);
    let (cart, same) = (
        states.state::<Cart>(&Scope::user("u-1"), "cart")?,
        others.state::<Cart>(&Scope::user("u-1"), "cart")?,
    );
    for (number, item) in ["apples", "pears", "plums", "quinces"].into_iter().enumerate() {
        let add = move |cart: &mut Cart| {
            cart.items.push(item.to_owned());
            cart.total += 100 + u32::try_from(number).unwrap_or_default();
        };
        let (one, other) = tokio::join!(cart.mutate(add), same.mutate(|cart: &mut Cart| cart.total += 1));
        one?;
        other?;
    }
    cart.inc("/total", 1).await?;
    // Its history begins with a merge, so the value before it is unknown.
    let (score, up) = (Key::new("user", ["u-9", "score"])?, Delta::inc("/points", 5));
    let told = history_batch(&score, HistoryChange::Merge(vec![up.clone()]), 1)?;
    store
        .apply(Batch::new().put(&score, Expect::Absent, Payload::of(&json!({"points": 41}))?).and(told))
        .await?;
    let told = history_batch(&score, HistoryChange::Merge(vec![up.clone()]), 1)?;
    store.apply(Batch::new().merge(&score, vec![up]).and(told)).await?;
    for user in 2..=5 {
        states.state::<Cart>(&Scope::user(format!("u-{user}")), "cart")?.set(Cart::default()).await?;
    }
    Ok(())
}

/// A held lease with a waiter.
async fn held(store: &SharedStore) -> Result<Live, Box<dyn Error>> {
    let key = Key::new("report", ["nightly"])?;
    let hold = |who: &str| {
        Ok::<_, Box<dyn Error>>(lease::request(store, &key).owner(who.parse()?).ttl(Duration::from_secs(20)))
    };
    let holder = hold("worker-1")?.note("since midnight").try_acquire().await?;
    let waits = hold("worker-2")?.acquire();
    let waiter = tokio::spawn(async move { waits.await.map(drop) });
    Ok(vec![Box::new(holder), Box::new(waiter)])
}

fn scheduler(store: &SharedStore) -> Scheduler {
    let report = Schedule::new("nightly-report")
        .cron("30 2 * * *")
        .zone("Europe/Berlin")
        .run(async |_| Ok(Batch::new()));
    let beat = Schedule::new("heartbeat").every(Duration::from_secs(2)).run(async |_| Ok(Batch::new()));
    let fails = Schedule::new("invoices")
        .cron("0 6 * * MON")
        .run(async |_| Err::<Batch, _>(Failure::permanent("the printer is broken")));
    Scheduler::new(Arc::clone(store))
        .with(report)
        .with(beat)
        .with(fails)
        .poll_interval(Duration::from_millis(200))
}

/// Two tasks in a deadlock. One of them receives the error, but has stopped to poll its request.
async fn cycle(locks: &Locks) -> Done {
    let (a, b) = (ACCOUNT.key(["alice"])?, ACCOUNT.key(["bob"])?);
    let (first, locks_of_first, keys) = (locks.lock_owned(&a).await?, locks.clone(), (a.clone(), b.clone()));
    let (has_b, b_is_held) = tokio::sync::oneshot::channel();
    let (all_wait, go) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let (a, b) = keys;
        let Ok(_held) = b_is_held.await else { return };
        let mut to_b = std::pin::pin!(locks_of_first.lock(&b));
        let mut to_a = std::pin::pin!(locks_of_first.lock(&a));
        // Requests both at once, and is queued for both.
        drop((to_a.as_mut().now_or_never(), to_b.as_mut().now_or_never()));
        let _ = all_wait.send(());
        let _a = to_a.await;
        std::future::pending::<()>().await;
    });
    let locks = locks.clone();
    tokio::spawn(async move {
        let Ok(_b) = locks.lock(&b).await else { return };
        let _ = has_b.send(());
        if go.await.is_err() {
            return;
        }
        let mut to_a = std::pin::pin!(locks.lock(&a));
        drop(to_a.as_mut().now_or_never());
        // The head of the queue is granted the lock, which closes the cycle.
        drop(first);
        drop(to_a.await);
    });
    Ok(())
}

/// Two tasks that would wait for each other. The request that closes the cycle is rejected.
async fn refused_cycle(locks: &Locks) -> Done {
    let (x, y) = (CART.key(["x"])?, CART.key(["y"])?);
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let task = |one: LockKey, other: LockKey| {
        let (locks, met) = (locks.clone(), Arc::clone(&met));
        tokio::spawn(async move {
            let _one = locks.lock(&one).await;
            met.wait().await;
            drop(locks.lock(&other).await);
        })
    };
    let (one, other) = (task(x.clone(), y.clone()), task(y, x));
    one.await?;
    other.await?;
    Ok(())
}
