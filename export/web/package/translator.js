// An exported folder in JavaScript: what keras_transformer_runner.runner is in Python.

import { checkFixedLengths, MODEL, readFolder, tokenizersOf } from './device_folder.js';
import { TranslatorError } from './errors.js';
import { checkOptions } from './options.js';
import { compileModel, runModel, startRuntime } from './runtime.js';
import { joinText, splitText } from './sentences.js';
import { readerOf } from './sources.js';
import { loadTokenizer } from './tokenizers.js';

const BYTES_A_TOKEN = 64; // longer texts are refused unread, as on the other runtimes
const WARM_UP = 'a';

/** Translates with one exported folder. Calls wait for each other. */
export class Translator {
  #parts;
  #last = Promise.resolve();
  #isClosed = false;

  /**
   * Opens a folder, once all its files are what the export wrote.
   *
   * @param {import('./index.d.ts').Source} source
   * @param {import('./index.d.ts').OpenOptions} [options]
   * @returns {Promise<Translator>}
   * @throws {TranslatorError}
   */
  static async open(source, options = {}) {
    checkOptions(options);
    const { assets, onProgress = () => {}, signal } = options;
    signal?.throwIfAborted();
    const read = readerOf(source, 'source', signal);
    const runtime = startRuntime(assets);
    runtime.catch(() => {}); // told below, unless the folder fails first
    const { metadata, contents } = await readFolder(read, onProgress);
    checkFixedLengths(metadata);
    const { source: sourceFile, target: targetFile } = tokenizersOf(metadata);
    const { source_prefix_ids: before, target_prefix_ids: told } = metadata;
    const from = await loadTokenizer(contents[sourceFile], before);
    const isShared = sourceFile === targetFile;
    const to = isShared ? from : await loadTokenizer(contents[targetFile], told);
    const wasm = await runtime;
    signal?.throwIfAborted();
    const model = await compileModel(contents[MODEL]);
    const bytes = Object.keys(metadata.sha256).reduce((sum, name) => sum + contents[name].length, 0);
    try {
      metadata.lengths.forEach((fixed) => checkSignature(model, fixed));
      const translator = new Translator({ metadata, model, from, to, wasm, bytes });
      await translator.translate(WARM_UP, { signal });
      return translator;
    } catch (error) {
      model.delete();
      throw error;
    }
  }

  /** Not for callers: `Translator.open` makes one. */
  constructor(parts) {
    this.#parts = parts;
    this.metadata = parts.metadata;
  }

  /** Bytes of the model and its tokenizers. */
  get bytes() {
    return this.#parts.bytes;
  }

  /** Bytes that the runtime has taken for all models and tensors; it never gives any back. */
  get memoryBytes() {
    return this.#parts.wasm.HEAPU8.byteLength;
  }

  /** How many tokens a sentence may have, EOS included. */
  get maxTokens() {
    return this.metadata.lengths.at(-1).source_length;
  }

  /** One sentence -> its translation. */
  async translate(text, options = {}) {
    checkOptions(options);
    return this.decode(await this.translateIds(this.encode(text), options));
  }

  /** A text of any length -> its translation, every line break and space between sentences kept. */
  async translateText(text, options = {}) {
    checkOptions(options);
    const { language, signal } = options;
    const { sentences, gaps } = this.splitText(text, { language });
    const translations = [];
    for (const sentence of sentences) {
      translations.push(await this.translate(sentence, { signal }));
      await otherTasks();
    }
    return joinText(gaps, translations);
  }

  /** The sentences of a text, each short enough for the model, and what lies between them. */
  splitText(text, options = {}) {
    checkOptions(options);
    this.#checkOpen();
    return splitText(text, options.language, (sentence) => this.#fits(sentence));
  }

  /** The ids of one sentence, as `translateIds` takes them. */
  encode(text) {
    this.#checkOpen();
    if (typeof text !== 'string') {
      throw new TranslatorError('argument', `\`text\` must be a string. Received: ${typeof text}`);
    }
    if (!this.#hasFewBytes(text)) {
      throw new TranslatorError(
        'length',
        `A sentence can have ${this.#maxBytes} bytes at most: \`translateText\` cuts a text.`,
      );
    }
    const ids = this.#parts.from.encode(text);
    return (this.metadata.adds_eos ?? true) ? [...ids, this.metadata.eos_id] : ids;
  }

  /** The text of ids, up to the first EOS. */
  decode(ids) {
    const { target_vocab_size: size, pad_id: pad, bos_id: bos, eos_id: eos } = this.metadata;
    this.#checkIds(ids, size);
    const row = Array.from(ids);
    const end = row.indexOf(eos);
    const content = row.slice(0, end < 0 ? row.length : end);
    return this.#parts.to.decode(content.filter((id) => id !== bos && id !== pad));
  }

  /** Ids of one sentence, EOS at the end -> ids of its translation, without EOS and pads. */
  async translateIds(sourceIds, options = {}) {
    checkOptions(options);
    this.#checkOpen();
    const { vocab_size: size, pad_id: pad, eos_id: eos, lengths } = this.metadata;
    this.#checkIds(sourceIds, size);
    this.#checkLength(sourceIds.length);
    if (!sourceIds.length) return [];
    const fitting = lengths.find(({ source_length: most }) => sourceIds.length <= most);
    const row = new Int32Array(fitting.source_length).fill(pad);
    row.set(sourceIds);
    const ids = Array.from(await this.#inTurn(row, fitting.signature, options.signal));
    const end = ids.indexOf(eos);
    return ids.slice(0, end < 0 ? ids.length : end).filter((id) => id !== pad);
  }

  /** Frees the model, when the calls before have ended; a second time does nothing. */
  async close() {
    if (this.#isClosed) return this.#last;
    this.#isClosed = true;
    this.#last = this.#last.then(() => this.#parts.model.delete());
    return this.#last;
  }

  #inTurn(row, signature, signal) {
    const answer = this.#last.then(() => {
      signal?.throwIfAborted();
      return runModel(this.#parts.model, signature, row);
    });
    this.#last = answer.catch(() => {}); // its caller is told
    return answer;
  }

  get #maxBytes() {
    return BYTES_A_TOKEN * this.maxTokens;
  }

  #hasFewBytes(text) {
    return new TextEncoder().encode(text).length <= this.#maxBytes;
  }

  #fits(sentence) {
    return this.#hasFewBytes(sentence) && this.encode(sentence).length <= this.maxTokens;
  }

  #checkOpen() {
    if (this.#isClosed) throw new TranslatorError('closed', 'the translator is closed.');
  }

  #checkLength(length) {
    if (length <= this.maxTokens) return;
    throw new TranslatorError(
      'length',
      `A sentence can have ${this.maxTokens} tokens at most. This one has ${length}: ` +
        '`translateText` cuts a text.',
    );
  }

  /** An id outside the vocabulary would not fail: the runtime prints an error and gives zeros. */
  #checkIds(ids, size) {
    if (!Array.isArray(ids) && !(ids instanceof Int32Array)) {
      throw new TranslatorError('argument', `ids must be an array. Received: ${typeof ids}`);
    }
    const outside = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (outside < 0) return;
    throw new TranslatorError(
      'argument',
      `ids must lie in [0, ${size}). Received: ${ids[outside]}`,
    );
  }
}

/** Lets what waits on this thread run, such as what stops a signal: a run blocks it. */
function otherTasks() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** LiteRT.js would run a signature of other lengths, and read or write beyond its tensors. */
function checkSignature(model, { signature, source_length: source, target_length: target }) {
  const found = model.signatures[signature];
  const shapeOf = (details, wanted) => details?.find(({ name }) => name === wanted)?.shape ?? [];
  const received = [
    shapeOf(found?.getInputDetails(), 'source_ids'),
    shapeOf(found?.getOutputDetails(), 'target_ids'),
  ].map((shape) => `(${Array.from(shape).join(', ')})`);
  if (received.join() === `(1, ${source}),(1, ${target})`) return;
  throw new TranslatorError(
    'folder',
    `the model must have the signature "${signature}", of ${source} ids to ${target}. ` +
      `Received: shapes ${received.join(' and ')}`,
  );
}
