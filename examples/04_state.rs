//! Shared state with optimistic concurrency: a hundred tasks change one record through two handles on one file, as two
//! processes would. No update is lost.
//!
//! `cargo run -p tidelock-examples --example 04_state`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stock {
    left: i64,
    sold: Vec<u32>,
}

impl Stock {
    /// The check and the sale are one mutation.
    fn sell(&mut self, customer: u32) -> Result<(), &'static str> {
        if self.left == 0 {
            return Err("sold out");
        }
        self.left -= 1;
        self.sold.push(customer);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db").display().to_string();
    let (first, second) = (Tidelock::open(&file).await?, Tidelock::open(&file).await?);
    let (here, there) =
        (first.state::<Stock>(("stock", "apples")), second.state::<Stock>(("stock", "apples")));
    here.set(Stock { left: 60, sold: Vec::new() }).await?;

    let mut customers = tokio::task::JoinSet::new();
    for number in 0..100 {
        let stock = if number % 2 == 0 { here.clone() } else { there.clone() };
        customers.spawn(async move {
            let sold = stock.try_mutate(move |stock| stock.sell(number)).await;
            sold.map(drop).map_err(tidelock::Error::from)
        });
    }
    let (mut sold, mut refused) = (0, 0);
    for sale in customers.join_all().await {
        match sale {
            Ok(()) => sold += 1,
            Err(error) if error.kind() == ErrorKind::Refused => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let stock = there.get().await?;
    println!("{sold} sold, {refused} refused, {} left, {} on the list", stock.left, stock.sold.len());
    assert_eq!((sold, refused, stock.left, stock.sold.len()), (60, 40, 0, 60));

    here.inc("/left", 10).await?; // a delta needs no draft and never conflicts
    assert_eq!(there.get().await?.left, 10);
    Ok(())
}
