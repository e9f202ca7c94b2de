//! Only here: the estimate of the server's clock follows a clock that drifts or is set.

use std::time::{Duration, Instant};

use super::{ClockSample, micros};

/// How far a writer's estimate may be ahead of the server's clock, in microseconds.
const TOLERATED: i64 = 1_000;
/// The latency to the server, one way.
const WAY: Duration = Duration::from_micros(150);

/// A server whose clock runs at its own rate, and can be set.
struct Server {
    start: Instant,
    /// The lead of the clock over this machine's at the start, in microseconds.
    offset: i64,
    /// Parts per million that it runs faster.
    ppm: i64,
}

impl Server {
    fn new(ppm: i64) -> Self {
        Self { start: Instant::now(), offset: 1_700_000_000_000_000, ppm }
    }

    fn clock(&self, at: Instant) -> i64 {
        let passed = micros(at.duration_since(self.start));
        self.offset + passed + passed * self.ppm / 1_000_000
    }

    /// One request and its reply.
    fn exchange(&self, heard: Option<ClockSample>, sent: Instant) -> ClockSample {
        let (read, received) = (sent + WAY, sent + WAY * 2);
        let said = self.clock(read);
        heard.map_or(ClockSample { said, at: received }, |heard| heard.refined(said, sent, received))
    }

    /// Returns how far an estimate sent at an instant is ahead of the clock that the server compares it with.
    fn ahead(&self, heard: &ClockSample, sent: Instant) -> i64 {
        heard.guess(sent) - self.clock(sent + WAY)
    }
}

/// Sends requests for one hour with a pause between them. Returns the number of estimates that the server would have
/// rejected.
fn rejected(server: &Server, pause: Duration) -> usize {
    let mut heard = None;
    let mut rejected = 0;
    let mut sent = server.start;
    while sent < server.start + Duration::from_secs(3_600) {
        rejected += heard.as_ref().map_or(0, |heard| usize::from(server.ahead(heard, sent) > TOLERATED));
        heard = Some(server.exchange(heard, sent));
        sent += pause;
    }
    rejected
}

#[test]
fn d12_a_server_clock_that_runs_slower_or_faster_is_followed() {
    for ppm in [-500, -100, -1, 0, 1, 100, 500] {
        for pause in [Duration::from_millis(10), Duration::from_secs(1), Duration::from_secs(60)] {
            assert_eq!(rejected(&Server::new(ppm), pause), 0, "{ppm} ppm, a request every {pause:?}");
        }
    }
}

#[test]
fn d12_a_guess_is_not_ahead_of_a_clock_that_drifts() {
    for ppm in [-900, -100, 0, 100] {
        let server = Server::new(ppm);
        let mut heard = server.exchange(None, server.start);
        for second in 1..1_000 {
            let now = server.start + Duration::from_secs(second);
            assert!(heard.guess(now) <= server.clock(now), "{ppm} ppm after {second} s");
            heard = server.exchange(Some(heard), now);
        }
    }
}

#[test]
fn d12_one_reply_corrects_a_guess_after_the_server_clock_was_set_back() {
    for back in [2_000, 100_000, 499_999, 500_001, 3_600_000_000] {
        let mut server = Server::new(0);
        let mut heard = server.exchange(None, server.start);
        server.offset -= back;
        let sent = server.start + Duration::from_millis(5);
        assert!(server.ahead(&heard, sent) > TOLERATED, "{back}");
        heard = server.exchange(Some(heard), sent);
        let next = sent + Duration::from_millis(1);
        assert!(server.ahead(&heard, next) <= 0, "{back}: ahead by {}", server.ahead(&heard, next));
    }
}

#[test]
fn d12_one_reply_corrects_a_guess_after_the_server_clock_was_set_forward() {
    for forward in [100_000, 3_600_000_000] {
        let mut server = Server::new(0);
        let mut heard = server.exchange(None, server.start);
        server.offset += forward;
        let sent = server.start + Duration::from_millis(5);
        heard = server.exchange(Some(heard), sent);
        let behind = -server.ahead(&heard, sent + Duration::from_millis(1));
        assert!((0..TOLERATED).contains(&behind), "{forward}: behind by {behind}");
    }
}

/// A slow response is less precise than an earlier fast one, and does not make the estimate worse.
#[test]
fn d12_a_slow_reply_keeps_the_better_guess() {
    let server = Server::new(0);
    let heard = server.exchange(None, server.start);
    let sent = server.start + Duration::from_secs(1);
    let received = sent + Duration::from_millis(80);
    let after = heard.refined(server.clock(sent + WAY), sent, received);
    assert_eq!(after.guess(received), heard.guess(received));
}
