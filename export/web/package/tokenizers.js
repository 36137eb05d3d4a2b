// Text to ids and back, as keras_transformer_runner.tokenizers does it in Python: same ids, same text.

import { TranslatorError } from './errors.js';

const SPECIAL_IDS = 4; // pad 0, unk 1, bos 2, eos 3
const UNK = 1;
const UNKNOWN = '⁇';
// What Python's bytes.split() and bytes.strip() take for white space.
const SPACES = /[ \t\n\r\v\f]+/;
const OUTER_SPACES = /^[ \t\n\r\v\f]+|[ \t\n\r\v\f]+$/g;

/**
 * @param {Uint8Array} bytes a tokenizer's file: SentencePiece's `.model`, or `.json`
 * @param {number[]} prefix ids before every text but an empty one, such as a language's
 * @returns {Promise<{encode: (text: string) => number[], decode: (ids: number[]) => string}>}
 *     `decode` takes no special ids but unk, and drops what a row has of the prefix at its start
 * @throws {TranslatorError} if it is of an unknown kind
 */
export async function loadTokenizer(bytes, prefix = []) {
  const tokenizer = bytes[0] === 0x7b ? fromFields(bytes) : await sentencePiece(bytes);
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

const KINDS = { bytes: bytesTokenizer, characters: characterTokenizer, vocabulary: wordTokenizer };

function fromFields(bytes) {
  const fields = JSON.parse(new TextDecoder().decode(bytes));
  if (fields.format !== 1 || !Object.hasOwn(KINDS, fields.type)) {
    throw new TranslatorError(
      'folder',
      `a tokenizer's file must have format 1 and one of the types ${Object.keys(KINDS)}. ` +
        `Received: format=${fields.format}, type=${fields.type}`,
    );
  }
  return KINDS[fields.type](fields);
}

function bytesTokenizer({ layout }) {
  // ByT5's special ids are pad 0, eos 1, unk 2.
  const [first, unk] = layout === 'byt5' ? [3, 2] : [SPECIAL_IDS, UNK];
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

function characterTokenizer({ characters }) {
  const entries = Array.from(characters); // code points, not UTF-16 units
  return table(entries, entries, UNKNOWN, (text) => Array.from(strip(text)));
}

function wordTokenizer({ words, joiner }) {
  const surface = (word) =>
    joiner && word.endsWith(joiner) ? word.slice(0, -joiner.length) : `${word} `;
  const split = (text) => text.split(SPACES).filter((word) => word !== '');
  const tokenizer = table(words, words.map(surface), surface(UNKNOWN), split);
  return {
    encode: tokenizer.encode,
    decode: (ids) => tokenizer.decode(ids).replace(/ $/, ''),
  };
}

function table(entries, surfaces, unknown, split) {
  const ids = new Map(entries.map((entry, index) => [entry, index + SPECIAL_IDS]));
  return {
    encode: (text) => split(text).map((entry) => ids.get(entry) ?? UNK),
    decode: (row) => row.map((id) => (id === UNK ? unknown : surfaces[id - SPECIAL_IDS])).join(''),
  };
}

function strip(text) {
  return text.replace(OUTER_SPACES, '');
}
