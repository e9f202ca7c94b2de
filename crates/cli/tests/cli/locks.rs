//! `tidelock locks`: the locks inside a running program, queried from its server.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use serde_json::Value;
use tidelock::prelude::*;
use tidelock_server::{Server, ServerOptions, Token, Tokens};
use tokio::net::TcpListener;

use crate::support::{command, stderr, stdout};

static CART: LockClass = LockClass::new("cart");

/// Runs the command without blocking the server, which is in this process.
async fn ask(server: &str, file: &Path, more: &'static [&'static str]) -> Output {
    let mut command = command(&["locks", "list", "--server", server]);
    command.arg("--token-file").arg(file).args(more);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reports_its_locks() {
    let directory = tempfile::tempdir().unwrap();
    let (locks, token, file) = (Locks::new(), Token::generate().unwrap(), directory.path().join("token"));
    let cart = CART.key(["ada"]).unwrap();
    let held = locks.lock(&cart).await.unwrap();
    let store: SharedStore = Arc::new(MemoryStore::new());
    let options = || ServerOptions::new(Tokens::none().read(&token));
    let mut servers = Vec::new();
    for server in [Server::new(Arc::clone(&store), options()).locks(&locks), Server::new(store, options())] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        servers.push(format!("http://{}", listener.local_addr().unwrap()));
        tokio::spawn(server.serve(listener, std::future::pending()));
    }
    let [shows, hides] = servers.as_slice() else { panic!("two servers") };
    std::fs::write(&file, format!("read {}\n", token.reveal())).unwrap();

    let table = ask(shows, &file, &[]).await;
    assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
    assert!(
        stdout(&table).contains("cart(\"ada\")") && stdout(&table).contains("locks.rs"),
        "{}",
        stdout(&table)
    );
    assert!(stderr(&table).contains("1 held, 0 waiting"), "{}", stderr(&table));
    let json: Value = serde_json::from_slice(&ask(shows, &file, &["-o", "json"]).await.stdout).unwrap();
    assert_eq!(json["terms"][0]["term"], "cart(\"ada\")");
    drop(held);
    let none = ask(shows, &file, &[]).await;
    assert_eq!((none.status.code(), stdout(&none).as_str()), (Some(0), ""));

    let hidden = ask(hides, &file, &[]).await;
    assert_eq!(hidden.status.code(), Some(3), "{}", stderr(&hidden));
    std::fs::write(&file, "of-another-program-of-another-program-of-another").unwrap();
    let refused = ask(shows, &file, &[]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("does not take this token"), "{}", stderr(&refused));
    assert_eq!(ask("http://127.0.0.1:1", &file, &[]).await.status.code(), Some(1));
}
