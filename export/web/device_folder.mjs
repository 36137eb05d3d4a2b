// An exported LiteRT folder on this machine, once it is one that a page can be made of.

import * as fs from 'node:fs';
import path from 'node:path';
import { BuildError } from './build_error.mjs';
import { checkFixedLengths, readFolder as readWhole } from './package/device_folder.js';
import { TranslatorError } from './package/errors.js';

/**
 * The contents of its files by name, `metadata.json` first.
 *
 * @throws {BuildError} if it is none, or the translator of a page could not open it
 */
export async function readFolder(folder) {
  try {
    const { metadata, contents } = await readWhole(async (name) => readFile(folder, name));
    checkFixedLengths(metadata);
    return contents;
  } catch (error) {
    if (error instanceof TranslatorError) throw new BuildError(`${folder}: ${error.message}`);
    throw error;
  }
}

function readFile(folder, name) {
  const file = path.join(folder, name);
  try {
    if (fs.statSync(file).isFile()) return fs.readFileSync(file);
  } catch (error) {
    throw new BuildError(`EXPORTED_FOLDER must hold ${name}. Received: ${error.message}`);
  }
  throw new BuildError(`${file} must be a file. Received: something else`);
}
