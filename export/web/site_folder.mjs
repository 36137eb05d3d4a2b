// Writing a site so that it appears whole or not at all, and replaces nothing but an older one.

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { BuildError } from './build_error.mjs';

const MADE = 'files.json'; // what a site consists of, by SHA-256; in every site
const MADE_BY = 'keras_transformer export/web/build.mjs';
const OLD_AGE = 3_600_000; // milliseconds: no build takes as long

/**
 * Lets `fill(folder)` write a site, which becomes `out` when it has ended.
 *
 * What a killed build has left beside `out` is removed first.
 *
 * @param {string} out a symbolic link stands for what it points at
 * @param {string[]} inputs folders that are read: `out` must lie apart from them
 * @param {boolean} overwrite whether a site that this has made is replaced
 * @throws {BuildError} if `out` exists and may not be replaced
 */
export async function newSite(out, inputs, overwrite, fill) {
  const target = realPath(out);
  checkApart(target, inputs.map(realPath));
  const missing = makeParent(target);
  clearLeftovers(target);
  checkReplaceable(target, overwrite);
  const place = `${prefixOf(target)}${os.hostname()}-${process.pid}`;
  fs.mkdirSync(place);
  const leave = () => fs.rmSync(place, { recursive: true, force: true });
  const stop = interruptible(leave);
  try {
    const site = path.join(place, 'new');
    fs.mkdirSync(site);
    await fill(site);
    fs.writeFileSync(path.join(site, MADE), `${JSON.stringify(description(site), null, 1)}\n`);
    checkReplaceable(target, overwrite); // again: much may have happened
    if (fs.existsSync(target)) fs.renameSync(target, path.join(place, 'old'));
    fs.renameSync(site, target);
  } catch (error) {
    restore(place, target);
    leave();
    removeEmpty(missing);
    throw error;
  } finally {
    stop();
  }
  leave();
}

/** The names of the files of a site, sorted, with slashes. */
export function filesOf(site) {
  return fs
    .readdirSync(site, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => path.relative(site, path.join(entry.parentPath, entry.name)))
    .map((name) => name.split(path.sep).join('/'))
    .sort();
}

/** The SHA-256 of some bytes, in hexadecimal digits. */
export function hash(content) {
  return createHash('sha256').update(content).digest('hex');
}

/** The hashes of a site's files by name. */
export function hashesOf(site) {
  const hashes = filesOf(site).map((name) => [name, hash(fs.readFileSync(path.join(site, name)))]);
  return Object.fromEntries(hashes);
}

function description(site) {
  return { made_by: MADE_BY, sha256: hashesOf(site) };
}

/** An absolute path without symbolic links, of something that need not exist. */
function realPath(file) {
  const whole = path.resolve(file);
  try {
    return fs.realpathSync(whole);
  } catch {
    const parent = path.dirname(whole);
    return parent === whole ? whole : path.join(realPath(parent), path.basename(whole));
  }
}

function checkApart(target, inputs) {
  const isWithin = (inner, outer) => !path.relative(outer, inner).split(path.sep).includes('..');
  for (const input of inputs) {
    if (isWithin(target, input) || isWithin(input, target)) {
      throw new BuildError(
        `OUT must be neither a folder that is read, nor in one, nor around one. ` +
          `Received: ${target}, and ${input} is read`,
      );
    }
  }
}

function makeParent(target) {
  const missing = [];
  let parent = path.dirname(target);
  for (; !fs.existsSync(parent); parent = path.dirname(parent)) missing.push(parent);
  fs.mkdirSync(path.dirname(target), { recursive: true });
  return missing;
}

function removeEmpty(folders) {
  try {
    for (const folder of folders) fs.rmdirSync(folder);
  } catch {
    // someone else uses one of them by now
  }
}

function prefixOf(target) {
  return path.join(path.dirname(target), `.${path.basename(target)}.build-`);
}

/** Removes what builds of this target have left that were killed. */
function clearLeftovers(target) {
  const prefix = prefixOf(target);
  for (const name of fs.readdirSync(path.dirname(target))) {
    const place = path.join(path.dirname(target), name);
    if (!place.startsWith(prefix) || isAtWork(place, place.slice(prefix.length))) continue;
    restore(place, target);
    fs.rmSync(place, { recursive: true, force: true });
  }
}

function isAtWork(place, owner) {
  const [, host, id] = /^(.*)-(\d+)$/.exec(owner) ?? [];
  if (id === undefined) return true; // a folder of someone else
  if (Date.now() - fs.statSync(place).mtimeMs > OLD_AGE) return false;
  if (host !== os.hostname()) return true;
  if (Number(id) === process.pid) return false; // of an earlier process with our number
  try {
    process.kill(Number(id), 0);
    return true;
  } catch (error) {
    return error.code !== 'ESRCH';
  }
}

/** Puts an older site back that was moved away and not replaced. */
function restore(place, target) {
  const old = path.join(place, 'old');
  if (fs.existsSync(old) && !fs.existsSync(target)) fs.renameSync(old, target);
}

function checkReplaceable(target, overwrite) {
  if (!fs.existsSync(target)) return;
  if (!overwrite) {
    throw new BuildError(`OUT must not exist, or --overwrite be given. Received: ${target}`);
  }
  const foreign = foreignFile(target);
  if (foreign !== null) {
    throw new BuildError(
      `--overwrite replaces only a site as build.mjs has made it: remove OUT yourself if nothing ` +
        `in it is needed. Received: ${target}, and ${foreign}`,
    );
  }
}

/** Why a folder is no site as it was made, or `null`. */
function foreignFile(target) {
  let made;
  try {
    made = JSON.parse(fs.readFileSync(path.join(target, MADE), 'utf8'));
  } catch (error) {
    return error instanceof SyntaxError ? `its ${MADE} is damaged` : `it has no ${MADE} (${error.code})`;
  }
  if (made?.made_by !== MADE_BY) return `its ${MADE} is not of build.mjs`;
  for (const name of filesOf(target)) {
    if (name === MADE) continue;
    if (!Object.hasOwn(made.sha256, name)) return `${name} is not of the site`;
    const file = path.join(target, name);
    if (!fs.lstatSync(file).isFile() || hash(fs.readFileSync(file)) !== made.sha256[name]) {
      return `${name} has been changed`;
    }
  }
  return null;
}

/** Ends the process cleanly when it is interrupted; returns what ends this. */
function interruptible(leave) {
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  const handlers = names.map((name) => () => {
    leave();
    process.exit(128 + os.constants.signals[name]);
  });
  names.forEach((name, index) => process.on(name, handlers[index]));
  return () => names.forEach((name, index) => process.off(name, handlers[index]));
}
