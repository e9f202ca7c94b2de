// What all tests need: the program that is looked at, a browser, and a page that reports whatever goes wrong in it.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [program, library] = [process.env.INSPECTED_PROGRAM, process.env.PLAYWRIGHT_CORE];
if (!program || !library) throw new Error('run this with `cargo xtask browser`, which says where the program and the library are');
const { chromium } = await import(pathToFileURL(join(library, 'index.mjs')).href);

const ARGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ARGS });
}

/** A program with a store, and the server in it. */
export class Program {
  constructor(directory, words) {
    this.directory = directory;
    this.words = words;
    this.port = 0;
    this.token = undefined;
  }

  static async start(...words) {
    const made = new Program(mkdtempSync(join(tmpdir(), 'inspected-')), words);
    await made.begin();
    return made;
  }

  /** Starts it, at the same place and with the same token as before. */
  async begin() {
    const env = { ...process.env, ...(this.token ? { INSPECTED_TOKEN: this.token } : {}) };
    this.child = spawn(program, [join(this.directory, 'store.db'), String(this.port), ...this.words], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    this.ended = new Promise((resolve) => this.child.once('exit', resolve));
    const said = createInterface({ input: this.child.stdout });
    const line = await new Promise((resolve, reject) => {
      said.on('line', (text) => text.startsWith('{') && resolve(text));
      said.once('close', () => reject(new Error('the program ended before it served')));
    });
    const { url, token } = JSON.parse(line);
    Object.assign(this, { url, token, port: Number(new URL(url).port) });
  }

  tell(word) {
    this.child.stdin.write(`${word}\n`);
  }

  async kill() {
    this.child.kill('SIGKILL');
    await this.ended;
  }

  async end() {
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** What logs in, and then goes somewhere. */
  link(view = '') {
    return `${this.url}/ui/#token=${this.token}${view}`;
  }

  ask(path, body) {
    return this.send(body ? 'POST' : 'GET', path, body);
  }

  async send(method, path, body, more = {}) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json', ...more };
    const response = await fetch(`${this.url}/api/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }
}

/**
 * A page that notes what goes wrong: errors of scripts, what is written to the console as one, and what the policy forbade.
 * `allowed` are parts of messages that are meant to come, such as those of a server that is away. `script` runs before the page does.
 */
export function open(browser, program, asked = {}) {
  return openAt(browser, program.link(), asked);
}

/** The same, from a link that logs in. */
export async function openAt(browser, link, { view = '/', options = {}, allowed = [], script = () => {} } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ...options });
  // A limit for what never comes; a machine that is busy may take long.
  context.setDefaultTimeout(90000);
  const wrong = [];
  await context.addInitScript(() => {
    globalThis.forbidden = [];
    addEventListener('securitypolicyviolation', (event) => globalThis.forbidden.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
  });
  await context.addInitScript(script);
  const page = await context.newPage();
  const note = (text) => allowed.some((part) => text.includes(part)) || wrong.push(text);
  page.on('pageerror', (error) => note(`error: ${error.stack}`));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && note(`console: ${message.text()}`));
  page.on('request', (request) => new URL(request.url()).origin === new URL(link).origin || note(`asked elsewhere: ${request.url()}`));
  await page.goto(link);
  await page.waitForSelector('[data-live=live]');
  const visit = async (to) => {
    await page.evaluate((hash) => { location.hash = hash; }, `#${to}`);
    await page.waitForFunction(() => document.querySelector('main[data-page]') && !document.querySelector('main .loading'));
  };
  await visit(view);
  const close = async () => {
    // Replies that are still being made up are not missed.
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    wrong.push(...(await page.evaluate(() => globalThis.forbidden)).map((text) => `forbidden: ${text}`));
    const hurt = await page.evaluate(() => globalThis.hurt);
    if (hurt) wrong.push('a name was run as code');
    await context.close();
    if (wrong.length) throw new Error(`the page had trouble:\n${wrong.join('\n')}`);
  };
  return { page, visit, close, context };
}

/** What a page shows. */
export const text = (page, where) => page.locator(where).first().innerText();

/** Asks again until it is so. */
export async function until(what, check, limit = 60000) {
  const end = Date.now() + limit;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it did not come about within ${limit} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
