// The files of tokenizers that look pieces up in a table: the checks of
// keras_transformer_runner/tokenizers/tables.py.

import { TranslatorError } from './errors.js';
import { parseRecord } from './record.js';

const FORMAT = 1;
const BYTES = 256;
const JOINER = '@@'; // where a file has none
/** What Python's bytes.split() and bytes.strip() take for white space. */
export const SPACE = '[ \\t\\n\\r\\v\\f]';
const HAS_SPACE = new RegExp(SPACE);
const SURROGATE = /\p{Surrogate}/u;
const SPECIAL = { pad_id: 0, unk_id: 1, bos_id: 2, eos_id: 3 };
const SPECIAL_OF_BYT5 = { pad_id: 0, unk_id: 2, bos_id: 0, eos_id: 1 };
const KINDS = { bytes: bytesTable, characters: charactersTable, vocabulary: wordsTable };

/** Whether a tokenizer's file is a table: no SentencePiece model begins so. */
export function isTable(bytes) {
  return bytes[0] === 0x7b; // {
}

/**
 * @param {Uint8Array} bytes a tokenizer's file
 * @returns {object} its `type`, its special ids, `first`, the id of its first entry, `entries` and
 *     `joiner` where it has them, `size`, how many ids there are, and `prefix_ids`
 * @throws {TranslatorError} if it is no table
 */
export function parseTable(bytes) {
  const { format, type, prefix_ids: prefix = [], ...fields } = parseRecord(
    bytes,
    "a tokenizer's file must be a record in JSON",
  );
  if (format !== FORMAT || !Object.keys(KINDS).includes(type)) {
    const rule = `must have format ${FORMAT} and one of the types ${Object.keys(KINDS)}`;
    const received = `format=${JSON.stringify(format)}, type=${JSON.stringify(type)}`;
    throw wrong(`a tokenizer's file ${rule}. Received: ${received}`);
  }
  if (!Array.isArray(prefix) || !prefix.every(Number.isInteger)) {
    throw wrong("a tokenizer's `prefix_ids` must be a list of integers", prefix);
  }
  const table = KINDS[type](fields);
  checkPrefix(prefix, table);
  return { type, ...table, prefix_ids: prefix };
}

/**
 * @param {number[]} prefix ids before every text
 * @throws {TranslatorError} if one of them can be none
 */
export function checkPrefix(prefix, { size, pad_id: pad, bos_id: bos, eos_id: eos }) {
  const bad = prefix.find((id) => !(id >= 0 && id < size) || [pad, bos, eos].includes(id));
  if (bad === undefined) return;
  throw wrong(`\`prefix_ids\` must be in [0, ${size}), not those of pad, BOS and EOS`, bad);
}

function wrong(rule, ...received) {
  const values = received.map((value) => `. Received: ${JSON.stringify(value).slice(0, 100)}`);
  return new TranslatorError('folder', rule + values.join(''));
}

function bytesTable(fields) {
  checkNames('bytes', fields, ['layout', 'vocab_size']);
  const layout = fields.layout ?? null;
  if (layout !== null && layout !== 'byt5') {
    throw wrong('`layout` must be null or "byt5"', layout);
  }
  const [special, first, usual] = layout ? [SPECIAL_OF_BYT5, 3, 384] : [SPECIAL, 4, 260];
  const size = fields.vocab_size ?? usual;
  const least = first + BYTES;
  if (!Number.isInteger(size) || size < least) {
    throw wrong(`\`vocab_size\` must be an integer of at least ${least}`, size);
  }
  return { ...special, first, size };
}

function charactersTable(fields) {
  checkNames('characters', fields, ['characters'], ['characters']);
  const entries = entriesOf('characters', fields.characters);
  const bad = entries.find((entry) => Array.from(entry).length !== 1); // code points
  checkEntries('characters', 'one character each', entries, bad);
  return tableOf(entries);
}

function wordsTable(fields) {
  checkNames('vocabulary', fields, ['joiner', 'words'], ['words']);
  const { joiner = JOINER } = fields;
  if (typeof fields.words === 'string') throw wrong('`words` must be a list of strings', fields.words);
  const entries = entriesOf('words', fields.words);
  entriesOf('joiner', [joiner]);
  const bad = entries.find((entry) => entry === '' || HAS_SPACE.test(entry));
  checkEntries('words', 'pieces without white space', entries, bad);
  return { ...tableOf(entries), joiner };
}

function tableOf(entries) {
  const first = Object.keys(SPECIAL).length;
  return { ...SPECIAL, first, entries, size: first + entries.length };
}

/** Other fields may change the ids. */
function checkNames(type, fields, known, needed = []) {
  const names = Object.keys(fields);
  const isRight =
    names.every((name) => known.includes(name)) && needed.every((name) => names.includes(name));
  if (!isRight) throw wrong(`a file of type "${type}" must have its fields`, names);
}

function entriesOf(name, value) {
  const entries = typeof value === 'string' ? Array.from(value) : [value].flat();
  const other = entries.find((entry) => typeof entry !== 'string');
  if (other !== undefined) throw wrong(`\`${name}\` must hold strings`, other);
  const lone = entries.find((entry) => SURROGATE.test(entry));
  if (lone !== undefined) throw wrong(`\`${name}\` must hold no lone surrogates`, lone);
  return entries;
}

function checkEntries(name, rule, entries, bad) {
  if (!entries.length) throw wrong(`\`${name}\` must hold at least one entry. Received: none`);
  if (bad !== undefined) throw wrong(`\`${name}\` must be ${rule}`, bad);
  const seen = new Set();
  for (const entry of entries) {
    if (seen.has(entry)) throw wrong(`\`${name}\` must be different. Received twice: "${entry}"`);
    seen.add(entry);
  }
}
