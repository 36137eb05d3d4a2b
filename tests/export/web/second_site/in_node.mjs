// The package in Node: node in_node.mjs < request.json > answer.json

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Translator } from 'keras-transformer-web';
import { compileModel, runModel } from './node_modules/keras-transformer-web/runtime.js';
import { translateAll } from './translate_all.js';

const { folder, texts, whole, damaged, open } = JSON.parse(fs.readFileSync(0, 'utf8'));
const read = (name) => fs.readFileSync(path.join(folder, name));
const server = http.createServer(({ url }, response) => {
  const file = path.join(folder, url);
  if (fs.existsSync(file)) response.end(fs.readFileSync(file));
  else response.writeHead(404).end();
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const address = `http://127.0.0.1:${server.address().port}/`;
const files = new Map(fs.readdirSync(folder).map((name) => [name, read(name)]));
const sources = {
  path: folder,
  address: pathToFileURL(folder),
  files,
  buffers: new Map([...files].map(([name, { buffer, byteOffset, length }]) => [
    name,
    buffer.slice(byteOffset, byteOffset + length),
  ])),
  function: async (name) => read(name),
  responses: (name) => new Response(read(name)),
  network: address,
};
const outcome = (promise) =>
  promise.then(
    () => 'nothing',
    (error) => `${error.code ?? error.name}: ${error.message}`,
  );
const early = {
  'no WebAssembly': await outcome(Translator.open(files, { assets: () => undefined })),
  'damaged WebAssembly': await outcome(Translator.open(files, { assets: () => new Uint8Array(9) })),
};
const answers = {};
for (const [name, model] of Object.entries(sources)) {
  answers[name] = await translateAll({ Translator }, { model, texts, whole });
}

/** The files with other bytes for one of them, as if they had been exported. */
function exported(name, bytes) {
  const metadata = JSON.parse(files.get('metadata.json'));
  metadata.sha256[name] = createHash('sha256').update(bytes).digest('hex');
  delete metadata.record_sha256; // which older exports have not
  return new Map([...files, ['metadata.json', Buffer.from(JSON.stringify(metadata))], [name, bytes]]);
}

const model = await compileModel(files.get('model.tflite'));
const without = (name) => new Map([...files].filter(([other]) => other !== name));
const translator = await Translator.open(files);
const stopped = AbortSignal.abort();
const stop = new AbortController();
const inTurn = texts.map((text) => outcome(translator.translate(text, { signal: stop.signal })));
stop.abort(new Error('enough'));
const errors = {
  ...early,
  'no model': await outcome(Translator.open(exported('model.tflite', Buffer.from('no model')))),
  'no signature': await outcome(runModel(model, 'other', new Int32Array(32))),
  stopped: await Promise.all(inTurn),
  open: await outcome(Translator.open(open)),
  damaged: await outcome(Translator.open(damaged)),
  'no file': await outcome(Translator.open(without('model.tflite'))),
  'no folder': await outcome(Translator.open(`${folder}/none`)),
  'no page': await outcome(Translator.open(`${address}none/`)),
  'no server': await outcome(Translator.open('http://127.0.0.1:9/')),
  'no source': await outcome(Translator.open(3)),
  'no address': await outcome(Translator.open('http://')),
  'no bytes': await outcome(Translator.open(new Map([['metadata.json', 'text']]))),
  'a number': await outcome(Translator.open(() => 3)),
  'no text': await outcome(translator.translate(3)),
  'no whole text': await outcome(translator.translateText(3)),
  'no language': await outcome(translator.translateText('a', { language: 'German' })),
  'no options': await outcome(translator.translateText('a', null)),
  'no options of a split': await outcome(
    Promise.resolve().then(() => translator.splitText('a', null)),
  ),
  'no options of ids': await outcome(translator.translateIds([3], 5)),
  'no signal': await outcome(translator.translate('a', { signal: 5 })),
  'no signal of a text': await outcome(translator.translateText('', { signal: 5 })),
  'no options of opening': await outcome(Translator.open(files, null)),
  'no progress': await outcome(Translator.open(files, { onProgress: 5 })),
  'no ids': await outcome(translator.translateIds('ab')),
  'another id': await outcome(translator.translateIds([31, 3])),
  'another target id': await outcome(Promise.resolve().then(() => translator.decode([-1]))),
  'too long': await outcome(translator.translate('a'.repeat(600))),
  'too many bytes': await outcome(translator.translate('a'.repeat(40_000))),
  aborted: await outcome(translator.translate('a', { signal: stopped })),
  'aborted text': await outcome(translator.translateText('A. B.', { signal: stopped })),
  'aborted opening': await outcome(Translator.open(files, { signal: stopped })),
};
const { Segmenter } = Intl;
Intl.Segmenter = undefined;
errors['no segmenter'] = await outcome(translator.translateText('a', { language: 'nb' }));
Intl.Segmenter = Segmenter;
const running = translator.translate(texts[0]);
const closing = translator.close();
errors.closed = await outcome(translator.translate('a'));
answers.beforeClosing = await running;
await closing;
await translator.close();
server.closeAllConnections();
server.close();
console.log(JSON.stringify({ answers, errors, bytes: translator.bytes }));
