// Translates off the page's thread. A classic worker: LiteRT.js loads its runtime by importScripts.
//
// In:  {id, text}; a newer message cancels older ones.
// Out: {type: 'progress', loaded, total}, {type: 'ready', bytes, metadata}, {type: 'broken', message}
//      {type: 'line', id, index, line, done, milliseconds, heapBytes}, {type: 'failed', id, message}
//      `line` is what Translator.translate gives; `milliseconds` is the time of all new ones.

self.Module = { locateFile: (name) => new URL(`litert/${name}`, self.location).href };

let newest = 0;
let known = new Map(); // translations of the lines that the text had last
let last = Promise.resolve();

const loading = import('./translator.js').then(({ Translator }) =>
  Translator.load(new URL('.', self.location), (loaded, total) =>
    postMessage({ type: 'progress', loaded, total }),
  ),
);
loading.then(
  ({ bytes, metadata }) => postMessage({ type: 'ready', bytes, metadata }),
  (error) => postMessage({ type: 'broken', message: error.message }),
);

self.onmessage = ({ data }) => {
  newest = data.id;
  last = last.then(() => answer(data)).catch((error) => {
    postMessage({ type: 'failed', id: data.id, message: error.message });
  });
};

async function answer({ id, text }) {
  const translator = await loading;
  const kept = new Map();
  const sources = text.split('\n');
  let milliseconds = 0;
  for (const [index, source] of sources.entries()) {
    await messages();
    if (id !== newest) return;
    let line = known.get(source) ?? kept.get(source);
    if (!line) {
      const start = performance.now();
      line = await translator.translate(source);
      milliseconds += performance.now() - start;
    }
    kept.set(source, line);
    const done = index === sources.length - 1;
    const { heapBytes } = translator;
    postMessage({ type: 'line', id, index, line, done, milliseconds, heapBytes });
  }
  known = kept;
}

/** Lets messages that wait be received: a run blocks the thread. */
function messages() {
  return new Promise((resolve) => setTimeout(resolve));
}
