// Differences between two JSON values, by path.
import { html } from './vendor/htm-preact.js';
import { brief, name } from './show.js';

const MOST = 200;

/** @returns {{path: string, before: unknown, after: unknown, kind: 'added' | 'removed' | 'changed'}[]} */
export function differences(before, after) {
  const found = [];
  walk('', before, after, found);
  return found;
}

function isObject(value) {
  return value !== null && typeof value === 'object';
}

/** Returns an own property of an object. Inherited ones are excluded, because a key may be called `constructor`. */
function own(value, key) {
  return Object.hasOwn(value, key) ? value[key] : undefined;
}

function walk(path, before, after, found) {
  if (found.length >= MOST || Object.is(before, after)) return;
  if (isObject(before) && isObject(after) && Array.isArray(before) === Array.isArray(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      walk(`${path}/${key}`, own(before, key), own(after, key), found);
    }
    return;
  }
  const kind = before === undefined ? 'added' : after === undefined ? 'removed' : 'changed';
  found.push({ path: path || '/', before, after, kind });
}

/** @param {{before: unknown, after: unknown}} props */
export function Diff({ before, after }) {
  const found = differences(before, after);
  if (found.length === 0) return html`<p class="quiet">No difference.</p>`;
  return html`<table class="diff"><thead><tr><th>path</th><th>before</th><th>after</th></tr></thead><tbody>
    ${found.map(({ path, before: was, after: is, kind }) => html`<tr class=${kind} key=${path}>
      <td class="mono">${name(path)}</td>
      <td class="mono was">${was === undefined ? '' : brief(was)}</td>
      <td class="mono is">${is === undefined ? '' : brief(is)}</td>
    </tr>`)}
  </tbody></table>${found.length >= MOST ? html`<p class="quiet">There is more.</p>` : null}`;
}
