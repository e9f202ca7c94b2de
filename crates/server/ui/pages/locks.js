// Locks of the program: holders, waiters and deadlock cycles.
import { html } from '../vendor/htm-preact.js';
import { get } from '../api.js';
import { Badge, Empty, Failed, Head, Loading, Name, Table, useLive } from '../parts.js';
import { count, name, span } from '../show.js';
import { Graph } from './graph.js';

const CODE = `let server = Server::new(store, options).locks(&locks);
let app = axum::Router::new().nest("/tidelock", server.router());`;

export function Locks() {
  const { data, error } = useLive((signal) => get('locks', {}, signal), []);
  return html`<${Head} title="Locks" /><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : !data.shown ? html`<${Empty} title="This server sees no locks" code=${CODE}>Keyed locks live in the memory of the program that uses them, so a server that stands alone cannot see them. Mount it in the program, and hand it the table: then this page shows holders, queues, the places in the source, and tasks that wait in a cycle. Holds across processes are <a href="#/leases">leases</a>.</${Empty}>` : html`
      ${data.cycles.length ? html`<div class="notice bad" role="alert" data-cycles=${data.cycles.length}><b>${data.cycles.length === 1 ? 'Tasks wait for each other in a cycle' : `${count(data.cycles.length)} cycles of waiting tasks`}</b>
        ${data.cycles.map((cycle, i) => html`<div key=${i} class="mono">${[...cycle, cycle[0]].map(name).join(' → ')}</div>`)}
        <p>One of them got an error that names both places, but has not polled it. Is there a future that no task polls?</p></div>` : null}
      ${data.held === 0 ? html`<${Empty} title="Nothing is locked">Holders and those who wait show up here while they do.</${Empty}>` : html`
        <section class="locks"><div><h2>${count(data.held)} held, ${count(data.waiting)} wait</h2>${data.terms.length < data.held ? html`<p class="quiet">The first ${count(data.terms.length)}: those that most wait for.</p>` : null}<${Terms} terms=${data.terms} cycles=${data.cycles} /></div>
          <div><h2>Who waits for whom</h2><${Graph} terms=${data.terms} cycles=${data.cycles} /></div></section>`}
      <${FoundLately} found=${data.found} /><${Stats} functors=${data.functors} />`}`;
}

function Party({ of, role, round }) {
  return html`<tr class=${round ? 'blocked' : ''}><td>${role}</td><td>${of.task ? name(of.task) : 'a task'} ${round ? html`<${Badge} tone="bad">cycle</${Badge}>` : null}</td><td>${name(of.mode)}</td><td class="num">${span(of.age_ms)}</td><td class="mono quiet">${name(of.place)}</td></tr>`;
}

function Terms({ terms, cycles }) {
  const round = new Set(cycles.flat());
  return html`<div class="stack">${terms.map((term) => html`<article class="item" key=${term.term} data-term=${term.term}><header><${Name} of=${term.term} />${term.waiting ? html`<${Badge} tone="warn">${count(term.waiting)} wait</${Badge}>` : null}</header>
    <div class="scroll"><table class="parties" aria-label=${`lock ${name(term.term)}`}><tbody>${term.holders.map((one) => html`<${Party} key=${`${one.task} ${one.place}`} of=${one} role="holds" round=${term.waiting > 0 && round.has(one.task)} />`)}
      ${term.waiters.map((one, i) => html`<${Party} key=${`${one.task} ${one.place}`} of=${one} role=${`waits, ${i + 1}.`} round=${round.has(one.task)} />`)}</tbody></table></div>
      ${term.waiting > term.waiters.length ? html`<p class="quiet">The first ${count(term.waiters.length)} of ${count(term.waiting)} that wait.</p>` : null}</article>`)}</div>`;
}

function FoundLately({ found }) {
  if (found.length === 0) return null;
  return html`<section><h2>Cycles that were found lately</h2><p class="quiet">In each, the task that closed the cycle was refused, and the others went on.</p>
    <div class="stack">${found.map((one, i) => html`<article class="item bad" key=${i} data-found><header><b>${span(one.ago_ms)} ago</b></header>
      <ul>${one.links.map((of, n) => html`<li key=${n}>${name(of.task)} waited at <span class="mono">${name(of.asked)}</span> for <${Name} of=${of.term} />, which ${name(of.holder)} held since <span class="mono">${name(of.held)}</span></li>`)}</ul></article>`)}</div></section>`;
}

function Stats({ functors }) {
  if (functors.length === 0) return null;
  return html`<section><h2>Since the program began</h2><${Table} label="functors" heads=${['Functor', 'Granted', 'Waited', 'Refused', 'Waiting in all', 'Longest wait', 'Longest hold']} rows=${functors.map((one) => html`<tr key=${one.functor}>
    <td>${one.functor ? html`<${Name} of=${one.functor} />` : html`<span class="quiet">from keys</span>`}</td><td class="num">${count(one.acquired)}</td><td class="num">${count(one.waited)}</td><td class="num">${count(one.refused)}</td>
    <td class="num">${span(one.wait_ms)}</td><td class="num">${span(one.longest_wait_ms)}</td><td class="num">${span(one.longest_hold_ms)}</td></tr>`)} /></section>`;
}
