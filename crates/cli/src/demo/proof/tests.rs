//! The proof must fail when there is something to find: a lost order, a doubled one, one that nobody asked for.

use super::*;

/// A demo in which every order was placed, shipped and counted so often.
async fn found(orders: &[(u64, u64)], receipts: &[u64], counted: u64) -> Proof {
    let store = MemoryStore::new();
    let shop = Shop::new("test").unwrap();
    let tally = Tally::default();
    for (number, shipped) in orders {
        let stream = shop.order(*number).unwrap();
        let placed = NewEvent::new(PLACED.parse().unwrap(), Payload::null());
        store.apply(Batch::new().append(&stream, Expect::Absent, [placed])).await.unwrap();
        for _ in 0..*shipped {
            let event =
                NewEvent::new(SHIPPED.parse().unwrap(), Payload::from_json(r#"{"takeovers":1}"#).unwrap());
            store.apply(Batch::new().append(&stream, Expect::Exists, [event])).await.unwrap();
        }
    }
    for _ in 0..counted {
        store.apply(shop.count(Batch::new(), "shipped").unwrap()).await.unwrap();
    }
    receipts.iter().for_each(|number| tally.add_receipt(*number));
    Proof::find(&store, &shop, &tally, true).await.unwrap()
}

#[tokio::test]
async fn it_holds_when_everything_was_done_once() {
    let proof = found(&[(1, 1), (2, 1)], &[1, 2], 2).await;
    assert!(proof.holds, "{proof:?}");
    assert_eq!((proof.asked, proof.done, proof.takeovers), (2, 2, 2));
}

#[tokio::test]
async fn it_finds_what_was_lost() {
    let never_written = found(&[(1, 1)], &[1, 2], 1).await;
    assert_eq!((never_written.holds, never_written.lost), (false, 1));
    let never_shipped = found(&[(1, 1), (2, 0)], &[1, 2], 1).await;
    assert_eq!((never_shipped.holds, never_shipped.lost), (false, 1));
}

#[tokio::test]
async fn it_finds_what_was_doubled() {
    let proof = found(&[(1, 2)], &[1], 2).await;
    assert_eq!((proof.holds, proof.doubled), (false, 1));
}

#[tokio::test]
async fn it_finds_what_nobody_asked_for_and_what_was_not_counted() {
    let unasked = found(&[(1, 1), (2, 1)], &[1], 2).await;
    assert_eq!((unasked.holds, unasked.unasked), (false, 1));
    let uncounted = found(&[(1, 1)], &[1], 0).await;
    assert!(!uncounted.holds);
}
