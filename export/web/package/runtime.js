// LiteRT.js, which a page, worker or process starts once for all translators.

import { TranslatorError } from './errors.js';
import { readerOf } from './sources.js';
import { loadAndCompile, loadLiteRt, Tensor } from './vendor/litert.js';
import { setAssets, takeErrors } from './wasm_library.js';

// Written so that bundlers see the files and bring them along.
const ASSETS = {
  'litert_wasm_internal.wasm': () =>
    new URL('./vendor/litert_wasm_internal.wasm', import.meta.url),
  'litert_wasm_compat_internal.wasm': () =>
    new URL('./vendor/litert_wasm_compat_internal.wasm', import.meta.url),
};
let started;

/**
 * Starts the runtime, unless it runs.
 *
 * @param {import('./index.d.ts').Source} [assets] where its `.wasm` files lie
 * @returns {Promise<object>} its module
 */
export function startRuntime(assets = (name) => ASSETS[name]()) {
  started ??= start(assets).catch((error) => {
    started = undefined; // the next call tries again
    if (error instanceof TranslatorError) throw error;
    throw new TranslatorError('runtime', `LiteRT.js could not be started: ${error.message}`, {
      cause: error,
    });
  });
  return started;
}

async function start(assets) {
  setAssets(readerOf(assets, 'assets'));
  const { liteRtWasm } = await loadLiteRt('');
  return liteRtWasm;
}

/** A model of these bytes, with its signatures. */
export async function compileModel(bytes) {
  try {
    return await loadAndCompile(bytes, { accelerator: 'wasm' });
  } catch (error) {
    throw new TranslatorError('runtime', `the model could not be loaded: ${error.message}`, {
      cause: error,
    });
  }
}

/** Ids, padded -> ids. */
export async function runModel(model, signature, row) {
  const input = new Tensor(row, [1, row.length]);
  let outputs = {};
  takeErrors();
  try {
    outputs = await model.run(signature, { source_ids: input });
    const ids = outputs.target_ids.toTypedArray();
    const [told] = takeErrors();
    if (told) throw new Error(told);
    return ids;
  } catch (error) {
    throw new TranslatorError('runtime', `the model failed: ${error.message}`, { cause: error });
  } finally {
    // Nothing else frees them.
    input.delete();
    Object.values(outputs).forEach((tensor) => tensor.delete());
  }
}
