//! A proxy for network faults: it forwards bytes between a store and a server until a test stops it.
//!
//! It never changes a byte. A connection through it ends with either side, when it is cut, or with the proxy.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::poll::LIMIT;

/// The message of a server that has executed everything and has no open transaction.
const IDLE: &[u8] = b"Z\0\0\0\x05I";

/// The fault of a connection on which a client sends certain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// It is cut; the bytes never reach the server.
    Before,
    /// It is cut as soon as the bytes were forwarded.
    Behind,
    /// It is cut when the server has executed everything, and the client receives no response.
    Answer,
}

/// The directions in which bytes are forwarded.
#[derive(Clone, Copy, Debug)]
struct Directions {
    up: bool,
    down: bool,
    delay: Duration,
}

const FREE: Directions = Directions { up: true, down: true, delay: Duration::ZERO };

struct Wires {
    server: u16,
    refusing: AtomicBool,
    accepted: AtomicUsize,
    flow: watch::Sender<Directions>,
    cut: watch::Sender<u64>,
    abandoned: watch::Sender<u64>,
    trap: Mutex<Option<(Vec<u8>, Trap)>>,
    /// The bytes of clients and of the server since [`Proxy::forget`].
    said: Mutex<Vec<u8>>,
    answered: Mutex<Vec<u8>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

/// The proxy. Dropping it cuts everything.
pub(crate) struct Proxy {
    port: u16,
    wires: Arc<Wires>,
    listening: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.wires.cut.send_modify(|count| *count += 1);
    }
}

impl Proxy {
    /// Starts a proxy in front of the server on a port of this machine.
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let wires = Arc::new(Wires {
            server,
            refusing: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            flow: watch::Sender::new(FREE),
            cut: watch::Sender::new(0),
            abandoned: watch::Sender::new(0),
            trap: Mutex::default(),
            said: Mutex::default(),
            answered: Mutex::default(),
            connections: Mutex::default(),
        });
        let listening = tokio::spawn(listen(listener, Arc::clone(&wires)));
        Self { port, wires, listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection, and returns when the clients have noticed.
    pub(crate) async fn cut(&self) {
        let connections = std::mem::take(&mut *self.wires.connections.lock());
        self.wires.cut.send_modify(|count| *count += 1);
        for connection in connections {
            tokio::time::timeout(LIMIT, connection).await.expect("clients notice a cut").unwrap();
        }
    }

    /// Stops forwarding on the existing connections, without ending them.
    pub(crate) fn abandon(&self) {
        self.wires.abandoned.send_modify(|count| *count += 1);
    }

    /// Rejects new connections from now on, or accepts them again.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.wires.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Stops forwarding in both directions. Bytes sent in the meantime arrive after [`Self::pass`].
    pub(crate) fn hold(&self) {
        self.wires.flow.send_modify(|flow| (flow.up, flow.down) = (false, false));
    }

    /// Stops forwarding to the clients.
    pub(crate) fn hold_answers(&self) {
        self.wires.flow.send_modify(|flow| flow.down = false);
    }

    /// Delays the bytes of clients by this duration.
    pub(crate) fn delay(&self, delay: Duration) {
        self.wires.flow.send_modify(|flow| flow.delay = delay);
    }

    /// Forwards everything at once.
    pub(crate) fn pass(&self) {
        self.wires.flow.send_modify(|flow| *flow = FREE);
    }

    /// Sets a trap for the next client that sends `bytes`. It springs once.
    pub(crate) fn trap(&self, bytes: &str, trap: Trap) {
        *self.wires.trap.lock() = Some((bytes.as_bytes().to_vec(), trap));
    }

    /// Returns whether the last trap has sprung.
    pub(crate) fn sprung(&self) -> bool {
        self.wires.trap.lock().is_none()
    }

    /// Returns the number of connection attempts so far, rejected ones included.
    pub(crate) fn accepted(&self) -> usize {
        self.wires.accepted.load(Ordering::SeqCst)
    }

    /// Discards the recorded bytes.
    pub(crate) fn forget(&self) {
        self.wires.said.lock().clear();
        self.wires.answered.lock().clear();
    }

    /// Returns whether clients sent this text since [`Self::forget`].
    pub(crate) fn heard(&self, text: &str) -> bool {
        contains(&self.wires.said.lock(), text.as_bytes())
    }

    /// Returns whether the server sent this text since [`Self::forget`].
    pub(crate) fn answered(&self, text: &str) -> bool {
        contains(&self.wires.answered.lock(), text.as_bytes())
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

async fn listen(listener: TcpListener, wires: Arc<Wires>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        wires.accepted.fetch_add(1, Ordering::SeqCst);
        if wires.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let ends = (wires.cut.subscribe(), wires.abandoned.subscribe());
        let connection = tokio::spawn(connection(client, Arc::clone(&wires), ends));
        wires.connections.lock().push(connection);
    }
}

async fn connection(
    client: TcpStream,
    wires: Arc<Wires>,
    (mut cut, mut abandoned): (watch::Receiver<u64>, watch::Receiver<u64>),
) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, wires.server)).await else { return };
    // Small messages must not be delayed.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let swallowing = AtomicBool::new(false);
    tokio::select! {
        () = up(&wires, &mut from_client, to_server, &swallowing) => {}
        () = down(&wires, from_server, &mut to_client, &swallowing) => {}
        _ = cut.changed() => {}
        _ = abandoned.changed() => drop(cut.changed().await),
    }
    // The client notices the end, and ends as well.
    drop(to_client.shutdown().await);
    let mut rest = [0; 4096];
    while from_client.read(&mut rest).await.is_ok_and(|count| count > 0) {}
}

/// Forwards from the client to the server, until one of them ends or a trap cuts the connection.
async fn up(wires: &Wires, from: &mut OwnedReadHalf, mut to: OwnedWriteHalf, swallowing: &AtomicBool) {
    let mut flow = wires.flow.subscribe();
    let mut buffer = vec![0; 65_536];
    // A message may arrive in pieces: the last bytes are searched together with the next ones.
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(count) = from.read(&mut buffer).await
        && count > 0
    {
        let chunk = &buffer[..count];
        let Ok(delay) = flow.wait_for(|flow| flow.up).await.map(|flow| flow.delay) else { return };
        tokio::time::sleep(delay).await;
        tail.extend_from_slice(chunk);
        wires.said.lock().extend_from_slice(chunk);
        let trap = spring(wires, &tail);
        swallowing.fetch_or(trap == Some(Trap::Answer), Ordering::SeqCst);
        if trap == Some(Trap::Before) || to.write_all(chunk).await.is_err() || trap == Some(Trap::Behind) {
            return;
        }
        tail.drain(..tail.len().saturating_sub(200));
    }
}

/// Returns the trap if the client's bytes spring it.
fn spring(wires: &Wires, said: &[u8]) -> Option<Trap> {
    let mut trap = wires.trap.lock();
    let sprung = trap.as_ref().is_some_and(|(bytes, _)| contains(said, bytes));
    if sprung { trap.take().map(|(_, trap)| trap) } else { None }
}

/// Forwards from the server to the client, until one of them ends or the response to be lost is complete.
async fn down(wires: &Wires, mut from: OwnedReadHalf, to: &mut OwnedWriteHalf, swallowing: &AtomicBool) {
    let mut flow = wires.flow.subscribe();
    let mut buffer = vec![0; 65_536];
    let mut swallowed: Vec<u8> = Vec::new();
    while let Ok(count) = from.read(&mut buffer).await
        && count > 0
    {
        let chunk = &buffer[..count];
        wires.answered.lock().extend_from_slice(chunk);
        if flow.wait_for(|flow| flow.down).await.is_err() {
            return;
        }
        if swallowing.load(Ordering::SeqCst) {
            swallowed.extend_from_slice(chunk);
            if contains(&swallowed, IDLE) {
                return;
            }
        } else if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}
