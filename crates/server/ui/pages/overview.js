// The overview: key figures and their recent history.
import { html, useEffect, useState } from '../vendor/htm-preact.js';
import { get, live } from '../api.js';
import { Chart } from '../chart.js';
import { Badge, Empty, Failed, Head, Loading, Name, Table, link, useLive } from '../parts.js';
import { count, micros, span } from '../show.js';

const KEPT = 180;
/** The values collected since the page was opened. They outlive the view. */
const seen = { at: [], rate: [], blocked: [], leased: [], last: /** @type {{ at: number, position: number } | null} */ (null) };
let drawn = { rate: [[], []], work: [[], [], []] };

function remember(data) {
  const at = (micros(data.now) ?? 0) / 1e6;
  const before = seen.last;
  if (before && at <= before.at) return;
  const rate = before ? Math.max(0, Math.round((data.position - before.position) / (at - before.at))) : 0;
  seen.last = { at, position: data.position ?? 0 };
  for (const [list, value] of [[seen.at, at], [seen.rate, rate], [seen.blocked, data.work.blocked], [seen.leased, data.work.leased]]) {
    list.push(value);
    if (list.length > KEPT) list.shift();
  }
  drawn = { rate: [[...seen.at], [...seen.rate]], work: [[...seen.at], [...seen.blocked], [...seen.leased]] };
}

function Card({ title, value, note, tone = '', href }) {
  return html`<a class=${`card ${tone}`} href=${href} data-card=${title} data-row><h2>${title}</h2><p class="big num">${value}</p><p class="note">${note}</p></a>`;
}

/** Formats a number that may be a lower bound. */
function bound(n, whole) {
  return `${whole ? '' : 'at least '}${count(n)}`;
}

/** The store latency above which the overview shows a warning, in microseconds. */
const SLOW = 250000;

function latency(us) {
  return us < 10000 ? `${(us / 1000).toFixed(us < 1000 ? 2 : 1)} ms` : span(us / 1000);
}

function Cards({ data }) {
  const { work, leases, runs, reactions, locks, conflicts } = data;
  const lag = reactions.reduce((most, one) => (one.lag_ms > most.lag_ms ? one : most), { lag_ms: 0, name: '' });
  const status = (word) => runs.by_status[word] ?? 0;
  return html`<section class="cards" aria-label="numbers">
    <${Card} title="Blocked" value=${count(work.blocked)} tone=${work.blocked ? 'bad' : ''} href="#/stuck" note=${work.blocked ? 'need an operator' : 'none'} />
    <${Card} title="Overdue" value=${bound(work.overdue, work.whole)} tone=${work.overdue ? 'warn' : ''} href="#/work?show=waiting"
      note=${work.overdue ? `oldest ${span(work.oldest_ms)}` : 'all due work is leased'} />
    <${Card} title="Oldest lag" value=${lag.lag_ms ? span(lag.lag_ms) : '0'} tone=${lag.lag_ms > 60000 ? 'warn' : ''} href="#/stuck?tab=reactions"
      note=${lag.name ? html`<${Name} of=${lag.name} most=${24} />` : 'no reaction lags'} />
    <${Card} title="Expiring leases" value=${bound(leases.expiring, leases.whole)} tone=${leases.expiring ? 'warn' : ''} href="#/work?show=leased" note=${`of ${count(leases.held)} leases`} />
    <${Card} title="Running runs" value=${count(status('running'))} href="#/runs?status=running" note=${`${count(status('completed'))} completed`} />
    <${Card} title="Failed runs" value=${count(status('failed'))} tone=${status('failed') ? 'bad' : ''} href="#/runs?status=failed" note=${`${count(status('cancelled'))} cancelled`} />
    ${locks ? html`<${Card} title="Locks" value=${count(locks.terms)} tone=${locks.cycles ? 'bad' : ''} href="#/locks"
      note=${locks.cycles ? `${count(locks.cycles)} in a cycle` : `${count(locks.waiting)} waiting`} />` : null}
    ${conflicts ? html`<${Card} title="Conflicts" value=${count(conflicts.conflicts)} href="#/state" note=${`in ${count(conflicts.mutations)} mutations`} />` : null}
    <${Card} title="Store latency" value=${latency(data.latency_us)} tone=${data.latency_us > SLOW ? 'warn' : ''} href="#/" note="of a small read" />
    <${Card} title="Events" value=${count(data.position ?? 0)} href="#/streams" note="position of the last one" />
  </section>`;
}

function Reactions({ reactions }) {
  if (reactions.length === 0) return null;
  return html`<section><h2>Reactions</h2><${Table} label="reactions" heads=${['Reaction', 'Keys', 'Blocked', 'Waiting events', 'Behind']}
    rows=${reactions.map((one) => html`<tr key=${one.name}><td><a data-row href=${link(['stuck', one.name], { tab: 'reactions' })}><${Name} of=${one.name} /></a></td>
      <td class="num">${count(one.keys)}</td><td class="num">${one.blocked ? html`<${Badge} tone="bad">${count(one.blocked)}</${Badge}>` : '0'}</td>
      <td class="num">${one.at_least ? 'at least ' : ''}${count(one.lag_events)}</td><td class="num">${span(one.lag_ms)}</td></tr>`)} /></section>`;
}

export function Overview({ theme, about }) {
  const { data, error } = useLive((signal) => get('overview', {}, signal), []);
  const [, draw] = useState(0);
  useEffect(() => {
    if (data && live.state !== 'paused') {
      remember(data);
      draw((n) => n + 1);
    }
  }, [data]);
  const empty = data && !data.position && data.work.rows === 0;
  return html`<${Head} title="Overview" cli="tidelock doctor" /><${Failed} error=${error} />
    ${data ? html`<${Cards} data=${data} />
      <section class="charts"><${Chart} label="Events per second" theme=${theme} data=${drawn.rate} series=${[{ name: 'events/s', tone: '--accent' }]} />
        <${Chart} label="Work" theme=${theme} data=${drawn.work} series=${[{ name: 'blocked', tone: '--bad' }, { name: 'leased', tone: '--accent' }]} /></section>
      <${Reactions} reactions=${data.reactions} />
      ${empty ? html`<${Empty} title="The store is empty" cli="tidelock demo">This ${about.backend} store has no data. Start the program that uses it, append an event, or run the demo, which kills workers at random.</${Empty}>` : null}` : error ? null : html`<${Loading} />`}`;
}
