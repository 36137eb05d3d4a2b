// Text to ids and back, as keras_transformer_runner.tokenizers does it in Python: same ids, same text.

import { isTable, parseTable, SPACE } from './tables.js';

const UNKNOWN = '⁇';
const SPACES = new RegExp(`${SPACE}+`);
const IS_SPACE = new RegExp(SPACE);
const KINDS = { bytes: bytesTokenizer, characters: characterTokenizer, vocabulary: wordTokenizer };

/**
 * @param {Uint8Array} bytes a tokenizer's file: SentencePiece's `.model`, or `.json`
 * @param {number[]} prefix ids before every text but an empty one, such as a language's
 * @returns {Promise<{encode: (text: string) => number[], decode: (ids: number[]) => string}>}
 *     `decode` takes no special ids but unk, and drops what a row has of the prefix at its start
 * @throws {import('./errors.js').TranslatorError} if it is a table that is wrong
 */
export async function loadTokenizer(bytes, prefix = []) {
  const tokenizer = isTable(bytes) ? tableTokenizer(bytes) : await sentencePiece(bytes);
  return {
    encode: (text) => {
      const ids = tokenizer.encode(withoutSurrogates(text));
      return ids.length ? [...prefix, ...ids] : ids;
    },
    decode: (ids) => {
      const own = prefix.findIndex((id, place) => id !== ids[place]);
      const rest = ids.slice(own < 0 ? prefix.length : own);
      return rest.length ? tokenizer.decode(rest) : '';
    },
  };
}

/** Lone surrogates, which UTF-8 cannot hold, as Python reads their three bytes. */
function withoutSurrogates(text) {
  return text.replace(/\p{Surrogate}/gu, '\ufffd\ufffd\ufffd');
}

async function sentencePiece(bytes) {
  const { loadSentencePiece } = await import('./vendor/sentencepiece.js');
  const processor = await loadSentencePiece(bytes);
  return {
    encode: (text) => processor.encodeIds(text),
    decode: (ids) => processor.decodeIds(ids),
  };
}

function tableTokenizer(bytes) {
  const table = parseTable(bytes);
  return KINDS[table.type](table);
}

function bytesTokenizer({ first, unk_id: unk }) {
  const unknown = new TextEncoder().encode(UNKNOWN);
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const bytesOf = (id) => {
    if (id === unk) return [...unknown];
    return id >= first && id < first + 256 ? [id - first] : []; // others stand for no text
  };
  return {
    encode: (text) => Array.from(new TextEncoder().encode(strip(text)), (byte) => byte + first),
    decode: (ids) => decoder.decode(Uint8Array.from(ids.flatMap(bytesOf))),
  };
}

function characterTokenizer(table) {
  return entryTokenizer(table, table.entries, UNKNOWN, (text) => Array.from(strip(text)));
}

function wordTokenizer(table) {
  const { entries, joiner } = table;
  const surface = (word) =>
    joiner && word.endsWith(joiner) ? word.slice(0, -joiner.length) : `${word} `;
  const split = (text) => text.split(SPACES).filter((word) => word !== '');
  const tokenizer = entryTokenizer(table, entries.map(surface), surface(UNKNOWN), split);
  return {
    encode: tokenizer.encode,
    decode: (ids) => tokenizer.decode(ids).replace(/ $/, ''),
  };
}

function entryTokenizer({ entries, first, unk_id: unk }, surfaces, unknown, split) {
  const ids = new Map(entries.map((entry, index) => [entry, first + index]));
  return {
    encode: (text) => split(text).map((entry) => ids.get(entry) ?? unk),
    decode: (row) => row.map((id) => (id === unk ? unknown : surfaces[id - first])).join(''),
  };
}

/** From both ends: a regular expression would try white space within again and again. */
function strip(text) {
  let start = 0;
  let end = text.length;
  while (start < end && IS_SPACE.test(text[start])) start += 1;
  while (end > start && IS_SPACE.test(text[end - 1])) end -= 1;
  return text.slice(start, end);
}
