// Who looks, and whether what is seen is still so.
import assert from 'node:assert/strict';
import { Program, open, text, until } from './common.mjs';

export const cases = {};

const AWAY = ['net::ERR', 'ERR_CONNECTION', 'TimeoutError'];

cases['a connection that dies without a word is noticed'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/streams', allowed: AWAY });
  program.child.kill('SIGSTOP');
  try {
    await page.waitForSelector('[data-live=lost]', { timeout: 25000 });
  } finally {
    program.child.kill('SIGCONT');
  }
  await page.waitForSelector('[data-live=live]', { timeout: 25000 });
  await close();
};

/** Takes away the beats by which the server only says that it is still there: what is left are the beats of changes. */
function withoutIdleBeats() {
  const fetched = globalThis.fetch;
  let [rest, last] = ['', ''];
  const changes = (block) => {
    const [position] = /"position":[^,}]*/.exec(block) ?? [''];
    const idle = position !== '' && position === last;
    last = position || last;
    return idle ? ': idle' : block;
  };
  const filter = () => new TransformStream({
    transform(text, into) {
      const blocks = (rest + text).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) into.enqueue(`${changes(block)}\n\n`);
    },
  });
  globalThis.fetch = async (url, init) => {
    const response = await fetched(url, init);
    if (!String(url).endsWith('/events/changes') || !response.body) return response;
    return new Response(response.body.pipeThrough(new TextDecoderStream()).pipeThrough(filter()).pipeThrough(new TextEncoderStream()), response);
  };
}

cases['the last change of a burst is shown'] = async (browser) => {
  // Nothing else is written here, so a change that is passed over stays away.
  const program = await Program.start('empty', 'alone');
  try {
    const { page, close } = await open(browser, program, { view: '/streams?prefix=burst', script: withoutIdleBeats });
    const add = (name) => program.ask(`streams/${encodeURIComponent(`burst("${name}")`)}/events`, { expected: 'absent', events: [{ type: 'x', payload: null }] });
    for (let round = 1; round <= 3; round += 1) {
      await add(`${round} first`);
      await page.waitForSelector(`text=${round} first`);
      await add(`${round} then`);
      await page.waitForSelector(`text=${round} then`);
    }
    await close();
  } finally {
    await program.end();
  }
};

cases['a link that logs in works in a tab that is open'] = async (browser, program) => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${program.url}/ui/`);
  await page.waitForSelector('.login input');
  const paste = (token) => page.evaluate((hash) => { location.hash = hash; }, `#token=${token}`);
  await paste('wrong');
  await page.waitForSelector('[data-wrong]');
  assert.ok(!page.url().includes('token'));
  await paste(program.token);
  await page.waitForSelector('[data-live=live]');
  assert.ok(!page.url().includes('token'));
  // A token that is no longer accepted leads back to the question.
  await paste('wrong');
  await page.waitForSelector('[data-wrong]');
  assert.match(await text(page, '.login'), /does not take that token/);
  await context.close();
};

cases['a token that is taken away leads to the question for one'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/streams', allowed: ['401 (Unauthorized)'] });
  await page.evaluate(() => sessionStorage.setItem('tidelock.token', 'gone'));
  await page.evaluate(() => { location.hash = '#/runs'; });
  await page.waitForSelector('.login input');
  await page.locator('.login input').fill(program.token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('[data-live=live]');
  await close();
};

cases['a server in trouble is asked again, and not for a token'] = async (browser, program) => {
  const context = await browser.newContext();
  const page = await context.newPage();
  let well = false;
  await page.route('**/api/v1/info', (route) => (well ? route.continue() : route.fulfill({ status: 503, json: { code: 'TL0308', detail: 'the server cannot be reached' } })));
  await page.goto(program.link());
  await page.waitForSelector('[data-retry]');
  assert.match(await text(page, 'main'), /TL0308 the server cannot be reached/);
  assert.equal(await page.locator('.login input').count(), 0);
  well = true;
  await page.locator('[data-retry]').click();
  await page.waitForSelector('[data-live=live]');
  await context.close();
};

cases['how long the store takes is shown'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { view: '/streams' });
  const told = (latency) => page.route('**/api/v1/overview', async (route) => {
    const body = await (await route.fetch()).json();
    await route.fulfill({ json: { ...body, latency_us: latency } });
  });
  await told(1234);
  await visit('/');
  await page.waitForSelector('[data-card="Store latency"]');
  assert.match(await text(page, '[data-card="Store latency"]'), /1\.2 ms/);
  await until('the axis is drawn', () => page.locator('.chart canvas').count());
  await close();
};
