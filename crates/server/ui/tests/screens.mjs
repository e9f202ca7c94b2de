// Pictures for the book: `cargo xtask browser --screens DIRECTORY`. The pages one by one, with a program that has something of
// everything; and a sheet for each page, light and dark, wide and narrow, with the demo running and with an empty store.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Program, launch, openAt, until } from './common.mjs';
import { asked, demo, takenOver } from './demo.mjs';

const to = process.argv[2] || 'screens';
const sheets = join(to, 'sheets');
mkdirSync(sheets, { recursive: true });

/** Views of the program with something of everything, by the name of their picture. */
const VIEWS = {
  overview: '/', streams: '/streams', stream: `/streams/${encodeURIComponent('order("o-7")')}`, stuck: '/stuck', reactions: '/stuck?tab=reactions',
  runs: '/runs', run: '/runs/order-17', work: '/work', leases: '/leases', locks: '/locks', state: '/state?prefix=user',
  document: `/state/${encodeURIComponent('user("u-1", "cart")')}`, schedules: '/schedules', audit: '/audit',
};
/** The pages that a sheet is made of. */
const PAGES = { overview: '/', streams: '/streams', stuck: '/stuck', reactions: '/stuck?tab=reactions', runs: '/runs', work: '/work', leases: '/leases', locks: '/locks', state: '/state', schedules: '/schedules', audit: '/audit' };
const LOOKS = [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]];

const viewport = (width) => ({ width, height: width === 390 ? 844 : 800 });

/** A picture of each view. */
async function shots(browser, link, views, theme, width) {
  const { page, visit, close } = await openAt(browser, link, { options: { viewport: viewport(width), colorScheme: theme } });
  const made = {};
  for (const [name, view] of Object.entries(views)) {
    await visit(view);
    if (view.startsWith('/state') && await page.locator('main tbody tr a').count()) await page.waitForSelector('.scopes, .facts');
    // The charts show what was seen since the page was opened.
    await page.waitForTimeout(view === '/' ? 5000 : 400);
    made[name] = await page.screenshot();
  }
  await close();
  return made;
}

async function single(browser) {
  const program = await Program.start();
  await until('both keys are blocked', async () => (await program.ask('work?blocked=true')).blocked === 2);
  await until('the run that was taken over ends', async () => (await program.ask('runs/order-17')).status === 'completed');
  await program.ask('runs/approval-1/signals', { name: 'approved', value: true });
  const only = (...names) => Object.fromEntries(names.map((name) => [name, VIEWS[name]]));
  const wanted = [[VIEWS, 'light', 1280, ''], [only('run', 'locks'), 'dark', 1280, '-dark'], [only('overview', 'stuck'), 'light', 390, '-mobile']];
  for (const [views, theme, width, ending] of wanted) {
    for (const [name, picture] of Object.entries(await shots(browser, program.link(), views, theme, width))) writeFileSync(join(to, `${name}${ending}.png`), picture);
  }
  await program.end();
}

/** What the demo shows beside its pages: a stream, a run that was taken over, and a document. */
async function details(link) {
  const run = await until('a run is taken over', () => takenOver(link), 90000);
  const { streams } = await asked(link, 'streams?limit=1');
  const { records } = await asked(link, 'state?limit=1');
  return { run: `/runs/${encodeURIComponent(run)}`, stream: `/streams/${encodeURIComponent(streams[0].key)}`, document: `/state/${encodeURIComponent(records[0].key)}` };
}

const SCALE = 0.6;

/** Puts pictures on one sheet: a row for each store, a column for each look. */
async function sheet(browser, name, rows) {
  const page = await browser.newPage({ viewport: { width: 2100, height: 600 } });
  const cell = (picture, i) => `<figure><img width="${LOOKS[i][1] * SCALE}" src="data:image/png;base64,${picture.toString('base64')}"><figcaption>${LOOKS[i].join(', ')} px</figcaption></figure>`;
  const row = ([title, pictures]) => `<h2>${name}: ${title}</h2><div>${pictures.map(cell).join('')}</div>`;
  await page.setContent(`<style>body{margin:0;padding:4px 16px 12px;background:#8a9291;font:16px sans-serif;width:max-content}h2{margin:10px 0 6px;font-size:18px}
    div{display:flex;gap:12px;align-items:flex-start}figure{margin:0}img{display:block}figcaption{padding-top:2px}</style>${rows.map(row).join('')}`);
  await page.locator('body').screenshot({ path: join(sheets, `${name}.jpg`), type: 'jpeg', quality: 78 });
  await page.close();
}

async function all(browser) {
  const [running, empty] = [await demo(600), await Program.start('empty', 'alone')];
  const [full, bare] = [[], []];
  try {
    const views = { ...PAGES, ...(await details(running.link)) };
    for (const [theme, width] of LOOKS) {
      full.push(await shots(browser, running.link, views, theme, width));
      bare.push(await shots(browser, empty.link(), PAGES, theme, width));
    }
  } finally {
    await Promise.all([running.end(), empty.end()]);
  }
  writeFileSync(join(to, 'demo.png'), full[0].overview);
  for (const name of Object.keys(full[0])) {
    const rows = [['the demo running', full.map((look) => look[name])]];
    if (name in PAGES) rows.push(['an empty store', bare.map((look) => look[name])]);
    await sheet(browser, name, rows);
  }
}

const browser = await launch();
try {
  await single(browser);
  await all(browser);
} finally {
  await browser.close();
}
