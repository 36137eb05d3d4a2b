// LiteRT.js has no way to resize an input, and sizes outputs before a run. An exported file leaves
// the lengths open (shape signature -1): here a copy of it gets lengths. Shapes are appended and
// not overwritten, because equal shapes of several tensors are stored once.

const IDENTIFIER = 'TFL3';
// Field numbers of the flatbuffer's tables, from LiteRT's schema.fbs.
const MODEL = { subgraphs: 2, signatures: 7 };
const SIGNATURE = { inputs: 0, outputs: 1, key: 2, subgraph: 4 };
const TENSOR_MAP = { name: 0, tensor: 1 };
const SUBGRAPH = { tensors: 0 };
const TENSOR = { shape: 0, shapeSignature: 7 };

// Sources are padded to one of a few lengths. Pads change no answer, and cost little: most
// sentences fit the first.
const SHORTEST = 32;
const GROWTH = 4;

/** The length to which a source of `length` ids is padded, up to the longest that may be. */
export function paddedLength(length, longest) {
  let padded = SHORTEST;
  while (padded < length) padded *= GROWTH;
  return Math.min(padded, longest);
}

/** How many ids a model gives for so many, by its metadata. */
export function targetLength(length, { search, max_positions: positions }) {
  return Math.min(
    length + search.extra_length,
    search.max_length ?? Infinity,
    positions ?? Infinity,
  );
}

/**
 * A copy of a model whose signature takes `sourceLength` ids and gives `targetLength`.
 *
 * @param {Uint8Array} bytes the model file
 * @param {string} key the signature
 * @param {number} sourceLength for every open dimension of an input
 * @param {number} targetLength for every open dimension of an output
 * @returns {Uint8Array}
 * @throws {Error} if the bytes are no model, or lack the signature
 */
export function withFixedLength(bytes, key, sourceLength, targetLength) {
  const tables = new Tables(bytes);
  const root = tables.follow(0);
  const signature = tables
    .vector(root, MODEL.signatures)
    .map((at) => tables.follow(at))
    .find((table) => tables.string(table, SIGNATURE.key) === key);
  if (signature === undefined) {
    throw new Error(`the model must have the signature "${key}". Received: a file without it`);
  }
  const graphs = tables.vector(root, MODEL.subgraphs);
  const graph = tables.follow(graphs[tables.uint32(signature, SIGNATURE.subgraph)]);
  const tensors = tables.vector(graph, SUBGRAPH.tensors);
  const sides = [
    [SIGNATURE.inputs, sourceLength],
    [SIGNATURE.outputs, targetLength],
  ];
  const shapes = sides.flatMap(([side, length]) =>
    tables.vector(signature, side).flatMap((at) => {
      const index = tables.uint32(tables.follow(at), TENSOR_MAP.tensor);
      return fixedShape(tables, tables.follow(tensors[index]), length);
    }),
  );
  return withShapes(bytes, shapes);
}

/** The fields of a tensor that refer to its shape, and what it shall be; none if it has no -1. */
function fixedShape(tables, tensor, length) {
  const open = tables.vector(tensor, TENSOR.shapeSignature).map((at) => tables.int32(at));
  if (!open.some((size) => size < 0)) return [];
  const fields = [TENSOR.shape, TENSOR.shapeSignature].map((field) => tables.field(tensor, field));
  return [{ fields, shape: open.map((size) => (size < 0 ? length : size)) }];
}

/** A copy of a flatbuffer whose fields refer to new vectors at its end. */
function withShapes(bytes, shapes) {
  const added = shapes.reduce((sum, { shape }) => sum + 4 + 4 * shape.length, 0);
  let end = Math.ceil(bytes.length / 4) * 4;
  const copy = new Uint8Array(end + added);
  copy.set(bytes);
  const view = new DataView(copy.buffer);
  for (const { fields, shape } of shapes) {
    fields.forEach((at) => view.setUint32(at, end - at, true));
    [shape.length, ...shape].forEach((number, index) => {
      view.setInt32(end + 4 * index, number, true);
    });
    end += 4 + 4 * shape.length;
  }
  return copy;
}

/** Just enough of a flatbuffer reader: tables, vectors of 4-byte elements, strings. */
class Tables {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const identifier = new TextDecoder().decode(bytes.subarray(4, 8));
    if (identifier !== IDENTIFIER) {
      throw new Error(`a model file must be a LiteRT flatbuffer. Received: "${identifier}"`);
    }
  }

  follow(at) {
    return at + this.view.getUint32(at, true);
  }

  /** Where a table's field lies; 0 where it has its default. */
  field(table, number) {
    const fields = table - this.view.getInt32(table, true);
    const entry = 4 + 2 * number;
    if (entry >= this.view.getUint16(fields, true)) return 0;
    const offset = this.view.getUint16(fields + entry, true);
    return offset && table + offset;
  }

  int32(at) {
    return this.view.getInt32(at, true);
  }

  uint32(table, number) {
    const at = this.field(table, number);
    return at && this.view.getUint32(at, true);
  }

  /** Where each element of a vector lies. */
  vector(table, number) {
    const at = this.field(table, number);
    if (!at) return [];
    const start = this.follow(at);
    const length = this.view.getUint32(start, true);
    return Array.from({ length }, (_, index) => start + 4 * (index + 1));
  }

  string(table, number) {
    const start = this.follow(this.field(table, number));
    const length = this.view.getUint32(start, true);
    return new TextDecoder().decode(this.bytes.subarray(start + 4, start + 4 + length));
  }
}
