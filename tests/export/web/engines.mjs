// The page in other engines than Chromium: node engines.mjs ENGINE < visits.json > results.json
//
// ENGINE is JSON for `launch`; a visit is {site, typed, texts, offline}: texts to type, texts for a
// translator on the page's own thread, texts to type once the server is gone.

import * as fs from 'node:fs';
import { launch } from './automation.mjs';
import { PATH, serve } from './server.mjs';

const settled = `async () => {
  while (!document.body.dataset.state) await new Promise((resolve) => setTimeout(resolve, 50));
  return document.body.dataset.state;
}`;
const typed = `async (texts) => {
  const [source, target] = ['source', 'target'].map((id) => document.getElementById(id));
  const shown = [];
  for (const text of texts) {
    const before = target.dataset.answers;
    source.value = text;
    source.dispatchEvent(new Event('input'));
    while (target.dataset.answers === before) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    shown.push(target.textContent);
  }
  return shown;
}`;
const onOwnThread = `async (texts) => {
  const { Translator } = await import(new URL('translator/index.js', location.href).href);
  const translator = await Translator.open('model/');
  const answers = [];
  for (const text of texts) {
    const sourceIds = translator.encode(text);
    const targetIds = await translator.translateIds(sourceIds);
    answers.push({ sourceIds, targetIds, text: translator.decode(targetIds) });
  }
  await translator.close();
  return answers;
}`;

async function visit(browser, wanted) {
  const server = await serve(wanted.site);
  const url = `http://127.0.0.1:${server.address().port}${PATH}`;
  await browser.go(url);
  const result = { state: await browser.run(settled) };
  result.error = await browser.run(`() => document.getElementById('error').textContent`);
  if (result.state === 'ready') {
    result.typed = await browser.run(typed, wanted.typed);
    result.answers = await browser.run(onOwnThread, wanted.texts);
  }
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  if (wanted.offline) {
    await browser.go(url);
    result.offline = { state: await browser.run(settled) };
    result.offline.typed = await browser.run(typed, wanted.offline);
  }
  return result;
}

const visits = JSON.parse(fs.readFileSync(0, 'utf8'));
const browser = await launch(JSON.parse(process.argv[2]));
try {
  const results = [];
  for (const each of visits) results.push(await visit(browser, each));
  console.log(JSON.stringify(results));
} finally {
  await browser.close();
}
