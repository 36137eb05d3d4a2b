// Ids and texts by the page's WebAssembly of SentencePiece: node browser.mjs WEB FILE < texts > answers
// WEB is export/web after `npm ci`; the texts are a JSON list.

import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const [web, file] = process.argv.slice(2);
const require = createRequire(path.resolve(web, 'package.json'));
const { SentencePieceProcessor } = require('@agnai/sentencepiece-js');
const processor = new SentencePieceProcessor();
await processor.load(file);
const texts = JSON.parse(fs.readFileSync(0, 'utf8'));
const ids = texts.map((text) => [...processor.encodeIds(text)]);
console.log(JSON.stringify({ ids, texts: ids.map((row) => (row.length ? processor.decodeIds(row) : '')) }));
