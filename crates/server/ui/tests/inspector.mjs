// The inspector in a real browser. Each case opens its own page and fails for any error, console message or breach of the policy.
import assert from 'node:assert/strict';
import { cases as acting } from './acting.mjs';
import { Program, launch, open, text, until } from './common.mjs';
import { cases as connection } from './connection.mjs';
import { cases as demo } from './demo.mjs';
import { cases as place } from './place.mjs';
import { cases as reading } from './reading.mjs';

const cases = {};

cases['a blocked key is unblocked, and drains'] = async (browser, program) => {
  await until('both keys are blocked', async () => (await program.ask('work?blocked=true')).blocked === 2);
  const { page, visit, close } = await open(browser, program, { view: '/stuck' });
  await page.waitForSelector('[data-blocked="2"]');
  const item = page.locator('article', { hasText: 'order("o-7")' });
  assert.match(await item.locator('pre').innerText(), /451 the mailbox of <b>ada<\/b> is full\\u\{202e\}/);
  program.tell('mend');
  await item.locator('[data-action=Unblock]').click();
  await page.waitForSelector('dialog [data-meant="1"]');
  assert.match(await text(page, 'dialog'), /tidelock reactions unblock send-mail 'order\("o-7"\)'/);
  await page.locator('dialog [data-confirm]').click();
  await page.waitForSelector('[data-toast]');
  assert.match(await text(page, '[data-toast]'), /1 changed/);
  // The list loses it by itself: the page hears of it.
  await page.waitForSelector('[data-blocked="1"]');
  await page.locator('[data-action="Unblock all"]').click();
  await page.waitForSelector('dialog [data-meant="1"]');
  await page.locator('dialog [data-confirm]').click();
  await page.waitForSelector('.empty');
  assert.match(await text(page, '.empty'), /No blocked work/);
  await until('what was blocked is handled', async () => (await program.ask('work?blocked=true')).blocked === 0);
  await until('no event waits', async () => {
    const { keys } = await program.ask('reactions/send-mail/keys');
    return keys.every((key) => key.lag.events === 0);
  });
  await visit('/audit');
  await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length >= 2);
  assert.match(await text(page, 'main table'), /unblock/);
  await close();
};

cases['the timeline of a run whose worker was killed marks what was replayed'] = async (browser, program) => {
  await until('the run ends', async () => (await program.ask('runs/order-17')).status === 'completed');
  const { page, close } = await open(browser, program, { view: '/runs/order-17' });
  await page.waitForSelector('[data-step=ship]');
  const marks = (step) => page.locator(`[data-step=${step}] .marks`).evaluate((of) => [of.dataset.executed, of.dataset.replayed]);
  assert.deepEqual(await marks('reserve'), ['1', '1']);
  assert.deepEqual(await marks('charge'), ['1', '1']);
  assert.deepEqual(await marks('ship'), ['2', '0']);
  assert.match(await text(page, '[data-step=charge] .marks'), /executed in 1\s*replayed ×1/);
  await page.locator('summary').click();
  assert.match(await text(page, 'details table'), /started[\s\S]*done[\s\S]*ended/);
  await close();
};

cases['tasks that wait in a cycle are shown in red, and so is one that was refused'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/locks' });
  await page.waitForSelector('[data-cycles="1"]');
  assert.match(await text(page, '[data-cycles]'), /(task \d+) → task \d+ → \1/);
  assert.equal(await page.locator('[data-edge=round]').count(), 2);
  const [line, bad] = await page.evaluate(() => {
    const probe = document.createElement('i');
    probe.className = 'bad-ink';
    document.body.append(probe);
    return [getComputedStyle(document.querySelector('[data-edge=round] path')).stroke, getComputedStyle(probe).color];
  });
  assert.equal(line, bad);
  await page.waitForSelector('[data-found]:has-text("cart(")');
  await close();
};

cases['a run hears a signal, and a failed one can be forked'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { view: '/runs/approval-1' });
  await page.locator('[data-action=Signal]').click();
  await page.locator('dialog input').nth(1).fill('not json');
  await page.locator('dialog [data-confirm]').click();
  await page.waitForSelector('dialog .notice');
  await page.locator('dialog input').nth(1).fill('true');
  assert.match(await text(page, 'dialog .cli'), /tidelock runs signal --value true approval-1 approved/);
  await page.locator('dialog [data-confirm]').click();
  await until('the run ends', async () => (await program.ask('runs/approval-1')).status === 'completed');
  await page.waitForFunction(() => document.querySelector('main').innerText.includes('"approved"'));
  await visit('/runs?status=failed');
  await page.locator('a', { hasText: 'order-13' }).click();
  await page.locator('[data-action=Fork]').click();
  await page.locator('dialog input').nth(0).fill('charge');
  await page.locator('dialog input').nth(1).fill('order-13-again');
  await page.locator('dialog [data-confirm]').click();
  await page.waitForFunction(() => location.hash === '#/runs/order-13-again');
  await close();
};

cases['a task is run, paused and resumed'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/schedules/nightly-report' });
  const press = async (label) => {
    await page.locator(`[data-action="${label}"]`).click();
    await page.locator('dialog [data-confirm]').click();
    await page.waitForSelector('dialog', { state: 'detached' });
  };
  await press('Run now');
  await page.waitForFunction(() => document.querySelector('main').innerText.includes('succeeded'));
  await press('Pause');
  await page.waitForSelector('[data-action=Resume]');
  await press('Resume');
  await page.waitForSelector('[data-action=Pause]');
  await close();
};

cases['a document is shown as it was, with what changed'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: `/state/${encodeURIComponent('user("u-1", "cart")')}` });
  await page.waitForSelector('.slider');
  assert.match(await text(page, '.diff'), /\/total\s+410\s+411/);
  await page.locator('.slider button', { hasText: 'Older' }).click();
  await page.waitForFunction(() => location.hash.endsWith('at=7'));
  await page.waitForFunction(() => document.querySelector('.json')?.innerText.includes('"total": 410'));
  await page.goBack();
  await page.waitForFunction(() => document.querySelector('.json')?.innerText.includes('"total": 411'));
  await close();
};

cases['the page continues when the server comes back'] = async (browser, program) => {
  const allowed = ['ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED_ENCODING', 'ERR_CONNECTION_RESET', 'ERR_EMPTY_RESPONSE', 'net::ERR'];
  const { page, close } = await open(browser, program, { view: '/streams?prefix=order', allowed });
  await page.waitForSelector('main tbody tr');
  await program.kill();
  await page.waitForSelector('[data-live=lost]');
  await program.begin();
  await page.waitForSelector('[data-live=live]', { timeout: 20000 });
  assert.ok(Number(await page.locator('[data-live]').getAttribute('data-connects')) >= 2);
  // And it is fresh: what is written now shows up without a hand.
  await program.ask(`streams/${encodeURIComponent('order("a-new-one")')}/events`, { expected: 'absent', events: [{ type: 'placed', payload: {} }] });
  await page.waitForSelector('text=a-new-one');
  await close();
};

cases['a pause holds the page still'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/streams?prefix=paused' });
  const add = (name) => program.ask(`streams/${encodeURIComponent(`paused("${name}")`)}/events`, { expected: 'absent', events: [{ type: 'x', payload: null }] });
  await page.keyboard.press('p');
  await page.waitForSelector('[data-live=paused]');
  await add('one');
  await until('the event is there', async () => (await program.ask('streams?prefix=paused')).streams.length === 1);
  assert.equal(await page.locator('main tbody tr').count(), 0);
  await page.locator('[data-pause]').click();
  await page.waitForSelector('main tbody tr');
  await close();
};

cases['with the keyboard alone'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program);
  const on = (name, limit = {}) => page.waitForSelector(`main[data-page=${name}]`, limit);
  for (const [key, name] of [['s', 'streams'], ['k', 'stuck'], ['r', 'runs'], ['w', 'work'], ['l', 'leases'], ['c', 'locks'], ['t', 'state'], ['d', 'schedules'], ['a', 'audit'], ['o', 'overview']]) {
    // The second key counts for a moment only, which a loaded machine may miss.
    await until(`g ${key} leads to ${name}`, async () => {
      await page.keyboard.press('g');
      await page.keyboard.press(key);
      return on(name, { timeout: 2000 }).catch(() => null);
    });
  }
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await visit('/streams');
  await page.keyboard.press('/');
  await page.keyboard.type('order("o-1');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.includes('prefix='));
  await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 11);
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid', 'the focus is seen');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.slider');
  await page.keyboard.press('u');
  await page.waitForFunction(() => location.hash === '#/streams');
  await close();
};

cases['who may only read sees no button that changes something'] = async (browser) => {
  const program = await Program.start('read');
  try {
    await until('both keys are blocked', async () => (await program.ask('work?blocked=true')).blocked === 2);
    const { page, visit, close } = await open(browser, program);
    await page.waitForSelector('[data-readonly]');
    for (const view of ['/stuck', '/stuck/send-mail?tab=reactions', '/runs/order-13', '/runs/approval-1', '/schedules', '/schedules/heartbeat', '/work?show=blocked', `/work/${encodeURIComponent('tidelock.run("approval-1")')}`]) {
      await visit(view);
      assert.equal(await page.locator('[data-action]').count(), 0, view);
    }
    await visit('/stuck');
    assert.equal(await page.locator('article.bad').count(), 2);
    await close();
  } finally {
    await program.end();
  }
};

cases['names that mean harm are shown as text'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { view: '/streams?prefix=order' });
  await page.waitForSelector('main tbody tr');
  const link = page.locator('a', { hasText: 'onerror' });
  assert.match(await link.innerText(), /order\("\\u202etxt\.exe"|order\("\\u\{202e\}txt\.exe"/);
  await link.click();
  await page.waitForSelector('.slider');
  const shown = await text(page, 'main');
  assert.ok(!shown.includes('\u202e'), 'no character that turns the direction reaches the page');
  assert.match(shown, /18446744073709551615/, 'all digits of a long number are kept');
  assert.equal(await page.locator('main img').count(), 0);
  for (const view of ['/work', '/state', '/stuck?tab=reactions', '/stuck/send-mail?tab=reactions']) {
    await visit(view);
    assert.ok(!(await text(page, 'main')).includes('\u202e'), view);
  }
  await close();
};

cases['themes: what the system says, what was chosen, and that it is kept'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { options: { colorScheme: 'dark' } });
  const dark = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const first = await dark();
  await page.locator('[data-theme-switch]').click();
  const light = await until('the page is light', async () => (await dark()) !== first && dark());
  await page.reload();
  await page.waitForSelector('[data-live=live]');
  assert.equal(await dark(), light);
  await close();
};

cases['an empty store teaches; a server that stands alone says why it sees no locks'] = async (browser) => {
  const program = await Program.start('empty', 'alone');
  try {
    const { page, visit, close } = await open(browser, program);
    await page.waitForSelector('.empty');
    for (const view of ['/streams', '/stuck', '/stuck?tab=reactions', '/runs', '/work', '/leases', '/locks', '/state', '/schedules', '/audit']) {
      await visit(view);
      await page.waitForSelector('.empty');
    }
    await visit('/locks');
    assert.match(await text(page, '.empty'), /live in the memory of the program[\s\S]*\.locks\(&locks\)/);
    await close();
  } finally {
    await program.end();
  }
};

cases['without a token there is nothing but a question for it'] = async (browser, program) => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${program.url}/`);
  await page.waitForSelector('.login input');
  await page.locator('.login input').fill('wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.login input');
  await page.locator('.login input').fill(program.token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('[data-live=live]');
  assert.ok(!page.url().includes(program.token));
  assert.deepEqual(await context.cookies(), []);
  await context.close();
};

const only = process.argv[2];
const [browser, program] = await Promise.all([launch(), Program.start()]);
const failed = new Set();
let running = 'start';
const fails = (error) => {
  failed.add(running);
  console.log(`FAIL ${running}\n${error?.stack ?? error}`);
};
// An error outside the case, such as in a handler of a page, belongs to the case as well, and hides no other case.
process.on('unhandledRejection', fails);
process.on('uncaughtException', fails);
// What rests is looked at before anything wakes it.
const all = { ...reading, ...acting, ...cases, ...place, ...connection, ...demo };
for (const [name, run] of Object.entries(all)) {
  if (only && !name.includes(only)) continue;
  const began = Date.now();
  running = name;
  try {
    await run(browser, program);
    if (!failed.has(name)) console.log(`ok   ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    fails(error);
  }
}
await browser.close();
await program.end();
console.log(failed.size ? `${failed.size} failed` : 'all passed');
process.exit(failed.size ? 1 : 0);
