//! Event sourcing: an aggregate, a reaction with an effect in the store, a projection, and an outbox.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock::Service;
use tidelock::prelude::*;

use super::outside::Outside;
use super::{check_once, count_once};
use crate::scenario::{Sim, SimError};

const MAILS: Outbox = Outbox::new("mails");

#[derive(Clone, Debug, Default)]
struct Account {
    deposits: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum AccountEvent {
    Deposited { id: String },
}

impl Aggregate for Account {
    const KIND: &'static str = "account";
    type Event = AccountEvent;

    fn apply(&mut self, event: &AccountEvent) {
        let AccountEvent::Deposited { id } = event;
        self.deposits.push(id.clone());
    }
}

impl Account {
    /// Accepts each deposit once.
    fn deposit(&self, id: &str) -> Result<Vec<AccountEvent>, String> {
        let known = self.deposits.iter().any(|known| known == id);
        Ok(if known { Vec::new() } else { vec![AccountEvent::Deposited { id: id.to_owned() }] })
    }
}

pub(super) fn serve(service: Service, outside: &Arc<Outside>) -> Service {
    let (outside, reacting) = (Arc::clone(outside), Arc::clone(outside));
    let mail = Reaction::of::<Account>("mail").each(async move |_, _, event| {
        let AccountEvent::Deposited { id } = event;
        reacting.pause(300).await;
        let batch = count_once(Batch::new(), "reacted", &id)?;
        Ok(MAILS.put(batch, &Message::new("ann@example.com", &id)?.id(&id))?)
    });
    let totals = Projection::of::<Account>("totals", 1).each(|account, _, rows| {
        rows.merge([account], &serde_json::json!({ "count": 0 }), [Delta::inc("/count", 1)])?;
        Ok(())
    });
    service.projection(totals).reaction(mail.events_per_grant(2)).outbox(MAILS, move |mail: Delivery| {
        let outside = Arc::clone(&outside);
        async move { outside.call(mail.key()).await }
    })
}

pub(super) fn drive(sim: &mut Sim, count: u64, outside: &Arc<Outside>) {
    if count == 0 {
        return;
    }
    // Two clients make the same deposits: those of one account race.
    for _ in 0..2 {
        let outside = Arc::clone(outside);
        sim.client(async move |tide: Tidelock| {
            for number in 0..count {
                outside.pause(500).await;
                let id = format!("deposit-{number}");
                let account = tide.aggregate::<Account>(account_of(number));
                account.execute(|account| account.deposit(&id)).await?;
            }
            Ok(())
        });
    }
    let outside = Arc::clone(outside);
    sim.check(async move |tide: Tidelock| check(&tide, count, &outside).await);
}

fn account_of(number: u64) -> &'static str {
    if number.is_multiple_of(3) { "bob" } else { "ann" }
}

async fn check(tide: &Tidelock, count: u64, outside: &Outside) -> Result<(), SimError> {
    for account in ["ann", "bob"] {
        let row: Option<serde_json::Value> = tide.read_model("totals").get([account]).await?;
        let projected = row.as_ref().and_then(|row| row.get("count")?.as_u64()).unwrap_or(0);
        let deposits = (0..count).filter(|number| account_of(*number) == account).count();
        if usize::try_from(projected) != Ok(deposits) {
            return Err(
                format!("{account} has {deposits} deposits, and the projection shows {projected}").into()
            );
        }
    }
    for number in 0..count {
        let id = format!("deposit-{number}");
        let account = tide.aggregate::<Account>(account_of(number)).load().await?.state;
        let times = account.deposits.iter().filter(|known| **known == id).count();
        if times != 1 {
            return Err(format!("{id} is in the stream {times} times").into());
        }
        check_once(tide, "reacted", &id).await?;
        if outside.calls(&format!("mails:{id}")) == 0 {
            return Err(format!("the mail of {id} was not sent: {:?}", outside.keys("mails:")).into());
        }
    }
    Ok(())
}
