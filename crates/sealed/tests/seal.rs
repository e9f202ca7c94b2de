//! A sealed value opens at its place, and nowhere else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::collections::BTreeMap;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use common::{Home, code, email, read, text};
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::{Value, json};
use tidelock_core::key::Key;
use tidelock_core::store::limits;
use tidelock_sealed::{AssociatedData, Opened, Sealed, Vault, VaultOptions};

/// Returns the same value with changed JSON.
fn altered<T>(sealed: &Sealed<T>, change: impl FnOnce(&mut Value)) -> Sealed<T> {
    let mut json = serde_json::to_value(sealed).unwrap();
    change(&mut json);
    serde_json::from_value(json).unwrap()
}

fn bytes(sealed: &Sealed<String>, field: &str) -> Vec<u8> {
    let json = serde_json::to_value(sealed).unwrap();
    Base64UrlUnpadded::decode_vec(json[field].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_sealed_value_opens_here_and_in_another_vault() {
    let home = Home::new();
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_eq!(sealed.subject(), "c-1");
    assert_eq!(read(&home.vault(), &sealed, &email("c-1")).await, Some(text()));
    let again: Sealed<String> = serde_json::from_str(&serde_json::to_string(&sealed).unwrap()).unwrap();
    assert_eq!(again, sealed);
    assert_eq!(read(&home.vault(), &again, &email("c-1")).await, Some(text()));
}

#[tokio::test]
async fn it_is_written_without_anything_of_the_value() {
    let home = Home::new();
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    let json = serde_json::to_value(&sealed).unwrap();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["ciphertext", "nonce", "subject", "v"]);
    assert_eq!((&json["v"], &json["subject"]), (&json!(1), &json!("c-1")));
    assert!(!json.to_string().contains("ada"));
    let twice = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_ne!(twice, sealed, "the same value sealed twice cannot be recognised");
}

#[tokio::test]
async fn it_does_not_open_at_another_place() {
    let (home, customer) = (Home::new(), Key::new("customer", ["c-1"]).unwrap());
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    vault.seal("c-2", &email("c-2"), &text()).await.unwrap();
    let elsewhere = [
        email("c-2"),
        AssociatedData::of(&customer, "phone"),
        AssociatedData::of(&customer, ""),
        AssociatedData::of(&Key::new("customer", ["c-1", "email"]).unwrap(), ""),
        AssociatedData::of(&Key::new("customer", ["c-", "1"]).unwrap(), "email"),
    ];
    for place in elsewhere {
        assert_eq!(code(vault.open(&sealed, &place).await), "TL0901", "{place}");
    }
    let of_another = altered(&sealed, |json| json["subject"] = json!("c-2"));
    assert_eq!(code(vault.open(&of_another, &email("c-1")).await), "TL0901");
    assert_eq!(read(&vault, &sealed, &email("c-1")).await, Some(text()));
}

#[tokio::test]
async fn every_flipped_bit_is_noticed() {
    let home = Home::new();
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    for field in ["nonce", "ciphertext"] {
        let right = bytes(&sealed, field);
        assert_eq!(right.len(), if field == "nonce" { 24 } else { 64 + 16 });
        for bit in 0..right.len() * 8 {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let wrong = Base64UrlUnpadded::encode_string(&wrong);
            let changed = altered(&sealed, |json| json[field] = json!(wrong));
            assert_eq!(code(vault.open(&changed, &email("c-1")).await), "TL0901", "bit {bit} of {field}");
        }
    }
}

#[tokio::test]
async fn every_changed_character_and_every_other_length_is_noticed() {
    let home = Home::new();
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    for field in ["nonce", "ciphertext"] {
        let right = serde_json::to_value(&sealed).unwrap()[field].as_str().unwrap().to_owned();
        let cut = (0..right.len()).map(|end| right[..end].to_owned());
        // This includes texts that differ in the unused bits at the end, or in spelling only.
        let other = (0..right.len()).flat_map(|at| ["A", "B", "_", "+", "=", " "].map(|with| (at, with)));
        let other = other.map(|(at, with)| format!("{}{with}{}", &right[..at], &right[at + 1..]));
        let longer = ["A", "=", "==", "\n", "AAAA"].map(|more| format!("{right}{more}"));
        for wrong in cut.chain(other).chain(longer).filter(|wrong| *wrong != right) {
            let changed = altered(&sealed, |json| json[field] = json!(wrong));
            assert_eq!(code(vault.open(&changed, &email("c-1")).await), "TL0901", "{field} {wrong:?}");
        }
    }
}

#[tokio::test]
async fn wrong_versions_and_types_are_distinguished() {
    let home = Home::new();
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    let newer = altered(&sealed, |json| json["v"] = json!(2));
    assert_eq!(serde_json::to_value(&newer).unwrap()["v"], json!(2), "it is passed on as it is");
    assert_eq!(code(vault.open(&newer, &email("c-1")).await), "TL0903");
    let number: Sealed<u32> = serde_json::from_value(serde_json::to_value(&sealed).unwrap()).unwrap();
    let error = vault.open(&number, &email("c-1")).await.unwrap_err();
    assert!(error.to_string().contains("u32") && !format!("{error} {error:?}").contains("ada"), "{error}");
    assert_eq!(code::<()>(Err(error)), "TL0904");
    let unwritable = BTreeMap::from([((1, 2), 3)]);
    assert_eq!(code(vault.seal("c-1", &email("c-1"), &unwritable).await), "TL0905");
}

#[tokio::test]
async fn without_its_key_nothing_opens() {
    let (home, other) = (Home::new(), Home::new());
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_eq!(code(other.vault().open(&sealed, &email("c-1")).await), "TL0906");
    assert!(other.record("c-1").await.is_none(), "opening begins no key");
    other.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_eq!(code(other.vault().open(&sealed, &email("c-1")).await), "TL0901");
}

#[tokio::test]
async fn keys_that_were_changed_are_named() {
    let home = Home::new();
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    let right: Value = home.record("c-1").await.unwrap().parse().unwrap();
    let with = |field: &str, value: Value| {
        let mut json = right.clone();
        json[field] = value;
        json
    };
    let cases = [
        (with("ciphertext", json!("AAAA")), "TL0907"),
        (with("nonce", json!("AAAA")), "TL0907"),
        (with("v", json!(2)), "TL0903"),
        (with("master", json!("0000000000000000")), "TL0908"),
        (json!({"v": 1}), "TL0907"),
        (json!({"v": 3}), "TL0903"),
        (json!("nothing"), "TL0907"),
    ];
    for (record, expected) in cases {
        home.put_record("c-1", tidelock_core::payload::Payload::of(&record).unwrap()).await;
        assert_eq!(code(home.vault().open(&sealed, &email("c-1")).await), expected, "{record}");
        assert_eq!(code(home.vault().seal("c-1", &email("c-1"), &text()).await), expected, "{record}");
    }
}

#[tokio::test]
async fn a_key_copied_to_another_subject_is_refused() {
    let home = Home::new();
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    home.put_record("c-2", home.record("c-1").await.unwrap()).await;
    let moved = altered(&sealed, |json| json["subject"] = json!("c-2"));
    assert_eq!(code(vault.open(&moved, &email("c-1")).await), "TL0907");
}

#[tokio::test]
async fn subjects_without_a_name_and_with_a_long_one_are_refused() {
    let vault = Home::new().vault();
    assert_eq!(code(vault.seal("", &email("c-1"), &text()).await), "TL0103");
    assert_eq!(code(vault.seal(&"x".repeat(2_000), &email("c-1"), &text()).await), "TL0105");
    assert_eq!(code(vault.forget("").await), "TL0103");
    let odd = "a\"b\\c)\u{202e}\n(";
    let sealed = vault.seal(odd, &email("c-1"), &text()).await.unwrap();
    assert_eq!(read(&vault, &sealed, &email("c-1")).await, Some(text()));
}

async fn length(vault: &Vault, value: &str) -> usize {
    let sealed = vault.seal("c-1", &email("c-1"), &value.to_owned()).await.unwrap();
    assert_eq!(read(vault, &sealed, &email("c-1")).await.as_deref(), Some(value));
    bytes(&sealed, "ciphertext").len() - 16
}

#[tokio::test]
async fn lengths_are_rounded_up() {
    let home = Home::new();
    let vault = home.vault();
    // Two quotes are part of the JSON.
    for (chars, padded) in [(0, 64), (1, 64), (62, 64), (63, 128), (126, 128), (127, 192)] {
        assert_eq!(length(&vault, &"x".repeat(chars)).await, padded, "{chars}");
    }
    for (pad_to, padded) in [(0, 5), (1, 5), (7, 7), (4, 8), (usize::MAX, 65_536)] {
        let vault = home.with(VaultOptions { pad_to, ..home.options() });
        assert_eq!(length(&vault, "abc").await, padded, "{pad_to}");
    }
    let trailing = home.vault().seal("c-1", &email("c-1"), &"blanks  ".to_owned()).await.unwrap();
    assert_eq!(read(&home.vault(), &trailing, &email("c-1")).await.as_deref(), Some("blanks  "));
}

#[tokio::test]
async fn neither_keys_nor_values_are_shown() {
    let home = Home::new();
    let vault = home.vault();
    let sealed = vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    let opened = vault.open(&sealed, &email("c-1")).await.unwrap();
    let wrapped: Value = home.record("c-1").await.unwrap().parse().unwrap();
    let shown = format!("{vault:?} {vault:#?} {sealed:?} {opened:?} {:?}", home.master);
    let key = home.master.to_text();
    for secret in [&**key, "ada", "1, 1, 1", "0101", wrapped["ciphertext"].as_str().unwrap()] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains(&home.master.id().to_string()), "{shown}");
    assert!(matches!(opened, Opened::Value(value) if value == text()));
}

#[tokio::test]
async fn a_large_value_is_sealed_as_a_whole() {
    let vault = Home::new().vault();
    let large = "é".repeat(limits::PAYLOAD_BYTES / 4);
    let sealed = vault.seal("c-1", &email("c-1"), &large).await.unwrap();
    assert!(read(&vault, &sealed, &email("c-1")).await == Some(large));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_value_for_any_subject_at_any_place_comes_back(
        subject in "\\PC{1,20}", field in "\\PC{0,20}", id in "\\PC{0,20}", value in any::<(String, i64, Vec<Option<bool>>)>()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let vault = Home::new().vault();
            let place = AssociatedData::of(&Key::new("customer", [id]).unwrap(), field);
            let sealed = vault.seal(&subject, &place, &value).await.unwrap();
            let json = serde_json::to_string(&sealed).unwrap();
            let sealed: Sealed<(String, i64, Vec<Option<bool>>)> = serde_json::from_str(&json).unwrap();
            assert_eq!(read(&vault, &sealed, &place).await, Some(value));
        });
    }
}
