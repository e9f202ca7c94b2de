//! Arguments of `tidelock config`.

use clap::{Args, Subcommand};

use super::Layout;

/// `tidelock config`
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// List every setting and its value, without passwords
    #[command(after_help = SHOW)]
    Show(ConfigShow),
    /// Print a JSON Schema of tidelock.toml
    #[command(after_help = SCHEMA)]
    Schema,
}

const SHOW: &str = "\
Examples:
  tidelock config show
  tidelock config show --origin                  which flag, variable or line does a value come from?
  tidelock config show --config deploy.toml -o json

A flag counts more than the environment, that more than tidelock.toml, and that more than the default. The file is the nearest one
from the current directory upwards, or the one that --config or TIDELOCK_CONFIG names.";

/// `tidelock config show`
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigShow {
    /// Show the origin of each value
    #[arg(long)]
    pub(crate) origin: bool,
    /// Treat this value as given on the command line
    #[arg(long, value_name = "URL|PATH")]
    pub(crate) store: Option<String>,
    /// Treat this value as given on the command line
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Layout>,
}

const SCHEMA: &str = "\
Examples:
  tidelock config schema > tidelock.schema.json";
