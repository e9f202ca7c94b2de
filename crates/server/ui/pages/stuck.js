// Blocked work that waits for an operator: the reasons, and the operations that resolve it.
import { html } from '../vendor/htm-preact.js';
import { get, path, post } from '../api.js';
import { Action } from '../actions.js';
import { Badge, Empty, ErrorText, Failed, Filter, Head, Json, Left, Loading, Name, Pager, Table, When, go, link, useLive } from '../parts.js';
import { command, count, lines, name, span } from '../show.js';

const ROWS = 100;
/** Maximum number of waiting rows that are searched for failed ones. */
const LOOKED = 500;

export function Stuck({ parts, query }) {
  const tab = query.tab || 'blocked';
  const to = (key, word) => html`<a href=${link(['stuck'], { tab: key === 'blocked' ? '' : key })} aria-current=${tab === key ? 'page' : undefined}>${word}</a>`;
  const tabs = html`<nav class="tabs" aria-label="what is shown">${to('blocked', 'Blocked')}${to('reactions', 'Reactions')}</nav>`;
  if (tab === 'reactions') return parts[0] ? html`<${Reaction} key=${parts[0]} of=${parts[0]} query=${query} tabs=${tabs} />` : html`<${Reactions} tabs=${tabs} />`;
  return html`<${Blocked} query=${query} tabs=${tabs} />`;
}

/** Builds an operation that is counted first and then confirmed with that number. */
export function operation(where, body, word) {
  return {
    preview: async () => (await post(where, { ...body, dry_run: true })).would,
    run: async (_given, meant) => {
      const { changed } = await post(where, { ...body, confirm: meant });
      return `${word}: ${count(changed)} changed`;
    },
  };
}

/** The operations on a row. A row of a reaction has those of the reaction, which include reset and park (dead letter). */
export function RowActions({ row, reload }) {
  const { key, reaction, reaction_key: of, blocked, lease } = row;
  const [where, names] = reaction ? [`${path('reactions', reaction)}/operate`, [of]] : ['work/operate', [key]];
  const shown = html`<${Name} of=${key} />`;
  const verb = (word, told) => ({
    cli: command(`streams ${word}`, names, { reaction }), done: reload, about: shown, ...operation(where, { verb: word, keys: names }, told),
  });
  const failed = blocked || row.last_error;
  // Runs, schedules and other internal rows are resumed on their own pages.
  const retried = !blocked && !lease && (reaction || !key.startsWith('tidelock.'));
  return html`
    ${blocked ? html`<${Action} label="Unblock" title="Let it go on where it stopped, with a fresh budget" ...${verb('unblock', 'Unblocked')} />` : null}
    ${retried ? html`<${Action} label="Retry" title="Make it due at once" ...${verb('retry', 'Made due')} />` : null}
    ${reaction && blocked ? html`<${Action} label="Park" title="Set the event aside that it stands before, and go on with the next" ...${verb('park', 'Parked')} />` : null}
    ${reaction && failed ? html`<${Action} label="Reset" danger title="Begin again with the first event" ...${verb('reset', 'Reset')} about=${html`What handlers did before is not undone: they see every event of ${shown} again.`} />` : null}`;
}

async function loadBlocked(lane, like, after, signal) {
  const [rows, counted, waiting] = await Promise.all([
    get('work/rows', { blocked: true, lane, like, after, limit: ROWS }, signal), get('work/blocked', { lane, like, limit: 1 }, signal),
    get('work/rows', { blocked: false, leased: false, lane, like, limit: LOOKED }, signal),
  ]);
  return { rows, counted, failing: waiting.rows.filter((row) => row.last_error), whole: waiting.next === null };
}

function Item({ row, reload, children }) {
  return html`<article class=${`item ${row.blocked ? 'bad' : 'warn'}`} data-key=${row.key}>
    <header><a data-row href=${link(['work', row.key])}><${Name} of=${row.reaction ? row.reaction_key : row.key} /></a>${row.reaction ? html`<${Badge}>reaction ${name(row.reaction)}</${Badge}>` : null}
      <${Badge}>lane ${name(row.lane)}</${Badge}><span class="quiet">${count(row.attempts)} ${row.attempts === 1 ? 'attempt' : 'attempts'} · ${children}${row.takeovers ? ` · taken over ${count(row.takeovers)} times` : ''}</span></header>
    <${ErrorText} of=${row.blocked ? row.blocked.reason : row.last_error} />
    <footer><${RowActions} row=${row} reload=${reload} />${row.follow ? html`<a class="button" href=${link(['streams', row.follow])}>Stream</a>` : null}</footer></article>`;
}

/** Rows that have failed and are retried automatically. */
function Failing({ data, reload }) {
  if (data.failing.length === 0) return null;
  return html`<section data-failing=${data.failing.length}><h2>Fails, and is tried again by itself</h2>
    ${data.whole ? null : html`<p class="quiet">Among the first ${count(LOOKED)} rows that wait.</p>`}
    <div class="stack">${data.failing.map((row) => html`<${Item} key=${row.key} row=${row} reload=${reload}>next attempt <${When} at=${row.due} /></${Item}>`)}</div></section>`;
}

function Blocked({ query, tabs }) {
  const { lane = '', like = '', after = '' } = query;
  const { data, error, reload } = useLive((signal) => loadBlocked(lane, like, after, signal), [lane, like, after]);
  const all = async (_given, meant) => `Unblocked: ${count((await post('work/unblock', { lane: lane || undefined, like: like || undefined, confirm: meant })).changed)} changed`;
  const blocked = data?.counted.blocked;
  return html`<${Head} title="Stuck" cli=${command('streams blocked', [], { lane, like })}>${tabs}
      <${Filter} value=${like} label="Pattern of the key" hint="pattern, such as ^mail" onChange=${(text) => text !== like && go(['stuck'], { lane, like: text })} />
      ${blocked ? html`<${Action} label="Unblock all" title="Let all of these go on" about=${lane || like ? 'All that match the filter.' : 'All blocked work of the store.'}
        cli=${command('streams unblock', [], { yes: true, lane, like })} done=${reload}
        preview=${async () => (await get('work/blocked', { lane, like, limit: 1 })).blocked} run=${all} />` : null}</${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`${data.rows.rows.length === 0 ? html`<${Empty} title=${lane || like ? 'Nothing that matches is stuck' : 'Nothing is stuck'} cli="tidelock streams status">Work that has failed as often as it may is blocked, with its error, and waits here. Other keys go on meanwhile.</${Empty}>` : html`
      <p class="quiet" data-blocked=${blocked}>${count(blocked)} blocked${after || data.rows.next ? `, ${count(data.rows.rows.length)} of them on this page` : ''}</p>
      <div class="stack">${data.rows.rows.map((row) => html`<${Item} key=${row.key} row=${row} reload=${reload}>blocked <${When} at=${row.blocked.since} /></${Item}>`)}</div>
      <${Pager} parts=${['stuck']} query=${{ lane, like }} next=${data.rows.next} first=${after} />`}<${Failing} data=${data} reload=${reload} />`}`;
}

function Reactions({ tabs }) {
  const { data, error } = useLive((signal) => get('reactions', {}, signal), []);
  return html`<${Head} title="Reactions" cli="tidelock streams status">${tabs}</${Head}><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.reactions.length === 0 ? html`<${Empty} title="No reactions yet">A reaction is what a program does after events. It is noted here when a program that declares one has run on this store.</${Empty}>` : html`
      <${Table} label="reactions" heads=${['Reaction', 'Lane', 'Keys', 'Blocked', 'Routed to', 'Behind', 'Routed by', 'Fence', 'Lease']} rows=${data.reactions.map((one) => html`<tr key=${one.name}>
        <td><a data-row href=${link(['stuck', one.name], { tab: 'reactions' })}><${Name} of=${one.name} /></a></td><td><${Name} of=${one.lane} most=${30} /></td><td class="num">${count(one.keys)}</td>
        <td class="num">${one.blocked_keys || one.blocked ? html`<${Badge} tone="bad">${count(one.blocked_keys + (one.blocked ? 1 : 0))}</${Badge}>` : '0'}</td>
        <td class="num">${one.position} / ${one.head}</td><td class="num">${one.lag.at_least ? 'at least ' : ''}${count(one.lag.events)} · ${span(one.lag.behind.secs * 1000 + one.lag.behind.nanos / 1e6)}</td>
        <td>${one.owner ? html`<${Name} of=${one.owner} most=${28} />` : html`<span class="quiet">nobody</span>`}</td><td class="num">${one.fence ?? '–'}</td><td>${one.until ? html`<${Left} until=${one.until} />` : '–'}</td></tr>`)} />`}`;
}

function Reaction({ of, query, tabs }) {
  const { after = '' } = query;
  const blocked = query.blocked === 'true';
  const { data, error, reload } = useLive((signal) => Promise.all([
    get(`${path('reactions', of)}/keys`, { blocked, after, limit: ROWS }, signal), get(`${path('reactions', of)}/parked`, { limit: ROWS }, signal),
  ]), [of, blocked, after]);
  const where = path('reactions', of) + '/operate';
  const cli = (verb, yes = false) => command(`streams ${verb}`, [], { reaction: of, yes });
  const [keys, parked] = data || [];
  const verb = (word, told, more = {}, yes = false) => ({ cli: cli(word, yes), done: reload, ...operation(where, { verb: word, ...more }, told) });
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('streams status', [of], { blocked })}>${tabs}
      <a class="button small" href=${link(['stuck', of], { tab: 'reactions', blocked: blocked ? '' : 'true' })}>${blocked ? 'All keys' : 'Only blocked'}</a>
      <${Action} label="Unblock" title="Let all blocked keys of this reaction go on" ...${verb('unblock', 'Unblocked', { blocked: true })} />
      <${Action} label="Retry" title="Make what waits for its next attempt due at once" ...${verb('retry', 'Retried')} />
      <${Action} label="Park" title="Set aside the event that each blocked key stands before" about="The keys go on with the next event." ...${verb('park', 'Parked', { blocked: true }, true)} />
      <${Action} label="Reset" danger title="Let all keys of this reaction begin again" about="What handlers did before is not undone: they see every event of every key again." ...${verb('reset', 'Reset', {}, true)} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`${keys.keys.length === 0 ? html`<p class="quiet">${blocked ? 'No key is blocked.' : 'It has seen no key yet.'}</p>` : html`
      <${Table} label="keys" heads=${['Key', 'Position', 'Behind', 'Attempts', 'Owner', 'Fence', 'Lease', 'Error']} rows=${keys.keys.map((row) => html`<tr key=${row.key}>
        <td><a data-row href=${link(['streams', row.key])}><${Name} of=${row.key} /></a> ${row.blocked ? html`<${Badge} tone="bad">blocked</${Badge}>` : null}</td>
        <td class="num">${row.position ?? '–'}</td><td class="num">${count(row.lag.events)}</td><td class="num">${count(row.attempts)}</td>
        <td>${row.owner ? html`<${Name} of=${row.owner} most=${24} />` : '–'}</td><td class="num">${row.fence ?? '–'}</td><td>${row.until ? html`<${Left} until=${row.until} />` : '–'}</td>
        <td class="wide lines">${lines(row.blocked?.reason || row.last_error || '')}</td></tr>`)} />`}
      <${Pager} parts=${['stuck', of]} query=${{ tab: 'reactions', blocked: query.blocked }} next=${keys.next} first=${after} />
      <${Aside} of=${of} parked=${parked.parked} more=${parked.next !== null} where=${where} cli=${cli} reload=${reload} />`}`;
}

function Aside({ of, parked, more, where, cli, reload }) {
  return html`<section><h2>Parked events ${parked.length ? html`<${Badge} tone="warn">${more ? 'the first ' : ''}${count(parked.length)}</${Badge}>` : null}</h2>
    ${parked.length === 0 ? html`<p class="quiet">None. An event that was set aside waits here to be replayed or dropped.</p>` : html`
      <p><${Action} label="Replay" title="Try all parked events once more" cli=${cli('replay', true)} done=${reload} ...${operation(where, { verb: 'replay' }, 'Replayed')} />
        <${Action} label="Drop" danger title="Drop all parked events" about=${`${name(of)} never handles them.`} cli=${cli('drop', true)} done=${reload} ...${operation(where, { verb: 'drop' }, 'Dropped')} /></p>
      <div class="stack">${parked.map((one) => html`<article class="item" key=${`${one.key} ${one.event.position}`}><header><a data-row href=${link(['streams', one.key])}><${Name} of=${one.key} /></a><${Name} of=${one.event.event_type} />
        <span class="quiet">position ${one.event.position} · ${count(one.attempts)} attempts · <${When} at=${one.at} /></span></header><${ErrorText} of=${one.error} />
        <details><summary>Event</summary><${Json} of=${one.event.payload} /></details></article>`)}</div>`}</section>`;
}
