//! Memory bounds (D13) of a batch, a group and a claim, whatever the size of documents and events.

use tidelock_core::id::EventType;
use tidelock_core::payload::Payload;

use crate::prelude::*;

/// Returns JSON text of about this number of bytes.
fn large(bytes: usize) -> Payload {
    Payload::from_json(format!(r#"{{"n":0,"m":0,"text":"{}"}}"#, "x".repeat(bytes))).unwrap()
}

/// 500 merges of a document of a megabyte in one batch: every receipt has the same value, which is in memory once.
/// Documents only.
pub async fn d13_merges_of_one_document_in_a_batch_share_one_value(env: &Env) {
    let (one, two) = (key("d13-one"), key("d13-two"));
    let begun =
        Batch::new().put(&one, Expect::Absent, large(1_000_000)).put(&two, Expect::Absent, large(1_000));
    env.store.done(begun).await;
    let both = |batch: Batch| batch.merge(&one, [Delta::inc("/n", 1)]).merge(&two, [Delta::inc("/m", 1)]);
    let receipt = env.store.done((0..500).fold(Batch::new(), |batch, _| both(batch))).await;
    for (document, field) in [(&one, r#"{"n":500,"m":0,"#), (&two, r#"{"n":0,"m":500,"#)] {
        let written: Vec<_> = receipt.documents.iter().filter(|written| written.key == *document).collect();
        let texts: Vec<&str> = written.iter().filter_map(|w| w.value.as_ref()).map(Payload::as_str).collect();
        assert_eq!((written.len(), texts.len()), (500, 500));
        assert!(texts.iter().all(|text| text.as_ptr() == texts[0].as_ptr()), "one text for all of them");
        assert!(texts[0].starts_with(field));
        assert_eq!(written[499].version, DocVersion(501));
        let found = env.other.doc(document).await.unwrap();
        assert_eq!((found.version, found.value.as_str()), (DocVersion(501), texts[0]));
    }
}

/// Many callers merge a large document at once. Each gets its result, none is lost, and other callers are served.
/// Documents only.
pub async fn d13_merges_of_one_document_by_many_callers_all_count(env: &Env) {
    for connections in crate::env::ONE_AND_TWO {
        let document = key(&format!("d13-many-{connections}"));
        env.store.done(Batch::new().put(&document, Expect::Absent, large(400_000))).await;
        let merged = env.race(connections, 60, |i, conn| {
            let (document, beside) = (document.clone(), key(&format!("d13-beside-{connections}-{i}")));
            async move {
                if i % 6 == 0 {
                    conn.done(Batch::new().put(&beside, Expect::Absent, number(1))).await;
                    return None;
                }
                let receipt = conn.done(Batch::new().merge(&document, [Delta::inc("/n", 1)])).await;
                Some((receipt.documents[0].version, receipt.documents[0].value.clone().unwrap()))
            }
        });
        for (version, value) in merged.await.into_iter().flatten() {
            assert!(value.as_str().starts_with(&format!(r#"{{"n":{},"#, version.0 - 1)), "version {version}");
        }
        assert_eq!(env.other.doc(&document).await.unwrap().version, DocVersion(51));
    }
}

/// A row is far behind a stream of large events. A grant ends with the event that reaches the limit and reports that
/// there is more. The next grant continues. No event is skipped or repeated.
pub async fn d13_the_events_of_a_grant_are_bounded_by_bytes(env: &Env) {
    let (stream, row) = (key("d13-events"), key("d13-row"));
    let (count, bytes) = (24, limits::PAYLOAD_BYTES - 100);
    for _ in 0..count {
        let event = NewEvent::new(EventType::new("Large").unwrap(), Payload::of(&"x".repeat(bytes)).unwrap());
        env.store.done(Batch::new().append(&stream, Expect::Any, [event])).await;
    }
    let mut wake = NewWork::standing(row.clone(), queue_name("jobs"));
    wake.follow = Some(stream.clone());
    env.store.done(Batch::new().enqueue(wake)).await;
    let (mut seen, mut grants) = (Vec::new(), 0);
    loop {
        let claim = Claim::existing(&owner("d13"), &row, TTL).with_events(500);
        let grant = env.other.claim(claim).await.unwrap().grants.remove(0);
        let brought: usize = grant.events.iter().map(|event| event.payload.len() + event.meta.len()).sum();
        assert!(brought < limits::CLAIM_BYTES + bytes + 100, "{brought} bytes in a grant");
        assert!(!grant.events.is_empty() && grants < 3);
        seen.extend(grant.events.iter().map(|event| event.version.0));
        grants += 1;
        let last = grant.events.last().unwrap().position;
        env.other.done(Batch::new().advance(&grant.lease(), last)).await;
        if !grant.more {
            break;
        }
    }
    assert_eq!((grants, seen), (2, (0..count).collect()));
}

/// Several rows share the byte limit of a claim, and each gets an event if there is one.
pub async fn d13_the_grants_of_a_claim_share_its_bytes(env: &Env) {
    let bytes = limits::PAYLOAD_BYTES - 100;
    for i in 0..4 {
        let (stream, row) = (key(&format!("d13-shared-{i}")), key(&format!("d13-shared-row-{i}")));
        for _ in 0..6 {
            let event =
                NewEvent::new(EventType::new("Large").unwrap(), Payload::of(&"x".repeat(bytes)).unwrap());
            env.store.done(Batch::new().append(&stream, Expect::Any, [event])).await;
        }
        let mut wake = NewWork::standing(row, queue_name("d13-shared"));
        wake.follow = Some(stream);
        env.store.done(Batch::new().enqueue(wake)).await;
    }
    let claim = Claim::queues(&owner("d13"), [queue_name("d13-shared")], 4, TTL).with_events(100);
    let grants = env.other.claim(claim).await.unwrap().grants;
    // A quarter of 64 MiB is reached by the fifth event of almost 4 MiB.
    let brought: Vec<_> = grants.iter().map(|grant| (grant.events.len(), grant.more)).collect();
    assert_eq!(brought, [(5, true); 4]);
}
