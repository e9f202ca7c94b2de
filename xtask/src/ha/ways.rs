//! Configuration of the proxies between clients and servers.

use std::path::Path;

/// Returns the configuration of HAProxy. `servers` has the port of each server and of its Patroni, which HAProxy asks for the primary.
pub(crate) fn haproxy(port: u16, servers: &[(u16, u16)]) -> String {
    let mut text = format!(
        "global\n    maxconn 500\n\
         defaults\n    mode tcp\n    timeout connect 2s\n    timeout client 30m\n    timeout server 30m\n    timeout check 1s\n\
         listen primary\n    bind 127.0.0.1:{port}\n    option httpchk GET /primary\n    http-check expect status 200\n\
         \x20   default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions\n"
    );
    for (index, (server, rest)) in servers.iter().enumerate() {
        text.push_str(&format!("    server node{} 127.0.0.1:{server} check port {rest}\n", index + 1));
    }
    text
}

/// Returns the configuration of PgBouncer in transaction mode, in front of HAProxy.
pub(crate) fn pgbouncer(port: u16, haproxy: u16, users: &Path) -> String {
    format!(
        "[databases]\npostgres = host=127.0.0.1 port={haproxy} dbname=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n\
         server_login_retry = 1\nserver_connect_timeout = 3\n",
        users.display()
    )
}
