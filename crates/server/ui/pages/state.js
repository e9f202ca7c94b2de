// Documents: their values, their versions, what they were, and how often changes met each other.
import { html, useState } from '../vendor/htm-preact.js';
import { get, path } from '../api.js';
import { Diff } from '../diff.js';
import { Badge, Empty, Failed, Filter, Head, Json, Loading, Name, Pager, Table, When, go, link, useLive } from '../parts.js';
import { brief, bytes, command, count } from '../show.js';

const ROWS = 100;

export function State({ parts, query }) {
  return parts[0] ? html`<${Record} key=${parts[0]} of=${parts[0]} query=${query} />` : html`<${List} query=${query} />`;
}

function List({ query }) {
  const { prefix = '', after = '' } = query;
  const { data, error } = useLive((signal) => Promise.all([get('state', { prefix, after, limit: ROWS }, signal), get('conflicts', {}, signal)]), [prefix, after]);
  const [found, conflicts] = data || [];
  return html`<${Head} title="State" cli=${command('state', 'list', prefix)}>
      <${Filter} value=${prefix} label="Scope or key" hint='session or session("s-1"' onChange=${(text) => text !== prefix && go(['state'], { prefix: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`
      ${found.records.length === 0 ? html`<${Empty} title=${prefix ? 'No document begins like this' : 'No documents yet'} cli=${`tidelock state set 'user("u-1", "cart")' '{}'`}>A document is a value with a version. Whoever writes it says which version it replaces, so that nobody overwrites what they have not seen.</${Empty}>` : html`
        <${Table} label="documents" heads=${['Key', 'Version', 'Size', 'Written', 'Expires']} rows=${found.records.map((one) => html`<tr key=${one.key}><td><a data-row href=${link(['state', one.key])}><${Name} of=${one.key} /></a></td>
          <td class="num">${one.version}</td><td class="num">${bytes(one.size)}</td><td><${When} at=${one.updated_at} /></td><td>${one.expires_at ? html`<${When} at=${one.expires_at} />` : html`<span class="quiet">never</span>`}</td></tr>`)} />
        <${Pager} parts=${['state']} query=${{ prefix }} next=${found.next} first=${after} />`}
      <${Conflicts} data=${conflicts} />`}`;
}

function Conflicts({ data }) {
  const kinds = Object.entries(data.kinds);
  return html`<section><h2>Conflicts</h2>${!data.shown ? html`<p class="quiet">How often changes met others that were faster is known to the program that makes them. It shows that here when it gives <code>Conflicts::new()</code> to its <code>States</code> as observer, and to the server it mounts.</p>` : kinds.length === 0 ? html`<p class="quiet">No change was made yet.</p>` : html`
    <${Table} label="conflicts" heads=${['Kind', 'Mutations', 'Attempts', 'Conflicts', 'Per 100']} rows=${kinds.map(([kind, tally]) => html`<tr key=${kind}><td><${Name} of=${kind} /></td><td class="num">${count(tally.mutations)}</td><td class="num">${count(tally.attempts)}</td>
      <td class="num">${count(tally.conflicts)}</td><td class="num">${((100 * tally.conflicts) / Math.max(tally.mutations, 1)).toFixed(1)}</td></tr>`)} />`}</section>`;
}

async function load(of, at, signal) {
  const [record, history] = await Promise.all([
    get(path('state', of), {}, signal).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    }),
    get(`${path('state', of)}/history`, { limit: 50, before: at === undefined ? undefined : Number(at) + 1 }, signal),
  ]);
  const number = history.writes[0]?.number;
  if (number === undefined) return { record, history, past: null };
  const was = (n) => get(`${path('state', of)}/at`, { number: n }, signal).catch(() => null);
  return { record, history, past: { number, after: await was(number), before: number > 0 ? await was(number - 1) : null } };
}

function said(change) {
  if (change === 'delete' || change.delete !== undefined) return 'deleted';
  return change.put !== undefined ? `put ${brief(change.put, 100)}` : `merged ${brief(change.merge, 100)}`;
}

function Record({ of, query }) {
  const { data, error } = useLive((signal) => load(of, query.at, signal), [of, query.at]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('state', 'get', of)}><a class="button small" href="#/state">All documents</a></${Head}><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`
      ${data.record ? html`<dl class="facts"><div><dt>Version</dt><dd class="num">${data.record.version}</dd></div><div><dt>Written</dt><dd><${When} at=${data.record.updated_at} /></dd></div>
        <div><dt>Expires</dt><dd>${data.record.expires_at ? html`<${When} at=${data.record.expires_at} />` : 'never'}</dd></div></dl>` : html`<p><${Badge} tone="warn">deleted</${Badge}> There is no such document now.</p>`}
      ${data.past ? html`<${Past} of=${of} data=${data} follows=${query.at === undefined} />` : html`<h2>Value</h2>${data.record ? html`<${Json} of=${data.record.value} />` : null}
        <p class="quiet">No history is kept of it. A program that wants one makes its states with <code>States::with_history()</code>.</p>`}`}`;
}

function Past({ of, data, follows }) {
  const { past, history } = data;
  const [shown, show] = useState(null);
  const [newest, setNewest] = useState(past.number);
  if (past.number > newest) setNewest(past.number);
  const to = (number) => go(['state', of], Number(number) >= newest && follows ? {} : { at: number });
  return html`<div class="slider"><label>Write <b class="num">${shown ?? past.number}</b> of 0…${newest}<input type="range" aria-label="write" min="0" max=${newest} step="1" value=${shown ?? past.number}
      onInput=${(event) => show(event.currentTarget.value)} onChange=${(event) => { show(null); to(event.currentTarget.value); }} /></label>
      <button type="button" class="small" disabled=${past.number <= 0} onClick=${() => to(past.number - 1)}>Older</button>
      ${follows ? html`<${Badge} tone="good">newest</${Badge}>` : html`<button type="button" class="small" onClick=${() => to(past.number + 1)}>Newer</button><a class="button small" href=${link(['state', of])}>Newest</a>`}</div>
    <section class="two"><div><h2>Value after write ${past.number}</h2>${!past.after ? html`<p class="quiet">It cannot be told: what it builds on was removed.</p>` : past.after.deleted ? html`<p class="quiet">Deleted.</p>` : html`<${Json} of=${past.after.value} />`}</div>
      <div><h2>What this write changed</h2><${Diff} before=${past.before?.value ?? undefined} after=${past.after?.value ?? undefined} /></div></section>
    <section><h2>History</h2><${Table} label="history" heads=${['Write', 'When', 'Mutations', 'What']} rows=${history.writes.map((write) => html`<tr key=${write.number} class=${write.number === past.number ? 'chosen' : ''}>
      <td class="num"><a data-row href=${link(['state', of], { at: write.number })}>${write.number}</a></td><td><${When} at=${write.at} /></td><td class="num">${write.mutations}</td><td class="mono wide">${said(write.change)}</td></tr>`)} />
      ${history.next !== null ? html`<nav class="pager"><a class="button small" data-next href=${link(['state', of], { at: history.next - 1 })}>Older writes</a></nav>` : null}</section>`;
}
