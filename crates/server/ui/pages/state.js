// Documents: values, versions, history and conflicts.
import { html, useEffect, useState } from '../vendor/htm-preact.js';
import { Problem, get, path } from '../api.js';
import { Badge, Empty, Failed, Filter, Head, Json, Loading, Name, Pager, Table, When, go, link, useLive } from '../parts.js';
import { brief, bytes, command, count } from '../show.js';
import { Change, Slider, change, within } from './past.js';

const ROWS = 100;
/** Maximum number of scopes to find. Each takes one small request. */
const SCOPES = 40;

export function State({ parts, query }) {
  return parts[0] ? html`<${Record} key=${parts[0]} of=${parts[0]} query=${query} />` : html`<${List} query=${query} />`;
}

/** Finds the kinds of documents. Each request skips all documents of the kind before. */
async function scopes(signal) {
  const found = [];
  for (let after = ''; found.length < SCOPES;) {
    const { records } = await get('state', { cursor: after, limit: 1 }, signal);
    if (records.length === 0) return { found, whole: true };
    const kind = records[0].key.split('(')[0];
    if (kind === found[found.length - 1]) return { found, whole: false };
    found.push(kind);
    // This key sorts after all keys of this kind, and before all keys of the next one.
    after = `${kind}-`;
  }
  return { found, whole: false };
}

/** Links to the scopes that contain documents. */
function Scopes({ chosen }) {
  const [state, set] = useState({ found: [], whole: true, error: null });
  useEffect(() => {
    const abort = new AbortController();
    scopes(abort.signal).then((found) => set({ ...found, error: null }), (error) => !abort.signal.aborted && set((s) => ({ ...s, error })));
    return () => abort.abort();
  }, []);
  const to = (kind) => html`<a class="scope" key=${kind} data-scope=${kind} aria-current=${kind === chosen ? 'true' : undefined} href=${link(['state'], { prefix: kind })}><${Name} of=${kind} most=${40} /></a>`;
  const [theirs, ours] = [state.found.filter((kind) => !kind.startsWith('tidelock.')), state.found.filter((kind) => kind.startsWith('tidelock.'))];
  return html`<${Failed} error=${state.error} />${state.found.length === 0 ? null : html`<nav class="scopes" aria-label="scopes"><span class="quiet">Scopes</span>
    <a class="scope" aria-current=${chosen ? undefined : 'true'} href="#/state">all</a>${[...theirs, ...ours].map(to)}${state.whole ? null : html`<span class="quiet">the first ${count(state.found.length)}</span>`}</nav>`}`;
}

function List({ query }) {
  const { prefix = '', after = '' } = query;
  const { data, error } = useLive((signal) => Promise.all([get('state', { prefix, cursor: after, limit: ROWS }, signal), get('state/conflicts', {}, signal)]), [prefix, after]);
  const [found, conflicts] = data || [];
  return html`<${Head} title="State" cli=${command('state list', [], { prefix })}>
      <${Filter} value=${prefix} label="Scope or key" hint='session or session("s-1"' onChange=${(text) => text !== prefix && go(['state'], { prefix: text })} /></${Head}>
    <${Failed} error=${error} /><${Scopes} chosen=${prefix} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`
      ${found.records.length === 0 ? html`<${Empty} title=${prefix ? 'No document begins like this' : 'No documents yet'} cli=${`tidelock state set 'user("u-1", "cart")' '{}'`}>A document is a value with a version. A write names the version that it replaces (optimistic concurrency), so that no update is lost.</${Empty}>` : html`
        <${Table} label="documents" heads=${['Key', 'Version', 'Size', 'Written', 'Expires']} rows=${found.records.map((one) => html`<tr key=${one.key}><td><a data-row href=${link(['state', one.key])}><${Name} of=${one.key} /></a></td>
          <td class="num">${one.version}</td><td class="num">${bytes(one.size)}</td><td><${When} at=${one.updated_at} /></td><td>${one.expires_at ? html`<${When} at=${one.expires_at} />` : html`<span class="quiet">never</span>`}</td></tr>`)} />
        <${Pager} parts=${['state']} query=${{ prefix }} next=${found.next} first=${after} />`}
      <${Conflicts} data=${conflicts} />`}`;
}

function Conflicts({ data }) {
  const kinds = Object.entries(data.kinds);
  return html`<section><h2>Conflicts</h2>${!data.shown ? html`<p class="quiet">The program that makes the changes counts their conflicts. It exposes them here when it passes <code>Conflicts::new()</code> to its <code>States</code> as observer, and to the server it mounts.</p>` : kinds.length === 0 ? html`<p class="quiet">No mutations yet.</p>` : html`
    <${Table} label="conflicts" heads=${['Kind', 'Mutations', 'Attempts', 'Conflicts', 'Per 100']} rows=${kinds.map(([kind, tally]) => html`<tr key=${kind}><td><${Name} of=${kind} /></td><td class="num">${count(tally.mutations)}</td><td class="num">${count(tally.attempts)}</td>
      <td class="num">${count(tally.conflicts)}</td><td class="num">${((100 * tally.conflicts) / Math.max(tally.mutations, 1)).toFixed(1)}</td></tr>`)} />`}</section>`;
}

/** Returns the name of the stream that holds the history of a document. */
export function historyOf(key) {
  const found = /^([^(]+)(?:\((.*)\))?$/s.exec(key);
  return found ? `history(${[JSON.stringify(found[1]), found[2]].filter(Boolean).join(', ')})` : null;
}

/** Awaits a response. Returns `null` if there is no such document or history, or if the store does not support it. */
async function orNothing(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 501)) return null;
    throw error;
  }
}

/** Finds the history stream of a document, or `null`. It lists streams by prefix, because a missing history is not an error. */
async function kept(of, signal) {
  const history = historyOf(of);
  const found = history && (await orNothing(get('streams', { prefix: history, limit: 1 }, signal)));
  return found?.streams.find((stream) => stream.key === history && stream.first !== null) ?? null;
}

async function load(of, at, signal) {
  const [record, history] = await Promise.all([orNothing(get(path('state', of), {}, signal)), kept(of, signal)]);
  if (!history) return { record, past: null };
  const { first, head } = history;
  const number = within(at, first, head);
  const [{ writes, next }, { after, before }] = await Promise.all([
    get(`${path('state', of)}/history`, { limit: 50, cursor: number + 1 }, signal), change(of, number, first, signal),
  ]);
  const now = after.problem && number === head && record ? { value: record.value, now: true } : after;
  return { record, past: { number, first, head, writes, next, before, after: now } };
}

function said(change) {
  if (change === 'delete' || change.delete !== undefined) return 'deleted';
  return change.put !== undefined ? `put ${brief(change.put, 100)}` : `merged ${brief(change.merge, 100)}`;
}

function Record({ of, query }) {
  const { data, error } = useLive((signal) => load(of, query.at, signal), [of, query.at]);
  const cli = query.at === undefined ? command('state get', [of]) : command('state history', [of]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${cli}><a class="button small" href="#/state">All documents</a></${Head}><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`
      ${data.record ? html`<dl class="facts"><div><dt>Version</dt><dd class="num">${data.record.version}</dd></div><div><dt>Written</dt><dd><${When} at=${data.record.updated_at} /></dd></div>
        <div><dt>Expires</dt><dd>${data.record.expires_at ? html`<${When} at=${data.record.expires_at} />` : 'never'}</dd></div></dl>` : html`<p><${Badge} tone="warn">deleted</${Badge}> There is no such document now.</p>`}
      ${data.past ? html`<${Past} of=${of} past=${data.past} at=${query.at} />` : html`<h2>Value</h2>${data.record ? html`<${Json} of=${data.record.value} />` : null}
        <p class="quiet">This document has no history. A program enables it with <code>States::with_history()</code>.</p>`}`}`;
}

function Past({ of, past, at }) {
  const { number, first, head, writes, next } = past;
  const to = (asked) => go(['state', of], asked >= head ? {} : { at: asked });
  return html`<${Slider} word="Write" at=${within(at, first, head)} first=${first} head=${head} follows=${at === undefined} to=${to} newest=${link(['state', of])} />
    <${Change} word="write" ...${past} />
    <section><h2>History</h2><${Table} label="history" heads=${['Write', 'When', 'Mutations', 'What']} rows=${writes.map((write) => html`<tr key=${write.number} class=${write.number === number ? 'chosen' : ''}>
      <td class="num"><a data-row href=${link(['state', of], { at: write.number })}>${write.number}</a></td><td><${When} at=${write.recorded_at} /></td><td class="num">${write.mutations}</td><td class="mono wide">${said(write.change)}</td></tr>`)} />
      ${next !== null ? html`<nav class="pager"><a class="button small" data-next href=${link(['state', of], { at: next - 1 })}>Older writes</a></nav>` : null}</section>`;
}
