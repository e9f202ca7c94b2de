//! Plain PostgreSQL connections, for baselines and administration.

use anyhow::Result;
use tidelock::postgres;
use tokio_postgres::Client;

use crate::server_url::ServerUrl;

/// Connects with a store's connection settings. Dropping the client closes the connection.
///
/// # Errors
/// When the server cannot be reached or rejects the connection.
pub async fn connect(url: &ServerUrl) -> Result<Client> {
    Ok(postgres::connect(url.secret()).await?)
}
