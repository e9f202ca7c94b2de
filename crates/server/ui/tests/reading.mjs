// What pages say: values that are odd, old or not to be told, long runs, and narrow screens.
import assert from 'node:assert/strict';
import { command, isNever, span } from '../show.js';
import { Program, open, text, until } from './common.mjs';

export const cases = {};

const CART = encodeURIComponent('user("u-1", "cart")');
const SCORE = encodeURIComponent('user("u-9", "score")');

cases['an idle row is shown, and never is a word'] = async (browser, program) => {
  await until('a run waits for a signal', async () => (await program.ask('runs/approval-1')).doing === 'waits');
  const { page, visit, close } = await open(browser, program, { view: '/work' });
  await page.waitForSelector('main [data-idle]');
  for (const key of ['tidelock.run("approval-1")', 'tidelock.lease("report", "nightly")']) {
    await visit(`/work/${encodeURIComponent(key)}`);
    await page.waitForSelector('main .facts');
    assert.match(await text(page, 'main .facts'), /idle/, key);
  }
  await visit(`/leases/${encodeURIComponent('report("nightly")')}`);
  await page.waitForSelector('main .facts');
  await close();
};

cases['times are rounded before they are split'] = async () => {
  const said = { 999.6: '1.0 s', 59600: '1 min 0 s', 119700: '2 min 0 s', 3599600: '1 h 0 min', 86399000: '1 d 0 h', 9960: '10 s', 400: '400 ms' };
  for (const [ms, words] of Object.entries(said)) assert.equal(span(Number(ms)), words);
  assert.ok(isNever('9999-12-30T00:00:00Z') && !isNever(Date.now() * 1000) && !isNever(null));
};

cases['a name that looks like an option is none'] = async () => {
  assert.equal(command('runs show', ['-x']), 'tidelock runs show -- -x');
  assert.equal(command('runs cancel', ['-x'], { reason: '-y z' }), `tidelock runs cancel '--reason=-y z' -- -x`);
  assert.equal(command('work list', [], { all: true, state: '', queue: 'mails' }), 'tidelock work list --all --queue mails');
};

cases['keys of payloads may be called like what every object has'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: `/streams/${encodeURIComponent('odd("keys")')}` });
  await page.waitForSelector('.diff');
  const rows = await page.locator('.diff tbody tr').allInnerTexts();
  assert.deepEqual(rows.map((row) => row.split('\t')[0].trim()).sort(), ['/__proto__', '/constructor', '/toString']);
  assert.match(await text(page, '.json'), /"__proto__": \{\s+"x": 1/);
  await close();
};

cases['a page that breaks says so, and the others are well'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { allowed: ['TypeError', 'console:'] });
  await page.route('**/api/v1/leases**', (route) => route.fulfill({ json: { leases: [null], next: null } }));
  await page.evaluate(() => { location.hash = '#/leases'; });
  await page.waitForSelector('main [role=alert] [data-retry]');
  assert.match(await text(page, 'main'), /Reload/);
  await visit('/streams');
  await page.waitForSelector('main tbody tr');
  await close();
};

cases['the slider keeps its place, its end and the focus'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: `/state/${CART}` });
  const slider = page.locator('.slider input');
  await slider.focus();
  const max = await slider.getAttribute('max');
  for (let at = Number(max) - 1; at >= Number(max) - 3; at -= 1) {
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction((n) => location.hash.endsWith(`at=${n}`), at);
  }
  await page.waitForSelector(`text=Value after write ${Number(max) - 3}`);
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('type')), 'range');
  assert.deepEqual([await slider.getAttribute('max'), await slider.inputValue()], [max, String(Number(max) - 3)]);
  await close();
};

cases['what a history does not tell is said, and not compared'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { view: `/state/${SCORE}`, allowed: ['400 (Bad Request)'] });
  await page.waitForSelector('text=the current one');
  assert.match(await text(page, '.two'), /"points": 46[\s\S]*Unknown: .*removed from the history/);
  assert.equal(await page.locator('.diff').count(), 0);
  await visit(`/state/${SCORE}?at=0`);
  await page.waitForSelector('[data-untold]');
  assert.equal(await page.locator('.diff').count(), 0);
  await close();
};

cases['scopes are where state begins'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/state' });
  await page.locator('[data-scope=user]').click();
  await page.waitForFunction(() => [...document.querySelectorAll('main table[aria-label=documents] tbody tr')].every((row) => row.textContent.startsWith('user(')));
  assert.deepEqual((await page.locator('[data-scope]').evaluateAll((all) => all.map((one) => one.dataset.scope))).slice(0, 3), ['filled', 'reserved', 'user']);
  await close();
};

cases['only what came to an end is called replayed'] = async (browser, program) => {
  const { page, close } = await open(browser, program);
  const found = await page.evaluate(async () => {
    const { activations, rows } = await import(new URL('pages/timeline.js', document.baseURI).href);
    let version = 0;
    const entry = (type, payload, fence) => ({ type: `tidelock.run.${type}`, payload, version: version += 1, at: version * 1000, meta: { fence } });
    const op = (name) => ({ op: { name, seq: 0 } });
    const events = [
      entry('done', op('a'), 1), entry('tried', { ...op('b'), error: 'no' }, 1), entry('gave-up', { ...op('c'), error: 'no' }, 1),
      entry('child-ended', { name: 'd', ending: { failed: 'no' } }, 1), entry('child-ended', { name: 'e', ending: { cancelled: 'no' } }, 1),
      entry('constructor', {}, 1), entry('resumed', { reason: 'x' }, 1), entry('done', op('f'), 2),
    ];
    return rows(events, activations(events, 3)).map((row) => [row.what, row.state, row.replays]);
  });
  assert.deepEqual(found, [['a', 'done', 2], ['b', 'tried', 0], ['c', 'tried', 0], ['d', 'failed', 2], ['e', 'cancelled', 2], ['f', 'done', 1]]);
  await close();
};

cases['of a long run the last entries are shown, and the way to older ones'] = async (browser, program) => {
  program.tell('long');
  await until('the long run ends', async () => {
    const { runs } = await program.ask('runs?prefix=long-1');
    return runs[0]?.status === 'completed';
  }, 60000);
  const { page, close } = await open(browser, program, { view: '/runs/long-1' });
  await page.waitForSelector('[data-step="part-519"]');
  assert.equal(await page.locator('[data-step="part-0"]').count(), 0);
  await page.locator('[data-action=Fork]').click();
  await page.waitForSelector('dialog[open]');
  assert.equal(await page.locator('dialog datalist option[value="part-519"]').count(), 1);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.locator('[data-window] ~ [data-next]').click();
  await page.waitForSelector('[data-step="part-0"]');
  await close();
};

const NARROW = ['/', '/streams', `/streams/${encodeURIComponent('order("o-7")')}`, '/stuck', '/stuck?tab=reactions', '/stuck/send-mail?tab=reactions', '/runs', '/runs/order-17',
  '/work', `/work/${encodeURIComponent('tidelock.run("approval-1")')}`, '/leases', `/leases/${encodeURIComponent('report("nightly")')}`, '/locks', '/state', `/state/${CART}`,
  '/schedules', '/schedules/nightly-report', '/audit'];

async function fits(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(over, 0, `${what} is ${over} px too wide`);
}

cases['no page is wider than a telephone'] = async (browser, program) => {
  const options = { viewport: { width: 390, height: 844 } };
  const { page, visit, close } = await open(browser, program, { options });
  for (const view of NARROW) {
    await visit(view);
    await fits(page, view);
  }
  await visit('/schedules/nightly-report');
  await page.locator('[data-action="Run now"]').click();
  await page.waitForSelector('dialog[open]');
  await fits(page, 'a dialog');
  const { x, width } = await page.locator('dialog').boundingBox();
  assert.ok(x >= 0 && x + width <= 390, 'the dialog is on the screen');
  await close();
  const empty = await Program.start('empty', 'alone');
  try {
    const none = await open(browser, empty, { options });
    for (const view of NARROW.filter((view) => view.split('/').length === 2)) {
      await none.visit(view);
      await fits(none.page, `${view} of an empty store`);
    }
    await none.close();
  } finally {
    await empty.end();
  }
};
