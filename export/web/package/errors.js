/**
 * What goes wrong, with a `code` that a program can tell apart:
 *
 * - `argument`: a call with something else than is asked for
 * - `missing`: a file that is not there, or that the network does not give
 * - `damaged`: a file that is not what the export wrote
 * - `folder`: files that are no export, or one that does not work here
 * - `length`: a sentence with more tokens than the model takes
 * - `runtime`: what the browser lacks, or LiteRT.js does not do
 * - `closed`: a translator that was closed
 *
 * What a signal stops throws the reason of the signal instead.
 */
export class TranslatorError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = 'TranslatorError';
    this.code = code;
  }
}
