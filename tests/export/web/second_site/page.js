// Plain modules, in the page and in a worker; bundled ones in a worker and in a service worker.

import * as library from './node_modules/keras-transformer-web/index.js';
import { translateAll } from './translate_all.js';

globalThis.places = {
  page: (request) => translateAll(library, request),
  worker: (request) => ask(new Worker('worker.js', { type: 'module' }), request),
  bundle: (request) => ask(new Worker('bundle.js'), request),
  service: async (request) => {
    await navigator.serviceWorker.register('bundle.js');
    const { active } = await navigator.serviceWorker.ready;
    return ask(active, request);
  },
};

function ask(worker, request) {
  return new Promise((resolve, reject) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data));
    worker.onerror = ({ message }) => reject(new Error(message));
    worker.postMessage(request, [port2]);
  });
}
