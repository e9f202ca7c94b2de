// What is changed: with the keyboard, by those who may, and with the same at the command line.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { open, text, until } from './common.mjs';

export const cases = {};

cases['an action is done with the keyboard alone, and the focus comes back'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/schedules/nightly-report' });
  const button = page.locator('[data-action="Run now"]');
  await button.focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.ok(await button.evaluate((of) => document.activeElement === of), 'the focus is back after Escape');
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog[open]');
  for (let tabs = 0; !(await page.evaluate(() => document.activeElement?.hasAttribute('data-confirm'))); tabs += 1) {
    assert.ok(tabs < 10, 'the button is reached');
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await page.waitForSelector('[data-toast]');
  assert.ok(await button.evaluate((of) => document.activeElement === of), 'the focus is back after the deed');
  await close();
};

cases['what fails and is not blocked yet is listed, and retried'] = async (browser, program) => {
  await until('the label fails', async () => (await program.ask('reactions/print-label/keys')).keys.some((key) => key.attempts === 1));
  const { page, close } = await open(browser, program, { view: '/stuck' });
  const item = page.locator('[data-failing] article', { hasText: 'print-label' });
  await item.waitFor();
  assert.match(await item.locator('pre').innerText(), /does not answer\n {2}at tray 2\n {2}of the warehouse/);
  for (let rows = 0; !(await page.evaluate(() => document.activeElement?.closest('article')?.textContent.includes('print-label'))); rows += 1) {
    assert.ok(rows < 20, 'the row is reached');
    await page.keyboard.press('j');
  }
  await item.locator('[data-action=Retry]').click();
  await page.waitForSelector('dialog [data-meant="1"]');
  assert.match(await text(page, 'dialog .cli'), /tidelock reactions retry print-label 'order\("o-9"\)'/);
  await page.locator('dialog [data-confirm]').click();
  await until('it is tried again', async () => (await program.ask('reactions/print-label/keys')).keys.some((key) => key.attempts === 2));
  await close();
};

cases['all keys of a reaction are counted before they begin again'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/stuck/reserve-stock?tab=reactions' });
  await page.waitForSelector('main tbody tr');
  await page.locator('[data-action=Reset]').click();
  await page.waitForFunction(() => Number(document.querySelector('dialog [data-meant]')?.getAttribute('data-meant')) >= 40);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.locator('[data-action=Park]').click();
  await page.waitForSelector('dialog [data-meant="0"]');
  assert.ok(await page.locator('dialog [data-confirm]').isDisabled());
  await close();
};

cases['a run is cancelled, and another one resumed'] = async (browser, program) => {
  const { page, visit, close } = await open(browser, program, { view: '/runs/approval-2' });
  const press = async (label, reason) => {
    await page.locator(`[data-action="${label}"]`).click();
    await page.locator('dialog input').fill(reason);
    await page.locator('dialog [data-confirm]').click();
    await page.waitForSelector('dialog', { state: 'detached' });
  };
  await press('Cancel', 'too dear');
  await until('it is cancelled', async () => (await program.ask('runs/approval-2')).status === 'cancelled');
  await page.waitForFunction(() => document.querySelector('main .facts').innerText.includes('cancelled'));
  await visit('/runs/order-13');
  await press('Resume', 'try once more');
  const journal = `streams/${encodeURIComponent('tidelock.journal("order-13", 0)')}/events`;
  await until('it was resumed', async () => (await program.ask(journal)).events.some((event) => event.type.endsWith('resumed')));
  await close();
};

cases['a signal keeps all digits of its value'] = async (browser, program) => {
  await program.ask('runs', { workflow: 'approval', id: 'approval-3', input: 'x' });
  const { page, close } = await open(browser, program, { view: '/runs/approval-3' });
  const sent = new Promise((resolve) => page.route('**/signals', (route) => {
    resolve(route.request().postData());
    return route.fulfill({ status: 202, json: {} });
  }));
  await page.locator('[data-action=Signal]').click();
  await page.locator('dialog input').nth(1).fill('18446744073709551615');
  await page.locator('dialog [data-confirm]').click();
  assert.match(await sent, /"value": 18446744073709551615}/);
  await page.waitForSelector('dialog', { state: 'detached' });
  await close();
};

cases['a command that cannot be copied is selected'] = async (browser, program) => {
  const { page, close } = await open(browser, program, { view: '/runs' });
  await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  await page.locator('.head .cli button').click();
  await page.waitForSelector('text=press Ctrl+C');
  assert.equal(await page.evaluate(() => String(getSelection())), 'tidelock runs list');
  await close();
};

/** Runs a line that a page shows, as a shell would, on the store that it shows. */
function run(line, store) {
  const env = { ...process.env, TIDELOCK_STORE: store, PATH: `${join(process.env.TIDELOCK_PROGRAM, '..')}:${process.env.PATH}` };
  return new Promise((resolve) => {
    execFile('/bin/sh', ['-c', line], { env, timeout: 30000 }, (error, out, err) => resolve({ code: error ? error.code : 0, said: `${out}${err}` })).stdin.end();
  });
}

const SHOWN = ['/', '/streams', '/streams?prefix=order', `/streams/${encodeURIComponent('order("o-7")')}`, '/stuck', '/stuck?tab=reactions', '/stuck/send-mail?tab=reactions',
  '/stuck/send-mail?tab=reactions&blocked=true', '/runs', '/runs?status=failed', '/runs/order-17', '/work', '/work?show=leased', '/work?show=waiting', '/work?show=blocked',
  `/work/${encodeURIComponent('tidelock.run("approval-1")')}`, '/leases', `/leases/${encodeURIComponent('report("nightly")')}`, '/state', '/state?prefix=user',
  `/state/${encodeURIComponent('user("u-1", "cart")')}`, `/state/${encodeURIComponent('user("u-1", "cart")')}?at=2`, '/schedules', '/schedules/heartbeat', '/audit'];

cases['every command that a page shows is one'] = async (browser, program) => {
  await program.ask('schedules/heartbeat/run', {});
  const { page, visit, close } = await open(browser, program);
  const [reads, writes] = [new Set(), new Set()];
  for (const view of SHOWN) {
    await visit(view);
    for (const line of await page.locator('.head .cli code').allInnerTexts()) reads.add(line);
    const actions = page.locator('[data-action]');
    for (let at = 0; at < await actions.count(); at += 1) {
      await actions.nth(at).click();
      await page.waitForSelector('dialog[open]');
      writes.add(await text(page, 'dialog .cli code'));
      await page.keyboard.press('Escape');
      await page.waitForSelector('dialog', { state: 'detached' });
    }
  }
  await close();
  assert.ok(reads.size >= 20 && writes.size >= 8, `${reads.size} and ${writes.size}`);
  const wrong = [];
  const [shown, elsewhere] = [join(program.directory, 'store.db'), join(program.directory, 'nothing.db')];
  await run('tidelock migrate up', elsewhere);
  // Those that look must find it; those that change are tried where there is nothing to change.
  for (const line of reads) {
    const { code, said } = await run(line, shown);
    if (![0, 5].includes(code)) wrong.push(`${line}: ${code} ${said}`);
  }
  for (const line of writes) {
    const { code, said } = await run(line, elsewhere);
    if (code === 2 && said.includes('Usage:')) wrong.push(`${line}: ${said}`);
  }
  assert.deepEqual(wrong, []);
};
