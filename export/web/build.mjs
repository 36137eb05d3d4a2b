#!/usr/bin/env node
// Makes a static site of an exported LiteRT folder. See README.md.

import * as fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { setImmediate } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BuildError } from './build_error.mjs';
import { readFolder } from './device_folder.mjs';
import { checkLanguage } from './package/languages.js';
import { filesOf, hash, hashesOf, newSite } from './site_folder.mjs';
import { inputsOfPackage, packageContents } from './vendor.mjs';

const USAGE = `node build.mjs EXPORTED_FOLDER OUT [options]

  --title TEXT         heading of the page
  --from, --to CODE    languages, such as en and de
  --example TEXT       a sentence to try; may be given several times
  --overwrite          replace OUT, if it is a site that this has made`;
const HERE = path.dirname(fileURLToPath(import.meta.url));
const PAGE = path.join(HERE, 'site');
// What is loaded on demand and kept then; the rest is fetched when the site is first visited.
const ON_DEMAND = ['model/', 'translator/vendor/litert_wasm', 'translator/vendor/sentencepiece.js'];

async function main() {
  const { folder, out, options } = readArguments();
  checkLanguages(options);
  const contents = await readFolder(folder);
  const inputs = [folder, PAGE, ...inputsOfPackage()];
  await newSite(out, inputs, options.overwrite, async (site) => {
    for (const step of [copyModel, copyPage, copyPackage, writeDescriptions, writeServiceWorker]) {
      step(site, { contents, options });
      await setImmediate(); // for an interruption to be seen
    }
  });
  console.log(`${out}: put it on any web server that serves files (HTTPS, or localhost).`);
}

function readArguments() {
  const text = { type: 'string' };
  const several = { type: 'string', multiple: true, default: [] };
  let parsed;
  try {
    parsed = parseArgs({
      allowPositionals: true,
      options: { title: text, from: text, to: text, example: several, overwrite: { type: 'boolean' } },
    });
  } catch (error) {
    throw new BuildError(`${error.message}\n\n${USAGE}`);
  }
  const [folder, out] = parsed.positionals;
  if (parsed.positionals.length !== 2) throw new BuildError(USAGE);
  return { folder, out, options: parsed.values };
}

function checkLanguages(options) {
  for (const name of ['from', 'to']) {
    try {
      checkLanguage(options[name] ?? '');
    } catch (error) {
      throw new BuildError(`--${name}: ${error.message}`);
    }
  }
}

function copyModel(site, { contents }) {
  fs.mkdirSync(path.join(site, 'model'));
  for (const [name, content] of Object.entries(contents)) {
    fs.writeFileSync(path.join(site, 'model', name), content);
  }
}

function copyPage(site) {
  fs.cpSync(PAGE, site, { recursive: true });
}

function copyPackage(site) {
  for (const [name, content] of Object.entries(packageContents())) {
    const file = path.join(site, 'translator', name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, content);
  }
}

function writeDescriptions(site, { options }) {
  const { title = 'Translator', from, to, example } = options;
  const sizes = Object.fromEntries(
    fs
      .readdirSync(path.join(site, 'model'))
      .map((name) => [name, fs.statSync(path.join(site, 'model', name)).size]),
  );
  write(site, 'site.json', { title, from, to, examples: example, sizes });
  write(site, 'manifest.webmanifest', {
    name: title,
    short_name: title,
    start_url: '.',
    display: 'standalone',
    background_color: '#f6f7f9',
    theme_color: '#0b6b5d',
    icons: [{ src: 'icon.svg', sizes: 'any', type: 'image/svg+xml' }],
  });
}

function writeServiceWorker(site) {
  const hashes = hashesOf(site);
  const files = filesOf(site);
  const isOnDemand = (name) => ON_DEMAND.some((start) => name.startsWith(start));
  const shell = files.filter((name) => !isOnDemand(name) && name !== 'service_worker.js');
  const file = path.join(site, 'service_worker.js');
  const version = hash(JSON.stringify(hashes)).slice(0, 16);
  delete hashes['service_worker.js']; // which the browser keeps by itself
  const head =
    `const VERSION = ${JSON.stringify(version)};\n` +
    `const POLICY = ${JSON.stringify(policyOf(site))};\n` +
    `const HASHES = ${JSON.stringify({ ...hashes, '': hashes['index.html'] })};\n` +
    `const SHELL = ${JSON.stringify(['', ...shell])};\n` +
    `const ON_DEMAND = ${JSON.stringify(files.filter(isOnDemand))};\n\n`;
  fs.writeFileSync(file, head + fs.readFileSync(file, 'utf8'));
}

/** The page's content policy as a header, where it can also forbid to be shown in a frame. */
function policyOf(site) {
  const page = fs.readFileSync(path.join(site, 'index.html'), 'utf8');
  const [, policy] = /http-equiv="Content-Security-Policy"\s+content="([^"]*)"/.exec(page);
  return `${policy}; frame-ancestors 'none'`;
}

function write(site, name, value) {
  fs.writeFileSync(path.join(site, name), `${JSON.stringify(value, null, 2)}\n`);
}

try {
  await main();
} catch (error) {
  // What the system refuses has a code: a full disk, a folder that may not be written.
  if (!(error instanceof BuildError) && !error.code) throw error;
  console.error(`build.mjs: error: ${error.message}`);
  process.exitCode = 1;
}
