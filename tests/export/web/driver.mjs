// Drives sites in headless Chromium: node driver.mjs WEB_FOLDER CHROMIUM < visits.json > results.json
//
// A visit is {site, typed, ids, raw, sent, repeat, newer, again, screenshot, cut, headers, foreign,
// reload}, all but the first as wanted: texts to type, texts to translate in the worker, rows of ids
// to give it, texts to send at once, how often to translate all of `ids` for a look at the memory,
// site and title of a newer version, texts to type when the server is gone, pictures to take; how
// often the server cuts a file short, by name, the headers that it sends, an address that the worker
// is to fetch, whether the page is loaded again.

import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PATH, serve } from './server.mjs';

const [webFolder, executablePath] = process.argv.slice(2);
process.env.PW_EXPERIMENTAL_SERVICE_WORKER_NETWORK_EVENTS = '1';
const { chromium } = createRequire(path.join(webFolder, 'package.json'))('playwright-core');

const LOOK = 1500; // ms on a page: Chromium looks for a newer site a second after the last visit

async function opened(page, url) {
  await page.goto(url);
  return settled(page);
}

async function settled(page) {
  await page.waitForSelector('body[data-state]', { timeout: 60_000 });
  return page.getAttribute('body', 'data-state');
}

async function type(page, text) {
  const before = await page.getAttribute('#target', 'data-answers');
  await page.fill('#source', text);
  await page.waitForFunction(
    (old) => document.querySelector('#target').dataset.answers !== old,
    before ?? undefined,
  );
  return {
    text: await page.textContent('#target'),
    error: (await page.isVisible('#error')) ? await page.textContent('#error') : null,
    latency: await page.textContent('#latency'),
  };
}

/** In the page's own worker, whose globals are at hand there. */
function inWorker(page, work, argument) {
  return page.workers()[0].evaluate(work, argument);
}

function translateAll(texts) {
  return (async () => {
    const translator = await loading;
    const answers = [];
    for (const text of texts) {
      const sourceIds = translator.encode(text);
      const targetIds = await translator.translateIds(sourceIds);
      answers.push({ sourceIds, targetIds, text: await translator.translate(text) });
    }
    return answers;
  })();
}

function translateRows(rows) {
  return (async () => {
    const translator = await loading;
    const answers = [];
    for (const row of rows) {
      answers.push(await translator.translateIds(row).catch(({ message }) => message));
    }
    return answers;
  })();
}

/** The runtime's memory after each round, and what was made and given back meanwhile. */
function memoryOf({ texts, repeat }) {
  return (async () => {
    const translator = await loading;
    const { CompiledModel, Tensor } = await import('./translator/vendor/litert.js');
    const counts = { runs: 0, tensorsDeleted: 0 };
    const count = (owner, method, name) => {
      const original = owner[method];
      owner[method] = function counted(...given) {
        counts[name] += 1;
        return original.apply(this, given);
      };
    };
    count(CompiledModel.prototype, 'run', 'runs');
    count(Tensor.prototype, 'delete', 'tensorsDeleted');
    const heap = [];
    for (let round = 0; round < repeat; round += 1) {
      for (const text of texts) await translator.translate(text);
      heap.push(translator.memoryBytes);
    }
    return { ...counts, heap };
  })();
}

/** Messages in one go to a worker of our own; what it answers until the last text is done. */
function burst(texts) {
  return new Promise((resolve) => {
    const worker = new Worker('worker.js');
    const received = [];
    worker.onmessage = ({ data }) => {
      if (data.type === 'ready') {
        texts.forEach((text, index) => worker.postMessage({ id: index + 1, text }));
      }
      if (data.type === 'text' || data.type === 'failed') received.push(data);
      if (data.id === texts.length && (data.done || data.type === 'failed')) {
        worker.terminate();
        resolve(received.map(({ id, done, type }) => ({ id, done, type })));
      }
    };
  });
}

/** Of a fetch in the worker: the rule that stopped it, or what came of it. */
function rule(address) {
  return new Promise((resolve) => {
    self.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
    fetch(address, { mode: 'no-cors' }).then(
      () => resolve('fetched'),
      () => setTimeout(() => resolve('failed'), 500),
    );
  });
}

async function visit(browser, wanted) {
  const { site, typed, ids, raw, sent, repeat, newer, again, screenshot } = wanted;
  const server = await serve(site, wanted);
  const origin = `http://127.0.0.1:${server.address().port}`;
  const context = await browser.newContext({ colorScheme: 'light' });
  const result = { foreign: [], pageErrors: [], requests: 0 };
  context.on('request', (request) => {
    result.requests += 1;
    if (!request.url().startsWith(origin + PATH)) result.foreign.push(request.url());
  });
  const page = await context.newPage();
  page.on('pageerror', (error) => result.pageErrors.push(error.message));
  result.state = await opened(page, origin + PATH);
  if (wanted.reload) {
    await page.reload();
    result.reloaded = await settled(page);
  }
  result.title = await page.title();
  result.error = await page.textContent('#error');
  result.badge = await page.isVisible('#network');
  if ((result.reloaded ?? result.state) === 'ready') {
    result.typed = [];
    for (const text of typed ?? []) result.typed.push(await type(page, text));
    result.answers = await inWorker(page, translateAll, ids ?? []);
    result.raw = await inWorker(page, translateRows, raw ?? []);
    if (repeat) result.memory = await inWorker(page, memoryOf, { texts: ids, repeat });
    if (sent) result.burst = await page.evaluate(burst, sent);
    for (const shot of screenshot ?? []) await picture(page, shot);
    if (wanted.foreign) result.rule = await inWorker(page, rule, wanted.foreign);
    if (newer) result.newer = await update(page, server, newer.site, newer.title);
    if (again) result.again = await comeBack(page, server, again);
  }
  server.closeAllConnections();
  server.close();
  await context.close();
  return result;
}

/** A newer site takes over at one of the next visits, once the browser has fetched it. */
async function update(page, server, site, title) {
  server.replace(site);
  let state;
  for (let visits = 0; visits < 20 && (await page.title()) !== title; visits += 1) {
    await page.waitForTimeout(LOOK);
    await page.reload();
    state = await settled(page);
  }
  return { state, title: await page.title() };
}

/** The server is gone: what is shown now comes from this machine alone. */
async function comeBack(page, server, texts) {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await page.reload();
  const state = await settled(page);
  const shown = [];
  for (const text of texts) shown.push((await type(page, text)).text);
  return { state, shown, badge: await page.isVisible('#network') };
}

async function picture(page, { file, width, height, scheme, text }) {
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme: scheme });
  await type(page, 'a'); // or the answer would be an old one, without a latency
  await type(page, text);
  await page.screenshot({ path: file });
}

const visits = JSON.parse(fs.readFileSync(0, 'utf8'));
const browser = await chromium.launch({
  executablePath,
  headless: true,
  args: ['--no-sandbox', '--disable-background-networking', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
});
try {
  const results = [];
  for (const each of visits) results.push(await visit(browser, each));
  console.log(JSON.stringify(results));
} finally {
  await browser.close();
}
