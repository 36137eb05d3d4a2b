// Whether an exported LiteRT folder is whole: the checks of keras_transformer_runner/folder.py.

import { TranslatorError } from './errors.js';
import { isObject, parseRecord } from './record.js';
import { isSealed } from './seal.js';
import { readRight } from './sources.js';
import { tokenizerIds } from './tokenizer_ids.js';

const FORMAT = 1;
export const FILE = 'metadata.json';
export const MODEL = 'model.tflite';
const SUFFIXES = ['.model', '.json'];
const isInteger = Number.isInteger;
const isText = (value) => typeof value === 'string';
const isSize = (value) => isInteger(value) && value >= 0 && value < 2 ** 31;
const isCount = (value) => isSize(value) && value > 0;
const PREFIXES = ['source_prefix_ids', 'target_prefix_ids'];
const FIELDS = {
  signature: isText,
  vocab_size: isSize,
  target_vocab_size: isSize,
  pad_id: isSize,
  bos_id: isSize,
  eos_id: isSize,
  max_source_length: isSize,
  sha256: isObject,
};

/**
 * The contents of a translator's folder by name, `metadata.json` first, each as it was exported.
 *
 * @param {(name: string) => Promise<Uint8Array>} read
 * @throws {TranslatorError} if a file is missing, damaged, or does not belong to the others
 */
export async function readFolder(read, onProgress = () => {}) {
  const content = await read(FILE);
  const metadata = parseRecord(content, `${FILE} must be the metadata of an export`);
  checkFields(metadata);
  const contents = { [FILE]: content };
  for (const name of namesOf(metadata.sha256)) {
    contents[name] = await readRight(read, name, metadata.sha256[name], onProgress);
  }
  checkTokenizers(metadata, contents);
  await checkSeal(content);
  return { metadata, contents };
}

/** The names of the tokenizers of the source and of the target, which may be the same. */
export function tokenizersOf(metadata) {
  const names = Object.keys(metadata.sha256);
  const [source] = tokenizerNames(names, 'tokenizer');
  const [target = source] = tokenizerNames(names, 'target_tokenizer');
  return { source, target };
}

/** @throws {TranslatorError} if it has none but an open length, which LiteRT.js cannot run */
export function checkFixedLengths(metadata) {
  if (metadata.lengths?.length) return;
  throw wrong(
    'the folder must have signatures of fixed lengths, as LiteRT.js cannot resize: ' +
      '`keras-transformer export … --lengths 32,128,512 --lengths-only`. Received: none',
  );
}

async function checkSeal(content) {
  if (await isSealed(new TextDecoder().decode(content))) return;
  throw new TranslatorError(
    'damaged',
    `${FILE} must be as it was written: one of its fields was changed.`,
  );
}

function wrong(message) {
  return new TranslatorError('folder', message);
}

function tokenizerNames(names, stem) {
  return SUFFIXES.map((suffix) => stem + suffix).filter((name) => names.includes(name));
}

function checkFields(metadata) {
  const received = (name) => `Received: ${JSON.stringify(metadata[name])}`;
  if (metadata.format !== FORMAT) {
    throw wrong(`${FILE} must have format ${FORMAT}. ${received('format')}`);
  }
  if (metadata.signature !== 'translate') {
    throw wrong(
      `${FILE} must be of a translator, with the signature "translate". ${received('signature')}`,
    );
  }
  const bad = Object.keys(FIELDS).filter(
    (name) => !Object.hasOwn(metadata, name) || !FIELDS[name](metadata[name]),
  );
  if (bad.length) {
    throw wrong(
      `${FILE} must have the fields of an export. Missing or of another type: ${bad.join(', ')}`,
    );
  }
  for (const name of PREFIXES) {
    const { [name]: ids = [] } = metadata;
    if (!Array.isArray(ids) || !ids.every(isInteger)) {
      throw wrong(`in ${FILE} \`${name}\` must be a list of ids. ${received(name)}`);
    }
  }
  checkLengths(metadata);
  checkClasses(metadata, received);
}

/** What only a classifier has. */
function checkClasses(metadata, received) {
  const { adds_eos: addsEos = true, labels = [] } = metadata;
  if (typeof addsEos !== 'boolean') {
    throw wrong(`in ${FILE} \`adds_eos\` must be true or false. ${received('adds_eos')}`);
  }
  if (!Array.isArray(labels) || !labels.every(isText)) {
    throw wrong(`in ${FILE} \`labels\` must be a list of strings. ${received('labels')}`);
  }
  const { num_classes: classes = labels.length } = metadata;
  if (labels.length && labels.length !== classes) {
    throw wrong(
      `in ${FILE} \`labels\` must name all of \`num_classes\`. Received: ${labels.length} labels, ` +
        `num_classes=${JSON.stringify(classes)}`,
    );
  }
}

function checkLengths(metadata) {
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
    throw wrong(
      `in ${FILE} \`lengths\` must list signatures, shortest first, up to \`max_source_length\`. ` +
        `Received: ${JSON.stringify(lengths)}`,
    );
  }
}

function namesOf(hashes) {
  const names = Object.keys(hashes);
  const [sources, targets] = ['tokenizer', 'target_tokenizer'].map((stem) =>
    tokenizerNames(names, stem),
  );
  const known = [MODEL, ...sources, ...targets];
  const isRight = sources.length === 1 && targets.length <= 1 && names.includes(MODEL);
  if (!isRight || names.some((name) => !known.includes(name))) {
    throw wrong(
      `${FILE} must list ${MODEL} and one tokenizer a side. ` +
        `Received: ${JSON.stringify(names.sort())}`,
    );
  }
  return names;
}

function checkTokenizers(metadata, contents) {
  const { source, target } = tokenizersOf(metadata);
  const idsOfSource = idsOf(source, contents);
  const idsOfTarget = target === source ? idsOfSource : idsOf(target, contents);
  checkIds(metadata, source, 'vocab_size', idsOfSource);
  checkIds(metadata, target, 'target_vocab_size', idsOfTarget);
  checkPrefixes(metadata, [idsOfSource, idsOfTarget]);
}

function idsOf(name, contents) {
  try {
    return tokenizerIds(contents[name]);
  } catch (error) {
    throw wrong(`${name}: ${error.message}`);
  }
}

function checkIds(metadata, name, size, ids) {
  const fields = [size, 'pad_id', 'bos_id', 'eos_id'];
  const received = fields.map((field) => metadata[field]);
  const expected = [ids.size, ids.pad_id, ids.bos_id, ids.eos_id];
  if (received.every((id, index) => id === expected[index])) return;
  throw wrong(
    `${FILE} and ${name} must agree on ${fields.join(', ')}. ` +
      `Received: ${received.join(', ')}, and in the tokenizer ${expected.join(', ')}`,
  );
}

/** A field that would be empty is left out. */
function checkPrefixes(metadata, sides) {
  const dumped = (prefixes) =>
    JSON.stringify(Object.fromEntries(PREFIXES.map((name, index) => [name, prefixes[index]])));
  const received = dumped(PREFIXES.map((name) => metadata[name]));
  const expected = dumped(sides.map(({ prefix_ids: ids }) => (ids.length ? ids : undefined)));
  if (received === expected) return;
  throw wrong(
    `${FILE} and the tokenizers must agree on ${PREFIXES.join(' and ')}. ` +
      `Received: ${received}, and in the tokenizers ${expected}`,
  );
}
