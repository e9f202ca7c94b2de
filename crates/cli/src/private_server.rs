//! A PostgreSQL server of this program's own, for demonstrations and measurements: it ends with the program, and so does its data.

use std::path::Path;

use anyhow::Result;

use crate::exit::WrongUse;
use crate::server_url::ServerUrl;
use crate::{output, target};

pub(crate) use running::PrivateServer;

/// Starts one below a directory, by default the one for temporary files.
pub(crate) async fn start(directory: Option<&Path>) -> Result<(ServerUrl, PrivateServer)> {
    let directory = directory.map_or_else(std::env::temp_dir, Path::to_owned);
    let shown = output::escaped(&directory.display().to_string());
    if !directory.is_dir() {
        return Err(
            WrongUse(format!("{shown} is no directory; name one for the private server's data")).into()
        );
    }
    let kind = target::file_system(&directory);
    if target::is_memory(&kind) {
        eprintln!("warning: {shown} is on {kind}, where flushes are free; name a disk with --path");
    }
    let running = tokio::task::spawn_blocking(move || PrivateServer::start(directory)).await??;
    Ok((ServerUrl::parse(&running.url())?, running))
}

#[cfg(unix)]
mod running {
    use std::path::{Path, PathBuf};

    use anyhow::Result;
    use tidelock_pgserver::{Options, Server};

    /// The server; it ends when this is dropped.
    #[derive(Debug)]
    pub(crate) struct PrivateServer(Server);

    impl PrivateServer {
        /// Starts it with the settings that a careful operator would choose. Nothing is installed for it.
        pub(crate) fn start(directory: PathBuf) -> Result<Self> {
            let options =
                Options { durable: true, install: false, directory: Some(directory), ..Options::default() };
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

/// Nothing but words: private servers are for Unix.
#[cfg(not(unix))]
mod running {
    use std::path::{Path, PathBuf};

    use anyhow::Result;

    use crate::exit::WrongUse;

    #[derive(Debug)]
    pub(crate) enum PrivateServer {}

    impl PrivateServer {
        pub(crate) fn start(_directory: PathBuf) -> Result<Self> {
            let message = "private servers run on Unix only; name a server with its address or DATABASE_URL";
            Err(WrongUse(message.to_owned()).into())
        }

        pub(crate) fn url(&self) -> String {
            match *self {}
        }

        pub(crate) fn data(&self) -> &Path {
            match *self {}
        }
    }
}
