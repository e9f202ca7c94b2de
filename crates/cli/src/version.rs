//! `tidelock version`: the version and the build of this program.

use anyhow::Result;
use serde::Serialize;
use tidelock::postgres::migrate;

use crate::args::Version;
use crate::exit::Exit;
use crate::output;

/// The printed report.
#[derive(Debug, Serialize)]
struct About {
    version: &'static str,
    /// The schema version that a PostgreSQL store needs.
    postgres_schema: u32,
    target: String,
    /// Whether locks report cycles instead of hanging.
    lock_detection: bool,
}

/// Prints the report.
pub(crate) fn run(options: &Version) -> Result<Exit> {
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        postgres_schema: migrate::newest(),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        lock_detection: cfg!(feature = "lock-detection"),
    };
    let text = format!(
        "tidelock         {}\ntarget           {}\nPostgreSQL       schema {}\nlock detection   {}",
        about.version,
        about.target,
        about.postgres_schema,
        if about.lock_detection { "yes" } else { "no" },
    );
    output::print_report(options.output, &about, text)
}
