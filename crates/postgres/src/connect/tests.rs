//! Only here: the order of hosts, and the error when none is usable.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::sync::Arc;

use tidelock_core::store::{StoreError, StoreErrorKind};

use super::{Endpoint, Hosts};
use crate::connect_options::ConnectOptions;

fn hosts(url: &str) -> Arc<Hosts> {
    Hosts::new(&ConnectOptions::parse_in(url, &|_| None).unwrap()).unwrap()
}

fn endpoint(host: usize) -> Endpoint {
    Endpoint { host, ip: Some([127, 0, 0, 1].into()) }
}

const THREE: &str = "postgres://me@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/db";

#[test]
fn d8_the_last_good_host_is_tried_first_and_a_silent_one_last() {
    let hosts = hosts(THREE);
    assert_eq!(hosts.hosts_in_order(), [0, 1, 2]);
    hosts.health.lock().found(endpoint(1));
    assert_eq!(hosts.hosts_in_order(), [1, 0, 2]);
    hosts.mark_silent(endpoint(1), 0);
    assert_eq!(hosts.hosts_in_order(), [0, 2, 1]);
    hosts.health.lock().found(endpoint(1));
    assert_eq!(hosts.hosts_in_order(), [1, 0, 2]);
}

#[test]
fn d8_one_silence_is_counted_once_by_all_connections_that_noticed_it() {
    let hosts = hosts(THREE);
    hosts.mark_silent(endpoint(0), 0);
    hosts.mark_silent(endpoint(0), 0);
    assert_eq!(hosts.health.lock().silences(endpoint(0)), 1);
    assert_eq!(hosts.health.lock().silences(endpoint(1)), 0);
}

#[test]
fn d8_balanced_hosts_are_tried_in_any_order() {
    let hosts = hosts(&format!("{THREE}?load_balance_hosts=random"));
    let mut first: Vec<usize> = (0..200).map(|_| hosts.hosts_in_order()[0]).collect();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first, [0, 1, 2]);
}

#[test]
fn d8_the_error_names_every_host_and_is_final_only_if_no_host_may_recover() {
    let hosts = hosts(THREE);
    let of = |kinds: &[StoreErrorKind]| {
        let cause = |kind| StoreError::new(kind, "connecting", format!("cause {kind:?}"));
        let causes = kinds.iter().enumerate().map(|(i, kind)| (format!("host{i}"), cause(*kind)));
        hosts.all_failed(causes.collect())
    };
    use StoreErrorKind::{CannotOpen, ReadOnly, Unreachable};
    let error = of(&[Unreachable, CannotOpen]);
    assert_eq!(error.kind, Unreachable);
    assert_eq!(error.detail, "host0: cause Unreachable; host1: cause CannotOpen");
    assert_eq!(of(&[ReadOnly, CannotOpen]).kind, CannotOpen);
    // Between two primaries all hosts are standbys.
    assert_eq!(of(&[ReadOnly, ReadOnly]).kind, Unreachable);
    assert_eq!(of(&[ReadOnly]).kind, ReadOnly);
}
