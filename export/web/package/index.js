// Translates in a browser, a worker or Node, with a folder that `keras-transformer export` wrote.

export { TranslatorError } from './errors.js';
export { joinText } from './sentences.js';
export { Translator } from './translator.js';
