//! Certificate checks of a store, by real handshakes with a real server.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tidelock_core::key::Key;
use tidelock_core::store::{Durability, Store as _, StoreError};
use tidelock_pgserver::{PgServerOptions as ServerOptions, Server};
use tidelock_postgres::{PostgresOptions, PostgresStore};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key.
struct Identity {
    certificate: String,
    key: String,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn server_names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn signed_by(authority: &Authority, params: &CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    Identity { certificate: params.signed_by(&key, authority).unwrap().pem(), key: key.serialize_pem() }
}

fn start() -> Server {
    Server::start(&ServerOptions { durable: false, ..ServerOptions::default() }).unwrap()
}

/// Starts a server that offers TLS with the given certificate.
fn start_with(identity: &Identity) -> Server {
    let server = start();
    offer(&server, identity, "");
    server
}

/// Writes the files to PostgreSQL's default location, and restarts the server.
fn offer(server: &Server, identity: &Identity, settings: &str) {
    server.stop().unwrap();
    let data = server.data_directory();
    let owner = fs::metadata(data).unwrap();
    for (name, text) in [("server.crt", &identity.certificate), ("server.key", &identity.key)] {
        let path = data.join(name);
        fs::write(&path, text).unwrap();
        // PostgreSQL requires a key that belongs to it and that no other user can read.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let config = data.join("postgresql.conf");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\nssl = on\n{settings}\n")).unwrap();
    server.run().unwrap();
}

/// Files for the client.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

async fn open_at(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(
        url,
        PostgresOptions { durability: Durability::Relaxed, ..PostgresOptions::default() },
    )
    .await
}

async fn open(server: &Server, mode: &str, roots: Option<&Path>) -> Result<PostgresStore, StoreError> {
    let roots = roots.map(|path| format!("&sslrootcert={}", path.display())).unwrap_or_default();
    open_at(&format!("{}?sslmode={mode}{roots}", server.url())).await
}

/// Returns the numbers of encrypted and unencrypted connections of the store, as the server counts them.
fn connections(server: &Server) -> (u32, u32) {
    let query = "select count(*) filter (where ssl), count(*) filter (where not ssl) from pg_stat_ssl \
                 join pg_stat_activity using (pid) where application_name = 'tidelock'";
    let output = server.command("psql").args(["-X", "-A", "-t", "-c", query]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (encrypted, clear) = text.trim().split_once('|').unwrap();
    (encrypted.parse().unwrap(), clear.parse().unwrap())
}

/// Reads once, so that the pool has a connection, which stays open.
async fn used(store: &PostgresStore) {
    store.document(&Key::single("nothing").unwrap()).await.unwrap();
}

/// Checks that the store opens and that the server reports every connection as encrypted.
async fn encrypted(server: &Server, opened: Result<PostgresStore, StoreError>) {
    let store = opened.unwrap();
    used(&store).await;
    let (encrypted, clear) = connections(server);
    assert!(encrypted > 0 && clear == 0, "{encrypted} encrypted, {clear} in the clear");
    drop(store);
}

#[track_caller]
fn refused(opened: Result<PostgresStore, StoreError>, reasons: &[&str]) {
    let text = opened.map(|_| ()).unwrap_err().to_string();
    for reason in reasons {
        assert!(text.contains(reason), "{reason:?} is missing: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_certificate_is_accepted_only_unchecked() {
    let files = Files::new();
    let key = KeyPair::generate().unwrap();
    let certificate = server_names(&["127.0.0.1", "localhost"]).self_signed(&key).unwrap().pem();
    let own = files.write("own.pem", &certificate);
    let server = start_with(&Identity { certificate, key: key.serialize_pem() });
    let other = files.write("ca.pem", &authority("another").pem());
    for mode in ["verify-full", "verify-ca", "require"] {
        let reasons = ["UnknownIssuer", "none of the roots in", "sslrootcert=<file>"];
        refused(open(&server, mode, Some(&other)).await, &reasons);
    }
    refused(open(&server, "verify-full", Some(Path::new("system"))).await, &["sslrootcert=<file>"]);
    encrypted(&server, open(&server, "require", None).await).await;
    encrypted(&server, open(&server, "prefer", Some(&other)).await).await;
    // Unless this very certificate is named as a root.
    encrypted(&server, open(&server, "verify-full", Some(&own)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_refused_where_the_name_is_checked() {
    let files = Files::new();
    let ca = authority("ours");
    let roots = files.write("ca.pem", &ca.pem());
    let server = start_with(&signed_by(&ca, &server_names(&["elsewhere.example", "127.0.0.2"])));
    let reasons = ["not valid for name", "subjectAltName"];
    refused(open(&server, "verify-full", Some(&roots)).await, &reasons);
    encrypted(&server, open(&server, "verify-ca", Some(&roots)).await).await;
    encrypted(&server, open(&server, "require", Some(&roots)).await).await;
    // The name in the address is the one that is checked, wherever it leads.
    let tail = format!(
        "elsewhere.example:{}/tidelock?hostaddr=127.0.0.1&sslrootcert={}",
        server.port(),
        roots.display()
    );
    let url = server.url().replace(&format!("127.0.0.1:{}/tidelock", server.port()), &tail);
    encrypted(&server, open_at(&url).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_certificate_for_the_right_host_is_accepted() {
    let files = Files::new();
    let ca = authority("ours");
    let roots = files.write("ca.pem", &format!("{}{}", authority("another").pem(), ca.pem()));
    let server = start_with(&signed_by(&ca, &server_names(&["127.0.0.1", "localhost"])));
    for mode in ["verify-full", "verify-ca", "require"] {
        encrypted(&server, open(&server, mode, Some(&roots)).await).await;
    }
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let tail = format!("sslmode=verify-full&sslrootcert={}", roots.display());
    encrypted(&server, open_at(&format!("{by_name}?{tail}")).await).await;
    // The password is bound to the connection on which it is sent.
    encrypted(&server, open_at(&format!("{}?channel_binding=require&{tail}", server.url())).await).await;
    // Encryption that a local address does not request is used all the same when the server offers it.
    encrypted(&server, open_at(&server.url()).await).await;
    let store = open(&server, "disable", None).await.unwrap();
    assert_eq!(connections(&server).0, 0);
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_has_expired_is_refused() {
    let files = Files::new();
    let ca = authority("ours");
    let roots = files.write("ca.pem", &ca.pem());
    let mut params = server_names(&["127.0.0.1"]);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    let server = start_with(&signed_by(&ca, &params));
    for mode in ["verify-full", "verify-ca", "require"] {
        refused(open(&server, mode, Some(&roots)).await, &["expired", "renew it"]);
    }
    encrypted(&server, open(&server, "require", None).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_an_authority_is_not_one_of_a_server() {
    let files = Files::new();
    let mut params = server_names(&["127.0.0.1"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let roots = files.write("ca.pem", &certificate);
    let server = start_with(&Identity { certificate, key: key.serialize_pem() });
    refused(open(&server, "verify-full", Some(&roots)).await, &["CaUsedAsEndEntity", "CA:FALSE"]);
    encrypted(&server, open(&server, "require", None).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_used_only_where_the_clear_is_allowed() {
    let files = Files::new();
    let roots = files.write("ca.pem", &authority("ours").pem());
    let server = start();
    for (mode, roots) in [("require", None), ("verify-ca", Some(&*roots)), ("verify-full", Some(&*roots))] {
        let demand = format!("sslmode={mode}");
        refused(open(&server, mode, roots).await, &["does not offer TLS", &demand, "turn `ssl` on"]);
    }
    for mode in ["prefer", "allow", "disable"] {
        let store = open(&server, mode, None).await.unwrap();
        used(&store).await;
        let (encrypted, clear) = connections(&server);
        assert!(encrypted == 0 && clear > 0, "{encrypted} encrypted, {clear} in the clear");
        drop(store);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_used_in_the_clear_whatever_was_asked() {
    let ca = authority("ours");
    let server = start_with(&signed_by(&ca, &server_names(&["127.0.0.1"])));
    let url = server.url();
    let (_, password) = url.split_once("tidelock:").unwrap();
    let (password, _) = password.split_once('@').unwrap();
    let directory = server.data_directory().parent().unwrap().display();
    let port = server.port();
    for tail in ["", "sslmode=require", "sslmode=verify-full"] {
        let words = format!("host={directory} port={port} user=tidelock password={password} {tail}");
        let store = open_at(&words).await.unwrap();
        used(&store).await;
        assert_eq!(connections(&server).0, 0);
        drop(store);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_shows_the_certificate_that_it_was_given() {
    let files = Files::new();
    let ca = authority("ours");
    let roots = files.write("ca.pem", &ca.pem());
    let server = start();
    let role = "create role machine login superuser";
    assert!(server.command("psql").args(["-X", "-q", "-c", role]).status().unwrap().success());
    let data = server.data_directory();
    let (hba, trusted) = (data.join("pg_hba.conf"), data.join("clients.crt"));
    let rules = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("hostssl all machine all cert\n{rules}")).unwrap();
    fs::write(&trusted, ca.pem()).unwrap();
    let identity = signed_by(&ca, &server_names(&["127.0.0.1"]));
    offer(&server, &identity, "ssl_ca_file = 'clients.crt'");

    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "machine");
    let machine = signed_by(&ca, &params);
    let (certificate, key) = (files.write("c.pem", &machine.certificate), files.write("k.pem", &machine.key));
    let at =
        format!("postgres://machine@127.0.0.1:{}/tidelock?sslrootcert={}", server.port(), roots.display());
    let files = format!("sslcert={}&sslkey={}", certificate.display(), key.display());
    encrypted(&server, open_at(&format!("{at}&{files}")).await).await;
    assert!(open_at(&at).await.is_err(), "without a certificate");
}
