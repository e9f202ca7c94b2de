// The place of the keyboard user: focus, selected text and scroll position, while live data redraws a table.
import assert from 'node:assert/strict';
import { Program, open } from './common.mjs';

export const cases = {};

/** The address of the focused row, whether its focus is visible, its position on the screen, and the selected text. */
function place(page) {
  return page.evaluate(() => {
    const at = /** @type {HTMLElement} */ (document.activeElement);
    const { outlineStyle } = getComputedStyle(at);
    return { row: at.getAttribute('href'), outlineStyle, top: Math.round(at.getBoundingClientRect().top), selected: String(getSelection()) };
  });
}

/** Moves the focus to a row with the keyboard. */
async function reach(page, href) {
  for (let steps = 0; (await place(page)).row !== href; steps += 1) {
    assert.ok(steps < 300, `no key leads to ${href}`);
    await page.keyboard.press('j');
  }
}

/** Selects the text of a row. */
function select(page, href) {
  return page.evaluate((to) => getSelection().selectAllChildren(document.querySelector(`main a[href='${to}']`)), href);
}

function shown(page, href) {
  return page.waitForSelector(`main a[href='${href}']`, { state: 'attached' });
}

const row = (name) => `#/state/${encodeURIComponent(`live("${name}")`)}`;

cases['live data moves neither the focus nor the selection nor the page'] = async (browser) => {
  const program = await Program.start('empty', 'alone');
  const record = (name) => `state/${encodeURIComponent(`live("${name}")`)}`;
  const create = (name) => program.send('PUT', record(name), { value: 0 }, { 'if-none-match': '*' });
  const remove = (name) => program.send('DELETE', record(name), undefined, { 'if-match': '*' });
  const number = (n) => String(n).padStart(2, '0');
  try {
    for (let n = 0; n < 40; n += 1) await create(`m-${number(n)}`);
    const { page, close } = await open(browser, program, { view: '/state?prefix=live' });
    await shown(page, row('m-39'));
    await reach(page, row('m-20'));
    await select(page, row('m-22'));
    const before = await place(page);
    assert.deepEqual([before.row, before.outlineStyle, before.selected], [row('m-20'), 'solid', 'live("m-22")']);
    for (let round = 1; round <= 4; round += 1) {
      for (const name of ['a', 'm-10-', 'm-30-', 'z']) await create(`${name}${round}`);
      await remove(`m-0${round}`);
      await program.send('PUT', record('m-20'), { value: round }, { 'if-match': '*' });
      await shown(page, row(`z${round}`));
      await page.waitForFunction(([to, version]) => document.querySelector(`main a[href='${to}']`).closest('tr').cells[1].textContent === version, [row('m-20'), String(round + 1)]);
      assert.deepEqual(await place(page), before, `after refresh ${round}`);
    }
    const removed = async (name) => {
      await remove(name);
      await page.waitForSelector(`main a[href='${row(name)}']`, { state: 'detached' });
      return place(page);
    };
    assert.deepEqual(await removed('m-20'), { ...before, row: row('m-21') }, 'the row below takes the focus and the place');
    await reach(page, row('z4'));
    const last = await removed('z4');
    assert.deepEqual([last.row, last.outlineStyle], [row('z3'), 'solid'], 'the row above takes the focus of the last row');
    await close();
  } finally {
    await program.end();
  }
};

const key = (words) => encodeURIComponent(words);
const ORDER = key('order("o-7")');
const CART = key('user("u-1", "cart")');

/** Every live table: its view, the request that fills it, the list in the reply, and the field that identifies a row. */
const TABLES = [
  ['/', /\/overview$/, 'reactions', 'name'],
  ['/streams', /\/streams\?/, 'streams', 'key'],
  [`/streams/${ORDER}`, /\/streams\/.*\/events/, 'events', 'version'],
  ['/stuck', /\/v1\/work\?.*blocked=false/, 'rows', 'key'],
  ['/stuck?tab=reactions', /\/reactions$/, 'reactions', 'name'],
  ['/stuck/send-mail?tab=reactions', /\/keys\?/, 'keys', 'key'],
  ['/runs', /\/runs\?/, 'runs', 'run'],
  ['/work', /\/v1\/work\?/, 'rows', 'key'],
  ['/leases', /\/leases\?/, 'leases', 'key'],
  ['/state', /\/state\?.*limit=100/, 'records', 'key'],
  [`/state/${CART}`, /\/history\?/, 'writes', 'number'],
  ['/schedules', /\/schedules\?/, 'schedules', 'name'],
  ['/audit', /\/streams\/tidelock\.audit\/events/, 'events', 'version'],
];

/** The replies of several refreshes: more rows above and below, and the others in another order. They are copies of a real row. */
class Replies {
  constructor(list, field) {
    Object.assign(this, { list, field, round: 0, gone: null, real: null });
  }

  of(body) {
    this.real ??= body[this.list].find((row) => this.field !== 'key' || row.last_error) ?? body[this.list][0];
    const is = this.real[this.field];
    const copy = (n) => ({ ...this.real, [this.field]: typeof is === 'number' ? is + n : is.replace(/^\w+/, (word) => `${word}${n}`) });
    const kept = [0, 1, 2, 3, 4].map(copy);
    if (this.round % 2) kept.reverse();
    const added = (first) => Array.from({ length: this.round }, (_, n) => copy(first + n));
    const rows = [...added(10), ...kept, ...added(20)];
    return { ...body, [this.list]: rows.filter((_, n) => n !== this.gone), next: null };
  }
}

const rowsOf = (page) => page.locator('main [data-row]').count();

async function keepsFocus({ page, visit }, program, [view, asked, list, field]) {
  const replies = new Replies(list, field);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.route((url) => asked.test(decodeURIComponent(url.href)), async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: replies.of(await response.json()) });
  });
  await visit(view);
  await page.waitForFunction(() => document.querySelectorAll('main [data-row]').length >= 5);
  const others = (await rowsOf(page)) - 5;
  const refreshed = async (rows) => {
    // A change in the store makes the page ask again.
    await program.ask(`streams/${key(`place("${view}")`)}/events`, { expected: 'any', events: [{ type: 'x', payload: null }] });
    await page.waitForFunction((n) => document.querySelectorAll('main [data-row]').length === n, others + rows);
  };
  for (let steps = 0; steps < others + 2; steps += 1) await page.keyboard.press('j');
  await page.evaluate(() => { globalThis.focused = document.activeElement; });
  replies.round = 1;
  await refreshed(7);
  assert.ok(await page.evaluate(() => document.activeElement === globalThis.focused), `${view}: the focus is lost`);
  assert.equal((await place(page)).outlineStyle, 'solid', view);
  const before = await page.evaluate(() => [...document.querySelectorAll('main [data-row]')].map((one) => one.getAttribute('href')));
  const at = before.indexOf((await place(page)).row);
  // Events are shown the newest first.
  replies.gone = list === 'events' ? 6 - (at - others) : at - others;
  await refreshed(6);
  assert.equal((await place(page)).row, before[at + 1], `${view}: the row below takes the focus of a removed row`);
}

cases['the focus stays with its row in every live table'] = async (browser, program) => {
  await program.ask('schedules/heartbeat/run', {});
  const [left, pages] = [[...TABLES], 4];
  const some = async () => {
    const opened = await open(browser, program, { view: '/locks' });
    for (let table = left.shift(); table; table = left.shift()) await keepsFocus(opened, program, table);
    await opened.close();
  };
  await Promise.all(Array.from({ length: pages }, some));
};

cases['a key that is also a page moves to a row unless g came before it'] = async (browser, program) => {
  // The page is young for as long as the case lasts, however slow the machine is.
  const script = () => { performance.now = () => 100; };
  const { page, close } = await open(browser, program, { view: '/streams', script });
  await page.waitForSelector('main tbody tr');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  assert.equal(await page.locator('main').getAttribute('data-page'), 'streams');
  assert.ok(await page.evaluate(() => document.activeElement === document.querySelector('main [data-row]')));
  await page.keyboard.press('g');
  await page.keyboard.press('k');
  await page.waitForSelector('main[data-page=stuck]');
  await close();
};
