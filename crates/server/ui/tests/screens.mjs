// Screenshots of every page: `cargo xtask browser --screens DIRECTORY`.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Program, launch, open, until } from './common.mjs';

const to = process.argv[2] || 'screens';
mkdirSync(to, { recursive: true });

/** Pages with data, by the name of their picture. */
const VIEWS = {
  overview: '/', streams: '/streams', stream: `/streams/${encodeURIComponent('order("o-7")')}`, stuck: '/stuck', reactions: '/stuck?tab=reactions',
  runs: '/runs', run: '/runs/order-17', work: '/work', leases: '/leases', locks: '/locks', state: '/state?prefix=user',
  document: `/state/${encodeURIComponent('user("u-1", "cart")')}`, schedules: '/schedules', audit: '/audit',
};
const all = process.argv.includes('--all');
const wanted = (name, theme, width, empty) => all
  || (!empty && theme === 'light' && width === 1280)
  || (!empty && theme === 'dark' && width === 1280 && ['run', 'locks'].includes(name))
  || (!empty && theme === 'light' && width === 390 && ['overview', 'stuck'].includes(name));

const browser = await launch();
for (const empty of all ? [false, true] : [false]) {
  const program = await Program.start(...(empty ? ['empty', 'alone'] : []));
  if (!empty) {
    await until('both keys are blocked', async () => (await program.ask('work/blocked')).blocked === 2);
    await until('the run that was taken over ends', async () => (await program.ask('runs/order-17')).status === 'completed');
    await program.ask('runs/approval-1/signals', { name: 'approved', value: true });
  }
  for (const theme of ['light', 'dark']) {
    for (const width of [1280, 390]) {
      const names = Object.keys(VIEWS).filter((name) => wanted(name, theme, width, empty) && !(empty && ['stream', 'run', 'document'].includes(name)));
      if (names.length === 0) continue;
      const { page, visit, close } = await open(browser, program, { options: { viewport: { width, height: width === 390 ? 844 : 800 }, colorScheme: theme } });
      for (const name of names) {
        await visit(VIEWS[name]);
        if (name === 'overview') await page.waitForTimeout(4000);
        await page.waitForTimeout(200);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (wide > 0) console.log(`${name} at ${width} px is ${wide} px too wide`);
        const parts = [name, theme === 'dark' && 'dark', width === 390 && 'mobile', empty && 'empty'].filter(Boolean);
        await page.screenshot({ path: join(to, `${parts.join('-')}.png`) });
      }
      await close();
    }
  }
  await program.end();
}
await browser.close();
