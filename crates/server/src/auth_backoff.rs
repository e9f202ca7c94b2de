//! Exponential backoff for token guessing, by client address. An address that sends many different wrong tokens has to wait longer
//! each time.
//!
//! A client with a revoked token sends the same token repeatedly. That does not count as guessing, so it does not block other clients
//! of the same address.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::token::Digested;

/// The number of wrong tokens without a wait.
const FREE: u32 = 10;
/// The maximum wait.
const LONGEST: Duration = Duration::from_secs(60);
/// The time without a wrong token after which an address is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// The number of recent wrong tokens that are remembered for each address.
const KNOWN: usize = 8;
/// The maximum number of remembered addresses.
const ADDRESSES: usize = 4_096;

#[derive(Debug)]
struct AddressBackoff {
    wrong: u32,
    last: Instant,
    /// The end of the wait. Before it, a request with an unknown token fails without being counted.
    until: Instant,
    shown: VecDeque<Digested>,
}

/// The addresses that have sent wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct AuthBackoff {
    by: Mutex<HashMap<IpAddr, AddressBackoff>>,
}

impl AuthBackoff {
    /// Returns the time for which unknown tokens of this address are still refused.
    pub(crate) fn wait(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = by.get(&one(from))?.until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Records a wrong token.
    pub(crate) fn wrong(&self, from: IpAddr, token: Digested, now: Instant) {
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let from = one(from);
        if by.len() >= ADDRESSES && !by.contains_key(&from) {
            forget(&mut by, now);
        }
        let guesser = by.entry(from).or_insert_with(|| AddressBackoff::new(now));
        if now.saturating_duration_since(guesser.last) >= FORGOTTEN {
            *guesser = AddressBackoff::new(now);
        }
        guesser.wrong(token, now);
    }
}

impl AddressBackoff {
    fn new(now: Instant) -> Self {
        Self { wrong: 0, last: now, until: now, shown: VecDeque::new() }
    }

    fn wrong(&mut self, token: Digested, now: Instant) {
        self.last = now;
        if self.shown.contains(&token) {
            return;
        }
        if self.shown.len() >= KNOWN {
            self.shown.pop_front();
        }
        self.shown.push_back(token);
        self.wrong = self.wrong.saturating_add(1);
        if let Some(beyond) = self.wrong.checked_sub(FREE + 1) {
            let seconds = 1_u64.checked_shl(beyond.min(32)).unwrap_or(u64::MAX);
            self.until = now + Duration::from_secs(seconds).min(LONGEST);
        }
    }
}

/// Makes room for an address. Removes the entries that have expired, or else the least recently used one.
fn forget(by: &mut HashMap<IpAddr, AddressBackoff>, now: Instant) {
    by.retain(|_, guesser| now.saturating_duration_since(guesser.last) < FORGOTTEN);
    if by.len() >= ADDRESSES
        && let Some(oldest) = by.iter().min_by_key(|(_, guesser)| guesser.last).map(|(from, _)| *from)
    {
        by.remove(&oldest);
    }
}

/// Maps an address to one that stands for its client. An IPv6 host has a whole /64 network, which counts as one client.
fn one(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn token(number: u32) -> Digested {
        let mut token = [0; 32];
        token[..4].copy_from_slice(&number.to_be_bytes());
        token
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_wrong_guess_doubles_the_wait() {
        let (guesses, from) = (AuthBackoff::default(), address("192.0.2.1"));
        let mut now = Instant::now();
        for number in 0..FREE {
            guesses.wrong(from, token(number), now);
            assert_eq!(guesses.wait(from, now), None, "{number}");
        }
        let mut waits = Vec::new();
        for number in 0..8 {
            guesses.wrong(from, token(100 + number), now);
            let wait = guesses.wait(from, now).unwrap();
            waits.push(wait.as_secs());
            assert_eq!(guesses.wait(address("192.0.2.2"), now), None, "others do not");
            now += wait;
            assert_eq!(guesses.wait(from, now), None, "and then it is over");
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += FORGOTTEN;
        guesses.wrong(from, token(1), now);
        assert_eq!(guesses.wait(from, now), None, "it was forgotten");
    }

    #[test]
    fn an_old_token_that_is_shown_again_is_no_guess() {
        let (guesses, from, now) = (AuthBackoff::default(), address("127.0.0.1"), Instant::now());
        for round in 0..1_000 {
            guesses.wrong(from, token(round % 8), now);
        }
        assert_eq!(guesses.wait(from, now), None);
    }

    #[test]
    fn a_network_of_version_six_is_one_client() {
        let (guesses, now) = (AuthBackoff::default(), Instant::now());
        for number in 0..=FREE {
            guesses.wrong(address(&format!("2001:db8::{number:x}")), token(number), now);
        }
        assert!(guesses.wait(address("2001:db8::ffff"), now).is_some());
        assert_eq!(guesses.wait(address("2001:db8:0:1::1"), now), None);
        assert_eq!(one(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }

    #[test]
    fn the_table_of_addresses_has_a_limit() {
        let (guesses, now) = (AuthBackoff::default(), Instant::now());
        for number in 0..3 * u32::try_from(ADDRESSES).unwrap() {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
            guesses.wrong(from, token(number), now + Duration::from_millis(u64::from(number)));
        }
        assert_eq!(guesses.by.lock().unwrap().len(), ADDRESSES);
    }
}
