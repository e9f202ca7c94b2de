//! Detection of a closed standard output, for commands that write only now and then.

/// Waits until the other end of standard output is closed: the reader of a pipe, or a terminal. Files have no such end.
/// The thread is never joined: it ends with the process.
pub(crate) async fn gone() {
    let (closed, noticed) = tokio::sync::oneshot::channel::<()>();
    let listening = std::thread::Builder::new().name("tidelock-reader".to_owned()).spawn(move || {
        wait_for_end();
        // The receiver may have been dropped.
        let _ = closed.send(());
    });
    if listening.is_err() || noticed.await.is_err() {
        // In that case the next write reports the closed pipe.
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
fn wait_for_end() {
    use rustix::event::{PollFd, PollFlags, poll};
    let out = std::io::stdout();
    // No events are requested: `poll` reports a hang-up or an error regardless.
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    while let Err(rustix::io::Errno::INTR) = poll(&mut watched, None) {}
}

#[cfg(not(unix))]
fn wait_for_end() {
    loop {
        std::thread::park();
    }
}
