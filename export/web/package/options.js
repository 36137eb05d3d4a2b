// What callers give beside a source or a text.

import { TranslatorError } from './errors.js';

/** @throws {TranslatorError} unless it is an object, with a signal and functions that are such */
export function checkOptions(options) {
  const check = (isRight, name, rule, value) => {
    if (isRight) return;
    const received = value === null ? 'null' : typeof value;
    throw new TranslatorError('argument', `\`${name}\` must be ${rule}. Received: ${received}`);
  };
  check(typeof options === 'object' && options !== null, 'options', 'an object', options);
  const { signal, onProgress } = options;
  const stops = signal === undefined || typeof signal?.throwIfAborted === 'function';
  check(stops, 'signal', 'an AbortSignal', signal);
  const tells = onProgress === undefined || typeof onProgress === 'function';
  check(tells, 'onProgress', 'a function', onProgress);
}
