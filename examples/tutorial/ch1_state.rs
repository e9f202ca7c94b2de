//! The shop, chapter 1: the stock is one shared value.
//!
//! `cargo run -p tidelock-examples --example ch1_state`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

// ANCHOR: stock
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Stock {
    left: u32,
}

impl Stock {
    fn sell(&mut self, count: u32) -> Result<u32, String> {
        self.left = self.left.checked_sub(count).ok_or_else(|| format!("only {} left", self.left))?;
        Ok(self.left)
    }
}
// ANCHOR_END: stock

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db").display().to_string();
    // ANCHOR: open
    let tide = Tidelock::open(&file).await?;
    let apples = tide.state::<Stock>(("stock", "apples"));
    apples.mutate(|stock| stock.left += 10).await?;
    // ANCHOR_END: open

    // ANCHOR: customers
    let mut customers = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let apples = apples.clone();
        customers.spawn(async move {
            apples.try_mutate(|stock| stock.sell(1)).await.map_err(tidelock::Error::from)
        });
    }
    let mut sold = 0;
    for sale in customers.join_all().await {
        match sale {
            Ok(_) => sold += 1,
            Err(error) if error.kind() == ErrorKind::Refused => println!("refused: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    assert_eq!((sold, apples.get().await?.left), (10, 0));
    // ANCHOR_END: customers

    // ANCHOR: restart
    tide.close().await;
    let tide = Tidelock::open(&file).await?;
    assert_eq!(tide.state::<Stock>(("stock", "apples")).get().await?.left, 0);
    // ANCHOR_END: restart
    println!("{sold} of 30 customers have an apple");
    Ok(())
}
