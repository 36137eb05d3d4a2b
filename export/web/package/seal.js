// The checksum that metadata hold of themselves: check_seal of keras_transformer_runner/integrity.py.

import { TOKEN } from './record.js';
import { sha256 } from './sha256.js';

const FIELD = 'record_sha256';

/**
 * Whether a record that `parseRecord` takes is what the export wrote. Older ones say nothing.
 *
 * @param {string} text as its file has it
 */
export async function isSealed(text) {
  const { fields, dumped } = recordOf(text);
  if (!fields.has(FIELD)) return true;
  const found = JSON.parse(fields.get(FIELD));
  return found === (await sha256(new TextEncoder().encode(dumped(FIELD))));
}

/**
 * A JSON object as Python's `json.dumps(…, sort_keys=True)` writes it, without one field. Numbers
 * stay as they stand in the file: 1.0 is 1 once it is parsed.
 */
function recordOf(text) {
  const tokens = text.match(TOKEN);
  let at = 0;
  const object = () => {
    const fields = new Map();
    for (at += 1; tokens[at] !== '}'; ) {
      if (tokens[at] === ',') at += 1;
      const name = JSON.parse(tokens[at]);
      at += 2; // and its colon
      fields.set(name, value());
    }
    at += 1;
    return fields;
  };
  const list = () => {
    const values = [];
    for (at += 1; tokens[at] !== ']'; ) {
      if (tokens[at] === ',') at += 1;
      values.push(value());
    }
    at += 1;
    return `[${values.join(', ')}]`;
  };
  const value = () => {
    if (tokens[at] === '{') return dumpedFields(object());
    if (tokens[at] === '[') return list();
    const token = tokens[at++];
    return token.startsWith('"') ? dumpedText(JSON.parse(token)) : token;
  };
  const fields = object();
  return { fields, dumped: (left) => dumpedFields(fields, left) };
}

function dumpedFields(fields, left) {
  const names = [...fields.keys()].filter((name) => name !== left).sort(byCodePoints);
  return `{${names.map((name) => `${dumpedText(name)}: ${fields.get(name)}`).join(', ')}}`;
}

function byCodePoints(first, second) {
  const [a, b] = [first, second].map((name) => Array.from(name, (each) => each.codePointAt(0)));
  const place = a.findIndex((point, index) => point !== b[index]);
  return place < 0 ? a.length - b.length : a[place] - (b[place] ?? -1);
}

/** ASCII alone. */
function dumpedText(text) {
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(text).replace(/[^ -~]/g, escaped);
}
