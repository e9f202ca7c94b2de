//! `tidelock serve` and `tidelock dev`: the store over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Place;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// What failed
    Error,
    /// And what somebody should look at
    Warn,
    /// And what happens seldom
    Info,
    /// And what happens often
    Debug,
    /// Everything
    Trace,
}

/// How it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object on each line
    Json,
}

/// How the server is reached.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reached {
    /// The address to listen on, which must be of this machine alone unless there is a certificate; port 0 takes one that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4400")]
    pub(crate) listen: SocketAddr,
    /// Another name of this server: requests for names that it has not are refused
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// The file with the tokens, which is made when there is none [default: the file of the store, with .tokens after it]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Speaks TLS with this certificate, in PEM, with those that lead to its root; read again when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Wants a certificate of every client as well, signed by one of these, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// The most requests of a token in a second, and twice as many at once; 0 takes as many as come
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) rate: u32,
    /// Does not let an address wait that shows many wrong tokens: for a server behind something that sends it the requests of many
    #[arg(long)]
    pub(crate) no_back_off: bool,
    /// Do not sweep expired documents, tombstones and operation records
    #[arg(long)]
    pub(crate) no_housekeeping: bool,
    /// How much is logged on standard error [env: TIDELOCK_LOG]
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "warn")]
    pub(crate) log: LogLevel,
    /// How it is logged [env: TIDELOCK_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// `tidelock serve`
#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) reached: Reached,
    /// Lets callers change things whose token is for that; without it, the server only shows
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Makes the store when there is none: the file, or the tables
    #[arg(long)]
    pub(crate) create: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `tidelock dev`
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    #[command(flatten)]
    pub(crate) reached: Reached,
    /// The SQLite file of the store, which is made when there is none
    #[arg(long, value_name = "FILE", default_value = "tidelock-dev.db")]
    pub(crate) store: PathBuf,
    /// How the address is printed
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: super::Format,
}
