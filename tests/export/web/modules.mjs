// The package's modules without a browser: node modules.mjs WEB_FOLDER < request.json > answer.json

import * as fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [web] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(web, name)));
const { readFolder } = await load('package/device_folder.js');
const { checkOptions } = await load('package/options.js');
const { fittingParts } = await load('package/sentence_cuts.js');
const { readerOf } = await load('package/sources.js');
const { loadTokenizer } = await load('package/tokenizers.js');
const { digestOf, sha256 } = await load('package/sha256.js');

const attempt = async (work) => {
  try {
    return await work();
  } catch (error) {
    return { error: error.message, code: error.code };
  }
};

const fitsIn = (most) => (sentence) => Array.from(sentence).length <= most;

const requests = {
  async tokenizer({ file, texts, rows, prefix }) {
    const tokenizer = await loadTokenizer(new Uint8Array(fs.readFileSync(file)), prefix);
    return { ids: texts.map(tokenizer.encode), texts: rows.map(tokenizer.decode) };
  },

  async folders({ folders }) {
    const read = (folder) =>
      attempt(async () => Object.keys((await readFolder(readerOf(folder, 'source'))).contents));
    return Promise.all(folders.map(read));
  },

  async options({ options }) {
    return Promise.all(options.map((each) => attempt(() => checkOptions(each))));
  },

  async parts({ texts }) {
    return texts.map(([text, most]) =>
      Array.from(fittingParts(text, fitsIn(most)), ({ part, isSentence }) => [part, isSentence]),
    );
  },

  /** How often a text is copied: once for each of its segments that is asked for. */
  async copies({ text, most, isWhole }) {
    const { Segmenter } = Intl;
    let copied = 0;
    const counted = (input, segments) => ({
      containing(unit) {
        copied += input.length;
        return segments.containing(unit);
      },
      *[Symbol.iterator]() {
        for (const segment of segments) {
          copied += input.length;
          yield segment;
        }
      },
    });
    Intl.Segmenter = class extends Segmenter {
      segment(input) {
        return counted(input, super.segment(input));
      }
    };
    const fits = fitsIn(most);
    if (isWhole) (await load('package/sentences.js')).splitText(text, '', fits);
    else Array.from(fittingParts(text, fits));
    return copied / text.length;
  },

  async split({ texts }) {
    const { joinText, splitText } = await load('package/sentences.js'); // it needs what is packed
    return texts.map(([text, language, most]) => {
      const { sentences, gaps } = splitText(text, language, most ? fitsIn(most) : undefined);
      const translations = sentences.map((sentence) => sentence.slice(0, -1));
      return { sentences, gaps, joined: joinText(gaps, translations) };
    });
  },

  async join({ gaps, translations }) {
    const { joinText } = await load('package/sentences.js');
    return joinText(gaps, translations);
  },

  async hashes({ contents }) {
    const bytes = contents.map((content) => new Uint8Array(Buffer.from(content, 'base64')));
    const hexadecimal = (digest) => Buffer.from(digest).toString('hex');
    return {
      own: bytes.map((content) => hexadecimal(digestOf(content))),
      browsers: await Promise.all(bytes.map(sha256)),
    };
  },
};

const answers = [];
for (const { kind, ...request } of JSON.parse(fs.readFileSync(0, 'utf8'))) {
  answers.push(await attempt(() => requests[kind](request)));
}
console.log(JSON.stringify(answers));
