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
    preview: async () => (await post(where, { ...body, dry_run: true })).would_change,
    run: async (_given, meant) => {
      const { changed } = await post(where, { ...body, confirm: meant });
      return `${word}: ${count(changed)} changed`;
    },
  };
}

/** The operations on a row. A row of a reaction has those of the reaction, which include reset and park (dead letter). */
export function RowActions({ row, reload }) {
  const { key, reaction, reaction_key: of, blocked, lease } = row;
  const [where, names] = reaction ? [`${path('reactions', reaction)}/keys:batch`, [of]] : ['work:batch', [key]];
  const shown = html`<${Name} of=${key} />`;
  const verb = (word, told) => ({
    cli: reaction ? command(`reactions ${word}`, [reaction, of]) : command(`work ${word}`, names), done: reload, about: shown, ...operation(where, { verb: word, keys: names }, told),
  });
  const failed = blocked || row.last_error;
  // Runs, schedules and other internal rows are resumed on their own pages.
  const retried = !blocked && !lease && (reaction || !key.startsWith('tidelock.'));
  return html`
    ${blocked ? html`<${Action} label="Unblock" title="Resume where it stopped, with a fresh retry budget" ...${verb('unblock', 'Unblocked')} />` : null}
    ${retried ? html`<${Action} label="Retry" title="Make it due at once" ...${verb('retry', 'Made due')} />` : null}
    ${reaction && blocked ? html`<${Action} label="Park" title="Park the blocking event as a dead letter, and continue with the next" ...${verb('park', 'Parked')} />` : null}
    ${reaction && failed ? html`<${Action} label="Reset" danger title="Restart from the first event" ...${verb('reset', 'Reset')} about=${html`Effects of handlers are not undone. They handle every event of ${shown} again.`} />` : null}`;
}

async function loadBlocked(queue, pattern, after, signal) {
  const [rows, waiting] = await Promise.all([
    get('work', { blocked: true, queue, pattern, cursor: after, limit: ROWS }, signal), get('work', { blocked: false, leased: false, queue, pattern, limit: LOOKED }, signal),
  ]);
  return { rows, failing: waiting.rows.filter((row) => row.last_error), whole: waiting.next === null };
}

function Item({ row, reload, children }) {
  return html`<article class=${`item ${row.blocked ? 'bad' : 'warn'}`} data-key=${row.key}>
    <header><a data-row href=${link(['work', row.key])}><${Name} of=${row.reaction ? row.reaction_key : row.key} /></a>${row.reaction ? html`<${Badge}>reaction ${name(row.reaction)}</${Badge}>` : null}
      <${Badge}>queue ${name(row.queue)}</${Badge}><span class="quiet">${count(row.attempts)} ${row.attempts === 1 ? 'attempt' : 'attempts'} · ${children}${row.takeovers ? ` · taken over ${count(row.takeovers)} times` : ''}</span></header>
    <${ErrorText} of=${row.blocked ? row.blocked.reason : row.last_error} />
    <footer><${RowActions} row=${row} reload=${reload} />${row.follows ? html`<a class="button" href=${link(['streams', row.follows])}>Stream</a>` : null}</footer></article>`;
}

/** Rows that have failed and are retried automatically. */
function Failing({ data, reload }) {
  if (data.failing.length === 0) return null;
  return html`<section data-failing=${data.failing.length}><h2>Failing, retried automatically</h2>
    ${data.whole ? null : html`<p class="quiet">Among the first ${count(LOOKED)} waiting rows.</p>`}
    <div class="stack">${data.failing.map((row) => html`<${Item} key=${row.key} row=${row} reload=${reload}>next attempt <${When} at=${row.due_at} /></${Item}>`)}</div></section>`;
}

function Blocked({ query, tabs }) {
  const { queue = '', pattern = '', after = '' } = query;
  const { data, error, reload } = useLive((signal) => loadBlocked(queue, pattern, after, signal), [queue, pattern, after]);
  const all = async (_given, meant) => `Unblocked: ${count((await post('work:batch', { verb: 'unblock', queue: queue || undefined, pattern: pattern || undefined, confirm: meant })).changed)} changed`;
  const blocked = data?.rows.blocked;
  return html`<${Head} title="Stuck" cli=${command('work blocked', [], { queue, pattern })}>${tabs}
      <${Filter} value=${pattern} label="Pattern of the key" hint="pattern, such as ^mail" onChange=${(text) => text !== pattern && go(['stuck'], { queue, pattern: text })} />
      ${blocked ? html`<${Action} label="Unblock all" title="Unblock all of these" about=${queue || pattern ? 'All rows that match the filter.' : 'All blocked work of the store.'}
        cli=${command('work unblock', [], { yes: true, queue, pattern })} done=${reload}
        preview=${async () => (await get('work', { blocked: true, queue, pattern, limit: 1 })).blocked} run=${all} />` : null}</${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`${data.rows.rows.length === 0 ? html`<${Empty} title=${queue || pattern ? 'No blocked work matches' : 'No blocked work'} cli="tidelock work blocked">Work whose retries are exhausted is blocked, with its error, until an operator acts. Other keys continue.</${Empty}>` : html`
      <p class="quiet" data-blocked=${blocked}>${count(blocked)} blocked${after || data.rows.next ? `, ${count(data.rows.rows.length)} of them on this page` : ''}</p>
      <div class="stack">${data.rows.rows.map((row) => html`<${Item} key=${row.key} row=${row} reload=${reload}>blocked <${When} at=${row.blocked.blocked_at} /></${Item}>`)}</div>
      <${Pager} parts=${['stuck']} query=${{ queue, pattern }} next=${data.rows.next} first=${after} />`}<${Failing} data=${data} reload=${reload} />`}`;
}

function Reactions({ tabs }) {
  const { data, error } = useLive((signal) => get('reactions', {}, signal), []);
  return html`<${Head} title="Reactions" cli="tidelock reactions list">${tabs}</${Head}><${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : data.reactions.length === 0 ? html`<${Empty} title="No reactions yet">A reaction is a handler of events. It appears here after a program that declares it has run on this store.</${Empty}>` : html`
      <${Table} label="reactions" heads=${['Reaction', 'Queue', 'Keys', 'Blocked', 'Routed to', 'Behind', 'Routed by', 'Fence', 'Lease']} rows=${data.reactions.map((one) => html`<tr key=${one.name}>
        <td><a data-row href=${link(['stuck', one.name], { tab: 'reactions' })}><${Name} of=${one.name} /></a></td><td><${Name} of=${one.queue} most=${30} /></td><td class="num">${count(one.keys)}</td>
        <td class="num">${one.blocked_keys || one.blocked ? html`<${Badge} tone="bad">${count(one.blocked_keys + (one.blocked ? 1 : 0))}</${Badge}>` : '0'}</td>
        <td class="num">${one.position} / ${one.head}</td><td class="num">${one.lag.at_least ? 'at least ' : ''}${count(one.lag.events)} · ${span(one.lag.seconds * 1000)}</td>
        <td>${one.owner ? html`<${Name} of=${one.owner} most=${28} />` : html`<span class="quiet">–</span>`}</td><td class="num">${one.fence ?? '–'}</td><td>${one.lease_expires_at ? html`<${Left} until=${one.lease_expires_at} />` : '–'}</td></tr>`)} />`}`;
}

function Reaction({ of, query, tabs }) {
  const { after = '' } = query;
  const blocked = query.blocked === 'true';
  const { data, error, reload } = useLive((signal) => Promise.all([
    get(`${path('reactions', of)}/keys`, { blocked, cursor: after, limit: ROWS }, signal), get(`${path('reactions', of)}/dead-letters`, { limit: ROWS }, signal),
  ]), [of, blocked, after]);
  const where = path('reactions', of) + '/keys:batch';
  const cli = (verb, yes = false) => command(`reactions ${verb}`, [of], { yes });
  const [keys, parked] = data || [];
  const verb = (word, told, more = {}, yes = false) => ({ cli: cli(word, yes), done: reload, ...operation(where, { verb: word, ...more }, told) });
  return html`<${Head} title=${html`<${Name} of=${of} />`} cli=${command('reactions status', [of], { blocked })}>${tabs}
      <a class="button small" href=${link(['stuck', of], { tab: 'reactions', blocked: blocked ? '' : 'true' })}>${blocked ? 'All keys' : 'Only blocked'}</a>
      <${Action} label="Unblock" title="Unblock all blocked keys of this reaction" ...${verb('unblock', 'Unblocked', { blocked: true })} />
      <${Action} label="Retry" title="Make keys in backoff due at once" ...${verb('retry', 'Retried')} />
      <${Action} label="Park" title="Park the event that blocks each key as a dead letter" about="The keys continue with the next event." ...${verb('park', 'Parked', { blocked: true }, true)} />
      <${Action} label="Reset" danger title="Restart all keys of this reaction" about="Effects of handlers are not undone. They handle every event of every key again." ...${verb('reset', 'Reset', {}, true)} /></${Head}>
    <${Failed} error=${error} />
    ${!data ? (error ? null : html`<${Loading} />`) : html`${keys.keys.length === 0 ? html`<p class="quiet">${blocked ? 'No key is blocked.' : 'No keys yet.'}</p>` : html`
      <${Table} label="keys" heads=${['Key', 'Position', 'Behind', 'Attempts', 'Owner', 'Fence', 'Lease', 'Error']} rows=${keys.keys.map((row) => html`<tr key=${row.key}>
        <td><a data-row href=${link(['streams', row.key])}><${Name} of=${row.key} /></a> ${row.blocked ? html`<${Badge} tone="bad">blocked</${Badge}>` : null}</td>
        <td class="num">${row.position ?? '–'}</td><td class="num">${count(row.lag.events)}</td><td class="num">${count(row.attempts)}</td>
        <td>${row.owner ? html`<${Name} of=${row.owner} most=${24} />` : '–'}</td><td class="num">${row.fence ?? '–'}</td><td>${row.lease_expires_at ? html`<${Left} until=${row.lease_expires_at} />` : '–'}</td>
        <td class="wide lines">${lines(row.blocked?.reason || row.last_error || '')}</td></tr>`)} />`}
      <${Pager} parts=${['stuck', of]} query=${{ tab: 'reactions', blocked: query.blocked }} next=${keys.next} first=${after} />
      <${Aside} of=${of} parked=${parked.dead_letters} more=${parked.next !== null} where=${where} cli=${cli} reload=${reload} />`}`;
}

function Aside({ of, parked, more, where, cli, reload }) {
  return html`<section><h2>Dead letters ${parked.length ? html`<${Badge} tone="warn">${more ? 'the first ' : ''}${count(parked.length)}</${Badge}>` : null}</h2>
    ${parked.length === 0 ? html`<p class="quiet">None. A parked event stays here until it is replayed or dropped.</p>` : html`
      <p><${Action} label="Replay" title="Retry all dead letters once" cli=${cli('replay', true)} done=${reload} ...${operation(where, { verb: 'replay' }, 'Replayed')} />
        <${Action} label="Drop" danger title="Drop all dead letters" about=${`${name(of)} never handles them.`} cli=${cli('drop', true)} done=${reload} ...${operation(where, { verb: 'drop' }, 'Dropped')} /></p>
      <div class="stack">${parked.map((one) => html`<article class="item" key=${`${one.key} ${one.event.position}`}><header><a data-row href=${link(['streams', one.key])}><${Name} of=${one.key} /></a><${Name} of=${one.event.type} />
        <span class="quiet">position ${one.event.position} · ${count(one.attempts)} attempts · <${When} at=${one.parked_at} /></span></header><${ErrorText} of=${one.error} />
        <details><summary>Event</summary><${Json} of=${one.event.payload} /></details></article>`)}</div>`}</section>`;
}
