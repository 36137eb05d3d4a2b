// Starts the WebAssembly of LiteRT.js, in place of @litertjs/wasm-utils: the script is a module, so
// that it starts in a page, in a worker of either kind and in Node, and no `eval` is needed.

import { TranslatorError } from './errors.js';

const SCRIPTS = {
  litert_wasm_internal: () => import('./vendor/litert_wasm_internal.js'),
  litert_wasm_compat_internal: () => import('./vendor/litert_wasm_compat_internal.js'),
};
let readAsset;
let failed = []; // lines in which the runtime has told of an error

/** Says where the WebAssembly lies. */
export function setAssets(read) {
  readAsset = read;
}

/** The errors that were told since the last call: an op that fails is told, and its run goes on. */
export function takeErrors() {
  const lines = failed;
  failed = [];
  return lines;
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

function printErr(...words) {
  const line = words.join(' ');
  if (line.startsWith('ERROR')) failed.push(line);
  else if (!/^(INFO|WARNING|VERBOSE):/.test(line)) console.error(line);
}

async function compiled(content) {
  if (!(content instanceof Uint8Array)) {
    const isTyped = content.headers.get('content-type')?.startsWith('application/wasm');
    if (isTyped) return WebAssembly.compileStreaming(content); // while it comes
    content = await content.arrayBuffer();
  }
  try {
    return await WebAssembly.compile(content);
  } catch (error) {
    throw new TranslatorError('damaged', `the WebAssembly is damaged: ${error.message}`, {
      cause: error,
    });
  }
}
