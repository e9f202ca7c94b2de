// Workflow runs: the list, the journal of each run, and its operations.
import { html } from '../vendor/htm-preact.js';
import { Problem, get, path, post, postText } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, ErrorText, Failed, Filter, Head, Json, Left, Loading, Name, Pager, Pick, Table, When, go, link, useLive } from '../parts.js';
import { brief, command, count, micros, name, span } from '../show.js';
import { Journal, Timeline } from './timeline.js';

const ROWS = 50;
const ENTRIES = 500;
const TONES = { running: 'live', completed: 'good', failed: 'bad', cancelled: 'warn' };

export function Runs({ parts, query }) {
  return parts[0] ? html`<${Run} key=${parts[0]} of=${parts[0]} query=${query} />` : html`<${List} query=${query} />`;
}

/** The current activity of a run, as text. */
function Doing({ run }) {
  switch (run.doing) {
    case 'driven': return html`<span>driven by <${Name} of=${run.by} most=${24} /> · fence ${run.fence} · <${Left} until=${run.until} /></span>`;
    case 'due': return html`<span>waits for a worker</span>`;
    case 'waits': return run.until ? html`<span>waits until <${When} at=${run.until} /></span>` : html`<span>waits for ${run.signals.length ? 'a signal' : 'an operation'}</span>`;
    case 'suspended': return html`<span class="bad-ink">suspended, next attempt <${When} at=${run.next} />: ${name(run.reason)}</span>`;
    case 'blocked': return html`<span class="bad-ink">blocked: ${name(run.reason)}</span>`;
    default: return html`<span class="quiet">over</span>`;
  }
}

function List({ query }) {
  const { status = '', workflow = '', prefix = '', after = '' } = query;
  const { data, error } = useLive((signal) => get('runs', { status, workflow, prefix, cursor: after, limit: ROWS }, signal), [status, workflow, prefix, after]);
  const to = (change) => go(['runs'], { status, workflow, prefix, ...change });
  const states = [['', 'all'], ['running', 'running'], ['completed', 'completed'], ['failed', 'failed'], ['cancelled', 'cancelled']];
  const filtered = status || workflow || prefix;
  return html`<${Head} title="Runs" cli=${command('runs list', [], { status, workflow, prefix })}>
      <${Pick} label="Status" value=${status} options=${states} onChange=${(value) => to({ status: value })} />
      <${Filter} value=${prefix} label="Id begins with" onChange=${(text) => text !== prefix && to({ prefix: text })} />
      <${Filter} value=${workflow} label="Workflow" onChange=${(text) => text !== workflow && to({ workflow: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.runs.length === 0 && !data.next ? (filtered ? html`<${Empty} title="No run matches">Change the filter.</${Empty}>` : html`<${Empty} title="No runs yet" cli="tidelock runs start WORKFLOW --input '{}'">A run is one execution of a workflow: an async function whose steps are recorded, so that another process can resume it after a crash.</${Empty}>`) : html`
      <${Table} label="runs" heads=${['Run', 'Workflow', 'Status', 'Does', 'Started', 'Ended', 'Outcome']} rows=${data.runs.map((run) => html`<tr key=${run.run}>
        <td><a data-row href=${link(['runs', run.run])}><${Name} of=${run.run} most=${44} /></a></td><td><a href=${link(['runs'], { status, prefix, workflow: run.workflow })}><${Name} of=${run.workflow} most=${30} /></a></td>
        <td><${Badge} tone=${TONES[run.status]}>${run.status}</${Badge}></td><td><${Doing} run=${run} /></td><td><${When} at=${run.started_at} /></td><td>${run.ended_at === null ? '' : html`<${When} at=${run.ended_at} />`}</td>
        <td class="mono wide">${run.failure ? html`<span class="bad-ink">${name(run.failure)}</span>` : run.output === null ? '' : brief(run.output, 60)}</td></tr>`)} />
      <${Pager} parts=${['runs']} query=${{ status, workflow, prefix }} next=${data.next} first=${after} />`}`;
}

/** Loads the last entries of a journal, or those before a given entry. */
async function journal(of, generation, before, signal) {
  const where = path('streams', `tidelock.journal(${JSON.stringify(of)}, ${generation})`);
  try {
    const { first, head } = await get(where, {}, signal);
    if (first === null) return { events: [], first: 0, head: 0 };
    const last = before === undefined ? head : Math.min(Math.max(Number(before) - 1, first), head);
    const from = Math.max(last - ENTRIES + 1, first);
    const { events } = await get(`${where}/events`, { from, limit: last - from + 1 }, signal);
    return { events, first, head };
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return { events: [], first: 0, head: 0 };
    throw error;
  }
}

async function load(of, before, signal) {
  const run = await get(path('runs', of), {}, signal);
  const [found, row] = await Promise.all([
    journal(of, run.generation, before, signal),
    // The row is removed when the run ends.
    get('work', { key: `tidelock.run(${JSON.stringify(of)})` }, signal).then(({ rows }) => rows[0] ?? null),
  ]);
  return { run, ...found, row };
}

function Verbs({ run, steps, reload }) {
  const where = path('runs', run.run);
  const over = run.status !== 'running';
  const signal = async ([word, value]) => {
    try {
      JSON.parse(value.trim() || 'null');
    } catch {
      throw new Error('the value is not JSON; quote text, as in "yes"');
    }
    await postText(`${where}/signals`, `{"name": ${JSON.stringify(word.trim())}, "value": ${value.trim() || 'null'}}`);
    return `Signal ${word} sent`;
  };
  const told = (verb) => async ([reason]) => {
    await post(`${where}/${verb}`, { reason: reason.trim() || 'requested in the inspector' });
    return `${verb === 'cancel' ? 'Cancellation requested' : 'Resumed'}: ${run.run}`;
  };
  const fork = async ([from, id]) => {
    const made = await post(`${where}/fork`, { from: from.trim(), id: id.trim() || undefined });
    go(['runs', made.run]);
    return `Forked: ${made.run}`;
  };
  const reason = [{ label: 'Reason' }];
  return html`
    ${over ? null : html`<${Action} label="Signal" title="Send a signal" ask=${[{ label: 'Name', value: run.signals[0] || '', required: true }, { label: 'Value (JSON)' }]}
      cli=${(word, value) => command('runs signal', [run.run, word || 'NAME'], { value })} run=${signal} done=${reload} />
      <${Action} label="Cancel" danger title="Cancel the run and let it clean up" ask=${reason} cli=${(text) => command('runs cancel', [run.run], { reason: text })} run=${told('cancel')} done=${reload} />`}
    ${run.status === 'failed' || run.doing === 'blocked' || run.doing === 'suspended' ? html`<${Action} label="Resume" title="Resume the run and retry the failed step" ask=${reason}
      cli=${(text) => command('runs resume', [run.run], { reason: text })} run=${told('resume')} done=${reload} />` : null}
    ${steps.length ? html`<${Action} label="Fork" title="Start a run with the history of this one up to a step" ask=${[{ label: 'First step to execute again', value: steps[steps.length - 1], options: steps, required: true }, { label: 'Id of the new run (a new one when empty)' }]}
      cli=${(from, id) => command('runs fork', [run.run], { from: from || 'STEP', id })} run=${fork} /> ` : null}`;
}

function Facts({ run }) {
  return html`<dl class="facts"><div><dt>Status</dt><dd><${Badge} tone=${TONES[run.status]}>${run.status}</${Badge}></dd></div><div><dt>Does</dt><dd><${Doing} run=${run} /></dd></div>
    <div><dt>Workflow</dt><dd><${Name} of=${run.workflow} /></dd></div><div><dt>Queue</dt><dd><${Name} of=${run.queue} /> · priority ${run.priority}</dd></div>
    <div><dt>Generation</dt><dd class="num">${run.generation}</dd></div><div><dt>Started</dt><dd><${When} at=${run.started_at} /></dd></div>
    ${run.ended_at === null ? null : html`<div><dt>Ended</dt><dd><${When} at=${run.ended_at} /> · took ${span(((micros(run.ended_at) ?? 0) - (micros(run.started_at) ?? 0)) / 1000)}</dd></div>`}
    ${run.signals.length ? html`<div><dt>Hears</dt><dd>${run.signals.map((word) => html`<${Badge}>${name(word)}</${Badge}> `)}</dd></div>` : null}
    ${run.parent ? html`<div><dt>Parent</dt><dd><a href=${link(['runs', run.parent])}><${Name} of=${run.parent} /></a></dd></div>` : null}
    ${Object.entries(run.attributes).map(([key, value]) => html`<div key=${key}><dt>${name(key)}</dt><dd><${Name} of=${value} /></dd></div>`)}</dl>`;
}

/** The range of displayed entries, if the journal has more. */
function Window({ of, events, first, head }) {
  if (events.length === 0 || events.length > head - first) return null;
  const [from, to] = [events[0].version, events[events.length - 1].version];
  return html`<nav class="pager" aria-label="entries"><span class="quiet" data-window=${`${from}-${to}`}>Entries ${count(from)} to ${count(to)} of ${count(first)} to ${count(head)}; activations are counted among these.</span>
    ${from > first ? html`<a class="button small" data-next href=${link(['runs', of], { before: from })}>Older entries</a>` : null}
    ${to < head ? html`<a class="button small" href=${link(['runs', of])}>Newest entries</a>` : null}</nav>`;
}

function Run({ of, query }) {
  const { data, error, reload } = useLive((signal) => load(of, query.before, signal), [of, query.before]);
  if (!data) return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('runs show', [of])}><a class="button small" href="#/runs">All runs</a></${Head}><${Failed} error=${error} />${error ? null : html`<${Loading} />`}`;
  const { run, events, row } = data;
  const steps = [...new Set(events.map((event) => event.payload?.op?.name).filter(Boolean))];
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('runs show', [of])}><a class="button small" href="#/runs">All runs</a><${Verbs} run=${run} steps=${steps} reload=${reload} /></${Head}>
    <${Failed} error=${error} /><${Facts} run=${run} />
    ${run.failure ? html`<${ErrorText} of=${run.failure} />` : null}
    <section><h2>Timeline</h2><${Timeline} events=${events} fence=${run.fence} takeovers=${row?.takeovers} /><${Window} of=${of} ...${data} /></section>
    <section class="two"><div><h2>Input</h2><${Json} of=${run.input} label="input" /></div><div><h2>Output</h2>${run.output === null ? html`<p class="quiet">None ${run.status === 'running' ? 'yet' : ''}.</p>` : html`<${Json} of=${run.output} label="output" />`}</div></section>
    <section><details><summary>Journal, ${count(events.length)} entries</summary><${Journal} events=${events} /></details></section>`;
}
