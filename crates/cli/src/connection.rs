//! A bare connection to PostgreSQL, for the yardsticks and for what a store does not tell.

use anyhow::Result;
use tidelock::postgres;
use tokio_postgres::Client;

use crate::server_url::ServerUrl;

/// Connects as a store does. The connection ends when the client is dropped.
pub(crate) async fn connect(url: &ServerUrl) -> Result<Client> {
    Ok(postgres::connect(url.secret()).await?)
}
