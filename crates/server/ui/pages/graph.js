// Wait-for graph of locks. Tasks form a ring, with an arrow from each waiter to the holder. Cycles (deadlocks) are red.
import { html } from '../vendor/htm-preact.js';
import { count, name, short } from '../show.js';

const MOST = 40;
const SIZE = 440;
const NODE = { width: 108, height: 26 };

/** Returns the edges of a snapshot. */
export function edges(terms) {
  const found = [];
  for (const { term, waiters } of terms) {
    for (const waiter of waiters) {
      for (const holder of waiter.blocked_by) if (waiter.task) found.push({ from: waiter.task, to: holder, term });
    }
  }
  return found;
}

/** Returns whether an edge is part of a cycle. */
function goesRound(edge, cycles) {
  return cycles.some((cycle) => cycle.some((task, i) => task === edge.from && cycle[(i + 1) % cycle.length] === edge.to));
}

/** Returns the point where the line between two boxes crosses the border of the first. */
function border(from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const by = Math.min(Math.abs((NODE.width / 2 + 4) / (dx || 1e-9)), Math.abs((NODE.height / 2 + 4) / (dy || 1e-9)));
  return { x: from.x + dx * by, y: from.y + dy * by };
}

export function Graph({ terms, cycles }) {
  const all = edges(terms);
  if (all.length === 0) return html`<p class="quiet">No waits.</p>`;
  const round = cycles.flat();
  const tasksInWaits = [...new Set([...round, ...all.flatMap((edge) => [edge.from, edge.to])])];
  const tasks = tasksInWaits.slice(0, MOST);
  const radius = SIZE / 2 - 70;
  const at = new Map(tasks.map((task, i) => {
    const angle = (2 * Math.PI * i) / tasks.length - Math.PI / 2;
    return [task, { x: SIZE / 2 + radius * Math.cos(angle), y: SIZE / 2 + radius * Math.sin(angle) }];
  }));
  const arrows = all.filter((edge) => at.has(edge.from) && at.has(edge.to));
  const rest = tasksInWaits.length - tasks.length;
  return html`${rest ? html`<p class="quiet">The first ${count(MOST)} of ${count(tasksInWaits.length)} tasks; those in cycles come first.</p>` : null}<svg class="graph" viewBox=${`0 0 ${SIZE} ${SIZE}`} role="img" aria-label=${`${all.length} waits, ${cycles.length} cycles`}>
    <defs>${['plain', 'round'].map((kind) => html`<marker key=${kind} id=${`arrow-${kind}`} class=${kind} viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" /></marker>`)}</defs>
    ${arrows.map((edge) => {
      const [from, to] = [at.get(edge.from), at.get(edge.to)];
      const both = arrows.some((other) => other.from === edge.to && other.to === edge.from);
      const [a, b] = [border(from, to), border(to, from)];
      const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
      const bend = both ? 60 : 0;
      const mid = { x: (a.x + b.x) / 2 - ((b.y - a.y) / length) * bend, y: (a.y + b.y) / 2 + ((b.x - a.x) / length) * bend };
      const kind = goesRound(edge, cycles) ? 'round' : 'plain';
      return html`<g class=${`edge ${kind}`} key=${`${edge.from} ${edge.to} ${edge.term}`} data-edge=${kind}><path d=${`M${a.x} ${a.y}Q${mid.x} ${mid.y} ${b.x} ${b.y}`} marker-end=${`url(#arrow-${kind})`} />
        <text x=${(a.x + 2 * mid.x + b.x) / 4} y=${(a.y + 2 * mid.y + b.y) / 4 + (both ? (a.y < b.y ? -14 : 14) : 0)} text-anchor="middle">${short(edge.term, 26)}<title>${name(edge.term)}</title></text></g>`;
    })}
    ${[...at].map(([task, { x, y }]) => html`<g class=${`node ${round.includes(task) ? 'round' : ''}`} key=${task}><rect x=${x - NODE.width / 2} y=${y - NODE.height / 2} width=${NODE.width} height=${NODE.height} rx="5" />
      <text x=${x} y=${y + 4} text-anchor="middle">${short(task, 18)}<title>${name(task)}</title></text></g>`)}
  </svg>`;
}
