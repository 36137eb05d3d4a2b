// Translates off the page's thread.
//
// In:  {id, text}; a newer message cancels older ones.
// Out: {type: 'progress', loaded, total}, {type: 'ready', bytes, metadata}, {type: 'broken', message}
//      {type: 'text', id, text, done, tokens, milliseconds, memoryBytes}, {type: 'failed', id, message}
//      `text` is what there is of the translation; `milliseconds` is the time of all new sentences.

const BETWEEN = 100; // milliseconds from one part of a long translation to the next

let newest = 0;
let known = new Map(); // translations of the sentences that the text had last
let last = Promise.resolve();

const site = fetch('site.json').then((response) => {
  if (!response.ok) throw new Error(`site.json could not be loaded: status ${response.status}`);
  return response.json();
});
const translating = import('./translator/index.js');
const loading = open();
loading.then(
  ({ bytes, metadata }) => postMessage({ type: 'ready', bytes, metadata }),
  (error) => postMessage({ type: 'broken', message: error.message }),
);

async function open() {
  const { sizes } = await site;
  const { Translator } = await translating;
  const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  const loaded = { 'metadata.json': sizes['metadata.json'] };
  const onProgress = (file) => {
    loaded[file.file] = file.loaded;
    const sum = Object.values(loaded).reduce((all, bytes) => all + bytes, 0);
    postMessage({ type: 'progress', loaded: sum, total });
  };
  return Translator.open('model/', { onProgress });
}

self.onmessage = ({ data }) => {
  newest = data.id;
  last = last.then(() => answer(data)).catch((error) => {
    postMessage({ type: 'failed', id: data.id, message: error.message });
  });
};

async function answer({ id, text }) {
  const [translator, { joinText }, { from }] = await Promise.all([loading, translating, site]);
  const { sentences, gaps } = split(translator, text, from);
  const kept = new Map();
  const found = [];
  let milliseconds = 0;
  let told = performance.now();
  const tell = (done) => {
    const parts = joinText(gaps.slice(0, found.length + 1), found.map((each) => each.text));
    const tokens = found.reduce((sum, each) => sum + each.tokens, 0);
    const { memoryBytes } = translator;
    postMessage({ type: 'text', id, text: parts, done, tokens, milliseconds, memoryBytes });
    told = performance.now();
  };
  for (const sentence of sentences) {
    await messages();
    if (id !== newest) return;
    const start = performance.now();
    if (start - told > BETWEEN) tell(false);
    let translation = known.get(sentence) ?? kept.get(sentence);
    if (!translation) {
      translation = await translate(translator, sentence);
      milliseconds += performance.now() - start;
    }
    kept.set(sentence, translation);
    found.push(translation);
  }
  tell(true);
  known = kept;
}

async function translate(translator, sentence) {
  const ids = await translator.translateIds(translator.encode(sentence));
  return { text: translator.decode(ids), tokens: ids.length };
}

/** Where the browser cannot find sentences, each line is one. */
function split(translator, text, language) {
  if (Intl.Segmenter) return translator.splitText(text, { language });
  const sentences = text.split('\n');
  return { sentences, gaps: ['', ...sentences.slice(1).fill('\n'), ''] };
}

/** Lets messages that wait be received: a run blocks the thread. */
function messages() {
  return new Promise((resolve) => setTimeout(resolve));
}
