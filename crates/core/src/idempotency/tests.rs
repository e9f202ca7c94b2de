//! Tests of the parts that need no store.

use super::record::Record;
use super::{Fingerprint, MAX_BODY_BYTES, MAX_HEADERS_BYTES, StorePolicy, StoredResponse, keys};
use crate::clock::Timestamp;
use crate::id::{DocVersion, Fence};
use crate::key::Key;
use crate::store::{StoredDocument, limits};

fn round_trip(kept: &StorePolicy) -> (String, StorePolicy) {
    let request = Fingerprint::of([b"a"]);
    let value = Record::new(&request, Fence(7), kept).payload().unwrap();
    assert!(value.len() <= limits::PAYLOAD_BYTES, "{} bytes", value.len());
    let (key, updated_at) = (Key::single("record").unwrap(), Timestamp::EPOCH);
    let document = StoredDocument { key, version: DocVersion(1), value, updated_at, expires_at: None };
    let record = Record::read(&document).unwrap();
    assert_eq!((record.request.as_str(), record.fence), (request.hex().as_str(), Fence(7)));
    (document.value.to_string(), record.kept(&document).unwrap())
}

#[test]
fn parts_of_a_request_do_not_run_into_each_other() {
    let parts = |parts: &[&str]| Fingerprint::of(parts);
    assert_eq!(parts(&["ab", "c"]), parts(&["ab", "c"]));
    assert_ne!(parts(&["ab", "c"]), parts(&["a", "bc"]));
    assert_ne!(parts(&["ab"]), parts(&["ab", ""]));
    assert_eq!(parts(&[]).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn an_answer_comes_back_as_it_was() {
    let text = StoredResponse::new(201)
        .header("location", "/1")
        .header("link", "a")
        .header("link", "b")
        .text("ü \"q\"\n");
    let (json, back) = round_trip(&StorePolicy::Whole(text.clone()));
    assert_eq!(back, StorePolicy::Whole(text));
    assert!(json.contains(r#""text":"ü \"q\"\n""#), "text is readable: {json}");
    for body in [vec![0_u8, 1, 255], b"a\0b".to_vec(), Vec::new(), vec![0xc3]] {
        let answer = StorePolicy::Whole(StoredResponse::new(200).body(body));
        assert_eq!(round_trip(&answer).1, answer);
    }
    let status = StorePolicy::StatusOnly { status: 204 };
    assert_eq!(round_trip(&status).1, status);
}

#[test]
fn the_largest_answer_fits_into_a_document() {
    for byte in [b'a', b'"', b'\n', 1, 0x7f, 0, 255] {
        let value = "\u{1}".repeat(MAX_HEADERS_BYTES - 1);
        let largest = StoredResponse::new(200).header("a", value).body(vec![byte; MAX_BODY_BYTES]);
        largest.check("k").unwrap();
        assert_eq!(
            round_trip(&StorePolicy::Whole(largest.clone())).1,
            StorePolicy::Whole(largest.clone()),
            "{byte}"
        );
        largest.body(vec![byte; MAX_BODY_BYTES + 1]).check("k").unwrap_err();
    }
    StoredResponse::new(200).header("a", "b".repeat(MAX_HEADERS_BYTES)).check("k").unwrap_err();
}

#[test]
fn an_owner_says_who_and_what_for() {
    let request = Fingerprint::of(["x"]);
    let owner = keys::owner(&request).unwrap();
    let (who, what) = keys::parts(&owner);
    assert_eq!(what, Some(request.hex().as_str()));
    assert!(!who.is_empty() && !who.contains('#'));
    assert_ne!(owner, keys::owner(&request).unwrap(), "each reservation has its own owner");
}

#[test]
fn keys_and_scopes_have_a_form() {
    keys::record("", "k").unwrap();
    keys::record(&"s".repeat(255), &"\"".repeat(255)).unwrap();
    for (scope, key) in
        [("", ""), ("", "a\nb"), ("s\0", "k"), ("", &"k".repeat(256)), (&"s".repeat(256), "k")]
    {
        keys::record(scope, key).unwrap_err();
    }
    let name = keys::record("s", "k").unwrap();
    assert_eq!(keys::of(&name), Some(("s".to_owned(), "k".to_owned())));
    assert!(
        keys::all_of("s").contains(&name) && !keys::all_of("").contains(&name) && keys::all().contains(&name)
    );
}
