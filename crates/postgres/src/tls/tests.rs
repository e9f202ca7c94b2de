//! Only here: errors before the first connection. The handshakes are in `tests/tls.rs`, against a real server.

use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::ParsedCertificate;
use rustls_native_certs::CertificateResult;
use tidelock_core::store::StoreErrorKind;

use super::{advice, client_config, connector, system_roots};
use crate::connect_options::ConnectOptions;

/// A version 1 certificate for `localhost`, valid until 2126, made by the recipe of PostgreSQL's manual with OpenSSL
/// 3.0.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBJTCBywIUa1YYyo5uMhkfGshUOlKF8U1urVEwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNjAyMDAyMloYDzIxMjYxMDIzMDIwMDIy
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAROgtji/t+J37gzUbmX/zi1AYwHxoBQMzGogNwFY1tLx2BpSrFli4+wTJqw94q0
AQmGuAX0myEFcs/mE/Wb7ztgMAoGCCqGSM49BAMCA0kAMEYCIQCJ+eQ0jdBQ6Fpu
KbxmIJK/x402wFojBTOea7XQsoL+IAIhAO39ni20ngbcPMqjJCl55hwO74vYC+xy
lIpt48kHvvi8
-----END CERTIFICATE-----
";

fn address(tail: &str) -> ConnectOptions {
    let url = format!("postgres://bob:hunter2@db.example/shop?{tail}");
    ConnectOptions::parse_in(&url, &|_| None).unwrap()
}

#[track_caller]
fn refusal(address: &ConnectOptions) -> String {
    let error = connector(address).err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::CannotOpen);
    assert!(!error.to_string().contains("hunter2"), "{error}");
    error.detail
}

fn authority() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn write<'a>(path: &'a Path, text: &str) -> std::path::Display<'a> {
    fs::write(path, text).unwrap();
    path.display()
}

#[test]
fn a_file_of_roots_must_hold_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = authority();
    let path = directory.path().join("ca.pem");
    for mode in ["require", "verify-ca", "verify-full"] {
        let address = address(&format!("sslmode={mode}&sslrootcert={}", path.display()));
        let _ = fs::remove_file(&path);
        assert!(refusal(&address).contains("reading sslrootcert"), "missing");
        write(&path, "");
        assert!(refusal(&address).contains("holds no certificate"), "empty");
        write(&path, &key);
        assert!(refusal(&address).contains("holds no certificate"), "a key");
        write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(refusal(&address).contains("holds a bad certificate"), "nonsense");
        write(&path, &format!("{certificate}{}", &certificate[..60]));
        assert!(refusal(&address).contains("reading sslrootcert"), "cut short");
        write(&path, &format!("the first:\n{certificate}the second:\n{}", authority().0));
        assert!(connector(&address).is_ok(), "two");
    }
}

#[test]
fn a_system_without_roots_trusts_no_certificate() {
    let error = system_roots(CertificateResult::default()).unwrap_err();
    assert!(error.detail.contains("no root certificates") && error.detail.contains("sslrootcert"), "{error}");
}

#[test]
fn modes_that_check_nothing_read_no_roots() {
    for tail in ["sslmode=disable&sslrootcert=/none", "sslmode=prefer&sslrootcert=/none", "sslmode=require"] {
        assert!(connector(&address(tail)).is_ok(), "{tail}");
    }
}

#[test]
fn a_certificate_of_the_client_needs_its_own_key() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = authority();
    let (own, other) = (directory.path().join("c.pem"), directory.path().join("k.pem"));
    let own = write(&own, &certificate).to_string();
    let address = address(&format!("sslmode=require&sslcert={own}&sslkey={}", other.display()));
    assert!(refusal(&address).contains("reading sslkey"), "missing");
    write(&other, &certificate);
    assert!(refusal(&address).contains("expected a private key in PEM that is not encrypted"), "no key");
    write(&other, &authority().1);
    assert!(refusal(&address).contains("do not work together"), "the key of another");
    write(&other, &key);
    assert!(connector(&address).is_ok());
}

#[test]
fn a_direct_handshake_says_which_protocol_follows() {
    let protocols = |tail| client_config(&address(tail)).unwrap().alpn_protocols;
    assert_eq!(protocols("sslmode=require&sslnegotiation=direct"), [b"postgresql"]);
    assert!(protocols("sslmode=require").is_empty());
}

#[test]
fn a_certificate_of_an_old_version_is_called_that() {
    let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
    let Err(rustls::Error::InvalidCertificate(found)) = ParsedCertificate::try_from(&certificate) else {
        panic!("it was read");
    };
    let text = advice(&address("sslmode=require"), &found);
    assert!(text.contains("version 1") && text.contains("subjectAltName"), "{text}");
}
