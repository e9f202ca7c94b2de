//! A listener, and the connections that it brings: how many there may be, how long they may say nothing, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::error::ServerError;
use crate::shared::App;

/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// The most headers of a request.
const HEADERS: usize = 64;
/// How long no connection is taken after one could not be: the system may have run out of something.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` is done, and then for as long as requests under way may take.
pub(crate) async fn serve(
    app: App,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServerError> {
    check(&app, listener.local_addr().ok())?;
    let connections = Connections {
        graceful: GracefulShutdown::new(),
        seats: Arc::new(Semaphore::new(app.options.connections)),
        cut: watch::Sender::new(false),
        router,
        app: App::clone(&app),
    };
    tokio::select! {
        () = connections.accept(&listener) => {}
        () = shutdown => {}
    }
    drop(listener);
    app.end();
    let Connections { graceful, cut, .. } = connections;
    if tokio::time::timeout(app.options.end_time, graceful.shutdown()).await.is_err() {
        tracing::warn!(target: "tidelock::server", "requests were cut off: they took too long when the server ended");
        cut.send_replace(true);
    }
    Ok(())
}

/// What goes over the wire is not encrypted here, so it stays on this machine unless that was said.
fn check(app: &App, address: Option<SocketAddr>) -> Result<(), ServerError> {
    match address {
        Some(address) if address.ip().is_loopback() || app.options.beyond => Ok(()),
        other => {
            let address = other.map_or_else(|| "that is not known".to_owned(), |address| address.to_string());
            Err(ServerError::Beyond { address })
        }
    }
}

struct Connections {
    graceful: GracefulShutdown,
    seats: Arc<Semaphore>,
    /// Tells connections to end as they are.
    cut: watch::Sender<bool>,
    router: Router,
    app: App,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) {
        // The seats are never closed.
        while let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => self.connect(stream, seat),
                Err(error) => {
                    tracing::warn!(target: "tidelock::server", %error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn connect(&self, stream: TcpStream, seat: OwnedSemaphorePermit) {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.app.options.head_time);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = self.graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        let (app, mut cut) = (App::clone(&self.app), self.cut.subscribe());
        app.counts.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let counted = Counted { app, _seat: seat };
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(target: "tidelock::server", %error, "a connection broke off");
                    }
                }
                _ = cut.wait_for(|cut| *cut) => {}
            }
            drop(counted);
        });
    }
}

/// One of the connections.
struct Counted {
    app: App,
    _seat: OwnedSemaphorePermit,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.app.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
