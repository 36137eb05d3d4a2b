// Whether an exported LiteRT folder is whole: the checks of keras_transformer_runner/folder.py.

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import path from 'node:path';
import { tokenizerIds } from './tokenizer_ids.mjs';

const FORMAT = 1;
const MODEL = 'model.tflite';
const SUFFIXES = ['.model', '.json'];
const isInteger = Number.isInteger;
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === 'string';
const isCount = (value) => isInteger(value) && value > 0;
const FIELDS = {
  signature: isText,
  vocab_size: isInteger,
  target_vocab_size: isInteger,
  pad_id: isInteger,
  bos_id: isInteger,
  eos_id: isInteger,
  max_source_length: isInteger,
  sha256: isObject,
  // What the page needs beside.
  mode: isText,
  search: (value) => isObject(value) && isInteger(value.extra_length),
};

/** What is wrong with an export, or with how the script was called. */
export class BuildError extends Error {}

/**
 * The contents of a translator's folder by name, `metadata.json` first, each as it was exported.
 *
 * @throws {BuildError} if a file is missing, damaged, or does not belong to the others
 */
export function readFolder(folder) {
  const file = path.join(folder, 'metadata.json');
  const content = readFile(file);
  const metadata = parsed(file, content);
  checkFields(file, metadata);
  const contents = { 'metadata.json': content };
  for (const name of namesOf(file, metadata.sha256)) {
    contents[name] = readFile(path.join(folder, name));
    if (hash(contents[name]) !== metadata.sha256[name]) {
      throw new BuildError(
        `${path.join(folder, name)} is damaged or belongs to another export: its sha256 differs`,
      );
    }
  }
  checkTokenizers(folder, metadata, contents);
  return { metadata, contents };
}

function tokenizerNames(names, stem) {
  return SUFFIXES.map((suffix) => stem + suffix).filter((name) => names.includes(name));
}

export function hash(content) {
  return createHash('sha256').update(content).digest('hex');
}

function readFile(file) {
  try {
    if (fs.statSync(file).isFile()) return fs.readFileSync(file);
  } catch (error) {
    throw new BuildError(
      `EXPORTED_FOLDER must hold ${path.basename(file)}. Received: ${error.message}`,
    );
  }
  throw new BuildError(`${file} must be a file. Received: something else`);
}

function parsed(file, content) {
  let metadata;
  try {
    metadata = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch (error) {
    throw new BuildError(`${file} must be the metadata of an export. Received: ${error.message}`);
  }
  if (!isObject(metadata)) {
    throw new BuildError(`${file} must be the metadata of an export. Received: no JSON object`);
  }
  return metadata;
}

function checkFields(file, metadata) {
  const received = (name) => `Received: ${JSON.stringify(metadata[name])}`;
  if (metadata.format !== FORMAT) {
    throw new BuildError(`${file} must have format ${FORMAT}. ${received('format')}`);
  }
  if (metadata.signature !== 'translate') {
    throw new BuildError(
      `${file} must be of a translator, with the signature "translate". ${received('signature')}`,
    );
  }
  const wrong = Object.keys(FIELDS).filter(
    (name) => !Object.hasOwn(metadata, name) || !FIELDS[name](metadata[name]),
  );
  if (wrong.length) {
    throw new BuildError(
      `${file} must have the fields of an export. Missing or of another type: ${wrong.join(', ')}`,
    );
  }
  for (const name of ['source_prefix_ids', 'target_prefix_ids']) {
    const ids = metadata[name] ?? [];
    if (!Array.isArray(ids) || !ids.every(isInteger) || metadata[name] === null) {
      throw new BuildError(`in ${file} \`${name}\` must be a list of ids. ${received(name)}`);
    }
  }
  checkLengths(file, metadata);
  const labels = metadata.labels ?? [];
  if (!Array.isArray(labels) || !labels.every(isText) || metadata.labels === null) {
    throw new BuildError(`in ${file} \`labels\` must be a list of strings. ${received('labels')}`);
  }
}

function checkLengths(file, metadata) {
  const { lengths = [], open_length: hasOpen = true, max_source_length: longest } = metadata;
  const isLength = (row) =>
    isObject(row) &&
    Object.keys(row).length === 3 &&
    isCount(row.source_length) &&
    isCount(row.target_length) &&
    row.signature === `${metadata.signature}_${row.source_length}`;
  const isRight =
    Array.isArray(lengths) &&
    lengths.every(isLength) &&
    lengths.every((row, index) => !index || row.source_length > lengths[index - 1].source_length);
  const last = (isRight && lengths.at(-1)?.source_length) || 0;
  const isBounded = last <= longest && (hasOpen || last === longest);
  if (!isRight || typeof hasOpen !== 'boolean' || !isBounded) {
    throw new BuildError(
      `in ${file} \`lengths\` must list signatures, shortest first, up to \`max_source_length\`. ` +
        `Received: ${JSON.stringify(lengths)}`,
    );
  }
}

function namesOf(file, hashes) {
  const names = Object.keys(hashes);
  const [sources, targets] = ['tokenizer', 'target_tokenizer'].map((stem) =>
    tokenizerNames(names, stem),
  );
  const known = [MODEL, ...sources, ...targets];
  const isRight = sources.length === 1 && targets.length <= 1 && names.includes(MODEL);
  if (!isRight || names.some((name) => !known.includes(name))) {
    throw new BuildError(
      `${file} must list ${MODEL} and one tokenizer a side. ` +
        `Received: ${JSON.stringify(names.sort())}`,
    );
  }
  return names;
}

function checkTokenizers(folder, metadata, contents) {
  const names = Object.keys(contents);
  const [source] = tokenizerNames(names, 'tokenizer');
  const [target = source] = tokenizerNames(names, 'target_tokenizer');
  for (const [name, size] of [[source, 'vocab_size'], [target, 'target_vocab_size']]) {
    const file = path.join(folder, name);
    let ids;
    try {
      ids = tokenizerIds(contents[name]);
    } catch (error) {
      throw new BuildError(`${file} must be a tokenizer. Received: ${error.message}`);
    }
    const fields = [size, 'pad_id', 'bos_id', 'eos_id'];
    const received = fields.map((field) => metadata[field]);
    const expected = [ids.size, ids.pad_id, ids.bos_id, ids.eos_id];
    if (received.some((id, index) => id !== expected[index])) {
      throw new BuildError(
        `metadata.json and ${file} must agree on ${fields.join(', ')}. ` +
          `Received: ${received.join(', ')}, and in the tokenizer ${expected.join(', ')}`,
      );
    }
  }
}
