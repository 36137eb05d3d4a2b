// Records in JSON, as export/native/src/record.cc reads them.

import { TranslatorError } from './errors.js';

/** The tokens of valid JSON. */
export const TOKEN = /[{}[\]:,]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}[\]:,"]+/g;
const DEEPEST = 100; // of arrays and objects within each other

/**
 * @param {Uint8Array} content a file's bytes
 * @param {string} rule what it must be, for the error
 * @returns {object}
 * @throws {TranslatorError} if it holds anything else
 */
export function parseRecord(content, rule) {
  const wrong = (received) => new TranslatorError('folder', `${rule}. Received: ${received}`);
  let text, record;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
    record = JSON.parse(text);
  } catch (error) {
    throw wrong(error.message);
  }
  if (!isObject(record)) throw wrong('no JSON object');
  if (isDeep(text)) throw wrong('one nested too deeply');
  return record;
}

export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether what recurses into it could fail. */
function isDeep(text) {
  let depth = 0;
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === '}' || token === ']') depth -= 1;
    else if (token !== ',' && token !== ':' && depth > DEEPEST) return true;
    else if (token === '{' || token === '[') depth += 1;
  }
  return false;
}
