//! Whoever reads standard output: a program that only writes now and then should notice when nobody does any more.

/// Waits until the other end of standard output is closed: the reader of a pipe, or a terminal. Files have no such end.
/// The thread is never joined: it ends with the process.
pub(crate) async fn gone() {
    let (closed, noticed) = tokio::sync::oneshot::channel::<()>();
    let listening = std::thread::Builder::new().name("tidelock-reader".to_owned()).spawn(move || {
        wait_for_end();
        // Nobody may wait any more.
        let _ = closed.send(());
    });
    if listening.is_err() || noticed.await.is_err() {
        // Then the next line finds out.
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
fn wait_for_end() {
    use rustix::event::{PollFd, PollFlags, poll};
    let out = std::io::stdout();
    // Nothing is asked for: what is told all the same is that the end is near.
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    while let Err(rustix::io::Errno::INTR) = poll(&mut watched, None) {}
}

#[cfg(not(unix))]
fn wait_for_end() {
    loop {
        std::thread::park();
    }
}
