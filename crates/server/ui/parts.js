// The parts that pages are made of.
import { html, useCallback, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { live, now, onPulse } from './api.js';
import { instant, lines, name, pretty, short, span } from './show.js';

/** Draws again with every pulse, and as often as is said besides. */
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
 * What is loaded, and loaded again with the pulse. What was there stays until the new is.
 * @param {(signal: AbortSignal) => Promise<any>} load @param {unknown[]} by what it depends on
 */
export function useLive(load, by) {
  const [state, set] = useState({ data: null, error: null });
  const mine = useRef({ busy: false, last: 0, again: false, ended: false, go: () => {} });
  useEffect(() => {
    const self = { busy: false, last: 0, again: false, ended: false, go: () => {} };
    const abort = new AbortController();
    mine.current = self;
    self.go = async () => {
      if (self.busy) {
        self.again = true;
        return;
      }
      self.busy = true;
      self.last = performance.now();
      try {
        const data = await load(abort.signal);
        if (!self.ended) set({ data, error: null });
      } catch (error) {
        if (!self.ended) set((before) => ({ data: before.data, error }));
      }
      self.busy = false;
      if (self.again && !self.ended) {
        self.again = false;
        self.go();
      }
    };
    set({ data: null, error: null });
    self.go();
    const stop = onPulse(() => {
      if (live.state === 'live' && performance.now() - self.last >= APART) self.go();
    });
    return () => {
      self.ended = true;
      abort.abort();
      stop();
    };
  }, by);
  const reload = useCallback(() => mine.current.go(), []);
  return { ...state, reload };
}

/** A link to a view. @param {string[]} parts @param {Record<string, unknown>} query */
export function link(parts, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const asked = words.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&');
  return `#/${parts.map(encodeURIComponent).join('/')}${asked ? `?${asked}` : ''}`;
}

/** @param {string[]} parts @param {Record<string, unknown>} query */
export function go(parts, query = {}) {
  location.hash = link(parts, query);
}

/** A name that came from outside. */
export function Name({ of, most = 90 }) {
  return html`<span class="mono name" title=${name(of)}>${short(String(of ?? ''), most)}</span>`;
}

export function When({ at }) {
  if (at === null || at === undefined) return html`<span class="quiet">–</span>`;
  const ms = (now() - at) / 1000;
  const said = Math.abs(ms) < 1000 ? 'now' : ms > 0 ? `${span(ms)} ago` : `in ${span(ms)}`;
  return html`<time class="num" title=${instant(at)}>${said}</time>`;
}

/** The time that is left, counted down. */
export function Left({ until }) {
  usePulse(1000);
  const ms = (until - now()) / 1000;
  const tone = ms <= 0 ? 'bad' : ms < 5000 ? 'warn' : 'good';
  return html`<span class=${`num left ${tone}`} title=${instant(until)}>${ms <= 0 ? `ended ${span(ms)} ago` : span(ms)}</span>`;
}

export function Json({ of, label = 'value' }) {
  return html`<pre class="json" tabindex="0" aria-label=${label}>${lines(pretty(of))}</pre>`;
}

export function Badge({ tone = '', children, title }) {
  return html`<span class=${`badge ${tone}`} title=${title}>${children}</span>`;
}

export function Failed({ error }) {
  if (!error || error.name === 'AbortError') return null;
  return html`<div class="notice bad" role="alert"><b>${error.code || 'No answer'}</b> ${name(error.message)}
    ${error.code ? html` <span class="quiet mono">tidelock explain ${error.code}</span>` : null}</div>`;
}

/** What is said where there is nothing: what would be here, and how it comes here. */
export function Empty({ title, children, cli, code }) {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p>
    ${code ? html`<pre class="json" tabindex="0">${code}</pre>` : null}${cli ? html`<${Cli} text=${cli} />` : null}</div>`;
}

/** A command that does the same, to be copied. */
export function Cli({ text, label = 'Copy' }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
      setTimeout(() => set(false), 1500);
    } catch {
      set(false);
    }
  };
  return html`<span class="cli"><code>${name(text)}</code>
    <button type="button" class="small" onClick=${copy} aria-label=${`Copy command: ${name(text)}`}>${copied ? 'Copied' : label}</button></span>`;
}

/** The head of a page. */
export function Head({ title, children, cli }) {
  return html`<header class="head"><h1>${title}</h1><div class="tools">${children}</div>${cli ? html`<${Cli} text=${cli} />` : null}</header>`;
}

/** A field that narrows a list; it is one view for each text. */
export function Filter({ value, onChange, label, hint }) {
  const [text, set] = useState(value);
  const [last, setLast] = useState(value);
  const input = useRef(null);
  // Another view has another text. Not in an effect: that may come after the first key was pressed.
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

/** The way to further rows: a view of its own, so that back goes back. */
export function Pager({ parts, query, next, first }) {
  return html`<nav class="pager" aria-label="pages">
    ${first ? html`<a class="button small" href=${link(parts, { ...query, after: '' })}>First page</a>` : null}
    ${next ? html`<a class="button small" data-next href=${link(parts, { ...query, after: next })}>Next page</a>` : html`<span class="quiet">That is all.</span>`}
  </nav>`;
}

/** A table whose rows lead somewhere: the first cell has the link. */
export function Table({ label, heads, rows }) {
  return html`<div class="scroll"><table aria-label=${label}><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows}</tbody></table></div>`;
}

export function Loading() {
  return html`<p class="quiet loading" role="status">Loading…</p>`;
}
