// How things look as text. Everything that came from a store passes through here before it is shown.

/** Characters that move the cursor, turn the direction or take no room; they are written as escapes. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** @param {unknown} text */
export function name(text) {
  return String(text ?? '').replace(HIDDEN, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
}

/** Text of several lines: line ends and tabs stay. @param {unknown} text */
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

/** @param {number} ms */
export function span(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

/** Microseconds since the epoch. @param {number} micros */
export function instant(micros) {
  const date = new Date(micros / 1000);
  return Number.isNaN(date.getTime()) ? String(micros) : date.toISOString().replace('T', ' ').replace('Z', ' UTC');
}

/** @param {number} micros */
export function clock(micros) {
  const date = new Date(micros / 1000);
  return Number.isNaN(date.getTime()) ? String(micros) : date.toISOString().slice(11, 23);
}

/** @param {number} n */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`;
}

/** JSON for people. Numbers that are too long for a number of JavaScript keep all their digits. @param {unknown} value */
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

/** On one line. @param {unknown} value @param {number} most */
export function brief(value, most = 120) {
  return short(pretty(value).replace(/\s*\n\s*/g, ' '), most);
}

/** A word of a shell. @param {string} text */
export function quoted(text) {
  return /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/** A command for a terminal. The store comes from TIDELOCK_STORE. @param {(string | null | undefined | false)[]} words */
export function command(...words) {
  return ['tidelock', ...words.filter(Boolean).map(String).map(quoted)].join(' ');
}
