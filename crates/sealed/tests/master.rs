//! Master keys from texts and files, and their errors.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use common::code;
use tidelock_sealed::{MasterKey, SealedError};

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfbff";
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd+/8=";

#[test]
fn every_spelling_is_the_same_key() {
    let key = MasterKey::from_text(HEX).unwrap();
    let url = BASE64.replace('+', "-").replace('/', "_");
    let spellings = [
        HEX.to_uppercase(),
        BASE64.to_owned(),
        BASE64.trim_end_matches('=').to_owned(),
        url.clone(),
        url.trim_end_matches('=').to_owned(),
        format!("  {BASE64}\r\n"),
        key.to_text().to_string(),
    ];
    for text in spellings {
        assert_eq!(MasterKey::from_text(&text).unwrap().id(), key.id(), "{text:?}");
    }
    let mut bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    (bytes[30], bytes[31]) = (0xfb, 0xff);
    assert_eq!(MasterKey::from_bytes(bytes).id(), key.id());
    assert_eq!(key.id().to_string().len(), 16);
    assert_eq!(&**key.to_text(), BASE64);
}

#[test]
fn other_texts_are_refused_without_being_shown() {
    for text in
        ["", "secret", &HEX[..62], &HEX[1..], &format!("{HEX}00"), &BASE64[..40], &HEX.replace('f', "g")]
    {
        let error = MasterKey::from_text(text).unwrap_err();
        assert!(text.is_empty() || !format!("{error} {error:?}").contains(text), "{error}");
        assert_eq!(code::<()>(Err(error)), "TL0909", "{text:?}");
    }
}

#[test]
fn each_one_is_another() {
    let (one, other) = (MasterKey::generate().unwrap(), MasterKey::generate().unwrap());
    assert_ne!(one.id(), other.id());
    assert_ne!(*one.to_text(), *other.to_text());
    assert_eq!(format!("{one:?}"), format!("MasterKey({})", one.id()));
}

#[test]
fn a_saved_key_is_loaded_and_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master.key");
    let key = MasterKey::generate().unwrap();
    key.save(&path).unwrap();
    assert_eq!(MasterKey::from_file(&path).unwrap().id(), key.id());
    assert_eq!(code(MasterKey::generate().unwrap().save(&path)), "TL0909");
    assert_eq!(MasterKey::from_file(&path).unwrap().id(), key.id());
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_refused() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master.key");
    MasterKey::generate().unwrap().save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for refused in [0o644, 0o640, 0o604, 0o620, 0o602, 0o601, 0o777] {
        set_permissions(&path, Permissions::from_mode(refused)).unwrap();
        let error = MasterKey::from_file(&path).unwrap_err();
        assert!(matches!(error, SealedError::Exposed { mode, .. } if mode == refused), "{error}");
        assert!(error.to_string().contains(&format!("mode 0{refused:o}")), "{error}");
    }
    for accepted in [0o600, 0o400] {
        set_permissions(&path, Permissions::from_mode(accepted)).unwrap();
        MasterKey::from_file(&path).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn files_hold_a_text_or_the_bytes_and_nothing_else() {
    use std::os::unix::fs::OpenOptionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    let mut load = |held: &[u8]| {
        use std::io::Write as _;
        count += 1;
        let path = directory.path().join(count.to_string());
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(held).unwrap();
        MasterKey::from_file(&path)
    };
    let key = MasterKey::from_bytes([7; 32]);
    assert_eq!(load(&[7; 32]).unwrap().id(), key.id());
    assert_eq!(load(format!("\n{}\n\n", &**key.to_text()).as_bytes()).unwrap().id(), key.id());
    let too_long = format!("{}{}", &**key.to_text(), " ".repeat(4_000));
    for wrong in [&b""[..], &[7; 31], &[0xff; 64], too_long.as_bytes()] {
        assert_eq!(code(load(wrong)), "TL0909", "{} bytes", wrong.len());
    }
    assert_eq!(code(MasterKey::from_file(directory.path().join("none"))), "TL0909");
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    assert!(MasterKey::from_file(directory.path().join("folder")).is_err());
}
