// Timeline of a run: the operations that each activation executed, and those that it replayed.
import { html } from '../vendor/htm-preact.js';
import { Badge, Name } from '../parts.js';
import { brief, clock, count, instant, micros, name, span } from '../show.js';

const PREFIX = 'tidelock.run.';
const WIDTH = 1000;
const ROW = 22;

const ENDINGS = new Map([['completed', 'done'], ['failed', 'failed'], ['cancelled', 'cancelled'], ['continued', 'done']]);

/** Returns the outcome of a child run, as one word. */
function ended(ending) {
  const [word] = typeof ending === 'string' ? [ending] : Object.keys(ending ?? {});
  return ENDINGS.get(word) ?? 'done';
}

/** The description of each type of journal entry: kind, name, state and value. */
const ENTRIES = new Map(Object.entries({
  done: (p) => ['step', p.op?.name, 'done', p.value],
  'gave-up': (p) => ['step', p.op?.name, 'failed', p.error],
  tried: (p) => ['step', p.op?.name, 'tried', p.error],
  'timer-set': (p) => ['timer', p.op?.name, 'waits', p.when],
  'timer-fired': (p) => ['timer', p.name, 'fired', undefined],
  'child-started': (p) => ['child', p.op?.name, 'waits', p.run],
  'child-ended': (p) => ['child', p.name, ended(p.ending), p.ending],
  heard: (p) => ['signal', p.signal, 'heard', p.value],
}));

/** The final states. Later activations replay only operations in one of them from the journal. A failed attempt runs again. */
const SETTLED = new Set(['done', 'failed', 'fired', 'heard', 'cancelled']);

/** Returns the activations of a run, by the fences that the entries record, and the current one. */
export function activations(events, fence) {
  const found = [];
  for (const event of events) {
    const by = event.meta?.fence;
    if (by === undefined || by === null || found.some((one) => one.fence === by)) continue;
    found.push({ fence: by, at: event.recorded_at, version: event.version });
  }
  if (fence !== undefined && !found.some((one) => one.fence === fence)) found.push({ fence, at: null, version: Infinity });
  return found.map((one, i) => ({ ...one, number: i + 1 }));
}

/** Returns the rows of the timeline: one for each operation, with all its entries. */
export function rows(events, acts) {
  const found = new Map();
  for (const event of events) {
    const type = event.type.startsWith(PREFIX) ? event.type.slice(PREFIX.length) : event.type;
    const read = ENTRIES.get(type);
    // Failed steps are retried from here on.
    if (type === 'resumed') for (const row of found.values()) if (row.kind === 'step' && row.state === 'failed') Object.assign(row, { state: 'tried', replays: 0 });
    if (read) {
      const [kind, what, state, value] = read(event.payload ?? {});
      const act = acts.find((one) => one.fence === event.meta?.fence);
      const key = kind === 'signal' ? `signal ${event.version}` : `${kind} ${what}`;
      const row = found.get(key) || { key, kind, what, marks: [], attempts: 0 };
      // An attempt of a step records the times of its code. A timer or a child lasts from its first entry to its last.
      const ran = event.payload?.ran;
      const at = micros(ran?.ended ?? event.recorded_at);
      const from = micros(ran?.began) ?? row.marks[row.marks.length - 1]?.at ?? at;
      row.marks.push({ state, from, at, act: act?.number });
      const replays = act && SETTLED.has(state) ? acts.filter((one) => one.number > act.number).length : 0;
      Object.assign(row, { state, value, act: act?.number, replays, attempts: row.attempts + (kind === 'step' ? 1 : 0) });
      found.set(key, row);
    }
  }
  return [...found.values()];
}

const TONES = { done: 'good', fired: 'good', heard: 'good', failed: 'bad', cancelled: 'warn', tried: 'warn', waits: 'quiet' };

function Bars({ row, from, to }) {
  const x = (at) => ((at - from) / Math.max(to - from, 1)) * (WIDTH - 20) + 10;
  return html`<svg class="bars" viewBox=${`0 0 ${WIDTH} ${ROW}`} preserveAspectRatio="none" role="img" aria-label=${row.marks.map((mark) => `${mark.state} at ${clock(mark.at)}`).join(', ')}>
    ${row.marks.map((mark) => html`<rect class=${`bar ${TONES[mark.state]}`} x=${Math.min(x(mark.from), x(mark.at) - 4)} y="6" width=${Math.max(x(mark.at) - x(mark.from), 4)} height="10"><title>${`${mark.state} ${clock(mark.at)}, took ${span((mark.at - mark.from) / 1000)}${mark.act ? `, activation ${mark.act}` : ''}`}</title></rect>`)}
  </svg>`;
}

/** The marks of a row: the activation that executed it, and the number of activations that replayed it. */
function Marks({ row }) {
  const executed = row.act ? html`<${Badge} tone="executed" title="Its code ran in this activation">executed in ${row.act}</${Badge}>` : null;
  const replayed = row.replays ? html`<${Badge} tone="replayed" title="Later activations took its result from the journal; its code did not run again">replayed ×${row.replays}</${Badge}>` : null;
  return html`<span class="marks" data-executed=${row.act ?? ''} data-replayed=${row.replays}>${executed}${replayed}</span>`;
}

export function Timeline({ events, fence, takeovers }) {
  const acts = activations(events, fence);
  const found = rows(events, acts);
  if (found.length === 0) return html`<p class="quiet">No operations yet.</p>`;
  const times = found.flatMap((row) => row.marks.flatMap((mark) => [mark.from, mark.at]));
  const [from, to] = [Math.min(micros(events[0].recorded_at) ?? 0, ...times), Math.max(micros(events[events.length - 1].recorded_at) ?? 0, ...times)];
  return html`<p class="acts">${acts.map((one) => html`<span class="act" key=${one.fence}><b>Activation ${one.number}</b> <span class="quiet">fence ${one.fence}${one.at ? html`, first entry <time title=${instant(one.at)}>${clock(one.at)}</time>` : ', no entries yet'}</span></span>`)}
      ${takeovers ? html`<${Badge} tone="warn" title="Another worker took the run over after its lease expired">taken over ×${count(takeovers)}</${Badge}>` : null}</p>
    <div class="scroll"><table class="timeline" aria-label="timeline"><thead><tr><th>What</th><th>State</th><th>Marks</th><th>Over ${span((to - from) / 1000)}</th><th>Result</th></tr></thead><tbody>
    ${found.map((row) => html`<tr key=${row.key} data-step=${row.what}><td><span class="quiet">${row.kind}</span> <${Name} of=${row.what} most=${40} /></td>
      <td><${Badge} tone=${TONES[row.state]}>${row.state}</${Badge}>${row.attempts > 1 ? html` <span class="quiet">${row.attempts} attempts</span>` : null}</td>
      <td><${Marks} row=${row} /></td><td class="barcell"><${Bars} row=${row} from=${from} to=${to} /></td><td class="mono wide">${row.value === undefined ? '' : brief(row.value, 80)}</td></tr>`)}
    </tbody></table></div>`;
}

/** The journal, entry by entry. */
export function Journal({ events }) {
  return html`<div class="scroll"><table aria-label="journal"><thead><tr><th>No.</th><th>Entry</th><th>At</th><th>Fence</th><th>Says</th></tr></thead><tbody>
    ${events.map((event) => html`<tr key=${event.version}><td class="num">${event.version}</td><td class="mono">${name(event.type.replace(PREFIX, ''))}</td>
      <td class="num" title=${instant(event.recorded_at)}>${clock(event.recorded_at)}</td><td class="num">${event.meta?.fence ?? '–'}</td><td class="mono wide">${brief(event.payload, 160)}</td></tr>`)}
  </tbody></table></div>`;
}
