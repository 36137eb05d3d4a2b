// The page's modules without a browser: node modules.mjs SITE_FOLDER < request.json > answer.json

import * as fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [site] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(site, name)));
const { readFolder } = await load('../device_folder.mjs');
const { loadTokenizer } = await load('tokenizers.js');

const attempt = async (work) => {
  try {
    return await work();
  } catch (error) {
    return { error: error.message };
  }
};

const requests = {
  async tokenizer({ file, texts, rows, prefix }) {
    const tokenizer = await loadTokenizer(new Uint8Array(fs.readFileSync(file)), prefix);
    return { ids: texts.map(tokenizer.encode), texts: rows.map(tokenizer.decode) };
  },

  async folders({ folders }) {
    const read = (folder) => attempt(async () => Object.keys(readFolder(folder).contents));
    return Promise.all(folders.map(read));
  },
};

const answers = [];
for (const { kind, ...request } of JSON.parse(fs.readFileSync(0, 'utf8'))) {
  answers.push(await attempt(() => requests[kind](request)));
}
console.log(JSON.stringify(answers));
