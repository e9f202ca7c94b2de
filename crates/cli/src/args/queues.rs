//! Arguments of `tidelock runs queues` and `tidelock runs limit`.

use std::time::Duration;

use clap::Args;
use tidelock::clock::parse_duration;

use super::{Pages, Source, WatchArgs};

pub(super) const QUEUES: &str = "\
Examples:
  tidelock runs queues --store app.db
  tidelock runs queues --store app.db -o json | jq -r '.queues[] | select(.driven == .concurrency) | .queue'

The list has queues with limits or with fairness keys. Driven is the number of concurrency slots in use; an idle worker may keep
one for a moment.";

/// `tidelock runs queues`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsQueues {
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

pub(super) const LIMIT: &str = "\
Examples:
  tidelock runs limit mail --concurrency 10 --store app.db
  tidelock runs limit mail --rate 100/1min --burst 10 --store app.db
  tidelock runs limit mail --unlimited --store app.db

The limits apply to all workers of all processes together, within a second. A limit that is not given is removed. Runs in flight
complete. A worker whose code declares limits sets them again when it starts.";

/// `tidelock runs limit`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsLimit {
    /// Queue
    pub(crate) queue: String,
    /// Maximum number of concurrent runs, 1 to 1000
    #[arg(long, value_name = "RUNS", required_unless_present_any = ["rate", "unlimited"])]
    pub(crate) concurrency: Option<u32>,
    /// Maximum number of starts per time span, spread evenly: 100/1min, 5/1s
    #[arg(long, value_name = "RUNS/SPAN", value_parser = rate)]
    pub(crate) rate: Option<(u32, Duration)>,
    /// Maximum number of starts at once after an idle period
    #[arg(long, value_name = "RUNS", default_value_t = 1, requires = "rate")]
    pub(crate) burst: u32,
    /// Remove all limits
    #[arg(long, conflicts_with_all = ["concurrency", "rate", "burst"])]
    pub(crate) unlimited: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// Parses a rate such as `100/1min`.
fn rate(text: &str) -> Result<(u32, Duration), String> {
    let wrong = || "write a number and a span: 100/1min, 5/1s".to_owned();
    let (runs, per) = text.split_once('/').ok_or_else(wrong)?;
    let runs = runs.trim().parse().map_err(|_| wrong())?;
    Ok((runs, parse_duration(per.trim()).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rate;

    #[test]
    fn a_rate_is_a_number_and_a_span() {
        assert_eq!(rate("100/1min"), Ok((100, Duration::from_secs(60))));
        assert_eq!(rate("5 / 2 s"), Ok((5, Duration::from_secs(2))));
        for wrong in ["", "5", "/1s", "5/", "-1/1s", "5/1"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
