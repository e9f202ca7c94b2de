//! TLS configuration: the certificate of the server, optional client certificates, and reloading of changed files.
//!
//! The cryptography is rustls with ring. The provider is named here and never taken from the process-wide default.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use crate::error::ServerError;
use crate::sanitize::escaped;

/// The minimum time between two checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The TLS files, in PEM. The server reloads them when they change, so that a certificate is renewed without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

impl Tls {
    /// Names the files of the server's certificate chain, up to a root that clients trust, and of its private key.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), clients: None }
    }

    /// Requires a certificate from every client, signed by one of these authorities. Clients still need a token.
    #[must_use]
    pub fn client_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.clients = Some(file.into());
        self
    }

    /// Checks whether the files are usable now. The server performs the same check when it starts. Call this to fail before you announce
    /// the address of the server.
    ///
    /// # Errors
    /// [`ServerError::Tls`] when a file cannot be read, or does not match the others.
    pub fn check(&self) -> Result<(), ServerError> {
        self.load().map(drop)
    }

    fn load(&self) -> Result<Arc<ServerConfig>, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = self.clients.as_deref().map(verifier).transpose()?;
        let chain = certificates("certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            let reason = format!("{error}; expected a private key in PEM that is not encrypted");
            unusable("private key", &self.key, &reason)
        })?;
        let wrong = |error: rustls::Error| unusable("certificate", &self.certificate, &error.to_string());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).map_err(wrong)?;
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let reason = format!("{error}; the private key is {}", escaped(&self.key.display().to_string()));
            unusable("certificate", &self.certificate, &reason)
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let files = [Some(&self.certificate), Some(&self.key), self.clients.as_ref()];
        files
            .into_iter()
            .flatten()
            .map(|path| std::fs::metadata(path).ok().map(|facts| stamp(&facts)))
            .collect()
    }
}

/// The modification time, length and inode of a file. A difference means that the file has changed.
type Stamp = (Option<SystemTime>, u64, u64);

fn stamp(facts: &Metadata) -> Stamp {
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(facts);
    #[cfg(not(unix))]
    let number = 0;
    (facts.modified().ok(), facts.len(), number)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let cannot = |error: rustls::pki_types::pem::Error| unusable(what, path, &error.to_string());
    let found = CertificateDer::pem_file_iter(path).map_err(cannot)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    if found.is_empty() {
        return Err(unusable(what, path, "it holds none; expected -----BEGIN CERTIFICATE----- (PEM)"));
    }
    Ok(found)
}

/// Creates the verifier of client certificates.
fn verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, ServerError> {
    const WHAT: &str = "certificate of the clients' authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(WHAT, path)? {
        roots.add(certificate).map_err(|error| unusable(WHAT, path, &error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(|error| unusable(WHAT, path, &error.to_string()))
}

fn unusable(what: &'static str, path: &Path, reason: &str) -> ServerError {
    ServerError::Tls { what, path: path.display().to_string(), reason: escaped(reason) }
}

/// The TLS configuration from the last successful read of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    files: Tls,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    config: Arc<ServerConfig>,
    /// The stamps of the files at the last read, whether it succeeded or failed.
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
}

impl Loaded {
    pub(crate) fn new(files: Tls) -> Result<Self, ServerError> {
        // The stamps are taken before the read, so that a change during the read is detected later.
        let stamps = files.stamps();
        let config = files.load()?;
        Ok(Self { files, now: Mutex::new(Now { config, stamps, looked: Instant::now() }) })
    }

    /// Returns the configuration for a new connection. Reloads the files first if a check is due.
    pub(crate) async fn current(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.is_due(Instant::now()) {
            let this = Arc::clone(self);
            // File access may block. A check that is cut short is repeated later.
            drop(tokio::task::spawn_blocking(move || this.reload_if_changed()).await);
        }
        Arc::clone(&self.now().config)
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the calling connection has to check the files.
    fn is_due(&self, at: Instant) -> bool {
        let mut now = self.now();
        let due = at.saturating_duration_since(now.looked) >= LOOK_EVERY;
        if due {
            now.looked = at;
        }
        due
    }

    /// Reloads the files if they have changed. Unusable files are not read again until they change once more.
    fn reload_if_changed(&self) {
        let stamps = self.files.stamps();
        if self.now().stamps == stamps {
            return;
        }
        let read = self.files.load();
        let mut now = self.now();
        now.stamps = stamps;
        match read {
            Ok(config) => {
                now.config = config;
                tracing::info!(target: "tidelock::server", "the files of TLS have changed, and were read again");
            }
            Err(error) => {
                let shown = escaped(&error.to_string());
                tracing::warn!(target: "tidelock::server", error = %shown, "the files of TLS have changed and cannot be used; the older ones are");
            }
        }
    }
}
