//! Arguments of `tidelock locks`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Layout;

/// `tidelock locks`
#[derive(Debug, Subcommand)]
pub(crate) enum Locks {
    /// List the locks inside a program, with holders and waiters, by asking
    /// its server
    #[command(after_help = LIST)]
    List(LocksList),
}

const LIST: &str = "\
Examples:
  tidelock locks list --token-file shop.tokens
  tidelock locks list --server http://127.0.0.1:8080 --token-file shop.tokens -o json

Locks are in the memory of a program, not in a store. The command asks the inspector of the program, and exits with 3 if it does
not expose its locks (Server::locks).";

/// `tidelock locks list`
#[derive(Clone, Debug, Args)]
pub(crate) struct LocksList {
    /// Server of the program, on this machine
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4400")]
    pub(crate) server: String,
    /// File with the token: as `serve` creates it, or with the token alone
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Layout,
}
