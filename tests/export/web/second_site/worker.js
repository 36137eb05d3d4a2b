import * as library from './node_modules/keras-transformer-web/index.js';
import { translateAll } from './translate_all.js';

self.onmessage = async ({ data, ports: [port] }) => {
  port.postMessage(await translateAll(library, data).catch(({ message }) => ({ error: message })));
};
