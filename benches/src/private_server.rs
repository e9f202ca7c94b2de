//! A private PostgreSQL server that ends with the program, and its data with it.

use std::path::Path;

use anyhow::Result;
use tidelock_console::server_url::ServerUrl;
use tidelock_console::usage::UsageError;
use tidelock_console::{filesystem, output};

pub(crate) use running::PrivateServer;

/// Starts a server with its data below a directory, by default the temporary one.
pub(crate) async fn start(directory: Option<&Path>) -> Result<(ServerUrl, PrivateServer)> {
    let directory = directory.map_or_else(std::env::temp_dir, Path::to_owned);
    let shown = output::escaped(&directory.display().to_string());
    if !directory.is_dir() {
        return Err(UsageError(format!(
            "cannot start a private server: {shown} is not a directory; pass one with --path"
        ))
        .into());
    }
    let kind = filesystem::file_system(&directory);
    if filesystem::is_memory(&kind) {
        eprintln!(
            "warning: {shown} is on {kind}, where flushes are free; pass a directory on a disk with --path"
        );
    }
    let running = tokio::task::spawn_blocking(move || PrivateServer::start(directory)).await??;
    Ok((ServerUrl::parse(&running.url())?, running))
}

#[cfg(unix)]
mod running {
    use std::path::{Path, PathBuf};

    use anyhow::Result;
    use tidelock_pgserver::{PgServerOptions, Server};

    /// A running server that ends when dropped.
    #[derive(Debug)]
    pub(crate) struct PrivateServer(Server);

    impl PrivateServer {
        /// Starts the server with durable settings. It never installs PostgreSQL.
        pub(crate) fn start(directory: PathBuf) -> Result<Self> {
            let options = PgServerOptions {
                durable: true,
                install: false,
                directory: Some(directory),
                ..PgServerOptions::default()
            };
            Ok(Self(Server::start(&options)?))
        }

        pub(crate) fn url(&self) -> String {
            self.0.url()
        }

        pub(crate) fn data(&self) -> &Path {
            self.0.data_directory()
        }
    }
}

/// A stub: private servers are for Unix.
#[cfg(not(unix))]
mod running {
    use std::path::{Path, PathBuf};

    use anyhow::Result;

    use tidelock_console::usage::UsageError;

    #[derive(Debug)]
    pub(crate) enum PrivateServer {}

    impl PrivateServer {
        pub(crate) fn start(_directory: PathBuf) -> Result<Self> {
            let message =
                "cannot start a private server: this system is not Unix; pass --url or set DATABASE_URL";
            Err(UsageError(message.to_owned()).into())
        }

        pub(crate) fn url(&self) -> String {
            match *self {}
        }

        pub(crate) fn data(&self) -> &Path {
            match *self {}
        }
    }
}
