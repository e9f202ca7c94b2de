//! Unique owner names of leases.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::error::InvalidInput;
use crate::id::{MAX_NAME_BYTES, Owner};

/// Returns an owner name that no other worker or lease of any process has: a store grants a lease again to its owner.
pub(crate) fn unique_owner(given: Option<&Owner>) -> Result<Owner, InvalidInput> {
    static PROCESS: OnceLock<(String, String)> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let (process, random) = PROCESS.get_or_init(|| {
        let random = Uuid::now_v7().simple().to_string();
        let random = random.get(random.len().saturating_sub(12)..).unwrap_or("0").to_owned();
        (format!("{}-{}", host(), std::process::id()), random)
    });
    let ending = format!("/{random}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let name = given.map_or(process.as_str(), Owner::as_str);
    let room = name.floor_char_boundary(MAX_NAME_BYTES.saturating_sub(ending.len()));
    Owner::new(format!("{}{ending}", name.get(..room).unwrap_or_default()))
}

/// Returns the host name.
fn host() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok());
    let name: String =
        named.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(60).collect();
    if name.is_empty() { "process".to_owned() } else { name }
}
