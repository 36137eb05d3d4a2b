// Starts the WebAssembly of LiteRT.js, in place of @litertjs/wasm-utils: the script is a module, so
// that it starts in a page, in a worker of either kind and in Node, and no `eval` is needed.

import { TranslatorError } from './errors.js';

const SCRIPTS = {
  litert_wasm_internal: () => import('./vendor/litert_wasm_internal.js'),
  litert_wasm_compat_internal: () => import('./vendor/litert_wasm_compat_internal.js'),
};
let readAsset;

/** Says where the WebAssembly lies. */
export function setAssets(read) {
  readAsset = read;
}

/** What LiteRT.js calls, with the name of the script that fits this browser. */
export async function createWasmLib(Library, file) {
  const name = file.replace(/\.js$/, '');
  const { default: start } = await SCRIPTS[name]();
  const module = await compiled(await readAsset(`${name}.wasm`, { streams: true }));
  const wasm = await new Promise((resolve, reject) => {
    const instantiateWasm = (imports, receive) => {
      WebAssembly.instantiate(module, imports).then(
        (instance) => receive(instance, module),
        reject,
      );
      return {}; // it comes later
    };
    start({ instantiateWasm, printErr }).then(resolve, reject);
  });
  return new Library(wasm);
}

/** What the runtime tells of itself on every start is no error. */
function printErr(...words) {
  if (!/^(INFO|WARNING):/.test(words[0])) console.error(...words);
}

async function compiled(content) {
  try {
    if (content instanceof Uint8Array) return await WebAssembly.compile(content);
    const isTyped = content.headers.get('content-type')?.startsWith('application/wasm');
    if (isTyped) return await WebAssembly.compileStreaming(content); // while it comes
    return await WebAssembly.compile(await content.arrayBuffer());
  } catch (error) {
    throw new TranslatorError('damaged', `the WebAssembly is damaged: ${error.message}`, {
      cause: error,
    });
  }
}
