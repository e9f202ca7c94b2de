// Formatting of values as text. Every value from a store passes through this module before it is displayed.

/** Control characters, characters that change the text direction, and characters without width. They are displayed as escapes. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** @param {unknown} text */
export function name(text) {
  return String(text ?? '').replace(HIDDEN, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
}

/** Escapes text of several lines. Line ends and tabs stay. @param {unknown} text */
export function lines(text) {
  return String(text ?? '').split('\n').map((line) => line.split('\t').map(name).join('\t')).join('\n');
}

/** @param {string} text @param {number} most */
export function short(text, most) {
  const shown = name(text);
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}

/** @param {number | null | undefined} n */
export function count(n) {
  return n === null || n === undefined ? '–' : Number(n).toLocaleString('en-GB');
}

/** Formats a duration. It is rounded before it is split, so that the result never contains 60 seconds. @param {number} ms */
export function span(ms) {
  const all = Math.round(Math.abs(ms));
  if (all < 1000) return `${all} ms`;
  if (all < 9950) return `${(all / 1000).toFixed(1)} s`;
  const s = Math.round(all / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const min = Math.round(s / 60);
  if (min < 1440) return `${Math.floor(min / 60)} h ${min % 60} min`;
  const h = Math.round(s / 3600);
  return `${count(Math.floor(h / 24))} d ${h % 24} h`;
}

/** The sentinel for never, in microseconds. It is the due time of rows that are idle until they are woken. */
const NEVER = 253402128000000000;

/**
 * Converts an instant in RFC 3339 to microseconds since the epoch. Instants beyond the calendar arrive as microseconds, with a unit.
 * @param {string | number | null | undefined} at
 */
export function micros(at) {
  if (at === null || at === undefined || typeof at === 'number') return at ?? null;
  const found = /^(.*:\d\d)(?:\.(\d{1,6}))?Z$/.exec(at);
  return found ? Date.parse(`${found[1]}Z`) * 1000 + Number((found[2] ?? '').padEnd(6, '0')) : Number.parseInt(at, 10);
}

/** @param {string | number | null | undefined} at */
export function isNever(at) {
  return (micros(at) ?? 0) >= NEVER;
}

function date(at) {
  const found = new Date((micros(at) ?? NaN) / 1000);
  return Number.isNaN(found.getTime()) ? null : found.toISOString();
}

/** Formats an instant as date and time in UTC. @param {string | number} at */
export function instant(at) {
  return date(at)?.replace('T', ' ').replace('Z', ' UTC') ?? String(at);
}

/** Formats the time of day of an instant, in UTC. @param {string | number} at */
export function clock(at) {
  return date(at)?.slice(11, 23) ?? String(at);
}

/** @param {number} n */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`;
}

/** Formats a value as indented JSON. Integers beyond the range of JavaScript numbers keep all their digits. @param {unknown} value */
export function pretty(value, indent = '') {
  const deeper = `${indent}  `;
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]';
    return `[\n${value.map((item) => deeper + pretty(item, deeper)).join(',\n')}\n${indent}]`;
  }
  if (value !== null && typeof value === 'object') {
    const fields = Object.entries(value);
    if (fields.length === 0) return '{}';
    const field = ([key, inner]) => `${deeper}${JSON.stringify(key)}: ${pretty(inner, deeper)}`;
    return `{\n${fields.map(field).join(',\n')}\n${indent}}`;
  }
  return JSON.stringify(value ?? null);
}

/** Formats a value as JSON on one line, truncated to `most` characters. @param {unknown} value @param {number} most */
export function brief(value, most = 120) {
  return short(pretty(value).replace(/\s*\n\s*/g, ' '), most);
}

/** Quotes a word for a shell. @param {string} text */
export function quoted(text) {
  return /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/**
 * Builds a command for a terminal. The store comes from TIDELOCK_STORE. Options precede names, with `--` between them where a name
 * would be parsed as an option.
 * @param {string} verb @param {(string | null | undefined | false)[]} names
 * @param {Record<string, string | boolean | null | undefined>} options empty ones are omitted
 */
export function command(verb, names = [], options = {}) {
  const words = ['tidelock', verb];
  for (const [option, value] of Object.entries(options)) {
    if (value === true) words.push(`--${option}`);
    else if (value) words.push(value.startsWith('-') ? quoted(`--${option}=${value}`) : `--${option} ${quoted(value)}`);
  }
  const given = names.filter((name) => typeof name === 'string' && name !== '').map(String);
  if (given.some((name) => name.startsWith('-'))) words.push('--');
  return [...words, ...given.map(quoted)].join(' ');
}
