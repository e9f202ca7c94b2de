//! Only here: TLS encryption of connections and certificate checks of the server, by the rules of libpq's `sslmode`.
//!
//! The cryptography is rustls with ring. It is named here and never taken from a process default, which another library
//! might have set. A requested check is never weakened: opening fails if the check is impossible.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_native_certs::CertificateResult;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect_options::{ClientCert, ConnectOptions, TlsMode};

#[cfg(test)]
mod tests;

const WHAT: &str = "opening the PostgreSQL store";

/// Returns the connector for an address. Reads the certificate files, or the system's roots, if the mode needs them.
pub(crate) fn connector(address: &ConnectOptions) -> Result<MakeRustlsConnect, StoreError> {
    Ok(MakeRustlsConnect::new(client_config(address)?))
}

fn client_config(address: &ConnectOptions) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|e| fault(e.to_string()))?;
    let file = address.root_cert.as_deref();
    let builder = match (address.tls, file) {
        (TlsMode::VerifyFull, file) => builder.with_root_certificates(roots(file)?),
        (TlsMode::VerifyCa, file) => lenient(builder, Some(roots(file)?), provider),
        // libpq's rule: an address that names roots and requires encryption gets the chain checked.
        (TlsMode::Require, Some(file)) => lenient(builder, Some(roots(Some(file))?), provider),
        (TlsMode::Disable | TlsMode::Prefer | TlsMode::Require, _) => lenient(builder, None, provider),
    };
    let mut config = match &address.client_cert {
        Some(files) if address.tls != TlsMode::Disable => {
            let (chain, key) = (certificates(&files.certificate, "sslcert")?, private_key(&files.key)?);
            builder.with_client_auth_cert(chain, key).map_err(|e| unusable(files, &e))?
        }
        _ => builder.with_no_client_auth(),
    };
    if address.config.get_ssl_negotiation() == SslNegotiation::Direct {
        // A server that uses TLS from the first byte requires the client to name the protocol that follows.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(config)
}

type Wants<T> = rustls::ConfigBuilder<ClientConfig, T>;

fn lenient(
    builder: Wants<rustls::WantsVerifier>,
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Wants<rustls::client::WantsClientCert> {
    let verifier = Lenient { roots, provider };
    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
}

/// A verifier that checks less than rustls would: the chain but not the name or, without roots, neither.
///
/// It still checks the signature of the handshake. The signature proves that the server holds the key of the
/// certificate that it presents. Without it, channel binding would bind the password to nothing.
#[derive(Debug)]
struct Lenient {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the roots of a file, or the system's.
fn roots(file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    if let Some(path) = file {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, "sslrootcert")? {
            let cannot = |e| fault(format!("sslrootcert {} holds a bad certificate: {e}", path.display()));
            roots.add(certificate).map_err(cannot)?;
        }
        return Ok(roots);
    }
    system_roots(rustls_native_certs::load_native_certs())
}

fn system_roots(found: CertificateResult) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    // Some of the hundred roots of a system never parse. They are left out, as every other client does.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|e| format!(" ({e})")).unwrap_or_default();
        return Err(fault(format!(
            "the system has no root certificates{why}; install them (package ca-certificates), or name the file \
             of the server's CA with sslrootcert=<file>"
        )));
    }
    Ok(roots)
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let cannot = |e: &dyn std::fmt::Display| fault(format!("reading {parameter} {}: {e}", path.display()));
    let pieces = CertificateDer::pem_file_iter(path).map_err(|e| cannot(&e))?;
    let found = pieces.collect::<Result<Vec<_>, _>>().map_err(|e| cannot(&e))?;
    match found.is_empty() {
        true => Err(cannot(&"it holds no certificate; expected -----BEGIN CERTIFICATE----- (PEM)")),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, StoreError> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| {
        let hint = "expected a private key in PEM that is not encrypted";
        fault(format!("reading sslkey {}: {e}; {hint}", path.display()))
    })
}

fn unusable(files: &ClientCert, e: &rustls::Error) -> StoreError {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    fault(format!("sslcert {certificate} and sslkey {key} do not work together: {e}"))
}

/// Returns the meaning of a failed handshake and the remedy. `None`: the error has another cause.
///
/// The driver's own text is only "error performing TLS handshake".
pub(crate) fn explain(address: &ConnectOptions, error: &tokio_postgres::Error) -> Option<String> {
    let cause = error.source()?;
    if cause.to_string() == "server does not support TLS" {
        return Some(format!(
            "the server does not offer TLS, and sslmode={} demands it; turn `ssl` on at the server or, on a \
             trusted network, set sslmode=disable",
            address.tls.name()
        ));
    }
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    match inner.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(found) => {
            Some(format!("the server's certificate was refused: {inner}; {}", advice(address, found)))
        }
        _ => Some(format!(
            "the TLS handshake failed: {inner}; the server must speak TLS 1.2 or 1.3, with a key of RSA (2048 bits \
             or more), ECDSA (P-256 or P-384) or Ed25519"
        )),
    }
}

fn advice(address: &ConnectOptions, found: &CertificateError) -> String {
    let text = match found {
        CertificateError::UnknownIssuer => {
            let roots = match &address.root_cert {
                Some(path) => format!("in {}", path.display()),
                None => "of the system".to_owned(),
            };
            return format!(
                "it is signed by none of the roots {roots}; name the file of its CA with sslrootcert=<file>"
            );
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "connect by a name that the certificate has as a subjectAltName; the common name does not count, and \
             sslmode=verify-ca with an sslrootcert of your own checks no name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew it, or check the clock of this machine"
        }
        // The lower library gives these reasons only as text, without types.
        _ => match format!("{found:?}") {
            text if text.contains("CaUsedAsEndEntity") => {
                "it is the certificate of a CA (CA:TRUE), which may sign for servers but not be shown by one; make \
                 one with CA:FALSE"
            }
            text if text.contains("UnsupportedCertVersion") => {
                "it is of version 1 of X.509, which cannot carry a name to check; make one of version 3, with a \
                 subjectAltName (openssl x509 -req with -extfile)"
            }
            _ => "replace the certificate of the server",
        },
    };
    text.to_owned()
}

fn fault(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::CannotOpen, WHAT, detail)
}
