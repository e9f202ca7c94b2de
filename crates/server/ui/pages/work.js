// Rows of work: due times, owners and leases.
import { html } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, ErrorText, Failed, Filter, Head, Json, Left, Loading, Name, Pager, Pick, Table, When, go, link, useLive } from '../parts.js';
import { command, count, isNever, name } from '../show.js';
import { RowActions } from './stuck.js';

const ROWS = 100;
/** The query of each choice, and its name at the command line. */
const SHOWS = new Map(Object.entries({
  '': [{}, ''], leased: [{ leased: true }, 'leased'], waiting: [{ leased: false, blocked: false }, 'free'], blocked: [{ blocked: true }, 'blocked'],
}));

export function Work({ parts, query }) {
  return parts[0] ? html`<${Row} key=${parts[0]} of=${parts[0]} />` : html`<${List} query=${query} />`;
}

function List({ query }) {
  const { show = '', queue = '', pattern = '', after = '' } = query;
  const [asked, state] = /** @type {[object, string]} */ (SHOWS.get(show) ?? [{}, '']);
  const { data, error } = useLive((signal) => get('work', { ...asked, queue, pattern, cursor: after, limit: ROWS }, signal), [show, queue, pattern, after]);
  const to = (change) => go(['work'], { show, queue, pattern, ...change });
  return html`<${Head} title="Work" cli=${command('work list', [], { all: true, state, queue, pattern })}>
      <${Pick} label="Show" value=${show} options=${[['', 'all'], ['leased', 'leased'], ['waiting', 'waiting'], ['blocked', 'blocked']]} onChange=${(value) => to({ show: value })} />
      <${Filter} value=${pattern} label="Pattern of the key" onChange=${(text) => text !== pattern && to({ pattern: text })} />
      <${Filter} value=${queue} label="Queue" onChange=${(text) => text !== queue && to({ queue: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.rows.length === 0 ? html`<${Empty} title=${show || queue || pattern ? 'No row matches' : 'No work'}>A row of work is leased by one worker at a time: a key of a reaction, a run, a schedule, a lease. The fencing token identifies the current holder.</${Empty}>` : html`
      <${Table} label="work" heads=${['Key', 'Queue', 'Due', 'Owner', 'Fence', 'Lease', 'Attempts', 'Taken over']} rows=${data.rows.map((row) => html`<tr key=${row.key} class=${row.blocked ? 'blocked' : ''}>
        <td><a data-row href=${link(['work', row.key])}><${Name} of=${row.key} most=${70} /></a> ${row.blocked ? html`<${Badge} tone="bad" title=${name(row.blocked.reason)}>blocked</${Badge}>` : null}</td>
        <td><${Name} of=${row.queue} most=${30} /></td><td>${row.lease || row.blocked ? '–' : html`<${Due} at=${row.due_at} />`}</td>
        <td>${row.lease ? html`<${Name} of=${row.lease.owner} most=${28} />` : html`<span class="quiet">–</span>`}</td><td class="num">${row.lease?.fence ?? '–'}</td>
        <td>${row.lease ? html`<${Left} until=${row.lease.expires_at} />` : '–'}</td><td class="num">${count(row.attempts)}</td><td class="num">${row.takeovers ? html`<${Badge} tone="warn">${count(row.takeovers)}</${Badge}>` : '0'}</td></tr>`)} />
      <${Pager} parts=${['work']} query=${{ show, queue, pattern }} next=${data.next} first=${after} />`}`;
}

/** A row that is never due is idle until it is woken. */
function Due({ at }) {
  return at === null || isNever(at) ? html`<span class="quiet" data-idle>idle</span>` : html`<${When} at=${at} />`;
}

function Row({ of }) {
  const { data, error, reload } = useLive((signal) => get(path('work', of), {}, signal), [of]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('work show', [of])}><a class="button small" href="#/work">All work</a>
      ${data ? html`<${RowActions} row=${data} reload=${reload} />` : null}</${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`<dl class="facts"><div><dt>Queue</dt><dd><${Name} of=${data.queue} /></dd></div><div><dt>Priority</dt><dd class="num">${data.priority}</dd></div>
        <div><dt>Due</dt><dd><${Due} at=${data.due_at} /></dd></div><div><dt>Enqueued</dt><dd><${When} at=${data.enqueued_at} /></dd></div>
        <div><dt>Attempts</dt><dd class="num">${count(data.attempts)}</dd></div><div><dt>Taken over</dt><dd class="num">${count(data.takeovers)}</dd></div>
        <div><dt>Owner</dt><dd>${data.lease ? html`<${Name} of=${data.lease.owner} />` : '–'}</dd></div>
        ${data.lease ? html`<div><dt>Fence</dt><dd class="num">${data.lease.fence}</dd></div><div><dt>Lease</dt><dd><${Left} until=${data.lease.expires_at} /></dd></div>` : null}
        ${data.reaction ? html`<div><dt>Reaction</dt><dd><a href=${link(['stuck', data.reaction], { tab: 'reactions' })}><${Name} of=${data.reaction} /></a></dd></div>` : null}
        ${data.follows ? html`<div><dt>Follows</dt><dd><a href=${link(['streams', data.follows])}><${Name} of=${data.follows} /></a> up to ${data.position ?? 0}</dd></div>` : null}</dl>
      ${data.blocked || data.last_error ? html`<${ErrorText} of=${data.blocked?.reason || data.last_error} />` : null}
      <h2>Payload</h2><${Json} of=${data.payload} />`}`;
}
