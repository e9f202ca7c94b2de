// Earlier values of documents, before and after a write, from their history; and the slider that selects a version.
import { html, useEffect, useState } from '../vendor/htm-preact.js';
import { Problem, get, path } from '../api.js';
import { Diff } from '../diff.js';
import { Badge, Json } from '../parts.js';
import { lines } from '../show.js';

const NOTHING = { value: undefined };
const REMOVED = { problem: 'The earlier value was removed from the history.' };

/** Returns the value of a document after a write, no value if it was deleted, or the reason why the value is unknown. */
async function was(record, number, signal) {
  try {
    const found = await get(`${path('state', record)}/history/${number}`, {}, signal);
    return { value: found.deleted ? undefined : found.value };
  } catch (error) {
    if (error instanceof Problem) return { problem: error.message };
    throw error;
  }
}

/** Returns the values of a document before and after a write. `first` is the oldest write in the history. */
export async function change(record, number, first, signal) {
  const before = number > first ? was(record, number - 1, signal) : number > 0 ? REMOVED : NOTHING;
  const [after, earlier] = await Promise.all([was(record, number, signal), before]);
  return { after, before: earlier };
}

function Value({ of }) {
  if (of.problem) return html`<p class="quiet lines" data-untold>Unknown: ${lines(of.problem)}</p>`;
  return of.value === undefined ? html`<p class="quiet">Deleted.</p>` : html`<${Json} of=${of.value} />`;
}

/** The value after a write beside its difference to the value before. Without both values there is no difference. */
export function Change({ number, word, after, before, children }) {
  const unknown = after.problem || before.problem;
  return html`<section class="two"><div><h2>Value after ${word} ${number}${after.now ? ', the current one' : ''}</h2><${Value} of=${after} />${children}</div>
    <div><h2>Changes of this ${word}</h2>${unknown ? html`<p class="quiet lines">Unknown: ${lines(unknown)}</p>` : html`<${Diff} before=${before.value} after=${after.value} />`}</div></section>`;
}

/** Parses the number in the address and clamps it to the existing versions. */
export function within(at, first, head) {
  const asked = at === undefined || at === '' ? head : Number(at);
  return Math.min(Math.max(Number.isFinite(asked) ? asked : head, first), head);
}

/** A slider over versions. Its position comes from the address and not from the loaded data, so that it can move again at once. */
export function Slider({ word, at, first, head, follows, to, newest, children }) {
  const [shown, show] = useState(null);
  // Reset when the address changes. A reset after the redraw would undo movements made in between.
  useEffect(() => {
    const moved = () => show(null);
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const position = shown ?? at;
  return html`<div class="slider"><label>${word} <b class="num">${position}</b> of ${first}…${head}
      <input type="range" aria-label=${word.toLowerCase()} min=${first} max=${head} step="1" value=${position}
        onInput=${(event) => show(Number(event.currentTarget.value))} onChange=${(event) => to(Number(event.currentTarget.value))} /></label>
    <button type="button" class="small" disabled=${at <= first} onClick=${() => to(at - 1)}>Older</button>
    <button type="button" class="small" disabled=${at >= head} onClick=${() => to(at + 1)}>Newer</button>
    ${follows ? html`<${Badge} tone="good">newest</${Badge}>` : html`<a class="button small" href=${newest}>Newest</a>`}${children}</div>`;
}
