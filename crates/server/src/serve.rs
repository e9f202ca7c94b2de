//! A listener, and the connections that it brings: how many there may be, how long they may say nothing, and how they end.

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

use crate::error::ServerError;
use crate::options::Access;
use crate::patient::Patient;
use crate::shared::App;
use crate::tls::Loaded;

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

/// Other machines are served if that was said, with TLS, and to callers with a token.
fn check(app: &App, address: Option<SocketAddr>) -> Result<(), ServerError> {
    if address.is_some_and(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    let options = &app.options;
    let missing = match (&options.tls, &options.access, options.beyond) {
        (None, ..) => "nothing is encrypted",
        (_, Access::Own, _) => "no token is asked for",
        (.., false) => "that was not allowed (Options::beyond_this_machine)",
        (Some(_), Access::Tokens(_), true) => return Ok(()),
    };
    let address = address.map_or_else(|| "that is not known".to_owned(), |address| address.to_string());
    Err(ServerError::Beyond { address, missing })
}

struct Connections {
    graceful: GracefulShutdown,
    seats: Arc<Semaphore>,
    /// Tells connections to end as they are.
    cut: watch::Sender<bool>,
    router: Router,
    tls: Option<Arc<Loaded>>,
    app: App,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) {
        // The seats are never closed.
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
        let service = Known { from, router: TowerToHyperService::new(self.router.clone()) };
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

/// One connection, from its first byte on.
struct Connection {
    app: App,
    service: Known,
    watcher: Watcher,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<Arc<Loaded>>) {
        let stream = Patient::new(stream, self.app.options.write_time);
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

    /// Agrees on TLS, in the time for it and before the server ends.
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

    /// Speaks HTTP until one side ends it.
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

/// The router, told where requests come from.
struct Known {
    from: SocketAddr,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Known {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(ConnectInfo(self.from));
        self.router.call(request)
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
