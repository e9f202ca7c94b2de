//! Test server on a socket, with a client that reads raw responses.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tidelock_server::ServerOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Site;

/// A timeout that only a hanging operation reaches.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A server that listens on a socket.
pub(crate) struct Listening {
    pub(crate) site: Site,
    pub(crate) address: SocketAddr,
    end: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// Starts a server that allows writes.
pub(crate) async fn listen(options: impl FnOnce(ServerOptions) -> ServerOptions) -> Listening {
    let site = Site::with(|all| options(all.allow_writes()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let server = site.server.clone();
    let served = tokio::spawn(async move {
        server.serve(listener, async move { ended.await.unwrap_or_default() }).await.unwrap();
    });
    Listening { site, address, end, served }
}

impl Listening {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) fn head(&self, path: &str, more: &str) -> String {
        let token = self.site.write.reveal();
        format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n{more}\r\n",
            self.address
        )
    }

    /// Sends bytes on a new connection, and reads the response until the server closes it.
    pub(crate) async fn send(&self, bytes: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    /// Sends a request on a new connection, and reads the response until the server closes it.
    pub(crate) async fn whole(&self, path: &str) -> String {
        self.send(&self.head(path, "connection: close\r\n")).await
    }

    /// Sends a request with the given token on a new connection.
    pub(crate) async fn with_token(&self, token: &str) -> String {
        let head = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        self.send(&format!("{head}authorization: Bearer {token}\r\n\r\n")).await
    }

    pub(crate) async fn append(&self, stream: &str, name: &str) {
        let body = json!({"expected": "any", "events": [{"type": name}]});
        self.site.post(&format!("/api/v1/streams/{stream}/events"), &body).await.when(201);
    }

    pub(crate) async fn shut(self) {
        self.end.send(()).unwrap();
        timeout(LONG, self.served).await.expect("the server does not end").unwrap();
    }
}

/// Reads the remaining bytes until the peer closes the connection.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("it stays open").unwrap_or_default();
    String::from_utf8(bytes).unwrap()
}
