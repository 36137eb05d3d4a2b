// What a language is called.

import { TranslatorError } from './errors.js';

const TAG = /^[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*$/;

/** @throws {TranslatorError} if it is no tag, nor empty */
export function checkLanguage(language) {
  if (typeof language === 'string' && (language === '' || TAG.test(language))) return;
  throw new TranslatorError(
    'argument',
    `\`language\` must be a BCP 47 tag such as "de" or "pt-BR", or "". Received: ${language}`,
  );
}
