//! PgBouncer in transaction mode, in front of a server or of a proxy that a test breaks.
//!
//! It is installed if it is missing and the installation needs no confirmation. If it cannot be installed, the tests
//! that need it print a line and pass. In a continuous integration run (`CI` is set) they fail.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tidelock_postgres::tokio_postgres::config::Host;
use tidelock_postgres::tokio_postgres::{self, Client, Config, NoTls};

/// The time limit for its start.
const LIMIT: Duration = Duration::from_secs(20);
/// Connections to the server, for all clients together. They are few, so that they change hands all the time.
pub(crate) const CONNECTIONS: u32 = 3;

/// A PgBouncer process. It ends with this process, however that ends: a shell waits for the end of a pipe.
pub(crate) struct Bouncer {
    shell: Child,
    port: u16,
    database: String,
    directory: tempfile::TempDir,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The location and the settings of a PgBouncer.
#[derive(Clone, Copy)]
pub(crate) struct BouncerConfig<'a> {
    /// The address of the server.
    pub(crate) server: &'a str,
    /// The port of a proxy on this machine, in front of the server.
    pub(crate) proxy: Option<u16>,
    /// Further settings.
    pub(crate) more: &'a str,
}

/// Returns whether the program is installed, after an attempt to install it.
fn installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let found = answers("pgbouncer", &["--version"]) || (is_root() && install());
        assert!(found || std::env::var_os("CI").is_none(), "pgbouncer cannot be installed");
        if !found {
            eprintln!("passed over: pgbouncer is not installed, and cannot be without asking");
        }
        found
    })
}

fn install() -> bool {
    let packages = ["install", "-y", "--no-install-recommends", "pgbouncer"];
    // The package lists may be missing, as in a fresh container, or outdated.
    answers("apt-get", &packages) || (answers("apt-get", &["update"]) && answers("apt-get", &packages))
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn settings(place: BouncerConfig<'_>, port: u16, directory: &Path) -> (String, String) {
    let BouncerConfig { server, proxy: to, more } = place;
    let server: Config = server.parse().unwrap();
    let Some(Host::Tcp(host)) = server.get_hosts().first() else { panic!("the server has no address") };
    let to = to.or_else(|| server.get_ports().first().copied()).unwrap_or(5432);
    let user = server.get_user().unwrap();
    let password = String::from_utf8(server.get_password().unwrap_or_default().to_vec()).unwrap();
    let password = if password.is_empty() { password } else { format!("password='{password}'") };
    let database = server.get_dbname().unwrap_or(user).to_owned();
    let directory = directory.display();
    let text = format!(
        "[databases]\n{database} = host={host} port={to} dbname={database} user={user} {password}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\nadmin_users = me\n\
         pool_mode = transaction\ndefault_pool_size = {CONNECTIONS}\nmax_client_conn = 500\n\
         server_login_retry = 1\npidfile = {directory}/pid\n{more}\n"
    );
    (text, database)
}

impl Bouncer {
    /// Starts a PgBouncer. `None` when it is not installed.
    pub(crate) fn start(place: BouncerConfig<'_>) -> Option<Self> {
        if !installed() {
            return None;
        }
        // Another process may take the port in between.
        let mut said = String::new();
        for _ in 0..5 {
            match Self::launch(place) {
                Ok(bouncer) => return Some(bouncer),
                Err(log) => said = log,
            }
        }
        panic!("it does not start: {said}");
    }

    fn launch(place: BouncerConfig<'_>) -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (text, database) = settings(place, port, directory.path());
        fs::write(directory.path().join("pgbouncer.ini"), text).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        // It does not run as root.
        let user = if is_root() { "-u nobody" } else { "" };
        let run = format!(
            "pgbouncer {user} \"$0/pgbouncer.ini\" 2>\"$0/log\" & read end; kill $!; wait; rm -r \"$0\""
        );
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(run).arg(directory.path()).stdin(Stdio::piped());
        let shell = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let bouncer = Self { shell, port, database, directory };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(bouncer.directory.path().join("log")).unwrap_or_default();
            if log.contains("FATAL") || start.elapsed() > LIMIT {
                return Err(log);
            }
            std::thread::yield_now();
        }
        Ok(bouncer)
    }

    /// Opens a connection of another program.
    pub(crate) async fn connect(&self) -> Client {
        self.client(&self.database).await
    }

    /// Runs a command of PgBouncer's console on the database, such as `KILL` or `RECONNECT`.
    pub(crate) async fn command(&self, command: &str) {
        let console = self.client("pgbouncer").await;
        console.simple_query(&format!("{command} {}", self.database)).await.unwrap();
    }

    async fn client(&self, database: &str) -> Client {
        let url = format!("postgres://me@127.0.0.1:{}/{database}", self.port);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub(crate) fn address(&self, schema: &str, more: &str) -> String {
        format!(
            "postgres://me@127.0.0.1:{}/{}?sslmode=disable&schema={schema}{more}",
            self.port, self.database
        )
    }
}
