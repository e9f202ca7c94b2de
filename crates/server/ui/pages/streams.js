// Streams: names, events, and their state at any version.
import { html } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Diff } from '../diff.js';
import { Badge, Empty, Failed, Filter, Head, Json, Loading, Name, Pager, Table, When, go, link, useLive } from '../parts.js';
import { brief, command, count, instant } from '../show.js';
import { Change, Slider, change, within } from './past.js';

const ROWS = 100;
const WINDOW = 50;

export function Streams({ parts, query }) {
  return parts[0] ? html`<${Stream} key=${parts[0]} of=${parts[0]} query=${query} />` : html`<${List} query=${query} />`;
}

function List({ query }) {
  const { prefix = '', after = '' } = query;
  const { data, error } = useLive((signal) => get('streams', { prefix, cursor: after, limit: ROWS }, signal), [prefix, after]);
  return html`<${Head} title="Streams" cli=${command('streams list', [], { prefix })}>
      <${Filter} value=${prefix} label="Prefix of the key" hint='order or order("o' onChange=${(text) => text !== prefix && go(['streams'], { prefix: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.streams.length === 0 ? html`<${Nothing} prefix=${prefix} />` : html`
      <${Table} label="streams" heads=${['Stream', 'Events', 'Versions', '']} rows=${data.streams.map((stream) => html`<tr key=${stream.key}>
        <td><a data-row href=${link(['streams', stream.key])}><${Name} of=${stream.key} /></a></td>
        <td class="num">${stream.first === null ? 0 : count(stream.head - stream.first + 1)}</td>
        <td class="num quiet">${stream.head === null ? '–' : `${stream.first ?? '–'}…${stream.head}`}</td>
        <td>${stream.closed_at ? html`<${Badge}>closed</${Badge}>` : null}</td></tr>`)} />
      <${Pager} parts=${['streams']} query=${{ prefix }} next=${data.next} first=${after} />`}`;
}

function Nothing({ prefix }) {
  return prefix
    ? html`<${Empty} title="No stream begins like this">A prefix is a kind, <code>order</code>, or a kind and the beginning of its arguments, <code>order("o-1"</code>. Every character is matched literally.</${Empty}>`
    : html`<${Empty} title="No streams yet" cli=${`tidelock streams append 'order("o-1")' placed '{}'`}>A stream has the events of one entity, in order. Its first event creates it.</${Empty}>`;
}

/** Returns the document whose history a stream contains. */
export function recordOf(key) {
  const found = /^history\("([a-zA-Z][\w.-]*)"(?:, (.*))?\)$/.exec(key);
  return found ? (found[2] ? `${found[1]}(${found[2]})` : found[1]) : null;
}

async function load(key, at, signal) {
  const stream = await get(path('streams', key), {}, signal);
  if (stream.first === null) return { stream, version: 0, events: [], state: null };
  const version = within(at, stream.first, stream.head);
  const from = Math.max(version - WINDOW + 1, stream.first);
  const record = recordOf(key);
  const [{ events }, state] = await Promise.all([
    get(`${path('streams', key)}/events`, { from, limit: version - from + 1 }, signal), record ? change(record, version, stream.first, signal) : null,
  ]);
  return { stream, version, events, state: state && { record, ...state } };
}

function Stream({ of, query }) {
  const { data, error } = useLive((signal) => load(of, query.at, signal), [of, query.at]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('streams show', [of])}><a class="button small" href="#/streams">All streams</a></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.stream.first === null
      ? html`<${Empty} title="No events are left">The events of this stream were removed; its next one has version ${(data.stream.head ?? -1) + 1}.</${Empty}>`
      : html`<${Versions} of=${of} stream=${data.stream} at=${query.at} /><${AtVersion} data=${data} /><${Events} of=${of} data=${data} />`}`;
}

function Versions({ of, stream, at }) {
  const { first, head, closed_at: closed } = stream;
  const to = (asked) => go(['streams', of], asked >= head ? {} : { at: asked });
  return html`<${Slider} word="Version" at=${within(at, first, head)} first=${first} head=${head} follows=${at === undefined} to=${to} newest=${link(['streams', of])}>
    ${closed ? html`<${Badge}>closed</${Badge}>` : null}</${Slider}>`;
}

function AtVersion({ data }) {
  const { events, version, state } = data;
  const event = events[events.length - 1];
  if (!event) return null;
  const older = [...events].slice(0, -1).reverse().find((other) => other.type === event.type);
  if (state) {
    return html`<${Change} word="version" number=${version} ...${state}><p><a href=${link(['state', state.record])}>The document <${Name} of=${state.record} /></a></p></${Change}>`;
  }
  return html`<section class="two"><div><h2><${Name} of=${event.type} /> <span class="quiet">version ${version}</span></h2><${Json} of=${event.payload} label="payload" />
      ${event.meta === null ? null : html`<h3>Metadata</h3><${Json} of=${event.meta} label="meta" />`}</div>
    <div><h2>Against the ${older ? html`<${Name} of=${older.type} /> before it (version ${older.version})` : 'one before it'}</h2>
      ${older ? html`<${Diff} before=${older.payload} after=${event.payload} />` : html`<p class="quiet">No other event of this type among the ${count(events.length)} that are shown. Only the program that wrote the events can compute the state from them.</p>`}</div></section>`;
}

function Events({ of, data }) {
  const rows = [...data.events].reverse();
  return html`<section><h2>Events up to version ${data.version}</h2>
    <${Table} label="events" heads=${['Version', 'Type', 'When', 'Position', 'Payload']} rows=${rows.map((event) => html`<tr key=${event.version} class=${event.version === data.version ? 'chosen' : ''}>
      <td class="num"><a data-row href=${link(['streams', of], { at: event.version })}>${event.version}</a></td><td><${Name} of=${event.type} /></td>
      <td><${When} at=${event.recorded_at} /></td><td class="num quiet">${event.position}</td><td class="mono wide" title=${instant(event.recorded_at)}>${brief(event.payload, 140)}</td></tr>`)} />
    ${rows.length > 0 && rows[rows.length - 1].version > data.stream.first ? html`<nav class="pager"><a class="button small" data-next href=${link(['streams', of], { at: rows[rows.length - 1].version - 1 })}>Older events</a></nav>` : html`<p class="quiet">That is the first event${data.stream.first > 0 ? ' that is left' : ''}.</p>`}
  </section>`;
}
