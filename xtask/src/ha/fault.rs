//! Faults of the cluster, with their injection and healing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::cluster::Cluster;
use super::network::After;

/// A fault of the cluster. It affects the primary unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL of the server, with its backends.
    KillPostgres,
    /// SIGSTOP of the server, with its backends: connections stay open and silent.
    StopPostgres,
    /// SIGKILL of Patroni. The server stays a primary without control.
    KillPatroni,
    /// SIGSTOP of Patroni. When it continues, it finds another primary.
    StopPatroni,
    /// SIGKILL of both.
    KillBoth,
    /// SIGSTOP of both: the machine is frozen.
    StopBoth,
    /// A planned change of the primary, under load.
    Switchover,
    /// SIGSTOP of etcd for longer than the TTL of the leader key: the primary steps down until etcd is back.
    EtcdAway,
    /// SIGKILL of the synchronous standby with its Patroni, or of any standby.
    StandbyAway,
    /// The network between clients and the primary is cut, and the cluster does not detect it. Connections deliver the withheld
    /// bytes afterwards.
    NetworkHeld,
    /// The same, and connections are reset afterwards.
    NetworkReset,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::KillPostgres,
        Self::StopPostgres,
        Self::KillPatroni,
        Self::StopPatroni,
        Self::KillBoth,
        Self::StopBoth,
        Self::Switchover,
        Self::EtcdAway,
        Self::StandbyAway,
        Self::NetworkHeld,
        Self::NetworkReset,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillPostgres => "kill-postgres",
            Self::StopPostgres => "stop-postgres",
            Self::KillPatroni => "kill-patroni",
            Self::StopPatroni => "stop-patroni",
            Self::KillBoth => "kill-both",
            Self::StopBoth => "stop-both",
            Self::Switchover => "switchover",
            Self::EtcdAway => "etcd-away",
            Self::StandbyAway => "standby-away",
            Self::NetworkHeld => "network-held",
            Self::NetworkReset => "network-reset",
        }
    }

    /// Returns the duration of a fault that does not end with a new primary.
    pub(crate) fn lasts(self) -> Option<Duration> {
        match self {
            Self::EtcdAway => Some(Duration::from_secs(30)),
            Self::StandbyAway | Self::NetworkHeld | Self::NetworkReset => Some(Duration::from_secs(8)),
            _ => None,
        }
    }

    /// Injects the fault. Returns the affected node.
    pub(crate) fn inject(self, cluster: &Cluster) -> Result<usize> {
        let primary = cluster.primary().context("there is no primary")?;
        let node = cluster.nodes.get(primary).context("there is no such node")?;
        match self {
            Self::KillPostgres => node.signal_postgres(Signal::KILL),
            Self::StopPostgres => node.signal_postgres(Signal::STOP),
            Self::KillPatroni => node.signal_patroni(Signal::KILL),
            Self::StopPatroni => node.signal_patroni(Signal::STOP),
            Self::KillBoth => {
                // Patroni is killed first, because otherwise it would release its leader key at once.
                node.signal_patroni(Signal::KILL);
                node.signal_postgres(Signal::KILL);
            }
            Self::StopBoth => {
                node.signal_patroni(Signal::STOP);
                node.signal_postgres(Signal::STOP);
            }
            Self::Switchover => cluster.switch_over(primary)?,
            Self::EtcdAway => cluster.signal_etcd(Signal::STOP),
            Self::NetworkHeld | Self::NetworkReset => node.link.cut(),
            Self::StandbyAway => {
                let standby = cluster.standby().context("there is no standby")?;
                let node = cluster.nodes.get(standby).context("there is no such node")?;
                node.signal_patroni(Signal::KILL);
                node.signal_postgres(Signal::KILL);
                return Ok(standby);
            }
        }
        Ok(primary)
    }

    /// Heals the fault of a node.
    pub(crate) fn heal(self, cluster: &mut Cluster, index: usize) -> Result<()> {
        let node = cluster.nodes.get(index).context("there is no such node")?;
        match self {
            Self::KillPostgres | Self::Switchover => {}
            Self::StopPostgres => node.signal_postgres(Signal::CONT),
            Self::StopPatroni => node.signal_patroni(Signal::CONT),
            Self::StopBoth => {
                // The server continues first. For a moment it is a primary without control.
                node.signal_postgres(Signal::CONT);
                node.signal_patroni(Signal::CONT);
            }
            Self::EtcdAway => cluster.signal_etcd(Signal::CONT),
            Self::NetworkHeld => node.link.heal(After::Deliver),
            Self::NetworkReset => node.link.heal(After::Reset),
            Self::KillPatroni | Self::KillBoth | Self::StandbyAway => cluster.start_patroni(index)?,
        }
        Ok(())
    }
}
