// What the package keras-transformer-web contains of others: LiteRT.js, SentencePiece, licences.
// Run by `npm pack`, it writes them into the package; build.mjs asks for them.

import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BuildError } from './build_error.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
// What all runtimes know of sentences: in a kit beside this file, in a clone in the runner's package.
const SHARED = ['shared', '../../keras_transformer_runner']
  .map((place) => path.join(HERE, place))
  .find((place) => fs.existsSync(place));
const OTHERS = ['@litertjs/core', '@agnai/sentencepiece-js'];
const RUNTIMES = ['litert_wasm_internal', 'litert_wasm_compat_internal'];
/** The folder of the package as it is written here. */
export const PACKAGE = path.join(HERE, 'package');
/** The folders that are read to make it. */
export const inputsOfPackage = () => [PACKAGE, ...OTHERS.map(packageFolder)];

/**
 * What lies in `vendor/` of the package, by name; its licences too.
 *
 * @returns {Object<string, string | Buffer>}
 * @throws {BuildError} if one is missing, has no licence or is another version
 */
export function vendored() {
  const core = packageFolder('@litertjs/core');
  const files = { 'licenses.txt': licenses(), 'litert.js': litertModule(core) };
  for (const name of RUNTIMES) {
    files[`${name}.js`] = runtimeModule(core, name);
    files[`${name}.wasm`] = fs.readFileSync(path.join(core, 'wasm', `${name}.wasm`));
  }
  files['sentencepiece.js'] = sentencePieceModule();
  files['abbreviations.js'] = abbreviationsModule();
  return files;
}

/** The whole package by name, as `npm pack` packs it. */
export function packageContents() {
  const { files } = JSON.parse(fs.readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'));
  const own = ['package.json', ...files].filter((name) => name !== 'vendor');
  const contents = own.map((name) => [name, fs.readFileSync(path.join(PACKAGE, name))]);
  const others = Object.entries(vendored()).map(([name, text]) => [`vendor/${name}`, text]);
  return Object.fromEntries([...contents, ...others]);
}

/** LiteRT.js with its one import of another package replaced: ours starts it anywhere. */
function litertModule(core) {
  const name = '@litertjs/core';
  return edited(name, fs.readFileSync(path.join(core, 'dist', 'index.js'), 'utf8'), [
    ['"@litertjs/wasm-utils"', '"../wasm_library.js"'],
    // Not every engine has WebGPU, and nothing here uses it.
    ['data instanceof GPUBuffer', 'typeof GPUBuffer !== "undefined" && data instanceof GPUBuffer'],
    ['await Environment.create()', 'await Environment.create({ webGpuDevice: null })'],
  ]);
}

/**
 * The runtime's script as a module: no script element, no importScripts, no globals. It is told
 * that it is not in Node, whose modules it would ask for: it is given all that it needs.
 */
function runtimeModule(core, name) {
  const script = fs.readFileSync(path.join(core, 'wasm', `${name}.js`), 'utf8');
  const inNode = /var ENVIRONMENT_IS_NODE = [^;]*;/.exec(script)?.[0];
  const text = edited(name, script, [
    [inNode, 'var ENVIRONMENT_IS_NODE = false;'],
    ['var err = console.error.bind(console);', 'var err = moduleArg.printErr;'],
  ]);
  return `const require = undefined;\n${text}\nexport default ModuleFactory;\n`;
}

/**
 * The package is CommonJS that reads its model from a file: here it is a module that takes bytes,
 * and it is not told of Node, whose modules it would ask for.
 * Its runtime makes functions of text, which the content policy forbids: here it makes them of ours.
 */
function sentencePieceModule() {
  const name = '@agnai/sentencepiece-js';
  const script = fs.readFileSync(path.join(packageFolder(name), 'dist', 'index.js'), 'utf8');
  const call =
    'invokerOf(argTypes,isClassMethodFunc,needsDestructorStack,cppInvokerFunc,cppTargetFunc,runDestructors)';
  const text = edited(name, script, [['newFunc(Function,args1).apply(null,args2)', call]]);
  return `export async function loadSentencePiece(bytes) {
const exports = {};
const __filename = '/sentencepiece.js';
const process = undefined;
const require = (name) => ({ fs: { readFileSync: () => bytes }, url: { URL } })[name];
${invokerOf}
${text}
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

/** What all runtimes know of how sentences end, as a module. */
function abbreviationsModule() {
  const text = fs.readFileSync(path.join(SHARED, 'abbreviations.json'), 'utf8');
  return `export default ${JSON.stringify(JSON.parse(text))};\n`;
}

/** What the package contains of others, and each of their licences in full. */
function licenses() {
  const packages = OTHERS.map(packageLicense);
  const text = (name) => fs.readFileSync(path.join(HERE, 'licenses', name), 'utf8').trim();
  const unicode = fs.readFileSync(path.join(SHARED, 'UNICODE_LICENSE'), 'utf8');
  return [
    'keras-transformer-web is part of keras_transformer (Apache-2.0) and contains:',
    packages.map(({ line }) => line).join('\n'),
    `Compiled into their WebAssembly are
LiteRT, TensorFlow Lite, Abseil, FlatBuffers, gemmlowp, ruy, TCMalloc, SentencePiece: Apache-2.0
Eigen (source: https://gitlab.com/libeigen/eigen): MPL-2.0
and what the notices at the end name.`,
    ...packages.map(({ own }) => own).filter(Boolean),
    ...['Apache-2.0.txt', 'MPL-2.0.txt', 'notices.txt'].map(text),
    `Abbreviations of Unicode CLDR\n\n${unicode.trim()}`,
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

function packageFolder(name) {
  const { paths } = createRequire(import.meta.url).resolve;
  const folder = paths(name)
    .map((modules) => path.join(modules, name))
    .find((candidate) => fs.existsSync(path.join(candidate, 'package.json')));
  if (!folder) throw new BuildError(`the package ${name} is missing: run \`npm ci\` in ${HERE}`);
  return folder;
}

/** A file of others with each of some texts replaced, and without the map of its source. */
function edited(name, text, replacements) {
  for (const [old, fresh] of replacements) {
    if (text.split(old).length !== 2) {
      throw new BuildError(`${name} must contain ${old} once: is it another version?`);
    }
    text = text.replace(old, () => fresh);
  }
  return text.replace(/^\/\/# sourceMappingURL=.*$/gm, '');
}

/** Writes `vendor/` into the package, for `npm pack`; what is there already stays. */
function writeVendored() {
  const folder = path.join(PACKAGE, 'vendor');
  fs.mkdirSync(folder, { recursive: true });
  const files = vendored();
  for (const name of fs.readdirSync(folder)) {
    if (!Object.hasOwn(files, name)) fs.rmSync(path.join(folder, name), { recursive: true });
  }
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(folder, name);
    if (fs.existsSync(file) && fs.readFileSync(file).equals(Buffer.from(content))) continue;
    fs.writeFileSync(`${file}.${process.pid}`, content);
    fs.renameSync(`${file}.${process.pid}`, file);
  }
}

if (process.argv[1] && fs.realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  writeVendored();
}
