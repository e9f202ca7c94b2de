// Client of the server API: the token, requests, and the change notifications (the pulse) that trigger a reload.
import { micros } from './show.js';

const BASE = new URL('../api/v1/', document.baseURI);
const KEPT = 'tidelock.token';

/** An error response of the server, with its code. */
export class Problem extends Error {
  /** @param {number} status @param {{code?: string, detail?: string, title?: string, outcome?: string}} body */
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.code = body.code || '';
    this.outcome = body.outcome || '';
  }
}

/**
 * Removes the token from the login link, so that the browser neither shows it nor keeps it in its history. Returns whether there
 * was one.
 */
export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return false;
  let token = found[1];
  try {
    token = decodeURIComponent(token);
  } catch {
    // Not a token of this server. The server refuses it.
  }
  setToken(token);
  history.replaceState(null, '', `${location.pathname}${location.search}#/`);
  return true;
}

/** @param {string} token */
export function setToken(token) {
  sessionStorage.setItem(KEPT, token.trim());
}

export function hasToken() {
  return sessionStorage.getItem(KEPT) !== null;
}

export function forgetToken() {
  sessionStorage.removeItem(KEPT);
}

function headers(more = {}) {
  const token = sessionStorage.getItem(KEPT);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

/** A reviver for `JSON.parse` that keeps all digits of integers beyond the safe range. */
function exact(_key, value, context) {
  if (typeof value === 'number' && context && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source)) {
    return BigInt(context.source);
  }
  return value;
}

/** @param {string[]} parts the path, each part not yet encoded */
export function path(...parts) {
  return parts.map(encodeURIComponent).join('/');
}

async function answered(response) {
  const text = await response.text();
  let body = {};
  try {
    body = text ? JSON.parse(text, exact) : {};
  } catch {
    body = { detail: `the server answered ${response.status}, and its response is not JSON` };
  }
  if (response.ok) return body;
  // On any route: a caller whose token is unknown must log in again.
  if (response.status === 401) tell('refused');
  throw new Problem(response.status, body);
}

/** Request timeout, in milliseconds. */
const PATIENCE = 30000;

/** Returns a signal that aborts with the view, and after the timeout. @param {AbortSignal} [signal] */
function patience(signal) {
  const limit = AbortSignal.timeout(PATIENCE);
  return signal ? AbortSignal.any([signal, limit]) : limit;
}

/** @param {string} where @param {Record<string, unknown>} query @param {AbortSignal} [signal] */
export async function get(where, query = {}, signal) {
  const url = new URL(`./${where}`, BASE);
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(key, String(value));
  }
  return answered(await fetch(url, { headers: headers(), signal: patience(signal), cache: 'no-store' }));
}

/** @param {string} where @param {unknown} body */
export function post(where, body) {
  return postText(where, JSON.stringify(body));
}

/** Sends JSON text unchanged, with all digits of its numbers. @param {string} where @param {string} body */
export async function postText(where, body) {
  const init = { method: 'POST', headers: headers({ 'content-type': 'application/json' }), body, signal: patience() };
  return answered(await fetch(new URL(`./${where}`, BASE), init));
}

// The pulse. It is read with fetch, because EventSource cannot send a token.

/** @type {Set<() => void>} */
const heard = new Set();
const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;
/** Silence after which the connection counts as dead, in milliseconds. The server sends a heartbeat at least every five seconds. */
const SILENT = 15000;

/** The state of the connection: `connecting`, `live`, `lost`, `paused` or `refused`. */
export const live = { state: 'connecting', position: 0, now: 0, at: 0, beats: 0, connects: 0 };

let paused = false;
let wait = FIRST_WAIT;
/** @type {AbortController | null} */
let running = null;
let timer = 0;

function tell(state) {
  if (state) live.state = state;
  for (const listener of [...heard]) listener();
}

/** @param {() => void} listener */
export function onPulse(listener) {
  heard.add(listener);
  return () => heard.delete(listener);
}

/** The store's clock, in microseconds. */
export function now() {
  return live.now === 0 ? Date.now() * 1000 : live.now + (performance.now() - live.at) * 1000;
}

export function connect() {
  clearTimeout(timer);
  if (running || paused || document.hidden) return;
  const mine = new AbortController();
  running = mine;
  follow(mine).catch((problem) => problem).then((problem) => {
    if (running !== mine) return;
    running = null;
    if (paused || document.hidden) return;
    if (problem instanceof Problem && (problem.status === 401 || problem.status === 403)) return tell('refused');
    tell('lost');
    timer = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  });
}

function disconnect() {
  clearTimeout(timer);
  const last = running;
  running = null;
  last?.abort();
}

/** Reconnects with the current token. */
export function reconnect() {
  disconnect();
  wait = FIRST_WAIT;
  tell('connecting');
  connect();
}

async function follow(mine) {
  let silence = 0;
  const heardOf = () => {
    clearTimeout(silence);
    silence = setTimeout(() => mine.abort(), SILENT);
  };
  heardOf();
  try {
    return await listen(mine, heardOf);
  } finally {
    clearTimeout(silence);
  }
}

async function listen(mine, heardOf) {
  const response = await fetch(new URL('events/changes', BASE), { headers: headers(), signal: mine.signal, cache: 'no-store' });
  if (!response.ok) await answered(response);
  if (!response.body) throw new Error('the server sent no change notifications');
  live.connects += 1;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return null;
    heardOf();
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop() ?? '';
    blocks.forEach(beat);
  }
}

function beat(block) {
  const data = block.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trim());
  if (data.length === 0) return;
  const { position, now: at } = JSON.parse(data.join('\n'));
  Object.assign(live, { position: position ?? 0, now: micros(at) ?? 0, at: performance.now(), beats: live.beats + 1 });
  wait = FIRST_WAIT;
  tell('live');
}

/** @param {boolean} on */
export function pause(on) {
  paused = on;
  if (on) {
    disconnect();
    tell('paused');
  } else {
    tell('connecting');
    connect();
  }
}

// A hidden tab needs no connection. Browsers limit the number of connections to one server.
document.addEventListener('visibilitychange', () => (document.hidden ? disconnect() : connect()));
