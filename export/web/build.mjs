#!/usr/bin/env node
// Makes a static site of an exported LiteRT folder. See README.md.

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const USAGE = `node build.mjs EXPORTED_FOLDER OUT [options]

  --title TEXT         heading of the page
  --from, --to CODE    languages, such as en and de
  --example TEXT       a sentence to try; may be given several times
  --overwrite          replace OUT`;
const HERE = path.dirname(fileURLToPath(import.meta.url));
const RUNTIMES = ['litert_wasm_internal', 'litert_wasm_compat_internal'];
// What is loaded on demand and kept then; the rest is fetched when the site is first visited.
const ON_DEMAND = ['litert/litert_wasm', 'model/', 'sentencepiece.js'];

class BuildError extends Error {}

function main() {
  const { folder, out, options } = readArguments();
  const metadata = readMetadata(folder);
  if (fs.existsSync(out) && !options.overwrite) {
    throw new BuildError(`OUT must not exist, or --overwrite be given. Received: ${out}`);
  }
  fs.mkdirSync(path.dirname(path.resolve(out)), { recursive: true });
  const site = fs.mkdtempSync(`${path.resolve(out)}.`);
  try {
    fs.chmodSync(site, 0o755);
    copyModel(folder, metadata, path.join(site, 'model'));
    fs.cpSync(path.join(HERE, 'site'), site, { recursive: true });
    copyPackages(site);
    writeDescriptions(site, options);
    writeServiceWorker(site);
    fs.rmSync(out, { recursive: true, force: true });
    fs.renameSync(site, out);
  } finally {
    fs.rmSync(site, { recursive: true, force: true });
  }
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

function readMetadata(folder) {
  const file = path.join(folder, 'metadata.json');
  let metadata;
  try {
    metadata = JSON.parse(fs.readFileSync(file, 'utf8'));
  } catch (error) {
    throw new BuildError(`EXPORTED_FOLDER must hold metadata.json. Received: ${error.message}`);
  }
  const needed = {
    vocab_size: Number.isInteger(metadata.vocab_size),
    pad_id: Number.isInteger(metadata.pad_id),
    bos_id: Number.isInteger(metadata.bos_id),
    eos_id: Number.isInteger(metadata.eos_id),
    max_source_length: Number.isInteger(metadata.max_source_length),
    'search.extra_length': Number.isInteger(metadata.search?.extra_length),
    'sha256["model.tflite"]': typeof metadata.sha256?.['model.tflite'] === 'string',
  };
  if (metadata.signature !== 'translate') {
    throw new BuildError(
      `${file} must be of a translator, with the signature "translate". ` +
        `Received: ${JSON.stringify(metadata.signature)}`,
    );
  }
  const missing = Object.keys(needed).filter((name) => !needed[name]);
  if (missing.length) throw new BuildError(`${file} must have the fields: ${missing.join(', ')}`);
  return metadata;
}

function copyModel(folder, metadata, to) {
  fs.mkdirSync(to);
  fs.copyFileSync(path.join(folder, 'metadata.json'), path.join(to, 'metadata.json'));
  for (const [name, expected] of Object.entries(metadata.sha256)) {
    const from = path.join(folder, name);
    if (name !== path.basename(name) || !fs.existsSync(from)) {
      throw new BuildError(`EXPORTED_FOLDER must hold what its metadata lists. Received: no ${name}`);
    }
    const content = fs.readFileSync(from);
    if (hash(content) !== expected) {
      throw new BuildError(`${from} is damaged or belongs to another export: its sha256 differs`);
    }
    fs.writeFileSync(path.join(to, name), content);
  }
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

/** The package is CommonJS that reads its model from a file: here it is a module that takes bytes. */
function sentencePieceModule() {
  const file = path.join(packageFolder('@agnai/sentencepiece-js'), 'dist', 'index.js');
  return `export async function loadSentencePiece(bytes) {
const exports = {};
const __filename = '/sentencepiece.js';
const require = (name) => ({ fs: { readFileSync: () => bytes }, url: { URL } })[name];
${withoutSourceMap(fs.readFileSync(file, 'utf8'))}
const processor = new exports.SentencePieceProcessor();
await processor.load('');
return processor;
}
`;
}

function licenses() {
  const names = ['@litertjs/core', '@litertjs/wasm-utils', '@agnai/sentencepiece-js'];
  const lines = names.map((name) => {
    const { version, license, homepage, repository } = JSON.parse(
      fs.readFileSync(path.join(packageFolder(name), 'package.json'), 'utf8'),
    );
    return `${name} ${version}: ${license}, ${homepage ?? repository?.url ?? ''}`;
  });
  return `This site contains:\n\n${lines.join('\n')}\n`;
}

function writeDescriptions(site, { title = 'Translator', from, to, example }) {
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
  const files = fs
    .readdirSync(site, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(site, path.join(entry.parentPath, entry.name)))
    .map((name) => name.split(path.sep).join('/'))
    .sort();
  const hashes = files.map((name) => `${name} ${hash(fs.readFileSync(path.join(site, name)))}`);
  const isOnDemand = (name) => ON_DEMAND.some((start) => name.startsWith(start));
  const shell = files.filter((name) => !isOnDemand(name) && name !== 'service_worker.js');
  const file = path.join(site, 'service_worker.js');
  const head =
    `const VERSION = ${JSON.stringify(hash(hashes.join('\n')).slice(0, 16))};\n` +
    `const SHELL = ${JSON.stringify(['./', ...shell])};\n` +
    `const ON_DEMAND = ${JSON.stringify(files.filter(isOnDemand))};\n\n`;
  fs.writeFileSync(file, head + fs.readFileSync(file, 'utf8'));
}

function packageFolder(name) {
  const { paths } = createRequire(import.meta.url).resolve;
  const folder = paths(name)
    .map((modules) => path.join(modules, name))
    .find((candidate) => fs.existsSync(path.join(candidate, 'package.json')));
  if (!folder) throw new BuildError(`the package ${name} is missing: run \`npm ci\` in ${HERE}`);
  return folder;
}

function replaceOnce(text, old, fresh) {
  if (text.split(old).length !== 2) {
    throw new BuildError(`@litertjs/core must import ${old} once: is it another version?`);
  }
  return text.replace(old, fresh);
}

function withoutSourceMap(text) {
  return text.replace(/^\/\/# sourceMappingURL=.*$/gm, '');
}

function write(site, name, value) {
  fs.writeFileSync(path.join(site, name), `${JSON.stringify(value, null, 2)}\n`);
}

function hash(content) {
  return createHash('sha256').update(content).digest('hex');
}

try {
  main();
} catch (error) {
  if (!(error instanceof BuildError)) throw error;
  console.error(`build.mjs: error: ${error.message}`);
  process.exitCode = 1;
}
