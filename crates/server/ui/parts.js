// Components and hooks that the pages share.
import { html, useCallback, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { Problem, live, now, onPulse } from './api.js';
import { usePlace } from './place.js';
import { instant, isNever, lines, micros, name, pretty, short, span } from './show.js';

/** Redraws the component with every pulse, and also every `every` milliseconds if that is not 0. */
export function usePulse(every = 0) {
  const [, draw] = useState(0);
  useEffect(() => onPulse(() => draw((n) => n + 1)), []);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => live.state !== 'paused' && draw((n) => n + 1), every);
    return () => clearInterval(timer);
  }, [every]);
}

const APART = 900;

/**
 * Loads now, and after each pulse. The rate is limited, and a burst of pulses always ends with a load.
 * @param {() => Promise<unknown>} load
 */
function follow(load) {
  let [busy, again, ended, last, timer] = [false, false, false, 0, 0];
  const go = async () => {
    clearTimeout(timer);
    timer = 0;
    if (busy) {
      again = true;
      return;
    }
    [busy, last] = [true, performance.now()];
    await load();
    busy = false;
    if (again && !ended) {
      again = false;
      go();
    }
  };
  const stop = onPulse(() => {
    if (live.state !== 'live' || timer) return;
    timer = setTimeout(go, Math.max(0, APART - (performance.now() - last)));
  });
  go();
  const end = () => {
    ended = true;
    clearTimeout(timer);
    stop();
  };
  return { go, end };
}

/**
 * Loads data, and reloads it with the pulse. The previous data stays until the new data arrives, also when the dependencies change.
 * Only an error removes the data of other dependencies. Every redraw keeps the reader's place.
 * @param {(signal: AbortSignal) => Promise<any>} load @param {unknown[]} by the dependencies
 */
export function useLive(load, by) {
  usePlace();
  const [state, set] = useState({ data: null, error: null, of: '' });
  const mine = useRef({ go: () => {} });
  const of = JSON.stringify(by);
  useEffect(() => {
    const abort = new AbortController();
    const once = async () => {
      try {
        const data = await load(abort.signal);
        if (!abort.signal.aborted) set({ data, error: null, of });
      } catch (error) {
        if (!abort.signal.aborted) set((before) => ({ data: before.of === of ? before.data : null, error, of }));
      }
    };
    const following = follow(once);
    mine.current = following;
    return () => {
      following.end();
      abort.abort();
    };
  }, by);
  const reload = useCallback(() => mine.current.go(), []);
  return { data: state.data, error: state.error, reload };
}

/** Returns the link to a view. @param {string[]} parts @param {Record<string, unknown>} query */
export function link(parts, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const asked = words.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&');
  return `#/${parts.map(encodeURIComponent).join('/')}${asked ? `?${asked}` : ''}`;
}

/** @param {string[]} parts @param {Record<string, unknown>} query */
export function go(parts, query = {}) {
  location.hash = link(parts, query);
}

/** A name from an external source. */
export function Name({ of, most = 90 }) {
  return html`<span class="mono name" title=${name(of)}>${short(String(of ?? ''), most)}</span>`;
}

export function When({ at }) {
  const there = micros(at);
  if (there === null) return html`<span class="quiet">–</span>`;
  if (isNever(there)) return html`<span class="quiet">never</span>`;
  const ms = (now() - there) / 1000;
  const said = Math.abs(ms) < 1000 ? 'now' : ms > 0 ? `${span(ms)} ago` : `in ${span(ms)}`;
  return html`<time class="num" title=${instant(at)}>${said}</time>`;
}

/** A countdown of the remaining time. */
export function Left({ until }) {
  usePulse(1000);
  if (isNever(until)) return html`<span class="quiet">no expiry</span>`;
  const ms = ((micros(until) ?? 0) - now()) / 1000;
  const tone = ms <= 0 ? 'bad' : ms < 5000 ? 'warn' : 'good';
  return html`<span class=${`num left ${tone}`} title=${instant(until)}>${ms <= 0 ? `expired ${span(ms)} ago` : span(ms)}</span>`;
}

export function Json({ of, label = 'value' }) {
  return html`<pre class="json" tabindex="0" aria-label=${label}>${lines(pretty(of))}</pre>`;
}

export function Badge({ tone = '', children, title }) {
  return html`<span class=${`badge ${tone}`} title=${title}>${children}</span>`;
}

/** An error message, with an optional button to retry. */
export function Failed({ error, retry, word = 'Try again' }) {
  if (!error || error.name === 'AbortError') return null;
  return html`<div class="notice bad" role="alert"><b>${error.code || (error instanceof Problem ? 'Refused' : 'No answer')}</b> <span class="lines">${lines(error.message)}</span>
    ${error.code ? html` <span class="quiet mono">tidelock explain ${error.code}</span>` : null}
    ${retry ? html`<p><button type="button" data-retry onClick=${retry}>${word}</button></p>` : null}</div>`;
}

/** An error text that a program recorded in the store, unchanged. */
export function ErrorText({ of }) {
  return html`<pre class="error" tabindex="0">${lines(of)}</pre>`;
}

/** The placeholder of an empty view. It explains the missing content and how to create it. */
export function Empty({ title, children, cli, code }) {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p>
    ${code ? html`<pre class="json" tabindex="0">${code}</pre>` : null}${cli ? html`<${Cli} text=${cli} />` : null}</div>`;
}

/** The equivalent command, with a copy button. Without a clipboard, as on a page without TLS, the button selects the text. */
export function Cli({ text, label = 'Copy' }) {
  const [said, say] = useState('');
  const shown = useRef(null);
  useEffect(() => {
    if (!said) return undefined;
    const timer = setTimeout(() => say(''), 3000);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say('Copied');
    } catch {
      getSelection()?.selectAllChildren(shown.current);
      say('Selected: press Ctrl+C');
    }
  };
  return html`<span class="cli"><code ref=${shown} tabindex="-1">${name(text)}</code>
    <button type="button" class="small" onClick=${copy} aria-label=${`Copy command: ${name(text)}`}>${said || label}</button></span>`;
}

/** The header of a page. */
export function Head({ title, children, cli }) {
  return html`<header class="head"><h1>${title}</h1><div class="tools">${children}</div>${cli ? html`<${Cli} text=${cli} />` : null}</header>`;
}

/** A filter field of a list. Each text is a separate view. */
export function Filter({ value, onChange, label, hint }) {
  const [text, set] = useState(value);
  const [last, setLast] = useState(value);
  const input = useRef(null);
  // Another view has another text. An effect would be too late: it may run after the first key press.
  if (last !== value) {
    setLast(value);
    set(value);
  }
  const send = (event) => {
    event.preventDefault();
    onChange(input.current.value.trim());
  };
  return html`<form class="filter" onSubmit=${send} role="search">
    <input ref=${input} type="text" role="searchbox" data-filter aria-label=${label} placeholder=${hint || label} value=${text}
      onInput=${(event) => set(event.currentTarget.value)} onBlur=${send} autocomplete="off" spellcheck="false" /></form>`;
}

export function Pick({ label, value, options, onChange }) {
  return html`<label class="pick">${label} <select value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}</select></label>`;
}

/** Links to the first and the next page. Each page is a separate view, so that the back button works. */
export function Pager({ parts, query, next, first }) {
  return html`<nav class="pager" aria-label="pages">
    ${first ? html`<a class="button small" href=${link(parts, { ...query, after: '' })}>First page</a>` : null}
    ${next ? html`<a class="button small" data-next href=${link(parts, { ...query, after: next })}>Next page</a>` : html`<span class="quiet">That is all.</span>`}
  </nav>`;
}

/** A table. The first cell of a row contains its link. */
export function Table({ label, heads, rows }) {
  return html`<div class="scroll"><table aria-label=${label}><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows}</tbody></table></div>`;
}

export function Loading() {
  return html`<p class="quiet loading" role="status">Loading…</p>`;
}
