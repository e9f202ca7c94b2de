// The audit log: writes over the API and their callers, newest first.
import { html } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Badge, Empty, Failed, Head, Loading, Name, Table, When, link, useLive } from '../parts.js';
import { brief, command, name } from '../show.js';

const STREAM = 'tidelock.audit';
const ROWS = 100;

async function load(before, signal) {
  const [stream] = (await get('streams', { prefix: STREAM, limit: 1 }, signal)).streams;
  if (!stream || stream.first === null) return { events: [], first: 0 };
  const last = before === undefined ? stream.head : Math.min(Number(before) - 1, stream.head);
  const from = Math.max(last - ROWS + 1, stream.first);
  if (last < stream.first) return { events: [], first: stream.first };
  const found = await get(`${path('streams', STREAM)}/events`, { from, limit: last - from + 1 }, signal);
  return { events: found.events.reverse(), first: stream.first };
}

export function Audit({ query }) {
  const { data, error } = useLive((signal) => load(query.before, signal), [query.before]);
  const last = data?.events[data.events.length - 1];
  return html`<${Head} title="Audit" cli=${command('streams show', [STREAM], { backward: true })} /><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.events.length === 0 ? html`<${Empty} title="Nothing was changed over the API">Every write through this server adds an event to the stream <code>tidelock.audit</code>, with its caller, action and target. Writes of programs are not recorded here.</${Empty}>` : html`
      <${Table} label="audit" heads=${['When', 'Who', 'Did', 'On', '', 'Details']} rows=${data.events.map((event) => html`<tr key=${event.version}><td><a data-row href=${link(['streams', STREAM], { at: event.version })}><${When} at=${event.recorded_at} /></a></td>
        <td>${name(event.payload?.by)}</td><td><b>${name(event.payload?.did)}</b></td><td><${Name} of=${event.payload?.on} most=${50} /></td>
        <td>${event.type === 'tidelock.audit-asked' ? html`<${Badge} title="Written before the change: it may have been rejected">asked</${Badge}>` : html`<${Badge} tone="good" title="Written in the same commit as the change">done</${Badge}>`}</td>
        <td class="mono wide">${brief(event.payload?.details, 140)}</td></tr>`)} />
      <nav class="pager">${query.before ? html`<a class="button small" href="#/audit">Newest</a>` : null}${last.version > data.first ? html`<a class="button small" data-next href=${link(['audit'], { before: last.version })}>Older</a>` : html`<span class="quiet">That is all.</span>`}</nav>`}`;
}
