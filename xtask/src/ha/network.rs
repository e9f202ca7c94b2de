//! Fault-injecting network proxy in front of one server, which forwards bytes or withholds them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

const POLL: Duration = Duration::from_millis(5);

/// The state that all connections of a link share.
#[derive(Default)]
struct State {
    /// Whether the link is cut. No bytes arrive at either side.
    cut: AtomicBool,
    /// A counter that increases when the existing connections are reset.
    resets: AtomicU64,
}

/// A link to one server. Its threads end with this program.
pub(crate) struct Link {
    port: u16,
    state: Arc<State>,
}

impl Link {
    /// Listens on a free port and forwards connections to `server`.
    pub(crate) fn to(server: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, state) = (listener.local_addr()?.port(), Arc::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || connect(&client, server, &state));
            }
        });
        Ok(Self { port, state })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the link: it withholds bytes, and new connections get no response.
    pub(crate) fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
    }

    /// Heals the link. Connections that survived the cut deliver the withheld bytes, or are reset.
    pub(crate) fn heal(&self, after: After) {
        if after == After::Reset {
            self.state.resets.fetch_add(1, Ordering::SeqCst);
        }
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

/// The fate of connections that survived a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// They deliver the withheld bytes.
    Deliver,
    /// They are reset, and the withheld bytes are lost.
    Reset,
}

fn connect(client: &TcpStream, server: u16, state: &Arc<State>) {
    let born = state.resets.load(Ordering::SeqCst);
    if !passes(state, born) {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { return };
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
    let shared = Arc::clone(state);
    let up = thread::spawn(move || copy(&from, &to, &shared, born));
    copy(&server, client, state, born);
    drop(up.join());
}

/// Forwards bytes until either side ends or the connection is reset, and then closes both sides.
fn copy(mut from: &TcpStream, mut to: &TcpStream, state: &State, born: u64) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
        && passes(state, born)
        && buffer.get(..count).is_some_and(|bytes| to.write_all(bytes).is_ok())
    {}
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}

/// Waits while the link is cut. Returns whether the connection is still valid, that is, has not been reset.
fn passes(state: &State, born: u64) -> bool {
    while state.cut.load(Ordering::SeqCst) {
        thread::sleep(POLL);
    }
    state.resets.load(Ordering::SeqCst) == born
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::{After, Link};

    #[test]
    fn a_cut_holds_bytes_back_and_heals_in_both_ways() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::to(server.local_addr().unwrap().port()).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", link.port())).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let mut byte = [0];
        link.cut();
        client.write_all(b"a").unwrap();
        link.heal(After::Deliver);
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");
        link.cut();
        client.write_all(b"b").unwrap();
        link.heal(After::Reset);
        assert!(matches!(accepted.read(&mut byte), Ok(0) | Err(_)), "{byte:?}");
    }
}
