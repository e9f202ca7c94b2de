// Schedules (cron) and their runs.
import { html } from '../vendor/htm-preact.js';
import { get, path, post } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, Failed, Head, Left, Loading, Name, Pager, Table, When, link, useLive } from '../parts.js';
import { command, count, instant, micros, name, span } from '../show.js';

const ROWS = 100;
const TONES = { runs: 'live', due: 'warn', waits: '', retries: 'warn', paused: 'warn', archived: '', blocked: 'bad', broken: 'bad' };
const ENDS = { succeeded: 'good', started: 'good', failed: 'bad', lost: 'bad', interrupted: 'warn' };

export function Schedules({ parts, query }) {
  return parts[0] ? html`<${Task} key=${parts[0]} of=${parts[0]} />` : html`<${List} query=${query} />`;
}

function Doing({ of }) {
  const tone = TONES[of.state];
  const more = of.state === 'runs' ? html` by <${Name} of=${of.by} most=${20} /> · <${Left} until=${of.until} />` : of.reason ? html` <span class="quiet">${name(of.reason)}</span>` : null;
  return html`<${Badge} tone=${tone}>${of.state}</${Badge}>${more}`;
}

function Verbs({ task, reload }) {
  const { name: of, doing } = task;
  if (doing.state === 'archived' || doing.state === 'broken') return null;
  const where = path('schedules', of);
  return html`<${Action} label="Run now" title="Trigger a run now" about=${html`<${Name} of=${of} />`} cli=${command('schedules run', [of])} done=${reload} run=${async () => `Triggered: ${(await post(`${where}/run`, {})).tick}`} />
    ${doing.state === 'paused' ? html`<${Action} label="Resume" title="Resume the schedule; ticks during the pause do not run" about=${html`<${Name} of=${of} />`} cli=${command('schedules resume', [of])} done=${reload}
      run=${async () => { await post(`${where}/resume`, {}); return `Resumed: ${of}`; }} />` : html`<${Action} label="Pause" title="Pause the schedule until it is resumed" about=${html`<${Name} of=${of} />`} ask=${[{ label: 'Reason' }]}
      cli=${(reason) => command('schedules pause', [of], { reason })} done=${reload} run=${async ([reason]) => { await post(`${where}/pause`, { reason: reason.trim() || 'paused in the inspector' }); return `Paused: ${of}`; }} />`}`;
}

function List({ query }) {
  const { after = '' } = query;
  const { data, error, reload } = useLive((signal) => get('schedules', { cursor: after, limit: ROWS }, signal), [after]);
  return html`<${Head} title="Schedules" cli=${command('schedules list', [], { archived: true })} /><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.schedules.length === 0 ? html`<${Empty} title="No schedules yet">A schedule runs at its times, once across all processes. A program registers its schedules when its worker starts.</${Empty}>` : html`
      <${Table} label="schedules" heads=${['Schedule', 'Times', 'State', 'Next', 'Runs', 'Failed', 'Skipped', '']} rows=${data.schedules.map((task) => html`<tr key=${task.name}>
        <td><a data-row href=${link(['schedules', task.name])}><${Name} of=${task.name} most=${40} /></a></td><td class="mono">${name(task.cron_expression)} <span class="quiet">${name(task.zone)}</span></td>
        <td><${Doing} of=${task.doing} /></td><td><${When} at=${task.next} /></td><td class="num">${count(task.runs)}</td><td class="num">${task.failures ? html`<${Badge} tone="bad">${count(task.failures)}</${Badge}>` : '0'}</td><td class="num">${count(task.skipped)}</td>
        <td class="verbs"><${Verbs} task=${task} reload=${reload} /></td></tr>`)} />
      <${Pager} parts=${['schedules']} query=${{}} next=${data.next} first=${after} />`}`;
}

function Task({ of }) {
  const { data, error, reload } = useLive((signal) => get(path('schedules', of), {}, signal), [of]);
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('schedules show', [of])}><a class="button small" href="#/schedules">All schedules</a>${data ? html`<${Verbs} task=${data} reload=${reload} />` : null}</${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`<dl class="facts"><div><dt>Times</dt><dd class="mono">${name(data.cron_expression)} ${name(data.zone)}</dd></div><div><dt>State</dt><dd><${Doing} of=${data.doing} /></dd></div>
        <div><dt>Action</dt><dd>${name(data.action)}</dd></div><div><dt>Worker</dt><dd><${Name} of=${data.scheduler} /></dd></div><div><dt>Runs</dt><dd class="num">${count(data.runs)}</dd></div>
        <div><dt>Failed</dt><dd class="num">${count(data.failures)}</dd></div><div><dt>Skipped</dt><dd class="num">${count(data.skipped)}</dd></div><div><dt>Last success</dt><dd><${When} at=${data.last_success_time} /></dd></div></dl>
      <section class="two"><div><h2>Next times</h2>${data.upcoming.length === 0 ? html`<p class="quiet">None.</p>` : html`<ol class="line">${data.upcoming.map((at) => html`<li key=${at}><${When} at=${at} /> <span class="quiet">${instant(at)}</span></li>`)}</ol>`}</div>
        <div><h2>Last runs</h2>${data.history.length === 0 ? html`<p class="quiet">No runs yet.</p>` : html`<${Table} label="runs of the schedule" heads=${['Tick', 'Kind', 'Result', 'Took', 'Worker']} rows=${data.history.map((one) => {
          const word = typeof one.outcome === 'string' ? one.outcome : Object.keys(one.outcome)[0];
          return html`<tr key=${`${one.fire} ${one.began} ${one.owner}`}><td><${When} at=${one.fire} /></td><td>${name(one.kind)}</td><td><${Badge} tone=${ENDS[word]} title=${name(one.error || '')}>${word}</${Badge}> ${one.outcome?.started ? html`<a href=${link(['runs', one.outcome.started.run])}>run</a>` : null}</td>
            <td class="num">${span(((micros(one.ended) ?? 0) - (micros(one.began) ?? 0)) / 1000)}</td><td><${Name} of=${one.owner} most=${20} /></td></tr>`;
        })} />`}</div></section>`}`;
}
