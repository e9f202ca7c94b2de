//! Arguments of `tidelock serve` and `tidelock dev`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::StoreArgs;

/// The log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// Failures
    Error,
    /// Also warnings
    Warn,
    /// Also rare events
    Info,
    /// Also frequent events
    Debug,
    /// Everything
    Trace,
}

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for human readers
    Text,
    /// A JSON object on each line
    Json,
}

/// The address and the access rules of the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reached {
    /// Address to listen on, which must be a loopback address unless there is
    /// a certificate; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4400")]
    pub(crate) listen: SocketAddr,
    /// Another name of this server; requests for unknown names are rejected
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Token file, created if missing [default: the file of the store, with
    /// .tokens after it]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve TLS with this certificate chain, in PEM; reloaded when the file
    /// changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require a client certificate signed by one of these, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Maximum requests per second and token, with a burst of twice as many; 0
    /// is unlimited
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) rate: u32,
    /// Do not delay addresses that send many wrong tokens; for a server behind
    /// a proxy that forwards the requests of many clients
    #[arg(long)]
    pub(crate) no_back_off: bool,
    /// Do not sweep expired documents, tombstones and receipts
    #[arg(long)]
    pub(crate) no_housekeeping: bool,
    /// Log level on standard error [env: TIDELOCK_LOG]
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "warn")]
    pub(crate) log: LogLevel,
    /// Log format [env: TIDELOCK_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// `tidelock serve`
#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) reached: Reached,
    /// Allow changes by callers with a write token; without it, the server is
    /// read-only
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Create the store if it does not exist: the file, or the tables
    #[arg(long)]
    pub(crate) create: bool,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
}

/// `tidelock dev`
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    #[command(flatten)]
    pub(crate) reached: Reached,
    /// SQLite file of the store, created if missing
    #[arg(long, value_name = "FILE", default_value = "tidelock-dev.db")]
    pub(crate) store: PathBuf,
    /// Format of the address
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: super::Format,
}
