//! `tidelock streams tail`: past events, then new ones as they arrive. It stops on Ctrl-C or when the reader closes standard
//! output.

use std::time::Duration;

use anyhow::Result;
use tidelock::events::{EventJson, StartFrom, Subscription, SubscriptionFilter};
use tidelock::prelude::*;

use super::row::followed;
use super::types;
use crate::args::{Layout, StreamsTail, TailFrom};
use crate::exit::Exit;
use crate::{output, stdout_closed};

/// Follows the log until a stop is requested.
pub(super) async fn run(options: &StreamsTail) -> Result<Exit> {
    let what = what(options)?;
    let start = match options.from {
        TailFrom::Beginning => StartFrom::Beginning,
        TailFrom::Now => StartFrom::Now,
        TailFrom::After(position) => StartFrom::After(Position(position)),
    };
    let opened = options.place.open().await?;
    let mut subscription = Events::new(opened.shared()).subscribe(what, start).await?;
    let mut interrupted = false;
    let ended = tokio::select! {
        // Listens before the first event is printed: a reader of that event may interrupt at once.
        biased;
        asked_to_stop = tokio::signal::ctrl_c() => {
            interrupted = true;
            asked_to_stop.map_err(Into::into)
        }
        () = stdout_closed::gone() => Ok(()),
        ended = follow(&mut subscription, options.place.output) => ended,
    };
    opened.close().await;
    if interrupted {
        let from = subscription.position().map_or_else(|| "beginning".to_owned(), |at| at.to_string());
        eprintln!("interrupted; continue with --from {from}");
    }
    ended.map(|()| Exit::Well)
}

fn what(options: &StreamsTail) -> Result<SubscriptionFilter> {
    let what = match (&options.key, &options.prefix) {
        (Some(key), _) => SubscriptionFilter::stream(&key.parse()?),
        (None, Some(prefix)) => SubscriptionFilter::streams(prefix.parse()?),
        (None, None) => SubscriptionFilter::all(),
    };
    let what = what.types(types(&options.types)?);
    Ok(if options.internal { what.with_internal() } else { what })
}

async fn follow(subscription: &mut Subscription, layout: Layout) -> Result<()> {
    let mut told = None;
    loop {
        match subscription.next().await {
            Ok(event) => {
                told = None;
                match layout {
                    Layout::Json | Layout::Jsonl => output::json_line(&EventJson::of(&event))?,
                    Layout::Table => output::say(followed(&event))?,
                }
            }
            Err(error) => {
                // An unavailable server may come back. Its absence is reported once. Events that were archived are followed by
                // others.
                let pause = match error.retry() {
                    Retry::After(pause) => pause,
                    Retry::Now => Duration::ZERO,
                    Retry::Never => return Err(error.into()),
                };
                let message = output::escaped(&format!("warning[{}]: {error}", error.code()));
                if told.as_ref() != Some(&message) {
                    eprintln!("{message}");
                    told = Some(message);
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}
