//! One atomic batch for an event, the document that it changes and the work that it causes: all of them commit, or none.
//!
//! `cargo run -p tidelock-examples --example 00_batch`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use tidelock::prelude::*;

#[tokio::main]
async fn main() -> Result<(), tidelock::Error> {
    let tide = Tidelock::open("memory:").await?;
    let (order, stock) = (("order", "o-1").into_key()?, ("stock", "apples").into_key()?);
    tide.apply(Batch::new().put(&stock, Expect::Absent, Payload::from_json(r#"{"left": 10}"#)?)).await?;

    // If the process is killed before the receipt arrives, `tide.store().resolve(id)` returns it after the restart, or
    // reports that the batch was not applied.
    let place = Batch::new()
        .op_id(OpId::new())
        .append(&order, Expect::Absent, [event("Placed", r#"{"apples": 3}"#)?])
        .merge(&stock, [Delta::inc("/left", -3)])
        .enqueue(NewWork::once(("mail", "o-1").into_key()?, "mails".parse()?));
    let receipt = tide.apply(place.clone()).await?;
    println!("placed at position {:?}", receipt.last_position());
    let again = tide.apply(place).await?; // the same id: applied once
    assert!(again.repeated);

    // A failed precondition rejects the whole batch. The stock is unchanged.
    let placed = [event("Placed", r#"{"apples": 3}"#)?];
    let second = Batch::new().merge(&stock, [Delta::inc("/left", -3)]).append(&order, Expect::Absent, placed);
    let rejected = tide.apply(second).await.err().map(|error| error.kind());
    assert_eq!(rejected, Some(ErrorKind::Conflict));
    let left = tide.store().document(&stock).await?.map(|document| document.value.to_string());
    println!("the stock is {left:?}");
    assert_eq!(left.as_deref(), Some(r#"{"left":7}"#));

    // A worker leases the row. If it is killed, the next worker gets the row after 30 seconds, with a higher fencing token.
    let claim = Claim::queues(&"worker-1".parse()?, ["mails".parse()?], 1, Duration::from_secs(30));
    for grant in tide.store().claim(claim.clone()).await?.grants {
        println!("{} is leased with fence {}", grant.row.key, grant.fence);
        // The effect and the acknowledgement are one commit, so the work is done once.
        let sent = [event("MailSent", "{}")?];
        tide.apply(Batch::new().append(&order, Expect::Exists, sent).ack(&grant.lease())).await?;
    }
    assert!(tide.store().claim(claim).await?.grants.is_empty());

    let page = tide.store().read_stream(StreamQuery::forward(&order, 10)).await?;
    let types: Vec<String> = page.events.iter().map(|event| event.event_type.to_string()).collect();
    println!("{order}: {}", types.join(", "));
    assert_eq!(types, ["Placed", "MailSent"]);
    Ok(())
}

fn event(name: &str, payload: &str) -> Result<NewEvent, tidelock::Error> {
    Ok(NewEvent::new(name.parse()?, Payload::from_json(payload)?))
}
