// The demo of the command line, right after its installation.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { openAt, text, until } from './common.mjs';

export const cases = {};

/** Starts the demo, and is there when it has said where it can be seen. */
export async function demo(seconds) {
  const child = spawn(process.env.TIDELOCK_PROGRAM, ['demo', '--seconds', String(seconds), '--stay', '--no-color'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const said = [];
  const link = await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        said.push(line);
        const found = /(https?:\/\/\S+\/ui\/#token=\S+)/.exec(line);
        if (found) resolve(found[1]);
      });
    }
    ended.then(() => reject(new Error(`the demo ended before it said where it is:\n${said.join('\n')}`)));
  });
  const end = async () => {
    child.kill('SIGINT');
    const timer = setTimeout(() => child.kill('SIGKILL'), 15000);
    await ended;
    clearTimeout(timer);
  };
  return { link, end };
}

/** What the API of the demo says. */
export async function asked(link, path) {
  const [url, token] = link.split('/ui/#token=');
  const response = await fetch(`${url}/api/v1/${path}`, { headers: { authorization: `Bearer ${decodeURIComponent(token)}` } });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** A run of the demo that one worker began and another one went on with. */
export async function takenOver(link) {
  const { runs } = await asked(link, 'runs?limit=200');
  for (const { run, generation } of runs) {
    const { events } = await asked(link, `streams/${encodeURIComponent(`tidelock.journal(${JSON.stringify(run)}, ${generation})`)}/events`);
    const fences = new Set(events.map((event) => event.meta?.fence).filter((fence) => fence !== undefined));
    const done = events.filter((event) => event.type.endsWith('.done')).map((event) => event.meta?.fence);
    if (fences.size > 1 && done.includes(Math.min(...fences))) return run;
  }
  return null;
}

cases['the demo logs in, its runs appear, and one that was taken over shows what was replayed'] = async (browser) => {
  const { link, end } = await demo(20);
  try {
    const { page, visit, close } = await openAt(browser, link);
    await visit('/runs');
    await page.waitForSelector('main tbody tr');
    const run = await until('a run is taken over', () => takenOver(link), 60000);
    await visit(`/runs/${encodeURIComponent(run)}`);
    await page.waitForSelector('.marks');
    assert.match(await text(page, 'table.timeline'), /replayed ×\d/);
    await close();
  } finally {
    await end();
  }
};
