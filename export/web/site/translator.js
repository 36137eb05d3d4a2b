// An exported folder in the browser: what keras_transformer_runner.runner is in Python.

import { loadAndCompile, loadLiteRt, Tensor } from './litert/index.js';
import { loadTokenizer } from './tokenizers.js';

const BYTES_A_TOKEN = 64; // longer texts are refused unread, as on the other runtimes

/** Translates one sentence at a time; the calls must not overlap. */
export class Translator {
  /**
   * @param {URL} base the site, with a slash at the end
   * @param {(loaded: number, total: number) => void} onProgress bytes of the model and tokenizer
   * @throws {Error} if a file is missing, damaged or from another export
   */
  static async load(base, onProgress = () => {}) {
    const runtime = loadLiteRt(new URL('litert/', base).href);
    const site = await fetchJson(new URL('site.json', base));
    const metadata = await fetchJson(new URL('model/metadata.json', base));
    const names = Object.keys(metadata.sha256);
    const total = names.reduce((sum, name) => sum + site.sizes[name], 0);
    let loaded = 0;
    const advance = (count) => onProgress((loaded += count), total);
    const files = {};
    for (const name of names) {
      const expected = { size: site.sizes[name], sha256: metadata.sha256[name] };
      files[name] = await fetchRight(new URL(`model/${name}`, base), expected, advance);
    }
    const tokenizer = (stem) => names.find((name) => name.startsWith(`${stem}.`));
    const { source_prefix_ids: before, target_prefix_ids: told } = metadata;
    const source = await loadTokenizer(files[tokenizer('tokenizer')], before);
    const own = tokenizer('target_tokenizer');
    const target = own ? await loadTokenizer(files[own], told) : source;
    const { liteRtWasm } = await runtime;
    const model = await loadAndCompile(files['model.tflite'], { accelerator: 'wasm' });
    const translator = new Translator(metadata, model, source, target, liteRtWasm);
    translator.bytes = total;
    await translator.translate('a'); // warms the kernels up
    return translator;
  }

  constructor(metadata, model, source, target, wasm) {
    this.metadata = metadata;
    this.model = model;
    this.source = source;
    this.target = target;
    this.wasm = wasm;
    metadata.lengths.forEach((fixed) => checkSignature(model, fixed));
  }

  /** Bytes that the runtime has taken for models and tensors; it never gives any back. */
  get heapBytes() {
    return this.wasm.HEAPU8.byteLength;
  }

  /** How many tokens a sentence may have, EOS included. */
  get most() {
    return this.metadata.lengths.at(-1).source_length;
  }

  /**
   * @param {string} text one sentence
   * @returns {Promise<{sourceIds: number[], targetIds: number[], text: string}>}
   * @throws {Error} if it has too many tokens
   */
  async translate(text) {
    const most = BYTES_A_TOKEN * this.most;
    if (new TextEncoder().encode(text).length > most) {
      throw new RangeError(
        `A sentence can have ${most} bytes at most: put its sentences on lines of their own.`,
      );
    }
    const sourceIds = [...this.source.encode(text), this.metadata.eos_id];
    const targetIds = await this.translateIds(sourceIds);
    return { sourceIds, targetIds, text: this.target.decode(this.withoutBos(targetIds)) };
  }

  /** Ids, EOS at the end -> ids without EOS and pads. */
  async translateIds(sourceIds) {
    this.check(sourceIds);
    const { signature, source_length: length } = this.metadata.lengths.find(
      ({ source_length: most }) => sourceIds.length <= most,
    );
    const row = new Int32Array(length).fill(this.metadata.pad_id);
    row.set(sourceIds);
    const ids = Array.from(await run(this.model, signature, row));
    const end = ids.indexOf(this.metadata.eos_id);
    return ids
      .slice(0, end < 0 ? ids.length : end)
      .filter((id) => id !== this.metadata.pad_id);
  }

  /** An id outside the vocabulary would not fail: the runtime prints an error and gives zeros. */
  check(ids) {
    const { vocab_size: size } = this.metadata;
    const most = this.most;
    if (ids.length > most) {
      throw new RangeError(
        `A sentence can have ${most} tokens at most. This one has ${ids.length}: ` +
          'put its sentences on lines of their own.',
      );
    }
    const outside = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (outside !== undefined) {
      throw new RangeError(`ids must lie in [0, ${size}). Received: ${outside}`);
    }
  }

  withoutBos(ids) {
    return ids.filter((id) => id !== this.metadata.bos_id);
  }
}

/** LiteRT.js would run a signature of other lengths, and read or write beyond its tensors. */
function checkSignature(model, { signature, source_length: source, target_length: target }) {
  const found = model.signatures[signature];
  const shapeOf = (details, wanted) => details?.find(({ name }) => name === wanted)?.shape ?? [];
  const received = [
    shapeOf(found?.getInputDetails(), 'source_ids'),
    shapeOf(found?.getOutputDetails(), 'target_ids'),
  ].map((shape) => `(${Array.from(shape).join(', ')})`);
  if (received.join() !== `(1, ${source}),(1, ${target})`) {
    throw new Error(
      `the model must have the signature "${signature}", of ${source} ids to ${target}. ` +
        `Received: shapes ${received.join(' and ')}`,
    );
  }
}

async function run(model, signature, row) {
  const input = new Tensor(row, [1, row.length]);
  let outputs = {};
  try {
    outputs = await model.run(signature, { source_ids: input });
    return outputs.target_ids.toTypedArray();
  } finally {
    // Nothing else frees them.
    input.delete();
    Object.values(outputs).forEach((tensor) => tensor.delete());
  }
}

async function fetchChecked(url, cache = 'default') {
  const response = await fetch(url, { cache });
  if (!response.ok) {
    throw new Error(`${url.pathname} could not be loaded: status ${response.status}`);
  }
  return response;
}

async function fetchJson(url) {
  return (await fetchChecked(url)).json();
}

/** A file as it was exported; what came damaged is fetched again, past all caches. */
async function fetchRight(url, expected, advance) {
  let loaded = 0;
  const count = (bytes) => {
    loaded += bytes;
    advance(bytes);
  };
  const response = await fetchChecked(url);
  const first = await fetchBytes(response, count).catch(() => new Uint8Array()); // it broke off
  if (await isRight(first, expected)) return first;
  advance(-loaded);
  const second = await fetchBytes(await fetchChecked(url, 'reload'), advance);
  if (await isRight(second, expected)) return second;
  const name = url.pathname.split('/').pop();
  throw new Error(`${name} is damaged or belongs to another export. Reload the page.`);
}

async function fetchBytes(response, advance) {
  const parts = [];
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    advance(part.value.byteLength);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function isRight(bytes, { size, sha256 }) {
  if (!globalThis.crypto?.subtle) return bytes.length === size; // over plain HTTP
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('') === sha256;
}
