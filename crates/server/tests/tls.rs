//! TLS with real handshakes: accepted clients, rejected clients, and certificates that change while the server runs.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Site;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tidelock::error::Explain as _;
use tidelock::store::MemoryStore;
use tidelock_server::{Server, ServerOptions, Tls, Token, Tokens};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A timeout that only a hanging operation reaches.
const LONG: Duration = Duration::from_mins(1);

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key, in PEM.
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

fn signed_by(authority: &Authority) -> Identity {
    let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    Identity { certificate: params.signed_by(&key, authority).unwrap().pem(), key: key.serialize_pem() }
}

/// The TLS files of a server.
struct Files {
    directory: TempDir,
}

impl Files {
    fn of(identity: &Identity) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        files.put("cert.pem", &identity.certificate);
        files.put("key.pem", &identity.key);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file atomically.
    fn put(&self, name: &str, text: &str) {
        let new = self.path("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    fn tls(&self) -> Tls {
        Tls::files(self.path("cert.pem"), self.path("key.pem"))
    }
}

/// A server that listens on a socket.
struct Listening {
    site: Site,
    address: SocketAddr,
    end: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

async fn listen(tls: Tls, options: impl FnOnce(ServerOptions) -> ServerOptions) -> Listening {
    let site = Site::with(|all| options(all.tls(tls)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let server = site.server.clone();
    let served = tokio::spawn(async move {
        server.serve(listener, async move { ended.await.unwrap_or_default() }).await.unwrap();
    });
    Listening { site, address, end, served }
}

impl Listening {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn shake(&self, client: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let agreed = TlsConnector::from(Arc::clone(client)).connect(name, self.connect().await);
        timeout(LONG, agreed).await.expect("no end of the handshake")
    }

    /// Sends a request and reads the response until the server closes the connection.
    async fn ask(&self, client: &Arc<ClientConfig>) -> std::io::Result<String> {
        let mut stream = self.shake(client).await?;
        let token = self.site.read.reveal();
        let host = self.address;
        let head = format!(
            "GET /readyz HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        timeout(LONG, stream.read_to_string(&mut answer)).await.expect("it stays open")?;
        Ok(answer)
    }

    async fn shut(self) {
        self.end.send(()).unwrap();
        timeout(LONG, self.served).await.expect("the server does not end").unwrap();
    }
}

type TlsVersions = &'static [&'static SupportedProtocolVersion];

/// Creates a client that trusts an authority, and presents a certificate if it has one.
fn client(trusted: &Authority, shown: Option<&Identity>, versions: TlsVersions) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

const BOTH: TlsVersions = &[&TLS13, &TLS12];
const OLD: TlsVersions = &[&TLS12];
const NEW: TlsVersions = &[&TLS13];

#[tokio::test]
async fn a_trusting_client_is_answered_with_strict_transport_security() {
    let ours = authority("ours");
    let files = Files::of(&signed_by(&ours));
    let site = listen(files.tls(), |options| options).await;
    for versions in [BOTH, OLD, NEW] {
        let answer = site.ask(&client(&ours, None, versions)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("strict-transport-security: max-age=31536000\r\n"), "{answer}");
    }
    let agreed = site.shake(&client(&ours, None, BOTH)).await.unwrap();
    assert_eq!(agreed.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    drop(agreed);
    site.shut().await;
    let plain = Site::new().bare("GET", "/healthz").send().await;
    assert!(!plain.headers.contains_key("strict-transport-security"), "without TLS nothing of the kind");
}

#[tokio::test]
async fn a_client_without_trust_sends_no_request() {
    let files = Files::of(&signed_by(&authority("ours")));
    let site = listen(files.tls(), |options| options).await;
    let refused = site.ask(&client(&authority("ours"), None, BOTH)).await.unwrap_err();
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
    site.shut().await;
}

#[tokio::test]
async fn plain_http_is_not_answered() {
    let ours = authority("ours");
    let files = Files::of(&signed_by(&ours));
    let site = listen(files.tls(), |options| options).await;
    let mut plain = site.connect().await;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    timeout(LONG, plain.read_to_end(&mut bytes)).await.expect("it stays open").unwrap_or_default();
    // The server sends at most a TLS alert: the record type, a version, the length, and two bytes.
    assert!(bytes.is_empty() || (bytes.len() == 7 && bytes.first() == Some(&21)), "{bytes:?}");
    assert!(site.ask(&client(&ours, None, BOTH)).await.is_ok(), "others are served");
    site.shut().await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_and_does_not_keep_the_server() {
    let ours = authority("ours");
    let files = Files::of(&signed_by(&ours));
    let short = Duration::from_millis(300);
    let site = listen(files.tls(), |options| options.handshake_time(short).connections(1)).await;
    // The time is taken before the server sees the connection, so its timeout has not started.
    let began = Instant::now();
    let mut silent = site.connect().await;
    // The header announces a record that never arrives.
    silent.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let answer = loop {
        // On a busy machine, this client may time out as well.
        match site.ask(&client(&ours, None, BOTH)).await {
            Ok(answer) => break answer,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(began.elapsed() >= Duration::from_millis(200), "the only seat was taken");
    let mut bytes = Vec::new();
    timeout(LONG, silent.read_to_end(&mut bytes)).await.expect("it stays open").unwrap_or_default();
    assert_eq!(bytes, b"");
    site.shut().await;

    let site = listen(files.tls(), |options| options.handshake_time(LONG * 10).end_time(LONG * 10)).await;
    let _silent = site.connect().await;
    assert!(site.ask(&client(&ours, None, BOTH)).await.is_ok());
    site.shut().await;
}

#[tokio::test]
async fn files_that_change_are_read_again_and_those_that_do_not_read_are_not_used() {
    let (old, new) = (authority("old"), authority("new"));
    let files = Files::of(&signed_by(&old));
    let site = listen(files.tls(), |options| options).await;
    let (trusts_old, trusts_new) = (client(&old, None, BOTH), client(&new, None, BOTH));
    assert!(site.ask(&trusts_old).await.is_ok());
    assert!(site.ask(&trusts_new).await.is_err());

    // First the new certificate without its key, as between the two writes of a renewal, and then an invalid file.
    let next = signed_by(&new);
    for bad in [next.certificate.as_str(), "nonsense"] {
        files.put("cert.pem", bad);
        let deadline = Instant::now() + Duration::from_millis(2_500);
        while Instant::now() < deadline {
            assert!(site.ask(&trusts_old).await.is_ok(), "the older one is kept");
        }
    }
    files.put("cert.pem", &next.certificate);
    files.put("key.pem", &next.key);
    let deadline = Instant::now() + LONG;
    while site.ask(&trusts_new).await.is_err() {
        assert!(Instant::now() < deadline, "the new one is not used");
        tokio::task::yield_now().await;
    }
    assert!(site.ask(&trusts_old).await.is_err());
    site.shut().await;
}

#[tokio::test]
async fn clients_show_a_certificate_where_that_is_wanted() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let files = Files::of(&signed_by(&ours));
    files.put("clients.pem", &theirs.pem());
    let site = listen(files.tls().client_ca(files.path("clients.pem")), |options| options).await;
    for versions in [OLD, NEW] {
        assert!(site.ask(&client(&ours, None, versions)).await.is_err(), "none");
        let other = signed_by(&authority("theirs"));
        assert!(
            site.ask(&client(&ours, Some(&other), versions)).await.is_err(),
            "a certificate of another authority"
        );
        let known = signed_by(&theirs);
        let answer = site.ask(&client(&ours, Some(&known), versions)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let known = signed_by(&theirs);
    let mut stream = site.shake(&client(&ours, Some(&known), BOTH)).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "it is no token: {answer}");
    site.shut().await;
}

#[tokio::test]
async fn unusable_files_are_named_at_startup() {
    let (ours, files) = (authority("ours"), Files::of(&signed_by(&authority("ours"))));
    files.put("empty.pem", "");
    files.put("other.pem", &signed_by(&ours).key);
    let cert = files.path("cert.pem");
    for (tls, part) in [
        (Tls::files(files.path("none.pem"), files.path("key.pem")), "none.pem"),
        (Tls::files(files.path("empty.pem"), files.path("key.pem")), "BEGIN CERTIFICATE"),
        (Tls::files(&cert, files.path("empty.pem")), "not encrypted"),
        (Tls::files(&cert, files.path("other.pem")), "other.pem"),
        (files.tls().client_ca(files.path("empty.pem")), "clients' authority"),
    ] {
        let site = Site::with(|options| options.tls(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = site.server.serve(listener, async {}).await.unwrap_err();
        assert_eq!(refused.code().as_str(), "TL1317", "{refused}");
        assert!(refused.to_string().contains(part), "{refused}");
    }
}

#[tokio::test]
async fn other_machines_are_served_with_tls_and_tokens_only() {
    let files = Files::of(&signed_by(&authority("ours")));
    let start = async |options: ServerOptions| {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        Server::new(Arc::new(MemoryStore::new()), options).serve(listener, async {}).await
    };
    let tokens = || ServerOptions::new(Tokens::none().read(&Token::generate().unwrap()));
    start(tokens().tls(files.tls()).beyond_this_machine()).await.unwrap();
    for (options, part) in [
        (tokens(), "nothing is encrypted"),
        (tokens().beyond_this_machine(), "nothing is encrypted"),
        (ServerOptions::behind_own_auth().tls(files.tls()).beyond_this_machine(), "no token is asked for"),
        (tokens().tls(files.tls()), "Options::beyond_this_machine"),
    ] {
        let refused = start(options).await.unwrap_err();
        assert_eq!(refused.code().as_str(), "TL1316");
        assert!(refused.to_string().contains(part), "{refused}");
    }
}
