// The number of ids of a tokenizer's file, and its special ones, as load_tokenizer has them in Python.

const SPECIAL = { pad_id: 0, bos_id: 2, eos_id: 3 }; // of the tables, unk being 1
const SPECIAL_OF_BYT5 = { pad_id: 0, bos_id: 0, eos_id: 1 };
const TABLES = {
  bytes: () => 256,
  characters: ({ characters }) => Array.from(characters).length,
  vocabulary: ({ words }) => words.length,
};
// Of sentencepiece_model.proto: ModelProto's fields and, by our names, TrainerSpec's.
const PIECES = 1;
const TRAINER_SPEC = 2;
const TEXT = 1;
const NAMES = {
  bos_id: { field: 46, piece: '<s>' },
  eos_id: { field: 47, piece: '</s>' },
  pad_id: { field: 48, piece: '<pad>' },
};

/**
 * @param {Uint8Array} bytes
 * @returns {{size: number, pad_id: number, bos_id: number, eos_id: number}}
 * @throws {Error} if it is no tokenizer
 */
export function tokenizerIds(bytes) {
  if (bytes[0] !== 0x7b) return ofSentencePiece(bytes);
  const fields = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  if (fields.format !== 1 || !Object.hasOwn(TABLES, fields.type)) {
    throw new Error(`format=${fields.format}, type=${fields.type}`);
  }
  const special = fields.layout === 'byt5' ? SPECIAL_OF_BYT5 : SPECIAL;
  return { size: fields.vocab_size ?? TABLES[fields.type](fields) + 4, ...special };
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
  if (!pieces.length) throw new Error('no pieces');
  const ids = Object.fromEntries(Object.entries(names).map(([id, name]) => [id, pieces.indexOf(name)]));
  if (ids.bos_id < 0) ids.bos_id = ids.pad_id;
  return { size: pieces.length, ...ids };
}

/** Yields the number and the value of each field of a protobuf message. */
function* messageFields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      if (at >= bytes.length) throw new Error('a protobuf that ends early');
      const byte = bytes[at++];
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  const part = (length) => {
    if (at + length > bytes.length) throw new Error('a protobuf that ends early');
    return bytes.subarray(at, (at += length));
  };
  while (at < bytes.length) {
    const tag = varint();
    const kind = tag % 8;
    const read = { 0: varint, 1: () => part(8), 2: () => part(varint()), 5: () => part(4) }[kind];
    if (!read) throw new Error(`a protobuf with a field of kind ${kind}`);
    yield [Math.floor(tag / 8), read()];
  }
}

function textOf(bytes) {
  return new TextDecoder().decode(bytes);
}
