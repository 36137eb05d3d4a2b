// The ids of a tokenizer's file, as load_tokenizer has them in Python.

import { TranslatorError } from './errors.js';
import { checkPrefix, isTable, parseTable } from './tables.js';

// Of sentencepiece_model.proto: ModelProto's fields and, by our names, TrainerSpec's.
const PIECES = 1;
const TRAINER_SPEC = 2;
const TEXT = 1;
const NAMES = {
  bos_id: { field: 46, piece: '<s>' },
  eos_id: { field: 47, piece: '</s>' },
  pad_id: { field: 48, piece: '<pad>' },
};
const PREFIX_TAG = [0xda, 0xa8, 0x02]; // of field 4747, before all else: the prefix ids

/**
 * @param {Uint8Array} bytes
 * @returns {{size: number, pad_id: number, bos_id: number, eos_id: number, prefix_ids: number[]}}
 * @throws {TranslatorError} if it is no tokenizer
 */
export function tokenizerIds(bytes) {
  return isTable(bytes) ? parseTable(bytes) : ofSentencePiece(bytes);
}

function ofSentencePiece(bytes) {
  const pieces = [];
  const names = Object.fromEntries(Object.entries(NAMES).map(([id, { piece }]) => [id, piece]));
  for (const [field, value] of messageFields(bytes)) {
    if (field === PIECES) pieces.push(textOf(new Map(messageFields(value)).get(TEXT)));
    if (field !== TRAINER_SPEC) continue;
    const trained = new Map(messageFields(value));
    for (const [id, { field: named }] of Object.entries(NAMES)) {
      if (trained.has(named)) names[id] = textOf(trained.get(named));
    }
  }
  if (!pieces.length) throw wrong('no pieces');
  const ids = Object.fromEntries(Object.entries(names).map(([id, name]) => [id, pieces.indexOf(name)]));
  if (ids.bos_id < 0) ids.bos_id = ids.pad_id;
  const found = { size: pieces.length, ...ids, prefix_ids: prefixOf(bytes) };
  checkPrefix(found.prefix_ids, found);
  return found;
}

function prefixOf(bytes) {
  if (!PREFIX_TAG.every((byte, index) => bytes[index] === byte)) return [];
  const [[, packed]] = messageFields(bytes);
  const reader = protobufReader(packed);
  const ids = [];
  while (reader.hasMore()) ids.push(reader.varint());
  return ids;
}

/** Yields the number and the value of each field of a protobuf message. */
function* messageFields(bytes) {
  const { hasMore, varint, part } = protobufReader(bytes);
  while (hasMore()) {
    const tag = varint();
    const kind = tag % 8;
    const read = { 0: varint, 1: () => part(8), 2: () => part(varint()), 5: () => part(4) }[kind];
    if (!read) throw wrong(`a protobuf with a field of kind ${kind}`);
    yield [Math.floor(tag / 8), read()];
  }
}

function protobufReader(bytes) {
  let at = 0;
  const hasMore = () => at < bytes.length;
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      if (!hasMore()) throw wrong('a protobuf that ends early');
      const byte = bytes[at++];
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  const part = (length) => {
    if (!(at + length <= bytes.length)) throw wrong('a protobuf that ends early');
    return bytes.subarray(at, (at += length));
  };
  return { hasMore, varint, part };
}

function textOf(bytes) {
  return new TextDecoder().decode(bytes);
}

function wrong(received) {
  const rule = "a tokenizer's file must be a serialized SentencePiece model";
  return new TranslatorError('folder', `${rule}. Received: ${received}`);
}
