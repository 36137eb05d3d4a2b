// A web server of one folder, for sites in browsers.

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};
export const PATH = '/some/where/'; // a site must not need the root of its server

/**
 * Serves a folder below `PATH`; `replace(other)` serves another one. The first times a file of `cut`
 * is asked for, half of it comes.
 */
export function serve(folder, { cut = {}, headers = {} } = {}) {
  let served = folder;
  const left = { ...cut };
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://127.0.0.1');
    const name = pathname === PATH ? 'index.html' : pathname.slice(PATH.length);
    const file = path.join(served, name);
    if (!pathname.startsWith(PATH) || !fs.existsSync(file)) {
      response.writeHead(404).end('not here');
      return;
    }
    const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
    const content = fs.readFileSync(file);
    const etag = `"${createHash('sha256').update(content).digest('hex')}"`;
    if (request.headers['if-none-match'] === etag) {
      response.writeHead(304, { etag }).end();
      return;
    }
    const isCut = left[name] > 0;
    if (isCut) left[name] -= 1;
    response
      .writeHead(200, { 'content-type': type, etag, ...headers })
      .end(isCut ? content.subarray(0, content.length / 2) : content);
  });
  server.replace = (other) => (served = other);
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}
