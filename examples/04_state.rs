//! Shared state with optimistic concurrency: a hundred tasks change one record through two stores on one file, as two processes would.
//! No update is lost.
//!
//! `cargo run -p tidelock-examples --example 04_state`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::state::MutateError;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stock {
    left: i64,
    sold: Vec<u32>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db");
    let mut stocks = Vec::new();
    for _ in 0..2 {
        let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
        let states = StateRegistry::new(Arc::new(store));
        stocks.push(states.state::<Stock>(&Scope::org("shop"), "apples")?);
    }
    let [here, there] = stocks.as_slice() else { return Err("two stores".into()) };
    here.set(Stock { left: 60, sold: Vec::new() }).await?;

    // A hundred customers, sixty apples. The check and the sale are one mutation.
    let mut customers = Vec::new();
    for number in 0..100 {
        let stock = if number % 2 == 0 { here.clone() } else { there.clone() };
        customers.push(tokio::spawn(async move {
            let buy = move |stock: &mut Stock| {
                if stock.left == 0 {
                    return Err("sold out");
                }
                stock.left -= 1;
                stock.sold.push(number);
                Ok(stock.left)
            };
            stock.try_mutate(buy).await
        }));
    }
    let (mut sold, mut refused) = (0, 0);
    for customer in customers {
        match customer.await? {
            Ok(_) => sold += 1,
            Err(MutateError::Refused(_)) => refused += 1,
            Err(error) => return Err(error.to_string().into()),
        }
    }
    let stock = there.get().await?;
    println!("{sold} sold, {refused} refused, {} left, {} on the list", stock.left, stock.sold.len());

    // Deltas need no draft and never conflict.
    here.inc("/left", 10).await?;
    println!("after a delivery: {}", there.get().await?.left);
    Ok(())
}
