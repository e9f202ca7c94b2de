//! `tidelock serve` and `tidelock dev`: the store over HTTP, until Ctrl-C or `SIGTERM`.
//!
//! `serve` opens an existing store, read-only unless writes are allowed. `dev` creates a store and allows writes.

mod tokens;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Serialize;
use tidelock::housekeeping::Housekeeping;
use tidelock_server::{Server, ServerError, ServerOptions, Tls};
use tokio::net::TcpListener;

use self::tokens::TokenFile;
use crate::address::{Address, Opened};
use crate::args::{Dev, Flushing, Format, Reached, Serve};
use crate::exit::{Exit, UsageError};
use crate::{filesystem, log, output};

/// The bucket boundaries of histograms, in seconds.
const BUCKETS: [f64; 12] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];

/// The interval at which measurements are aggregated. Until then each one is kept.
const UPKEEP: Duration = Duration::from_secs(5);

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    url: &'a str,
    writes: bool,
    /// The path of the token file.
    tokens: String,
}

/// Serves an existing store.
pub(crate) async fn run(options: &Serve) -> Result<Exit> {
    let Serve { reached, allow_writes, create, place } = options;
    log::start(reached.log, reached.log_format)?;
    let address = Address::parse(&place.store, place.schema.as_deref())?;
    let tokens = tokens_of(reached, &address)?;
    let opened = address.open_carefully(*create, place.durability).await?;
    serve(opened, reached, &tokens, *allow_writes, place.output).await
}

/// Creates a store and serves it.
pub(crate) async fn dev(options: &Dev) -> Result<Exit> {
    let Dev { reached, store, output } = options;
    log::start(reached.log, reached.log_format)?;
    let address = Address::File(store.clone());
    let tokens = tokens_of(reached, &address)?;
    let opened = address.open_carefully(true, Flushing::Full).await?;
    serve(opened, reached, &tokens, true, *output).await
}

/// Returns the token file: the named one, or the one next to the store.
fn tokens_of(reached: &Reached, address: &Address) -> Result<PathBuf> {
    match (&reached.token_file, address) {
        (Some(path), _) => Ok(path.clone()),
        (None, Address::File(store)) => Ok(filesystem::beside(store, ".tokens")),
        (None, Address::Schema { .. }) => {
            let reason =
                "cannot choose a token file: a PostgreSQL store has no path; name one with --token-file";
            Err(UsageError(reason.to_owned()).into())
        }
    }
}

async fn serve(
    opened: Opened,
    reached: &Reached,
    tokens: &Path,
    writes: bool,
    format: Format,
) -> Result<Exit> {
    let ended = listen(&opened, reached, tokens, writes, format).await;
    opened.close().await;
    ended.map(|()| Exit::Well)
}

async fn listen(
    opened: &Opened,
    reached: &Reached,
    tokens: &Path,
    writes: bool,
    format: Format,
) -> Result<()> {
    // The server would reject it as well, but only after the tokens are created and printed.
    if !reached.listen.ip().is_loopback() && reached.tls_cert.is_none() {
        let (address, missing) = (reached.listen.to_string(), "nothing is encrypted");
        return Err(ServerError::Beyond { address, missing }.into());
    }
    let tls = tls(reached);
    tls.as_ref().map(Tls::check).transpose()?;
    let listener = TcpListener::bind(reached.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", reached.listen))?;
    let kept = TokenFile::at(tokens)?;
    let options = allowed(reached, tls, &kept, writes);
    // Listens before the address is printed: a reader of the address may interrupt at once.
    let stopped = stopped()?;
    for loosened in options.loosened() {
        eprintln!("warning: {}", output::escaped(&loosened));
    }
    print_address(&address(reached, listener.local_addr()?), &kept, writes, format)?;
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder();
    let recorder = recorder.context("the metrics of this process cannot be recorded")?;
    let shown = recorder.clone();
    let server = Server::new(opened.shared(), options).metrics(move || shown.render());
    let _housekeeping = (!reached.no_housekeeping).then(|| Housekeeping::new(opened.shared()).spawn());
    tokio::select! {
        ended = server.serve(listener, stopped) => Ok(ended?),
        never = again_and_again(UPKEEP, || recorder.run_upkeep()) => match never {},
    }
}

/// Runs `work` at a fixed interval. A metrics scrape aggregates them as well, but scrapes may never come.
async fn again_and_again(every: Duration, work: impl Fn()) -> Infallible {
    let mut rounds = tokio::time::interval(every);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        work();
    }
}

/// Returns the URL of the server, with a host name that it accepts.
fn address(reached: &Reached, at: SocketAddr) -> String {
    let scheme = if reached.tls_cert.is_some() { "https" } else { "http" };
    let (ip, port) = (at.ip(), at.port());
    match reached.host.first() {
        // A certificate carries the name, and the address of all interfaces is not a valid target.
        Some(name) if !ip.is_loopback() => format!("{scheme}://{name}:{port}"),
        None if ip.is_unspecified() => format!("{scheme}://localhost:{port}"),
        _ => format!("{scheme}://{at}"),
    }
}

/// Returns the `Host` value of requests to the listening address.
fn own_host(ip: IpAddr) -> Option<String> {
    match ip {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.to_string()),
        IpAddr::V6(ip) => Some(format!("[{ip}]")),
    }
}

/// Returns the TLS files.
fn tls(reached: &Reached) -> Option<Tls> {
    let tls = Tls::files(reached.tls_cert.as_ref()?, reached.tls_key.as_ref()?);
    Some(match &reached.tls_client_ca {
        Some(file) => tls.client_ca(file),
        None => tls,
    })
}

/// Returns the options of the server.
fn allowed(reached: &Reached, tls: Option<Tls>, kept: &TokenFile, writes: bool) -> ServerOptions {
    let mut options = ServerOptions::new(kept.tokens());
    if writes {
        options = options.allow_writes();
    }
    for name in reached.host.iter().cloned().chain(own_host(reached.listen.ip())) {
        options = options.host(name);
    }
    if let Some(tls) = tls {
        options = options.tls(tls);
    }
    if !reached.listen.ip().is_loopback() {
        options = options.beyond_this_machine();
    }
    if reached.no_back_off {
        options = options.no_back_off();
    }
    match reached.rate {
        0 => options.any_rate(),
        rate => options.rate(rate, rate.saturating_mul(2)),
    }
}

fn print_address(url: &str, kept: &TokenFile, writes: bool, format: Format) -> Result<()> {
    let tokens = output::escaped(&kept.path().display().to_string());
    if kept.is_new() {
        eprintln!("new tokens, which are shown this once and kept in {tokens}:");
        eprintln!("{}", kept.shown());
        eprintln!("log a browser in: {}", kept.link(url, writes));
    }
    match format {
        Format::Json => output::json_line(&Report { url, writes, tokens }),
        Format::Table => {
            let does = if writes { "shows and changes" } else { "only shows; --allow-writes lets it change" };
            output::say(format!("{url} {does}; Ctrl-C ends it"))
        }
    }
}

/// Returns a future that completes on Ctrl-C or `SIGTERM`. It listens from this call on.
#[cfg(unix)]
fn stopped() -> Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that completes on Ctrl-C.
#[cfg(not(unix))]
fn stopped() -> Result<impl Future<Output = ()> + Send> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn measurements_are_summed_without_a_scrape() {
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).unwrap().build_recorder();
        let handle = recorder.handle();
        let upkeep = again_and_again(Duration::from_millis(1), || {
            handle.run_upkeep();
            told.send(()).unwrap();
        });
        let twice = async {
            heard.recv().await.unwrap();
            heard.recv().await.unwrap();
        };
        tokio::select! {
            () = twice => {}
            never = upkeep => match never {},
        }
    }
}
