// Browsers: a page to go to, scripts to run there. Firefox by its Marionette, WebKitGTK by its
// WebDriver, Chromium by playwright-core.

import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';

const START = 60_000; // milliseconds that a browser has
const SCRIPT = 120_000; // and a script
const TIMEOUTS = { script: SCRIPT, pageLoad: SCRIPT, implicit: 0 };

/**
 * A headless browser: `go(url)`, `run(script, argument)`, `close()`. A script is the text of a
 * function of the argument, whose promise is waited for.
 *
 * @param {{kind: 'chromium' | 'firefox' | 'webkit', binary: string, driver?: string}} engine
 *     `driver` is WebKit's WebDriver, and of Chromium the folder whose playwright-core is used
 */
export async function launch({ kind, binary, driver }) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), `${kind}-`));
  const start = { chromium: startChromium, firefox: startFirefox, webkit: startWebKit }[kind];
  const { command, end } = await start(home, binary, driver);
  return {
    go: (url) => command.go(url),
    run: (script, argument = null) => command.run(script, argument),
    close: async () => {
      await end();
      fs.rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}

/** For WebDriver, which gives a script arguments and, last, what it calls when it is done. */
async function inWebDriver(execute, script, argument) {
  const text = `const done = arguments[arguments.length - 1];
    Promise.resolve((${script})(arguments[0])).then(
      (value) => done({ value }), (error) => done({ error: String(error?.stack ?? error) }));`;
  const answer = await execute({ script: text, args: [argument] });
  if (answer.error) throw new Error(answer.error);
  return answer.value;
}

async function until(what, work) {
  for (const end = Date.now() + START; Date.now() < end; await wait(100)) {
    const found = await work();
    if (found) return found;
  }
  throw new Error(`${what} did not start`);
}

function started(command, args, home) {
  const child = spawn(command, args, { env: { ...process.env, HOME: home }, stdio: 'ignore' });
  const gone = new Promise((resolve) => child.on('exit', resolve));
  const end = async () => {
    child.kill('SIGTERM');
    await Promise.race([gone, wait(5000).then(() => child.kill('SIGKILL'))]);
  };
  return { child, end };
}

// --- Chromium: what Playwright knows of it ---------------------------------------------------

async function startChromium(home, binary, driver) {
  const { chromium } = createRequire(path.join(driver, 'package.json'))('playwright-core');
  const args = ['--no-sandbox', '--disable-background-networking'];
  const browser = await chromium.launch({ executablePath: binary, headless: true, args });
  const page = await browser.newPage();
  const run = (script, argument) => page.evaluate(`(${script})(${JSON.stringify(argument)})`);
  return { command: { go: (url) => page.goto(url), run }, end: () => browser.close() };
}

// --- Firefox: Marionette, messages over a socket --------------------------------------------

async function startFirefox(home, binary) {
  const profile = path.join(home, 'profile');
  fs.mkdirSync(profile);
  const settings = { 'marionette.port': 0, 'network.proxy.type': 0, 'browser.startup.page': 0 };
  const lines = Object.entries(settings).map(([name, value]) => `user_pref("${name}", ${value});`);
  fs.writeFileSync(path.join(profile, 'user.js'), lines.join('\n'));
  const args = ['--headless', '--no-remote', '--marionette', '--profile', profile];
  const { end } = started(binary, args, home);
  const file = path.join(profile, 'MarionetteActivePort');
  const port = await until('Firefox', () => fs.existsSync(file) && fs.readFileSync(file, 'utf8'));
  const socket = net.connect(Number(port), '127.0.0.1');
  const send = marionette(socket);
  await send('WebDriver:NewSession', { capabilities: { alwaysMatch: {} } });
  await send('WebDriver:SetTimeouts', TIMEOUTS);
  const execute = async (body) => (await send('WebDriver:ExecuteAsyncScript', body)).value;
  return {
    command: {
      go: (url) => send('WebDriver:Navigate', { url }),
      run: (...given) => inWebDriver(execute, ...given),
    },
    end: async () => {
      socket.destroy();
      await end();
    },
  };
}

/** Messages are `length:[0, id, command, parameters]`, answers `length:[1, id, error, result]`. */
function marionette(socket) {
  const waiting = new Map();
  let received = Buffer.alloc(0);
  let last = 0;
  socket.on('data', (data) => {
    received = Buffer.concat([received, data]);
    for (;;) {
      const colon = received.indexOf(':');
      const size = Number(received.subarray(0, Math.max(colon, 0)));
      if (colon < 0 || received.length < colon + 1 + size) return;
      const message = JSON.parse(received.subarray(colon + 1, colon + 1 + size));
      received = received.subarray(colon + 1 + size);
      if (!Array.isArray(message)) continue; // its greeting
      const [, id, error, result] = message;
      const { resolve, reject } = waiting.get(id);
      if (error) reject(new Error(`${error.error}: ${error.message}`));
      else resolve(result);
    }
  });
  return (name, parameters) =>
    new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, { resolve, reject });
      const text = JSON.stringify([0, last, name, parameters]);
      socket.write(`${Buffer.byteLength(text)}:${text}`);
    });
}

// --- WebKit: WebDriver over HTTP, on a display of its own -----------------------------------

async function startWebKit(home, binary, driver) {
  const port = await freePort();
  const display = `:${100 + (process.pid % 5000)}`;
  const screen = started('Xvfb', [display, '-screen', '0', '1024x768x24', '-nolisten', 'tcp'], home);
  await until('Xvfb', () => fs.existsSync(`/tmp/.X11-unix/X${display.slice(1)}`));
  const environment = { DISPLAY: display, WEBKIT_DISABLE_COMPOSITING_MODE: '1', NO_AT_BRIDGE: '1' };
  Object.assign(process.env, environment);
  const service = started(driver, [`--port=${port}`, '--host=127.0.0.1'], home);
  const send = async (method, name, body) => {
    const response = await fetch(`http://127.0.0.1:${port}/${name}`, {
      method,
      body: body && JSON.stringify(body),
    });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${value.error}: ${value.message}`);
    return value;
  };
  await until('WebKitWebDriver', () => send('GET', 'status').catch(() => false));
  const options = { binary, args: ['--automation'] };
  const { sessionId } = await send('POST', 'session', {
    capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': options } },
  });
  const session = `session/${sessionId}`;
  await send('POST', `${session}/timeouts`, TIMEOUTS);
  const execute = (body) => send('POST', `${session}/execute/async`, body);
  return {
    command: {
      go: (url) => send('POST', `${session}/url`, { url }),
      run: (...given) => inWebDriver(execute, ...given),
    },
    end: async () => {
      await send('DELETE', session).catch(() => {});
      await service.end();
      await screen.end();
    },
  };
}

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
