// The application shell: login, routing and keyboard shortcuts.
import { html, render, useEffect, useErrorBoundary, useRef, useState } from './vendor/htm-preact.js';
import { Problem, connect, forgetToken, get, hasToken, live, onPulse, pause, reconnect, setToken, takeToken } from './api.js';
import { About, Toast, useModal } from './actions.js';
import { Failed, Loading, go, usePulse } from './parts.js';
import { name } from './show.js';
import { Overview } from './pages/overview.js';
import { Streams } from './pages/streams.js';
import { Stuck } from './pages/stuck.js';
import { Runs } from './pages/runs.js';
import { Work } from './pages/work.js';
import { Leases } from './pages/leases.js';
import { Locks } from './pages/locks.js';
import { State } from './pages/state.js';
import { Schedules } from './pages/schedules.js';
import { Audit } from './pages/audit.js';

/**
 * The pages: path, title, and the key that opens the page after `g`.
 * @type {[string, string, string, Function][]}
 */
const PAGES = [
  ['', 'Overview', 'o', Overview],
  ['streams', 'Streams', 's', Streams],
  ['stuck', 'Stuck', 'k', Stuck],
  ['runs', 'Runs', 'r', Runs],
  ['work', 'Work', 'w', Work],
  ['leases', 'Leases', 'l', Leases],
  ['locks', 'Locks', 'c', Locks],
  ['state', 'State', 't', State],
  ['schedules', 'Schedules', 'd', Schedules],
  ['audit', 'Audit', 'a', Audit],
];

/** Returns the view that the address names. */
function where() {
  const [path, asked = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { page: parts[0] || '', parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(asked)) };
}

function useWhere() {
  const [at, set] = useState(where);
  useEffect(() => {
    const moved = () => set(where());
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  return at;
}

const THEME = 'tidelock.theme';

function useTheme() {
  const [theme, set] = useState(() => localStorage.getItem(THEME) || 'auto');
  useEffect(() => {
    if (theme === 'auto') localStorage.removeItem(THEME);
    else localStorage.setItem(THEME, theme);
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const next = { auto: 'light', light: 'dark', dark: 'auto' }[theme] || 'auto';
  return [theme, () => set(next)];
}

const STATES = {
  connecting: ['quiet', 'Connecting'],
  live: ['good', 'Live'],
  lost: ['bad', 'Reconnecting'],
  paused: ['warn', 'Paused'],
  refused: ['bad', 'Refused'],
};

function Signal() {
  usePulse();
  const [tone, word] = STATES[live.state] || STATES.lost;
  const on = live.state === 'paused';
  return html`<span class=${`signal ${tone}`} role="status" data-live=${live.state} data-connects=${live.connects}>
      <i class="dot"></i>${word}</span>
    <button type="button" class="small" aria-pressed=${String(on)} data-pause onClick=${() => pause(!on)}>${on ? 'Go on' : 'Pause'}</button>`;
}

function Keys({ close }) {
  const [dialog, leave] = useModal(close);
  const row = (keys, what) => html`<tr><td>${keys.map((key) => html`<kbd>${key}</kbd> `)}</td><td>${what}</td></tr>`;
  return html`<dialog ref=${dialog} class="keys" aria-label="Keys" onClose=${leave} onCancel=${leave}><h2>Keys</h2><table><tbody>
    ${PAGES.map(([, title, key]) => row(['g', key], title))}
    ${row(['/'], 'To the filter')}${row(['j'], 'Next row')}${row(['k'], 'Row before')}${row(['Enter'], 'Opens the row')}
    ${row(['u'], 'Up: back to the list')}${row(['p'], 'Pause, or go on')}${row(['?'], 'This list')}${row(['Esc'], 'Closes')}
  </tbody></table><footer><button type="button" autofocus onClick=${leave}>Close</button></footer></dialog>`;
}

function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Moves the focus to the next or the previous row. */
function step(by) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[data-row]')]);
  if (rows.length === 0) return;
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
  rows[next].focus();
}

function useKeys(help) {
  useEffect(() => {
    // The time when `g` was last pressed. Initially it is in the infinite past, so that a young page has no pending `g`.
    let gone = -Infinity;
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (typing(event.target)) {
        if (event.key === 'Escape') event.target.blur();
        return;
      }
      const after = performance.now() - gone < 1500;
      gone = -Infinity;
      const to = after && PAGES.find(([, , key]) => key === event.key);
      if (to) go(to[0] ? [to[0]] : []);
      else if (event.key === 'g') gone = performance.now();
      else if (event.key === '/') /** @type {HTMLElement | null} */ (document.querySelector('[data-filter]'))?.focus();
      else if (event.key === '?') help();
      else if (event.key === 'j') step(1);
      else if (event.key === 'k') step(-1);
      else if (event.key === 'u') go([where().page]);
      else if (event.key === 'p') pause(live.state !== 'paused');
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

function Login({ wrong, error, done }) {
  const [token, set] = useState('');
  const send = (event) => {
    event.preventDefault();
    if (!token.trim()) return;
    setToken(token);
    done();
  };
  return html`<main class="login"><h1>Tidelock</h1>
    <p>The server wants a token. It is in the file that <code>tidelock serve</code> named when it started; a link that ends in <code>/ui/#token=TOKEN</code> logs in by itself.</p>
    ${wrong ? html`<div class="notice bad" role="alert" data-wrong>The server does not take that token. Is it from the same server, and of its last start?</div>` : null}
    <form onSubmit=${send}><label class="field">Token <input type="password" autofocus autocomplete="off" value=${token}
      onInput=${(event) => set(event.currentTarget.value)} /></label><button class="primary" type="submit">Log in</button></form>
    ${error.status !== 401 ? html`<${Failed} error=${error} />` : null}
    <p class="quiet">It is kept for this tab only, and sent in a header, never in a cookie or an address.</p></main>`;
}

/** An error boundary that shows the error of a page and a button to reload. Navigation to another view resets it. */
function Guarded({ view, children }) {
  const [error, reset] = useErrorBoundary((broken) => console.error(broken));
  const last = useRef(view);
  if (last.current !== view) {
    last.current = view;
    if (error) reset();
  }
  return error ? html`<${Failed} error=${error} retry=${() => location.reload()} word="Reload" />` : children;
}

function Shell({ about }) {
  const at = useWhere();
  const [theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  const [toast, setToast] = useState('');
  const main = useRef(null);
  useKeys(() => setHelp(true));
  useEffect(() => { live.state === 'refused' ? reconnect() : connect(); }, []);
  useEffect(() => {
    if (!toast) return undefined;
    const timer = setTimeout(() => setToast(''), 6000);
    return () => clearTimeout(timer);
  }, [toast]);
  const [, title, , Page] = PAGES.find(([page]) => page === at.page) || PAGES[0];
  useEffect(() => {
    document.title = `${[at.parts[0] && name(at.parts[0]), title].filter(Boolean).join(' · ')} · Tidelock`;
    scrollTo(0, 0);
    document.querySelector('aside [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [at.page, at.parts.join('/')]);
  const nav = PAGES.map(([page, word, key]) => html`<a href=${`#/${page}`} aria-current=${page === at.page ? 'page' : undefined}
    title=${`g ${key}`}>${word}<kbd aria-hidden="true">g ${key}</kbd></a>`);
  return html`<${About.Provider} value=${about}><${Toast.Provider} value=${setToast}>
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>To the content</a>
    <div class="shell"><aside><a class="brand" href="#/"><img src="icon.svg" alt="" width="22" height="22" />Tidelock</a><nav aria-label="pages">${nav}</nav>
      <p class="foot"><span>${about.backend} · schema ${about.schema}</span><span>${about.version}</span></p></aside>
      <div class="right"><div class="bar"><${Signal} />
        ${about.writes ? null : html`<span class="badge" data-readonly title="The token is for reading, or the server was started without --allow-writes">Read-only</span>`}
        <span class="grow"></span><span class="quiet" title="All times of the day are UTC">UTC</span>
        <button type="button" class="small" data-theme-switch onClick=${nextTheme} aria-label=${`Theme: ${theme}`}><span class="roomy">Theme: </span>${theme}</button>
        <button type="button" class="small" onClick=${() => setHelp(true)} aria-label="Keys">?</button></div>
        <main ref=${main} tabindex="-1" data-page=${at.page || 'overview'}><${Guarded} view=${location.hash}><${Page} key=${at.page} parts=${at.parts} query=${at.query} theme=${theme} about=${about} /></${Guarded}></main></div></div>
    ${help ? html`<${Keys} close=${() => setHelp(false)} />` : null}
    <div class="toasts" role="status" aria-live="polite">${toast ? html`<div class="toast" data-toast>${name(toast)}</div>` : null}</div>
  </${Toast.Provider}></${About.Provider}>`;
}

/** Queries the permissions of the caller at the start, with every new token, and when the server refuses the current one. */
function App() {
  const [state, set] = useState({ about: null, error: null, wrong: false, asks: 0 });
  const ask = () => set((s) => ({ ...s, about: null, error: null, asks: s.asks + 1 }));
  useEffect(() => {
    let ended = false;
    get('info').then(
      (about) => !ended && set((s) => ({ ...s, about, error: null, wrong: false })),
      (error) => {
        if (ended) return;
        const refused = error.status === 401;
        set((s) => ({ ...s, error, wrong: refused && hasToken() }));
        if (refused) forgetToken();
        // The server is unreachable and may return.
        if (!(error instanceof Problem)) setTimeout(() => !ended && ask(), 2000);
      },
    );
    return () => { ended = true; };
  }, [state.asks]);
  useEffect(() => {
    const pasted = () => {
      if (!takeToken()) return;
      reconnect();
      ask();
    };
    addEventListener('hashchange', pasted);
    return () => removeEventListener('hashchange', pasted);
  }, []);
  // The server now refuses the token: query the server once more, and then show the login.
  useEffect(() => onPulse(() => live.state === 'refused' && set((s) => (s.about ? { ...s, about: null, asks: s.asks + 1 } : s))), []);
  if (state.about) return html`<${Shell} key=${state.asks} about=${state.about} />`;
  const { error } = state;
  if (error?.status === 401 || error?.status === 403) return html`<${Login} wrong=${state.wrong} error=${error} done=${ask} />`;
  return error ? html`<main class="login"><h1>Tidelock</h1><${Failed} error=${error} retry=${ask} /></main>` : html`<${Loading} />`;
}

takeToken();
document.documentElement.dataset.theme = localStorage.getItem(THEME) || 'auto';
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
