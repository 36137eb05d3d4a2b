// What a bundler is given: the package by its name.

import * as library from 'keras-transformer-web';
import { translateAll } from './translate_all.js';

self.addEventListener('message', (event) => {
  const { data, ports } = event;
  const answer = translateAll(library, data).catch(({ message }) => ({ error: message }));
  const sent = answer.then((found) => ports[0].postMessage(found));
  event.waitUntil?.(sent); // in a service worker
});
