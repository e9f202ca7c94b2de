//! Test cluster of three PostgreSQL servers under Patroni and etcd. Each has a link that can be cut. HAProxy and PgBouncer are in front.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use super::home::{self, Home};
use super::network::Link;
use super::patroni::{self, Config, Mode, Timing};
use super::tools::Tools;
use super::ways;

/// The poll interval of the cluster state.
const POLL: Duration = Duration::from_millis(50);
/// The maximum time for a cluster to become healthy. A standby may have to be rewound or copied again.
const HEALTHY_LIMIT: Duration = Duration::from_secs(180);

/// A server with the Patroni that controls it.
pub(crate) struct Node {
    pub(crate) name: String,
    /// The working directory of Patroni. The server works in `data` below it.
    directory: PathBuf,
    config: PathBuf,
    rest: u16,
    pub(crate) link: Link,
}

impl Node {
    /// Sends a signal to all processes of the server.
    pub(crate) fn signal_postgres(&self, signal: Signal) {
        home::signal(&self.directory.join("data"), signal);
    }

    /// Sends a signal to Patroni.
    pub(crate) fn signal_patroni(&self, signal: Signal) {
        home::signal(&self.directory, signal);
    }

    fn is(&self, path: &str) -> bool {
        patroni::is(self.rest, path)
    }
}

/// A running cluster. Dropping it ends all processes and removes all files.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) mode: Mode,
    pub(crate) timing: Timing,
    password: String,
    haproxy: u16,
    pgbouncer: u16,
    etcd: PathBuf,
    patroni: PathBuf,
    programs: PathBuf,
    /// The child processes. Those that have ended are reaped when the next one starts, so that they do not remain as zombies.
    children: Vec<Child>,
    // This field is dropped last. It ends the processes of all fields above.
    home: Home,
}

impl Cluster {
    /// Starts all processes, and returns when all servers replicate.
    pub(crate) fn start(tools: &Tools, mode: Mode, timing: Timing) -> Result<Self> {
        let home = Home::make()?;
        let ports = free_ports(10)?;
        let [etcd, peer, haproxy, pgbouncer, rest @ ..] = ports.as_slice() else { bail!("too few ports") };
        let password = password()?;
        let mut nodes = Vec::new();
        for (index, pair) in rest.chunks_exact(2).enumerate() {
            let [rest, port] = pair else { bail!("too few ports") };
            let name = format!("node{}", index + 1);
            let directory = home.directory(&name)?;
            let config = Config {
                name: &name,
                directory: &directory,
                rest: *rest,
                port: *port,
                etcd: *etcd,
                programs: &tools.postgres,
                password: &password,
                mode,
                timing,
            };
            let file = directory.with_extension("yml");
            home.write(&file, &config.text())?;
            nodes.push(Node { name, directory, config: file, rest: *rest, link: Link::to(*port)? });
        }
        let mut cluster = Self {
            nodes,
            mode,
            timing,
            password,
            haproxy: *haproxy,
            pgbouncer: *pgbouncer,
            etcd: home.directory("etcd")?,
            patroni: tools.patroni.clone(),
            programs: tools.postgres.clone(),
            children: Vec::new(),
            home,
        };
        cluster.start_etcd(tools, *etcd, *peer)?;
        for index in 0..cluster.nodes.len() {
            cluster.start_patroni(index)?;
        }
        cluster.wait_until_healthy()?;
        cluster.start_ways(tools)?;
        Ok(cluster)
    }

    fn start_etcd(&mut self, tools: &Tools, port: u16, peer: u16) -> Result<()> {
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let mut etcd = Command::new(&tools.etcd);
        etcd.arg("--data-dir").arg(self.etcd.join("data")).args(["--listen-client-urls", &client]);
        etcd.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        etcd.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        self.children.push(self.home.spawn(&mut etcd, &self.etcd)?);
        Ok(())
    }

    /// Starts the Patroni of a node, which starts its server.
    pub(crate) fn start_patroni(&mut self, index: usize) -> Result<()> {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let node = self.nodes.get(index).context("there is no such node")?;
        let mut command = Command::new(&self.patroni);
        command.arg(&node.config);
        if let Some(library) = tidelock_pgserver::library_path(&self.programs) {
            command.env("LD_LIBRARY_PATH", library);
        }
        let child = self.home.spawn(&mut command, &node.directory)?;
        self.children.push(child);
        Ok(())
    }

    fn start_ways(&mut self, tools: &Tools) -> Result<()> {
        let servers = self.nodes.iter().map(|node| (node.link.port(), node.rest)).collect::<Vec<_>>();
        let haproxy = self.home.directory("haproxy")?;
        let config = haproxy.join("haproxy.cfg");
        self.home.write(&config, &ways::haproxy(self.haproxy, &servers))?;
        let child =
            self.home.spawn(Command::new(&tools.haproxy).args(["-db", "-f"]).arg(config), &haproxy)?;
        self.children.push(child);
        let pgbouncer = self.home.directory("pgbouncer")?;
        let (config, users) = (pgbouncer.join("pgbouncer.ini"), pgbouncer.join("users.txt"));
        self.home.write(&users, &format!("\"tidelock\" \"{}\"\n", self.password))?;
        self.home.write(&config, &ways::pgbouncer(self.pgbouncer, self.haproxy, &users))?;
        let child = self.home.spawn(Command::new(&tools.pgbouncer).arg(config), &pgbouncer)?;
        self.children.push(child);
        Ok(())
    }

    /// Sends a signal to etcd.
    pub(crate) fn signal_etcd(&self, signal: Signal) {
        home::signal(&self.etcd, signal);
    }

    /// Returns the node that Patroni reports as the primary.
    pub(crate) fn primary(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.is("/primary"))
    }

    /// Returns a standby: the synchronous one, if there is one.
    pub(crate) fn standby(&self) -> Option<usize> {
        let first = |path: &str| self.nodes.iter().position(|node| node.is(path));
        first("/sync").or_else(|| first("/replica"))
    }

    /// Waits for a primary other than this one.
    pub(crate) fn wait_for_another(&self, than: usize) -> Option<usize> {
        let others = || self.nodes.iter().enumerate().filter(|(index, _)| *index != than);
        until(self.timing.failover_limit(), || {
            others().find(|(_, node)| patroni::takes_writes(node.rest)).map(|(index, _)| index)
        })
    }

    /// Waits until there is a primary and every other node follows it, one of them synchronously if that is the mode.
    pub(crate) fn wait_until_healthy(&self) -> Result<()> {
        let count = |path: &str| self.nodes.iter().filter(|node| node.is(path)).count();
        let synchronous = usize::from(self.mode == Mode::Sync);
        let healthy = || {
            let ready = count("/readiness");
            count("/primary") == 1 && ready == self.nodes.len() && count("/sync") >= synchronous
        };
        let found = until(HEALTHY_LIMIT, || healthy().then_some(()));
        found.with_context(|| format!("the cluster is not healthy after {HEALTHY_LIMIT:?}{}", self.logs()))
    }

    /// Asks Patroni to make another node the primary.
    pub(crate) fn switch_over(&self, from: usize) -> Result<()> {
        let node = self.nodes.get(from).context("there is no such node")?;
        let body = format!("{{\"leader\": \"{}\"}}", node.name);
        // Patroni responds when the switchover is done. A timeout of the request is therefore not an error.
        match patroni::request(node.rest, "POST", "/switchover", &body) {
            Some(answer) if !patroni::is_success(&answer) => {
                bail!("Patroni refuses the switchover: {answer}")
            }
            _ => Ok(()),
        }
    }

    /// Returns the address of each connection path, by its name.
    pub(crate) fn addresses(&self) -> Vec<(&'static str, String)> {
        let hosts = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.link.port()));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let address = |hosts: &str, more: &str| {
            format!("postgres://tidelock:{}@{hosts}/postgres?connect_timeout=2{more}", self.password)
        };
        vec![
            ("hosts", address(&hosts, "")),
            ("haproxy", address(&format!("127.0.0.1:{}", self.haproxy), "")),
            ("pgbouncer", address(&format!("127.0.0.1:{}", self.pgbouncer), "&pooler=transaction")),
        ]
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the last lines of every log, for human readers.
    fn logs(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let log = std::fs::read_to_string(node.directory.with_extension("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n  ");
            text.push_str(&format!("\n{}:\n  {last}", node.name));
        }
        text
    }
}

/// Polls until there is a result or the time limit has passed.
pub(crate) fn until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begun.elapsed() >= limit {
            return found;
        }
        std::thread::sleep(POLL);
    }
}

/// Returns ports that are free now. They are bound at the same time, so that no port occurs twice.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..count).map(bind).collect::<Result<Vec<_>, _>>()?;
    Ok(listeners.iter().map(|listener| listener.local_addr().map(|a| a.port())).collect::<Result<_, _>>()?)
}

/// Generates a password of 32 hexadecimal digits.
fn password() -> Result<String> {
    let mut bytes = [0; 16];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
