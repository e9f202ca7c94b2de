// Leases across processes: holder, fence and remaining time.
import { html } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Badge, Empty, Failed, Head, Left, Loading, Name, Pager, Table, When, link, useLive } from '../parts.js';
import { command, count, name } from '../show.js';

const ROWS = 100;

export function Leases({ parts, query }) {
  return parts[0] ? html`<${Lease} key=${parts[0]} of=${parts[0]} />` : html`<${List} query=${query} />`;
}

function Holder({ lease }) {
  return lease.holder ? html`<${Name} of=${lease.holder.owner} most=${32} />` : html`<span class="quiet">free</span>`;
}

function List({ query }) {
  const { after = '' } = query;
  const { data, error } = useLive((signal) => get('leases', { cursor: after, limit: ROWS }, signal), [after]);
  return html`<${Head} title="Leases" cli="tidelock leases list" /><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.leases.length === 0 ? html`<${Empty} title="No leases">A lease is exclusive across processes, and expires. Its fencing token is higher than all before it, and a write with an older one is rejected. Rows of reactions, runs and schedules are leased as well: see <a href="#/work?show=leased">Work</a>.</${Empty}>` : html`
      <${Table} label="leases" heads=${['Key', 'Owner', 'Fence', 'Left', 'Leased at', 'Waiting', 'Taken over', 'Note']} rows=${data.leases.map((lease) => html`<tr key=${lease.key}>
        <td><a data-row href=${link(['leases', lease.key])}><${Name} of=${lease.key} /></a></td><td><${Holder} lease=${lease} /></td><td class="num">${lease.holder?.fence ?? '–'}</td>
        <td>${lease.holder ? html`<${Left} until=${lease.holder.expires_at} />` : '–'}</td><td><${When} at=${lease.holder?.leased_at} /></td>
        <td class="num">${lease.waiters.length ? html`<${Badge} tone="warn">${count(lease.waiters.length)}</${Badge}>` : '0'}</td><td class="num">${count(lease.takeovers)}</td><td>${name(lease.note || '')}</td></tr>`)} />
      <${Pager} parts=${['leases']} query=${{}} next=${data.next} first=${after} />`}`;
}

function Lease({ of }) {
  const { data, error } = useLive((signal) => get(path('leases', of), {}, signal), [of]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('leases show', [of])}><a class="button small" href="#/leases">All leases</a></${Head}><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`<dl class="facts"><div><dt>Owner</dt><dd><${Holder} lease=${data} /></dd></div><div><dt>Fence</dt><dd class="num">${data.holder?.fence ?? '–'}</dd></div>
        <div><dt>Left</dt><dd>${data.holder ? html`<${Left} until=${data.holder.expires_at} />` : '–'}</dd></div><div><dt>Leased at</dt><dd><${When} at=${data.holder?.leased_at} /></dd></div>
        <div><dt>Taken over</dt><dd class="num">${count(data.takeovers)}</dd></div>${data.note ? html`<div><dt>Note</dt><dd>${name(data.note)}</dd></div>` : null}
        ${data.stolen ? html`<div><dt>Stolen</dt><dd>by <${Name} of=${data.stolen.by} /> from <${Name} of=${data.stolen.from} />, fence ${data.stolen.fence}, <${When} at=${data.stolen.at} /></dd></div>` : null}</dl>
      <h2>Wait queue</h2>${data.waiters.length === 0 ? html`<p class="quiet">No waiters.</p>` : html`<ol class="line">${data.waiters.map((one) => html`<li key=${one.owner}><${Name} of=${one.owner} /> <span class="quiet">since <${When} at=${one.since} /></span></li>`)}</ol>`}`}`;
}
