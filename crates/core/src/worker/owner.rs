//! Unique owner names of leases.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::InvalidInput;
use crate::id::{MAX_NAME_BYTES, Owner};
use crate::process::{self, PerProcess};

static PROCESS: PerProcess<ProcessName> = PerProcess::new(ProcessName::new);

/// Returns an owner name that no other worker or lease of any process has: a store grants a lease again to its owner.
pub(crate) fn unique_owner(given: Option<&Owner>) -> Result<Owner, InvalidInput> {
    PROCESS.with(|process| {
        let ending = format!("/{}-{}", process.random, process.owners.fetch_add(1, Ordering::Relaxed));
        let name = given.map_or(process.name.as_str(), Owner::as_str);
        let room = name.floor_char_boundary(MAX_NAME_BYTES.saturating_sub(ending.len()));
        Owner::new(format!("{}{ending}", name.get(..room).unwrap_or_default()))
    })
}

/// The parts of the owner names of a process.
struct ProcessName {
    name: String,
    random: String,
    owners: AtomicU64,
}

impl ProcessName {
    fn new() -> Self {
        let random = process::uuid().simple().to_string();
        let random = random.get(random.len().saturating_sub(12)..).unwrap_or("0").to_owned();
        let name = process::simulated_name().unwrap_or_else(|| format!("{}-{}", host(), std::process::id()));
        Self { name, random, owners: AtomicU64::new(1) }
    }
}

/// Returns the host name.
fn host() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok());
    let name: String =
        named.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(60).collect();
    if name.is_empty() { "process".to_owned() } else { name }
}
