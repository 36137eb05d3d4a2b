// Where files come from: a folder's address, a map of their bytes, or a function that gives them.

import { TranslatorError } from './errors.js';
import { sha256 } from './sha256.js';

const RULE =
  'must be the address of a folder, a Map of the bytes of its files, or a function that gives them';
const SCHEME = /^[a-z][a-z0-9+.-]+:/i; // C: is a drive

/**
 * Reads files: `read(name, {advance, again})` gives the bytes, `{response}` instead where a
 * `Response` is as good and there is one.
 *
 * @param {import('./index.d.ts').Source} source
 * @param {string} what how messages call it
 * @param {AbortSignal} [signal]
 */
export function readerOf(source, what, signal) {
  if (typeof source === 'function') {
    return async (name, options = {}) =>
      contentOf(await source(name, { signal }), name, { ...options, signal });
  }
  if (source instanceof Map) {
    return async (name, options = {}) => contentOf(source.get(name), name, { ...options, signal });
  }
  const base = folderUrl(source, what);
  return (name, options = {}) => contentOf(new URL(name, base), name, { ...options, signal });
}

/**
 * A file with the SHA-256 that it must have. What came damaged is asked for again, past all caches.
 *
 * @throws {TranslatorError} if it is not what the export wrote
 */
export async function readRight(read, name, expected, onProgress) {
  for (const again of [false, true]) {
    let loaded = 0;
    const advance = (count, total) => onProgress({ file: name, loaded: (loaded += count), total });
    onProgress({ file: name, loaded, total: undefined });
    const bytes = await read(name, { advance, again }).catch((error) => {
      if (again || error.code !== 'damaged') throw error;
    });
    if (bytes && (await sha256(bytes)) === expected) return bytes;
  }
  throw new TranslatorError(
    'damaged',
    `${name} is damaged or belongs to another export: its SHA-256 differs.`,
  );
}

function folderUrl(source, what) {
  if (!(source instanceof URL) && typeof source !== 'string') {
    throw new TranslatorError('argument', `\`${what}\` ${RULE}. Received: ${typeof source}`);
  }
  try {
    const url = pathUrl(source) ?? new URL(source, globalThis.location?.href);
    if (!url.pathname.endsWith('/')) url.pathname += '/';
    return url;
  } catch (error) {
    throw new TranslatorError('argument', `\`${what}\` ${RULE}. Received: "${source}"`, {
      cause: error,
    });
  }
}

/** In Node, where there is no page, of a string without a scheme: it is a path, whatever is in it. */
function pathUrl(source) {
  if (source instanceof URL || SCHEME.test(source) || globalThis.location) return undefined;
  return globalThis.process?.getBuiltinModule?.('node:url')?.pathToFileURL(source);
}

async function contentOf(given, name, options) {
  const found = typeof given === 'string' ? addressOf(given, name) : given;
  if (found instanceof URL) return ofUrl(found, name, options);
  if (globalThis.Response && found instanceof Response) return ofResponse(found, name, options);
  if (found instanceof ArrayBuffer) return ofBytes(new Uint8Array(found), options);
  if (ArrayBuffer.isView(found)) {
    return ofBytes(new Uint8Array(found.buffer, found.byteOffset, found.byteLength), options);
  }
  if (found === undefined || found === null) {
    throw new TranslatorError('missing', `${name} is missing.`);
  }
  throw noContent(name, typeof found);
}

function addressOf(text, name) {
  try {
    return new URL(text, globalThis.location?.href);
  } catch {
    throw noContent(name, JSON.stringify(text));
  }
}

function noContent(name, received) {
  const rule = 'must be bytes, a Response or an address';
  return new TranslatorError('argument', `${name} ${rule}. Received: ${received}`);
}

function ofBytes(bytes, { advance = () => {} }) {
  advance(bytes.byteLength, bytes.byteLength); // all at once
  return bytes;
}

async function ofUrl(url, name, options) {
  if (url.protocol === 'file:') {
    const files = globalThis.process?.getBuiltinModule?.('node:fs').promises;
    if (files) return ofFile(files, url, name, options);
  }
  const { signal, again } = options;
  let response;
  try {
    response = await fetch(url, { signal, cache: again ? 'reload' : 'default' });
  } catch (error) {
    signal?.throwIfAborted();
    throw missing(url.href, name, error.message, error);
  }
  return ofResponse(response, name, options);
}

async function ofFile(files, url, name, { signal, advance }) {
  try {
    return ofBytes(await files.readFile(url, { signal }), { advance });
  } catch (error) {
    signal?.throwIfAborted();
    throw missing(url.href, name, error.code ?? error.message, error);
  }
}

async function ofResponse(response, name, { signal, advance = () => {}, streams = false }) {
  if (!response.ok) throw missing(response.url, name, `status ${response.status}`);
  if (streams) return response;
  const total = totalOf(response);
  const parts = [];
  try {
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      advance(part.value.byteLength, total);
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw new TranslatorError('damaged', `${name} broke off: ${error.message}`, { cause: error });
  }
  return joined(parts);
}

/** How many bytes will come, where that is known: packed ones are counted otherwise. */
function totalOf({ headers }) {
  const length = Number(headers.get('content-length'));
  return length > 0 && !headers.get('content-encoding') ? length : undefined;
}

function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return bytes;
}

function missing(place, name, reason, cause) {
  const where = place || name;
  return new TranslatorError('missing', `${where} could not be loaded: ${reason}`, { cause });
}
