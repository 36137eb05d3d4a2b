// Visits the page of the HTTP server: node served.mjs ENGINE, the request on standard input.

import { text } from 'node:stream/consumers';

import { launch } from './automation.mjs';

/** Types a text, asks for its translation, and tells what the page shows then. */
const TRANSLATE = `async ({ typed, key }) => {
  const element = (id) => document.getElementById(id);
  const until = async (holds) => {
    for (const end = Date.now() + 60000; !holds() && Date.now() < end; )
      await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await until(() => element('source').options.length);
  const options = (id) => [...element(id).options].map((each) => each.text);
  element('key').value = key;
  element('text').value = typed;
  element('text').dispatchEvent(new Event('input', { bubbles: true }));
  const pressed = { key: 'Enter', ctrlKey: true, bubbles: true, cancelable: true };
  element('text').dispatchEvent(new KeyboardEvent('keydown', pressed));
  await until(() => !element('translate').disabled);
  return {
    sources: options('source'),
    targets: options('target'),
    asksForKey: !element('key-row').hidden,
    translation: element('translation').value,
    lang: element('translation').lang,
    count: element('count').textContent,
    error: element('error').textContent,
    unnamed: [...document.querySelectorAll('select, input, textarea')]
      .filter((each) => !each.labels.length).map((each) => each.id),
  };
}`;

const { url, visits } = JSON.parse(await text(process.stdin));
const browser = await launch(JSON.parse(process.argv[2]));
try {
  const found = [];
  for (const visit of visits) {
    await browser.go(url);
    found.push(await browser.run(TRANSLATE, visit));
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}
