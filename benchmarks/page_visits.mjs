// What a browser measures of a folder: node page_visits.mjs < request.json > figures.json (page.py)

import * as fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { packageContents } from '../export/web/vendor.mjs';
import { launch } from '../tests/export/web/automation.mjs';
import { PATH, serve } from '../tests/export/web/server.mjs';

const OPEN = `async () => {
  const { Translator } = await import(new URL('package/index.js', location.href).href);
  const start = performance.now();
  window.translator = await Translator.open('model/');
  const open_ms = Math.round(performance.now() - start);
  return { open_ms, memory_bytes: [window.translator.memoryBytes], browser: navigator.userAgent };
}`;
const TRANSLATE = `async ({ texts, rounds }) => {
  const { translator } = window;
  const best = texts.map(() => Infinity);
  let answers;
  for (let round = 0; round < rounds; round += 1) {
    answers = [];
    for (const [index, text] of texts.entries()) {
      const before = performance.now();
      const ids = await translator.translateIds(translator.encode(text));
      answers.push([translator.decode(ids), ids]);
      best[index] = Math.min(best[index], performance.now() - before);
    }
  }
  best.sort((a, b) => a - b);
  const sentence_ms = Number(best[Math.floor(best.length / 2)].toFixed(2));
  return { answers, sentence_ms, memory: translator.memoryBytes };
}`;
const TICK = 10; // milliseconds of processor time, in /proc

/** Milliseconds of processor time that the processes have had which this one has started. */
function processorTime() {
  const processes = fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name));
  const known = new Map(processes.map((id) => [Number(id), statOf(id)]));
  const isOurs = (id) => {
    const stat = known.get(id);
    return Boolean(stat) && (stat.parent === process.pid || isOurs(stat.parent));
  };
  return [...known].reduce((sum, [id, stat]) => sum + (isOurs(id) ? stat.milliseconds : 0), 0);
}

function statOf(id) {
  try {
    const fields = fs.readFileSync(`/proc/${id}/stat`, 'utf8').split(') ').at(-1).split(' ');
    return { parent: Number(fields[1]), milliseconds: TICK * (Number(fields[11]) + Number(fields[12])) };
  } catch {
    return undefined; // it has ended
  }
}

const { engine, folder, texts, rounds } = JSON.parse(fs.readFileSync(0, 'utf8'));
const site = fs.mkdtempSync(path.join(os.tmpdir(), 'page-'));
for (const [name, content] of Object.entries(packageContents())) {
  const file = path.join(site, 'package', name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, content);
}
fs.cpSync(folder, path.join(site, 'model'), { recursive: true });
fs.writeFileSync(path.join(site, 'index.html'), '<!doctype html><title>Measured</title>');
const server = await serve(site);
const browser = await launch(engine);
try {
  await browser.go(`http://127.0.0.1:${server.address().port}${PATH}`);
  const opened = await browser.run(OPEN);
  await browser.run(TRANSLATE, { texts, rounds: 1 }); // warm
  const before = processorTime();
  const { memory, ...found } = await browser.run(TRANSLATE, { texts, rounds });
  const each = (processorTime() - before) / (rounds * texts.length);
  opened.memory_bytes.push(memory);
  console.log(JSON.stringify({ ...found, ...opened, processor_ms: Number(each.toFixed(2)) }));
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
  fs.rmSync(site, { recursive: true, force: true });
}
