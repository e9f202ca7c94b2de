// Rows of work: what waits, who has it, and until when.
import { html } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, Failed, Filter, Head, Json, Left, Loading, Name, Pager, Pick, Table, When, go, link, useLive } from '../parts.js';
import { command, count, name } from '../show.js';
import { operation } from './stuck.js';

const ROWS = 100;
const SHOWS = { '': {}, leased: { leased: true }, waiting: { leased: false, blocked: false }, blocked: { blocked: true } };

export function Work({ parts, query }) {
  return parts[0] ? html`<${Row} key=${parts[0]} of=${parts[0]} />` : html`<${List} query=${query} />`;
}

function List({ query }) {
  const { show = '', lane = '', like = '', after = '' } = query;
  const { data, error } = useLive((signal) => get('work/rows', { ...SHOWS[show], lane, like, after, limit: ROWS }, signal), [show, lane, like, after]);
  const to = (change) => go(['work'], { show, lane, like, ...change });
  return html`<${Head} title="Work" cli=${command('work', 'list', lane && '--lane', lane, like && '--like', like)}>
      <${Pick} label="Show" value=${show} options=${[['', 'all'], ['leased', 'leased'], ['waiting', 'waiting'], ['blocked', 'blocked']]} onChange=${(value) => to({ show: value })} />
      <${Filter} value=${like} label="Pattern of the key" onChange=${(text) => text !== like && to({ like: text })} />
      <${Filter} value=${lane} label="Lane" onChange=${(text) => text !== lane && to({ lane: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.rows.length === 0 ? html`<${Empty} title=${show || lane || like ? 'No row matches' : 'No work'}>A row of work is something that one worker at a time has: a key of a reaction, a run, a task, a lease. Who has it is told apart by its fence.</${Empty}>` : html`
      <${Table} label="work" heads=${['Key', 'Lane', 'Due', 'Owner', 'Fence', 'Lease', 'Attempts', 'Taken over']} rows=${data.rows.map((row) => html`<tr key=${row.key} class=${row.blocked ? 'blocked' : ''}>
        <td><a data-row href=${link(['work', row.key])}><${Name} of=${row.key} most=${70} /></a> ${row.blocked ? html`<${Badge} tone="bad" title=${name(row.blocked.reason)}>blocked</${Badge}>` : null}</td>
        <td><${Name} of=${row.lane} most=${30} /></td><td>${row.lease || row.blocked ? '–' : html`<${Due} row=${row} now=${data.now} />`}</td>
        <td>${row.lease ? html`<${Name} of=${row.lease.owner} most=${28} />` : html`<span class="quiet">nobody</span>`}</td><td class="num">${row.lease?.fence ?? '–'}</td>
        <td>${row.lease ? html`<${Left} until=${row.lease.until} />` : '–'}</td><td class="num">${count(row.attempts)}</td><td class="num">${row.takeovers ? html`<${Badge} tone="warn">${count(row.takeovers)}</${Badge}>` : '0'}</td></tr>`)} />
      <${Pager} parts=${['work']} query=${{ show, lane, like }} next=${data.next} first=${after} />`}`;
}

/** A row that is never due rests until something wakes it. */
const NEVER = 100 * 365 * 86400 * 1e6;

function Due({ row, now }) {
  if (row.due === null || row.due - now > NEVER) return html`<span class="quiet">rests</span>`;
  return html`<${When} at=${row.due} />`;
}

function Row({ of }) {
  const { data, error, reload } = useLive((signal) => get(path('work', 'rows', of), {}, signal), [of]);
  return html`<${Head} title=${html`<${Name} of=${of} />`}><a class="button small" href="#/work">All work</a>
      ${data?.blocked ? html`<${Action} label="Unblock" title="Let it go on" cli=${command('streams', 'unblock', of)} done=${reload} ...${operation('work/operate', { verb: 'unblock', keys: [of] }, 'Unblocked')} />` : null}
      ${data && !data.blocked && !data.lease ? html`<${Action} label="Retry" title="Make it due at once" cli=${command('streams', 'retry', of)} done=${reload} ...${operation('work/operate', { verb: 'retry', keys: [of] }, 'Made due')} />` : null}</${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`<dl class="facts"><div><dt>Lane</dt><dd><${Name} of=${data.lane} /></dd></div><div><dt>Priority</dt><dd class="num">${data.priority}</dd></div>
        <div><dt>Due</dt><dd><${When} at=${data.due} /></dd></div><div><dt>Enqueued</dt><dd><${When} at=${data.enqueued_at} /></dd></div>
        <div><dt>Attempts</dt><dd class="num">${count(data.attempts)}</dd></div><div><dt>Taken over</dt><dd class="num">${count(data.takeovers)}</dd></div>
        <div><dt>Owner</dt><dd>${data.lease ? html`<${Name} of=${data.lease.owner} />` : 'nobody'}</dd></div>
        ${data.lease ? html`<div><dt>Fence</dt><dd class="num">${data.lease.fence}</dd></div><div><dt>Lease</dt><dd><${Left} until=${data.lease.until} /></dd></div>` : null}
        ${data.reaction ? html`<div><dt>Reaction</dt><dd><a href=${link(['stuck', data.reaction], { tab: 'reactions' })}><${Name} of=${data.reaction} /></a></dd></div>` : null}
        ${data.follow ? html`<div><dt>Follows</dt><dd><a href=${link(['streams', data.follow])}><${Name} of=${data.follow} /></a> up to ${data.position ?? 0}</dd></div>` : null}</dl>
      ${data.blocked || data.last_error ? html`<pre class="error" tabindex="0">${name(data.blocked?.reason || data.last_error)}</pre>` : null}
      <h2>Payload</h2><${Json} of=${data.payload} />`}`;
}
