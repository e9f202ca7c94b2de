//! Write timeout for connections. A write without progress for too long aborts the connection.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream with a write timeout. It wraps the stream below TLS, so the timeout measures the bytes that the peer accepts.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    patience: Duration,
    waits: Pin<Box<Sleep>>,
    /// Whether a write is pending, and `waits` is therefore running.
    stuck: bool,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waits: Box::pin(tokio::time::sleep(patience)), stuck: false }
    }

    /// Returns the result of a write. Fails if writes have made no progress for too long.
    fn judged<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = false;
            return written;
        }
        if !self.stuck {
            self.stuck = true;
            self.waits.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.waits.as_mut().poll(cx));
        let reason = "the other side does not read what it is sent";
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judged(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.judged(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Polls one write, which may be pending.
    async fn tried<S: AsyncWrite + Unpin>(stream: &mut WriteTimeout<S>) -> Poll<io::Result<usize>> {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_write(cx, &[0; 4]))).await
    }

    #[tokio::test]
    async fn each_read_of_a_slow_client_restarts_the_timeout() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(3600));
        for _ in 0..3 {
            assert!(tried(&mut ours).await.is_ready());
            assert!(!ours.stuck);
            assert!(tried(&mut ours).await.is_pending());
            assert!(ours.stuck);
            let ends = ours.waits.deadline();
            assert!(tried(&mut ours).await.is_pending());
            assert_eq!(ours.waits.deadline(), ends, "another try gives no more time");
            theirs.read_exact(&mut [0; 4]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_times_out() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::from_millis(50));
        let began = Instant::now();
        let written = tokio::time::timeout(Duration::from_secs(20), ours.write_all(&[0; 16])).await;
        let broken = written.expect("the write has a timeout").unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= Duration::from_millis(50));
    }
}
