// Runs of workflows: which there are, what each did, and what can be asked of them.
import { html } from '../vendor/htm-preact.js';
import { Problem, get, path, post } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, Failed, Filter, Head, Json, Left, Loading, Name, Pager, Pick, Table, When, go, link, useLive } from '../parts.js';
import { brief, command, count, name } from '../show.js';
import { Journal, Timeline } from './timeline.js';

const ROWS = 50;
const ENTRIES = 500;
const TONES = { running: 'live', completed: 'good', failed: 'bad', cancelled: 'warn' };

export function Runs({ parts, query }) {
  return parts[0] ? html`<${Run} key=${parts[0]} of=${parts[0]} />` : html`<${List} query=${query} />`;
}

/** What a run does at the moment, in words. */
function Doing({ run }) {
  switch (run.doing) {
    case 'driven': return html`<span>driven by <${Name} of=${run.by} most=${24} /> · fence ${run.fence} · <${Left} until=${run.until} /></span>`;
    case 'due': return html`<span>waits for a worker</span>`;
    case 'waits': return run.until ? html`<span>waits until <${When} at=${run.until} /></span>` : html`<span>waits for ${run.signals.length ? 'a signal' : 'something'}</span>`;
    case 'put_off': return html`<span class="bad-ink">put off, next <${When} at=${run.next} />: ${name(run.reason)}</span>`;
    case 'blocked': return html`<span class="bad-ink">blocked: ${name(run.reason)}</span>`;
    default: return html`<span class="quiet">over</span>`;
  }
}

function List({ query }) {
  const { status = '', workflow = '', prefix = '', after = '' } = query;
  const { data, error } = useLive((signal) => get('runs', { status, workflow, prefix, after, limit: ROWS }, signal), [status, workflow, prefix, after]);
  const to = (change) => go(['runs'], { status, workflow, prefix, ...change });
  const states = [['', 'all'], ['running', 'running'], ['completed', 'completed'], ['failed', 'failed'], ['cancelled', 'cancelled']];
  const filtered = status || workflow || prefix;
  return html`<${Head} title="Runs" cli=${command('runs', 'list', status && '--status', status, workflow && '--workflow', workflow, prefix && '--prefix', prefix)}>
      <${Pick} label="Status" value=${status} options=${states} onChange=${(value) => to({ status: value })} />
      <${Filter} value=${prefix} label="Id begins with" onChange=${(text) => text !== prefix && to({ prefix: text })} />
      <${Filter} value=${workflow} label="Workflow" onChange=${(text) => text !== workflow && to({ workflow: text })} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.runs.length === 0 && !data.next ? (filtered ? html`<${Empty} title="No run matches">Loosen the filter.</${Empty}>` : html`<${Empty} title="No runs yet" cli="tidelock runs start WORKFLOW --input '{}'">A run is a workflow under way: an async function whose steps are written down, so that another process can go on where one died.</${Empty}>`) : html`
      <${Table} label="runs" heads=${['Run', 'Workflow', 'Status', 'Does', 'Changed', 'Outcome']} rows=${data.runs.map((run) => html`<tr key=${run.run}>
        <td><a data-row href=${link(['runs', run.run])}><${Name} of=${run.run} most=${44} /></a></td><td><a href=${link(['runs'], { status, prefix, workflow: run.workflow })}><${Name} of=${run.workflow} most=${30} /></a></td>
        <td><${Badge} tone=${TONES[run.status]}>${run.status}</${Badge}></td><td><${Doing} run=${run} /></td><td><${When} at=${run.changed_at} /></td>
        <td class="mono wide">${run.failure ? html`<span class="bad-ink">${name(run.failure)}</span>` : run.output === null ? '' : brief(run.output, 60)}</td></tr>`)} />
      <${Pager} parts=${['runs']} query=${{ status, workflow, prefix }} next=${data.next} first=${after} />`}`;
}

async function load(of, signal) {
  const run = await get(path('runs', of), {}, signal);
  const journal = path('streams', `tidelock.journal(${JSON.stringify(of)}, ${run.generation})`);
  const absent = (instead) => (error) => {
    if (error instanceof Problem && error.status === 404) return instead;
    throw error;
  };
  const [found, row] = await Promise.all([
    get(`${journal}/events`, { limit: ENTRIES }, signal).catch(absent({ events: [], end: true })),
    // The row goes when the run ends.
    get('work/rows', { key: `tidelock.run(${JSON.stringify(of)})` }, signal).then(({ rows }) => rows[0] ?? null),
  ]);
  return { run, events: found.events, end: found.end, row };
}

function Verbs({ run, steps, reload }) {
  const where = path('runs', run.run);
  const over = run.status !== 'running';
  const signal = async ([word, value]) => {
    let read = null;
    if (value.trim()) {
      try {
        read = JSON.parse(value);
      } catch {
        throw new Error('the value is not JSON; a text has quotes, as in "yes"');
      }
    }
    await post(`${where}/signals`, { name: word.trim(), value: read });
    return `Signal ${word} sent`;
  };
  const told = (verb) => async ([reason]) => {
    await post(`${where}/${verb}`, { reason: reason.trim() || 'asked for in the inspector' });
    return `${verb === 'cancel' ? 'Asked to stop' : 'Resumed'}: ${run.run}`;
  };
  const fork = async ([from, id]) => {
    const made = await post(`${where}/fork`, { from: from.trim(), id: id.trim() || undefined });
    go(['runs', made.run]);
    return `Forked: ${made.run}`;
  };
  const reason = [{ label: 'Reason' }];
  return html`
    ${over ? null : html`<${Action} label="Signal" title="Send a signal" ask=${[{ label: 'Name', value: run.signals[0] || '', required: true }, { label: 'Value (JSON)' }]}
      cli=${(word, value) => command('runs', 'signal', run.run, word || 'NAME', value && '--value', value)} run=${signal} done=${reload} />
      <${Action} label="Cancel" danger title="Ask the run to stop, and to clean up" ask=${reason} cli=${(text) => command('runs', 'cancel', run.run, text && '--reason', text)} run=${told('cancel')} done=${reload} />`}
    ${run.status === 'failed' || run.doing === 'blocked' || run.doing === 'put_off' ? html`<${Action} label="Resume" title="Let it go on: the step that failed is tried again" ask=${reason}
      cli=${(text) => command('runs', 'resume', run.run, text && '--reason', text)} run=${told('resume')} done=${reload} />` : null}
    ${steps.length ? html`<${Action} label="Fork" title="Start a run that has done what this one did before a step" ask=${[{ label: 'First step that is done anew', value: steps[steps.length - 1], required: true }, { label: 'Id of the new run (a new one when empty)' }]}
      cli=${(from, id) => command('runs', 'fork', run.run, '--from', from || 'STEP', id && '--id', id)} run=${fork} /> ` : null}`;
}

function Run({ of }) {
  const { data, error, reload } = useLive((signal) => load(of, signal), [of]);
  if (!data) return html`<${Head} title=${html`<${Name} of=${of} />`} /><${Failed} error=${error} />${error ? null : html`<${Loading} />`}`;
  const { run, events, end, row } = data;
  const steps = [...new Set(events.map((event) => event.payload?.op?.name).filter(Boolean))];
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('runs', 'show', of)}><a class="button small" href="#/runs">All runs</a><${Verbs} run=${run} steps=${steps} reload=${reload} /></${Head}>
    <${Failed} error=${error} />
    <dl class="facts"><div><dt>Status</dt><dd><${Badge} tone=${TONES[run.status]}>${run.status}</${Badge}></dd></div><div><dt>Does</dt><dd><${Doing} run=${run} /></dd></div>
      <div><dt>Workflow</dt><dd><${Name} of=${run.workflow} /></dd></div><div><dt>Queue</dt><dd><${Name} of=${run.queue} /> · priority ${run.priority}</dd></div>
      <div><dt>Generation</dt><dd class="num">${run.generation}</dd></div><div><dt>Changed</dt><dd><${When} at=${run.changed_at} /></dd></div>
      ${run.signals.length ? html`<div><dt>Hears</dt><dd>${run.signals.map((word) => html`<${Badge}>${name(word)}</${Badge}> `)}</dd></div>` : null}
      ${run.parent ? html`<div><dt>Parent</dt><dd><a href=${link(['runs', run.parent])}><${Name} of=${run.parent} /></a></dd></div>` : null}
      ${Object.entries(run.attributes).map(([key, value]) => html`<div key=${key}><dt>${name(key)}</dt><dd><${Name} of=${value} /></dd></div>`)}</dl>
    ${run.failure ? html`<pre class="error" tabindex="0">${name(run.failure)}</pre>` : null}
    <section><h2>Timeline</h2><${Timeline} events=${events} fence=${run.fence} takeovers=${row?.takeovers} />
      ${end ? null : html`<p class="quiet">These are the first ${count(events.length)} entries; the journal has more.</p>`}</section>
    <section class="two"><div><h2>Input</h2><${Json} of=${run.input} label="input" /></div><div><h2>Output</h2>${run.output === null ? html`<p class="quiet">None ${run.status === 'running' ? 'yet' : ''}.</p>` : html`<${Json} of=${run.output} label="output" />`}</div></section>
    <section><details><summary>Journal, ${count(events.length)} entries</summary><${Journal} events=${events} /></details></section>`;
}
