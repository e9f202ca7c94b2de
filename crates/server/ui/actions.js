// Actions: a button, the number of affected items, the equivalent command, and the confirmation.
import { html, createContext, useContext, useEffect, useLayoutEffect, useRef, useState } from './vendor/htm-preact.js';
import { Cli, Failed } from './parts.js';
import { count } from './show.js';

/** Server information and the permissions of the caller. */
export const About = createContext({ writes: false, role: 'read' });
/** Shows a message for a moment. */
export const Toast = createContext((/** @type {string} */ _text) => {});

/**
 * A button that asks for confirmation. It is hidden without the permission to write.
 * @param {{label: string, title: string, about?: any, cli: string | ((given: string) => string), danger?: boolean, preview?: () => Promise<number>,
 *   ask?: {label: string, value?: string, options?: string[], required?: boolean}[], run: (given: string[], meant: number | null) => Promise<string>, done?: () => void}} props
 */
export function Action(props) {
  const { writes } = useContext(About);
  const [open, set] = useState(false);
  if (!writes) return null;
  return html`<button type="button" class=${props.danger ? 'danger' : ''} data-action=${props.label} onClick=${() => set(true)}>${props.label}</button>
    ${open ? html`<${Confirm} ...${props} close=${() => set(false)} />` : null}`;
}

/**
 * A modal dialog. It is shown before the next paint, so that a key that is pressed at once belongs to it. It is left once: the browser reports
 * the close of a dialog later, when another one may be open already.
 * @param {() => void} close
 * @returns {[{current: any}, () => void]}
 */
export function useModal(close) {
  const dialog = useRef(null);
  const opener = useRef(document.activeElement);
  const left = useRef(false);
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown.showModal();
    // As long as it is open, nothing behind it takes the focus.
    return () => {
      left.current = true;
      shown.close();
      opener.current?.focus?.();
    };
  }, []);
  const leave = () => {
    if (left.current) return;
    left.current = true;
    close();
  };
  return [dialog, leave];
}

function Confirm({ label, title, about, cli, danger, preview, ask = [], run, done, close }) {
  const [dialog, leave] = useModal(close);
  const toast = useContext(Toast);
  const [given, setGiven] = useState(ask.map((field) => field.value || ''));
  const [state, set] = useState({ meant: null, busy: false, error: null });
  useEffect(() => {
    if (preview) preview().then((meant) => set((s) => ({ ...s, meant })), (error) => set((s) => ({ ...s, error })));
  }, []);
  const act = async (event) => {
    event.preventDefault();
    set((s) => ({ ...s, busy: true, error: null }));
    try {
      const said = await run(given, state.meant);
      leave();
      toast(said);
      done?.();
    } catch (error) {
      set((s) => ({ ...s, busy: false, error }));
      if (preview) preview().then((meant) => set((s) => ({ ...s, meant })), () => {});
    }
  };
  const waits = preview && state.meant === null;
  const none = preview && state.meant === 0;
  const lacks = ask.some((field, i) => field.required && !given[i].trim());
  const shown = typeof cli === 'function' ? cli(...given) : cli;
  return html`<dialog ref=${dialog} class="confirm" aria-label=${title} onCancel=${leave} onClose=${leave}><form onSubmit=${act}>
    <h2>${title}</h2>
    ${about ? html`<p>${about}</p>` : null}
    ${preview ? html`<p class="meant" data-meant=${state.meant ?? ''}>${waits ? 'Counting…' : html`<b>${count(state.meant)}</b> selected.`}</p>` : null}
    ${ask.map((field, i) => html`<label class="field">${field.label}
      ${field.options ? html`<datalist id=${`offered-${i}`}>${field.options.map((one) => html`<option value=${one} />`)}</datalist>` : null}
      <input value=${given[i]} list=${field.options ? `offered-${i}` : undefined} onInput=${(e) => setGiven(given.map((v, n) => (n === i ? e.currentTarget.value : v)))} autocomplete="off" /></label>`)}
    <p class="quiet">At the command line, with TIDELOCK_STORE set:</p><${Cli} text=${shown} />
    <${Failed} error=${state.error} />
    <footer><button type="button" onClick=${leave}>Close</button>
      <button type="submit" class=${danger ? 'danger' : 'primary'} data-confirm disabled=${waits || none || lacks || state.busy}>
        ${label}${preview && state.meant !== null ? ` ${count(state.meant)}` : ''}</button></footer>
  </form></dialog>`;
}
