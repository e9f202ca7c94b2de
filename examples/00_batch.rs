//! One atomic batch for an event, the document that it changes and the work that it causes.
//!
//! `cargo run -p tidelock-examples --example 00_batch`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::time::Duration;

use tidelock::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(directory.path().join("shop.db"), SqliteOptions::default()).await?;
    let order = Key::new("order", ["o-1"])?;
    let stock = Key::new("stock", ["apples"])?;
    store.apply(Batch::new().put(&stock, Expect::Absent, Payload::from_json(r#"{"left": 10}"#)?)).await?;

    // The batch commits atomically. If the process is killed before the receipt arrives, call `store.resolve(id)` after the restart.
    // It returns the receipt, or reports that the batch was not applied.
    let id = OpId::new();
    let placed = NewEvent::new("OrderPlaced".parse()?, Payload::from_json(r#"{"apples": 3}"#)?);
    let batch = Batch::new()
        .op_id(id)
        .append(&order, Expect::Absent, [placed])
        .merge(&stock, [Delta::inc("/left", -3)])
        .enqueue(NewWork::once(Key::new("mail", ["o-1"])?, "mails".parse()?));
    let receipt = store.apply(batch.clone()).await?;
    println!("placed at position {:?}", receipt.last_position());

    // A repeated batch with the same id is applied once.
    let again = store.apply(batch).await?;
    println!("asked again: repeated = {}, apples left = {}", again.repeated, left(&store, &stock).await?);

    work(&store, &order).await?;
    for event in store.read_stream(StreamQuery::forward(&order, 10)).await?.events {
        println!("{} v{} {} {}", event.stream, event.version, event.event_type, event.payload);
    }
    store.close().await;
    Ok(())
}

/// Leases and completes the work. If this worker is killed, its lease expires after 30 seconds and the next worker gets the row with a
/// higher fencing token. The store then rejects all late writes of the first worker.
async fn work(store: &SqliteStore, order: &Key) -> Result<(), Box<dyn Error>> {
    let worker = Owner::new("worker-1")?;
    let claim = Claim::lanes(&worker, ["mails".parse()?], 1, Duration::from_secs(30));
    for grant in store.claim(claim).await?.grants {
        println!("{worker} holds {} with fence {}", grant.row.key, grant.fence);
        // One commit contains the effect and the acknowledgement. After a crash before it, the work is delivered again; after a
        // crash behind it, the work is done. There is no state in between.
        let sent = NewEvent::new("MailSent".parse()?, Payload::null());
        let done = Batch::new().append(order, Expect::Exists, [sent]).ack(&grant.lease());
        store.apply(done.clone()).await?;

        // The store rejects a worker that has lost its lease or writes too late.
        if let Err(refused) = store.apply(done).await {
            println!("too late: {refused} ({})", refused.code());
        }
    }
    Ok(())
}

async fn left(store: &SqliteStore, stock: &Key) -> Result<String, Box<dyn Error>> {
    Ok(store.document(stock).await?.map(|document| document.value.to_string()).unwrap_or_default())
}
