//! The settings that a server gets on its command line, which override every file.

use std::path::Path;

use crate::PgServerOptions;

/// The maximum length of a socket name, with a byte to spare.
const SOCKET_NAME: usize = 103;

/// Returns all settings, the caller's last: of two with the same name, the last one counts.
pub(crate) fn settings(options: &PgServerOptions, port: u16, directory: &Path) -> Vec<(String, String)> {
    let durable = if options.durable { "on" } else { "off" };
    let own = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", sockets(directory)),
        ("max_connections", options.max_connections.to_string()),
        ("shared_buffers", "128MB".to_owned()),
        ("fsync", durable.to_owned()),
        // These two stay on even for tests. Without the first, a killed server loses commits that are still in its
        // memory. Without the second, a page torn by the kill could not be repaired.
        ("synchronous_commit", "on".to_owned()),
        ("full_page_writes", "on".to_owned()),
        ("wal_level", "replica".to_owned()),
        ("max_wal_senders", "4".to_owned()),
        // A standby that was disconnected for a while can catch up.
        ("wal_keep_size", "512MB".to_owned()),
        ("logging_collector", "off".to_owned()),
        ("log_destination", "stderr".to_owned()),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(options.settings.iter().cloned()).collect()
}

/// Returns the server's directory for its sockets. Returns an empty text, which disables sockets, if their names would
/// be too long or need quoting.
fn sockets(directory: &Path) -> String {
    let socket = directory.join(".s.PGSQL.65535.lock");
    let plain = |path: &&str| path.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.".contains(c));
    let fits = socket.as_os_str().len() <= SOCKET_NAME;
    directory.to_str().filter(plain).filter(|_| fits).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{settings, sockets};
    use crate::PgServerOptions;

    #[test]
    fn the_callers_settings_come_last() {
        let own = ("fsync".to_owned(), "off".to_owned());
        let options = PgServerOptions { settings: vec![own.clone()], ..PgServerOptions::default() };
        let all = settings(&options, 1, Path::new("/tmp/a"));
        assert!(all.contains(&("fsync".to_owned(), "on".to_owned())));
        assert_eq!(all.last(), Some(&own));
    }

    #[test]
    fn without_durability_a_commit_still_survives_a_killed_process() {
        let all = settings(
            &PgServerOptions { durable: false, ..PgServerOptions::default() },
            1,
            Path::new("/tmp/a"),
        );
        for (name, value) in [("fsync", "off"), ("synchronous_commit", "on"), ("full_page_writes", "on")] {
            assert!(all.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
    }

    #[test]
    fn sockets_with_long_or_odd_names_are_left_out() {
        assert_eq!(sockets(Path::new("/tmp/tidelock-pg-a1")), "/tmp/tidelock-pg-a1");
        assert_eq!(sockets(Path::new("/tmp/with, comma")), "");
        assert_eq!(sockets(&Path::new("/tmp").join("a".repeat(100))), "");
    }
}
