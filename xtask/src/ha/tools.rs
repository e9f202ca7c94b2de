//! Programs of the test cluster: Patroni from PyPI, etcd, PgBouncer and HAProxy from Debian, and PostgreSQL as in the other commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tidelock_pgserver::Account;

use crate::postgres::install;
use crate::{apt, python, run};

/// The packages of PyPI, with the versions that the cluster was written for.
const PATRONI: [&str; 2] = ["patroni[etcd3]==4.1.5", "psycopg[binary]==3.3.9"];

/// The paths of the programs.
pub(crate) struct Tools {
    pub(crate) patroni: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) pgbouncer: PathBuf,
    pub(crate) haproxy: PathBuf,
    /// The directory of PostgreSQL's programs.
    pub(crate) postgres: PathBuf,
}

impl Tools {
    /// Finds or installs the programs. `version` is a major version of PostgreSQL; without it, the installed one is used.
    pub(crate) fn ready(version: Option<u32>) -> Result<Self> {
        let postgres = match version {
            Some(version) => install::programs(version)?,
            None => tidelock_pgserver::find()
                .context("PostgreSQL is not installed; name a version with --postgres")?,
        };
        Ok(Self {
            etcd: debian("etcd", "etcd-server")?,
            pgbouncer: debian("pgbouncer", "pgbouncer")?,
            haproxy: debian("haproxy", "haproxy")?,
            patroni: patroni()?,
            postgres,
        })
    }
}

/// Finds or installs a program of a Debian package. Some programs are in a directory that is only in the `PATH` of root.
fn debian(name: &str, package: &str) -> Result<PathBuf> {
    let sbin = Path::new("/usr/sbin").join(name);
    let find = || run::on_path(name).or_else(|| Some(sbin.clone()).filter(|path| path.is_file()));
    let found = find().or_else(|| apt::install(&[package]).then(find).flatten());
    found.with_context(|| format!("{name} is not installed, and apt-get cannot install {package}"))
}

/// Finds or installs Patroni in an environment that the account of the servers can use.
fn patroni() -> Result<PathBuf> {
    let environment = install::tools()?.join("patroni");
    let (program, marker) = (environment.join("bin").join("patroni"), environment.join("complete"));
    if !marker.is_file() {
        println!("Patroni is not installed: installing it into {}, once", environment.display());
        python::environment(&environment, python_of_account()?.as_deref())?;
        run::capture(python::pip(&environment, &["install"]).args(PATRONI))
            .context("pip does not install Patroni")?;
        std::fs::write(marker, "")?;
    }
    Ok(program)
}

/// Returns a Python that the account of the servers can run. The first one on `PATH` may be in the home directory of root.
fn python_of_account() -> Result<Option<PathBuf>> {
    let account = Account::choose()?;
    let usable = |python: &PathBuf| {
        let mut command = Command::new(python);
        account.apply(command.args(["-c", "import venv"]).current_dir("/"));
        apt::output(&mut command).is_some()
    };
    let system = PathBuf::from("/usr/bin/python3");
    Ok(run::on_path("python3").into_iter().chain([system]).find(usable))
}
