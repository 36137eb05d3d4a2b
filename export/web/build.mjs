#!/usr/bin/env node
// Makes a static site of an exported LiteRT folder. See README.md.

import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { setImmediate } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BuildError, hash, readFolder } from './device_folder.mjs';
import { filesOf, hashesOf, newSite } from './site_folder.mjs';

const USAGE = `node build.mjs EXPORTED_FOLDER OUT [options]

  --title TEXT         heading of the page
  --from, --to CODE    languages, such as en and de
  --example TEXT       a sentence to try; may be given several times
  --overwrite          replace OUT, if it is a site that this has made`;
const HERE = path.dirname(fileURLToPath(import.meta.url));
const PAGE = path.join(HERE, 'site');
const PACKAGES = ['@litertjs/core', '@litertjs/wasm-utils', '@agnai/sentencepiece-js'];
const RUNTIMES = ['litert_wasm_internal', 'litert_wasm_compat_internal'];
// What is loaded on demand and kept then; the rest is fetched when the site is first visited.
const ON_DEMAND = ['litert/litert_wasm', 'model/', 'sentencepiece.js'];

async function main() {
  const { folder, out, options } = readArguments();
  const { metadata, contents } = readFolder(folder);
  if (!metadata.lengths?.length) {
    throw new BuildError(
      `${folder} must have signatures of fixed lengths, as LiteRT.js cannot resize: ` +
        '`keras-transformer export … --lengths 32,128,512 --lengths-only`. Received: none',
    );
  }
  const inputs = [folder, PAGE, ...PACKAGES.map(packageFolder)];
  await newSite(out, inputs, options.overwrite, async (site) => {
    for (const step of [copyModel, copyPage, copyPackages, writeDescriptions, writeServiceWorker]) {
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

function copyModel(site, { contents }) {
  fs.mkdirSync(path.join(site, 'model'));
  for (const [name, content] of Object.entries(contents)) {
    fs.writeFileSync(path.join(site, 'model', name), content);
  }
}

function copyPage(site) {
  fs.cpSync(PAGE, site, { recursive: true });
}

function copyPackages(site) {
  const core = packageFolder('@litertjs/core');
  const litert = path.join(site, 'litert');
  fs.mkdirSync(litert);
  for (const runtime of RUNTIMES) {
    for (const suffix of ['js', 'wasm']) {
      const name = `${runtime}.${suffix}`;
      fs.copyFileSync(path.join(core, 'wasm', name), path.join(litert, name));
    }
  }
  // Workers know no import map: the one import of another package becomes a file's.
  const index = replaceOnce(
    fs.readFileSync(path.join(core, 'dist', 'index.js'), 'utf8'),
    '"@litertjs/wasm-utils"',
    '"./wasm-utils.js"',
    '@litertjs/core',
  );
  fs.writeFileSync(path.join(litert, 'index.js'), withoutSourceMap(index));
  const utilities = path.join(packageFolder('@litertjs/wasm-utils'), 'dist', 'index.js');
  fs.writeFileSync(
    path.join(litert, 'wasm-utils.js'),
    withoutSourceMap(fs.readFileSync(utilities, 'utf8')),
  );
  fs.writeFileSync(path.join(site, 'sentencepiece.js'), sentencePieceModule());
  fs.writeFileSync(path.join(site, 'licenses.txt'), licenses());
}

/**
 * The package is CommonJS that reads its model from a file: here it is a module that takes bytes.
 * Its runtime makes functions of text, which the content policy forbids: here it makes them of ours.
 */
function sentencePieceModule() {
  const name = '@agnai/sentencepiece-js';
  const text = replaceOnce(
    fs.readFileSync(path.join(packageFolder(name), 'dist', 'index.js'), 'utf8'),
    'newFunc(Function,args1).apply(null,args2)',
    'invokerOf(argTypes,isClassMethodFunc,needsDestructorStack,cppInvokerFunc,cppTargetFunc,runDestructors)',
    name,
  );
  return `export async function loadSentencePiece(bytes) {
const exports = {};
const __filename = '/sentencepiece.js';
const require = (name) => ({ fs: { readFileSync: () => bytes }, url: { URL } })[name];
${invokerOf}
${withoutSourceMap(text)}
const processor = new exports.SentencePieceProcessor();
await processor.load('');
return processor;
}
`;
}

/** A function that calls one of WebAssembly: `types` are of the result, the object, the arguments. */
function invokerOf(types, isMethod, hasStack, invoke, target, runDestructors) {
  const used = types.slice(isMethod ? 1 : 2);
  return function (...given) {
    const stack = hasStack ? [] : null;
    const values = isMethod ? [this, ...given] : given;
    if (values.length !== used.length) throw new TypeError(`${used.length} values are needed`);
    const wired = used.map((type, index) => type.toWireType(stack, values[index]));
    const result = invoke(target, ...wired);
    if (hasStack) runDestructors(stack);
    else used.forEach((type, index) => type.destructorFunction?.(wired[index]));
    return types[0].name === 'void' ? undefined : types[0].fromWireType(result);
  };
}

/** What the site contains of others, and each of their licences in full. */
function licenses() {
  const packages = PACKAGES.map(packageLicense);
  const text = (name) => fs.readFileSync(path.join(HERE, 'licenses', name), 'utf8').trim();
  return [
    'This site is made by keras_transformer (Apache-2.0) and contains:',
    packages.map(({ line }) => line).join('\n'),
    `Compiled into their WebAssembly are
LiteRT, TensorFlow Lite, Abseil, FlatBuffers, gemmlowp, ruy, TCMalloc, SentencePiece: Apache-2.0
Eigen (source: https://gitlab.com/libeigen/eigen): MPL-2.0
and what the notices at the end name.`,
    ...packages.map(({ own }) => own).filter(Boolean),
    ...['Apache-2.0.txt', 'MPL-2.0.txt', 'notices.txt'].map(text),
    '',
  ].join(`\n\n${'='.repeat(80)}\n\n`);
}

function packageLicense(name) {
  const folder = packageFolder(name);
  const { version, license, homepage, repository } = JSON.parse(
    fs.readFileSync(path.join(folder, 'package.json'), 'utf8'),
  );
  const line = `${name} ${version}: ${license}, ${homepage ?? repository?.url ?? ''}`;
  const own = fs.readdirSync(folder).filter((file) => /^(licen[cs]e|notice)/i.test(file));
  if (license !== 'Apache-2.0' && !own.length) {
    throw new BuildError(`the licence of ${name} ${version} must come with it. Received: ${license}`);
  }
  const texts = own.map((file) => fs.readFileSync(path.join(folder, file), 'utf8').trim());
  return { line, own: texts.map((text) => `${name} ${version}\n\n${text}`).join('\n\n') };
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

function packageFolder(name) {
  const { paths } = createRequire(import.meta.url).resolve;
  const folder = paths(name)
    .map((modules) => path.join(modules, name))
    .find((candidate) => fs.existsSync(path.join(candidate, 'package.json')));
  if (!folder) throw new BuildError(`the package ${name} is missing: run \`npm ci\` in ${HERE}`);
  return folder;
}

function replaceOnce(text, old, fresh, name) {
  if (text.split(old).length !== 2) {
    throw new BuildError(`${name} must contain ${old} once: is it another version?`);
  }
  return text.replace(old, fresh);
}

function withoutSourceMap(text) {
  return text.replace(/^\/\/# sourceMappingURL=.*$/gm, '');
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
