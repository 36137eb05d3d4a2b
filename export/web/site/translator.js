// An exported folder in the browser: what keras_transformer_runner.runner is in Python.

import { loadAndCompile, loadLiteRt, Tensor } from './litert/index.js';
import { paddedLength, targetLength, withFixedLength } from './fixed_length.js';
import { loadTokenizer } from './tokenizers.js';

const MOST_COPIES = 2; // compiled for one length each
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
    const translator = new Translator(metadata, files['model.tflite'], source, target, liteRtWasm);
    translator.bytes = total;
    await translator.translate('a'); // compiles, and warms the kernels up
    return translator;
  }

  constructor(metadata, model, source, target, wasm) {
    this.metadata = metadata;
    this.model = model;
    this.source = source;
    this.target = target;
    this.wasm = wasm;
    this.compiled = new Map(); // by length, the one used last at the end
  }

  /** Bytes that the runtime has taken for models and tensors; it never gives any back. */
  get heapBytes() {
    return this.wasm.HEAPU8.byteLength;
  }

  /**
   * @param {string} text one sentence
   * @returns {Promise<{sourceIds: number[], targetIds: number[], text: string}>}
   * @throws {Error} if it has too many tokens
   */
  async translate(text) {
    const most = BYTES_A_TOKEN * this.metadata.max_source_length;
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
    const length = paddedLength(sourceIds.length, this.metadata.max_source_length);
    const row = new Int32Array(length).fill(this.metadata.pad_id);
    row.set(sourceIds);
    const ids = Array.from(await run(await this.compile(length), this.metadata.signature, row));
    const end = ids.indexOf(this.metadata.eos_id);
    return ids
      .slice(0, end < 0 ? ids.length : end)
      .filter((id) => id !== this.metadata.pad_id);
  }

  /** An id outside the vocabulary would not fail: the runtime prints an error and gives zeros. */
  check(ids) {
    const { vocab_size: size, max_source_length: most } = this.metadata;
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

  async compile(length) {
    let model = this.compiled.get(length);
    this.compiled.delete(length);
    if (!model) {
      for (const [oldest, other] of this.compiled) {
        if (this.compiled.size < MOST_COPIES) break;
        other.delete();
        this.compiled.delete(oldest);
      }
      model = await this.compileFixed(length);
    }
    this.compiled.set(length, model);
    return model;
  }

  async compileFixed(length) {
    const { signature, eos_id, pad_id } = this.metadata;
    const slots = targetLength(length, this.metadata);
    const bytes = withFixedLength(this.model, signature, length, slots);
    const model = await loadAndCompile(bytes, { accelerator: 'wasm' });
    const nothing = new Int32Array(length).fill(pad_id);
    nothing[0] = eos_id;
    try {
      // A wrong length of the output shows in the second run only.
      await run(model, signature, nothing);
      await run(model, signature, nothing);
    } catch (error) {
      // The runtime's memory may be damaged: deleting the model could hide the error by another.
      throw new Error(
        `the model must give ${slots} ids for ${length}, as its metadata says. ` +
          `Received: ${error.message}`,
      );
    }
    return model;
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
