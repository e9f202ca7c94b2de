//! Connection handling: the accept loop, the limit on connections, their timeouts, and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::app_state::App;
use crate::error::ServerError;
use crate::options::Access;
use crate::tls::Loaded;
use crate::write_timeout::WriteTimeout;

/// The maximum size of the head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// The maximum number of headers of a request.
const HEADERS: usize = 64;
/// The pause after a failed accept. The operating system may have run out of a resource.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes, and then until the requests in flight are done or the shutdown timeout has passed.
pub(crate) async fn serve(
    app: App,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServerError> {
    check(&app, listener.local_addr().ok())?;
    let tls = app.options.tls.clone().map(Loaded::new).transpose()?.map(Arc::new);
    let connections = Connections {
        graceful: GracefulShutdown::new(),
        seats: Arc::new(Semaphore::new(app.options.connections)),
        cut: watch::Sender::new(false),
        router,
        tls,
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

/// Checks that an address beyond loopback is allowed by the options, encrypted with TLS, and protected by tokens.
fn check(app: &App, address: Option<SocketAddr>) -> Result<(), ServerError> {
    if address.is_some_and(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    let options = &app.options;
    let missing = match (&options.tls, &options.access, options.beyond) {
        (None, ..) => "nothing is encrypted",
        (_, Access::Own, _) => "no token is asked for",
        (.., false) => "that was not allowed (ServerOptions::beyond_this_machine)",
        (Some(_), Access::Tokens(_), true) => return Ok(()),
    };
    let address = address.map_or_else(|| "that is not known".to_owned(), |address| address.to_string());
    Err(ServerError::Beyond { address, missing })
}

struct Connections {
    graceful: GracefulShutdown,
    seats: Arc<Semaphore>,
    /// Aborts all connections immediately.
    cut: watch::Sender<bool>,
    router: Router,
    tls: Option<Arc<Loaded>>,
    app: App,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) {
        // The semaphore is never closed.
        while let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, from)) => self.connect(stream, from, seat),
                Err(error) => {
                    tracing::warn!(target: "tidelock::server", %error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn connect(&self, stream: TcpStream, from: SocketAddr, seat: OwnedSemaphorePermit) {
        let app = App::clone(&self.app);
        app.counts.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted { app: App::clone(&app), _seat: seat };
        let service = WithPeer { from, router: TowerToHyperService::new(self.router.clone()) };
        let connection = Connection { app, service, watcher: self.graceful.watcher() };
        let (tls, mut cut) = (self.tls.clone(), self.cut.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = connection.run(stream, tls) => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
            drop(counted);
        });
    }
}

/// A connection, from its first byte on.
struct Connection {
    app: App,
    service: WithPeer,
    watcher: Watcher,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<Arc<Loaded>>) {
        let stream = WriteTimeout::new(stream, self.app.options.write_time);
        match tls {
            None => self.speak(stream).await,
            Some(tls) => match self.agree(stream, &tls).await {
                Ok(stream) => self.speak(stream).await,
                Err(error) => {
                    tracing::debug!(target: "tidelock::server", %error, "TLS was not agreed on");
                }
            },
        }
    }

    /// Performs the TLS handshake, within its timeout and before the server shuts down.
    async fn agree<S>(&self, stream: S, tls: &Arc<Loaded>) -> io::Result<tokio_rustls::server::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut ending = self.app.ending.subscribe();
        let accepted = async { TlsAcceptor::from(tls.current().await).accept(stream).await };
        tokio::select! {
            _ = ending.wait_for(|ending| *ending) => Err(io::Error::other("the server ends")),
            agreed = tokio::time::timeout(self.app.options.handshake_time, accepted) => agreed?,
        }
    }

    /// Serves HTTP until either side closes the connection.
    async fn speak<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.app.options.head_time);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        let connection = builder.serve_connection(TokioIo::new(stream), self.service);
        if let Err(error) = self.watcher.watch(connection).await {
            tracing::debug!(target: "tidelock::server", %error, "a connection broke off");
        }
    }
}

/// The router with the peer address, which it adds to every request.
struct WithPeer {
    from: SocketAddr,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for WithPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(ConnectInfo(self.from));
        self.router.call(request)
    }
}

/// A guard that counts an open connection and holds its permit.
struct Counted {
    app: App,
    _seat: OwnedSemaphorePermit,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.app.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
