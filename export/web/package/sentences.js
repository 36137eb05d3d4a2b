// Whole texts: their sentences and what lies between them, by the rule of docs/whole_texts.md, as
// keras_transformer_runner/sentences.py has it.

import { TranslatorError } from './errors.js';
import { checkLanguage } from './languages.js';
import { fittingParts, IS_WHITE, WHITE } from './sentence_cuts.js';
import abbreviations from './vendor/abbreviations.js';

const LINE_END = /\r\n|[\n\v\f\r\x85\u2028\u2029]/g;
const OPENS = /[\p{Ps}\p{Pi}]$/u;
const GOES_ON = /^[;\u037e]/; // which older engines let begin a sentence
const LIST_NUMBER = /^[0-9]{1,3}$/;
const CAPITAL = /\p{Lu}$/u;
const ORDINAL = /(?:[0-9]{1,2}|[IVX]{1,5})$/;
const LETTER_BEFORE = /[\p{L}\p{M}\p{N}]$/u;
const LONGEST_WORD = 80; // UTF-16 units: beyond any abbreviation
const WINDOW = 2000; // UTF-16 units
// Between these stands no space: CJK and the full-width forms.
const WIDE = `${WHITE}\\u2E80-\\uA4CF\\uF900-\\uFAFF\\uFE30-\\uFE4F\\uFF00-\\uFF65\\u{20000}-\\u{3FFFF}`;
const ENDS_WIDE = new RegExp(`[${WIDE}]$`, 'u');
const BEGINS_WIDE = new RegExp(`^[${WIDE}]`, 'u');

/**
 * The sentences of a text, and what lies between them.
 *
 * @param {string} text
 * @param {string} [language] a tag such as `de`, whose abbreviations end no sentence
 * @param {(sentence: string) => boolean} [fits] whether a sentence is short enough: one that is not
 *     is cut into parts that are
 * @returns {{sentences: string[], gaps: string[]}} there is one gap more, and
 *     `gaps[0] + sentences[0] + gaps[1] + …` is the text
 * @throws {TranslatorError}
 */
export function splitText(text, language = '', fits = () => true) {
  if (typeof text !== 'string') {
    throw new TranslatorError('argument', `\`text\` must be a string. Received: ${typeof text}`);
  }
  const rules = rulesOf(language);
  const found = { sentences: [], gaps: [''] };
  let start = 0;
  for (const lineEnd of [...text.matchAll(LINE_END), undefined]) {
    const line = text.slice(start, lineEnd?.index);
    let begin = 0;
    for (const place of [...sentenceEnds(line, rules), line.length]) {
      add(found, line.slice(begin, place), fits);
      begin = place;
    }
    found.gaps[found.gaps.length - 1] += lineEnd?.[0] ?? '';
    start += line.length + (lineEnd?.[0].length ?? 0);
  }
  return found;
}

/**
 * A text with a translation in the place of each sentence.
 *
 * @param {string[]} gaps of `splitText`
 * @param {string[]} translations
 * @throws {TranslatorError} if they are not as many as the sentences
 */
export function joinText(gaps, translations) {
  if (!Array.isArray(gaps) || !Array.isArray(translations)) {
    throw new TranslatorError(
      'argument',
      '`gaps` and `translations` must be arrays of strings. ' +
        `Received: ${typeof gaps} and ${typeof translations}`,
    );
  }
  if (translations.length !== gaps.length - 1) {
    throw new TranslatorError(
      'argument',
      '`translations` must be as many as the sentences. ' +
        `Received: ${translations.length} for ${gaps.length - 1}`,
    );
  }
  return translations.reduce((text, translation, index) => {
    const isClose = index > 0 && gaps[index] === '';
    const space = isClose && needSpace(translations[index - 1], translation) ? ' ' : '';
    return text + space + translation + gaps[index + 1];
  }, gaps[0]);
}

/** Adds a sentence with the white space around it. */
function add({ sentences, gaps }, text, fits) {
  const addGap = (white) => (gaps[gaps.length - 1] += white);
  const start = startOfContent(text);
  const end = endOfContent(text, start);
  addGap(text.slice(0, start));
  for (const { part, isSentence } of fittingParts(text.slice(start, end), fits)) {
    if (isSentence) {
      sentences.push(part);
      gaps.push('');
    } else {
      addGap(part);
    }
  }
  addGap(text.slice(end));
}

// --- The rules of a language ---------------------------------------------------------------

const NO_WORDS = { always: [], before_numbers: [] };
const rulesByCode = new Map();

function rulesOf(language) {
  checkLanguage(language);
  const [first] = language.toLowerCase().split(/[-_]/);
  const { aliases } = abbreviations;
  const code = Object.hasOwn(aliases, first) ? aliases[first] : first;
  if (!rulesByCode.has(code)) rulesByCode.set(code, makeRules(code));
  return rulesByCode.get(code);
}

function makeRules(code) {
  if (!Intl.Segmenter) {
    throw new TranslatorError(
      'runtime',
      'whole texts need Intl.Segmenter, which this browser lacks: translate its sentences.',
    );
  }
  const words = Object.hasOwn(abbreviations.abbreviations, code)
    ? abbreviations.abbreviations[code]
    : NO_WORDS;
  const known = (list) => list.flatMap((word) => [word, word[0].toUpperCase() + word.slice(1)]);
  return {
    always: known(words.always),
    before_numbers: known(words.before_numbers),
    hasOrdinals: abbreviations.ordinals.includes(code),
    // Greek alone has rules of its own; without a language the browser would take its user's.
    segmenter: new Intl.Segmenter(code === 'el' ? 'el' : 'en', { granularity: 'sentence' }),
  };
}

/** Yields the places of a line where a sentence ends and another follows. */
function* sentenceEnds(line, rules) {
  let begin = startOfContent(line);
  const wellFormed = line.replace(/\p{Surrogate}/gu, '\ufffd');
  for (const { index, segment } of segmentsOf(wellFormed, rules.segmenter)) {
    if (GOES_ON.test(segment)) continue;
    let place = index;
    while (place > begin && OPENS.test(line[place - 1])) place -= 1; // an opening quotation mark
    if (place <= begin || areJoined(line, begin, place, rules)) continue;
    yield place;
    begin = startOfContent(line, place);
  }
}

/**
 * Yields what a segmenter finds in a line. It gets a window at a time, as engines copy all of a text
 * for each segment. The rule sees no text before a segment, and behind it none beyond the next one,
 * so that the last two of a window may be others in the whole line.
 */
function* segmentsOf(line, segmenter) {
  let begin = 0;
  let size = WINDOW;
  while (begin < line.length) {
    const isLast = begin + size >= line.length;
    const found = [...segmenter.segment(line.slice(begin, begin + size))];
    const whole = isLast ? found : found.slice(0, -2);
    for (const { index, segment } of whole) yield { index: begin + index, segment };
    size = whole.length ? WINDOW : 2 * size;
    begin += whole.reduce((sum, { segment }) => sum + segment.length, 0);
  }
}

/** Whether what begins at `begin`, with no white space, goes on behind `place`. */
function areJoined(line, begin, place, rules) {
  const end = endOfContent(line, begin, place);
  const follows = startOfContent(line, place);
  if (follows === line.length) return true; // white space goes with what there is
  const last = line[end - 1];
  const next = String.fromCodePoint(line.codePointAt(follows));
  return (
    /^\p{Ll}/u.test(next) ||
    (end === follows && last <= '\x7f' && next <= '\x7f') ||
    (last === '.' && endsNoSentence(line, begin, end - 1, next, rules))
  );
}

/** Whether the word before the full stop at `stop` is an initial, a number or known. */
function endsNoSentence(line, start, stop, next, { always, before_numbers: withNumbers, hasOrdinals }) {
  if (stop - start <= 3 && LIST_NUMBER.test(line.slice(start, stop))) return true;
  const end = line.slice(Math.max(start, stop - LONGEST_WORD), stop);
  const isApart = (size) => !LETTER_BEFORE.test(end.slice(0, end.length - size));
  const capital = CAPITAL.exec(end)?.[0];
  if (capital && isApart(capital.length)) return true;
  const ordinal = hasOrdinals && ORDINAL.exec(end)?.[0];
  if (ordinal && isApart(ordinal.length) && end.at(-ordinal.length - 1) !== ',') return true;
  const isKnown = (word) => `${end}.`.endsWith(word) && isApart(word.length - 1);
  return always.some(isKnown) || (/^\p{Nd}/u.test(next) && withNumbers.some(isKnown));
}

function startOfContent(text, begin = 0) {
  let start = begin;
  while (start < text.length && IS_WHITE.test(text[start])) start += 1;
  return start;
}

function endOfContent(text, begin = 0, stop = text.length) {
  let end = stop;
  while (end > begin && IS_WHITE.test(text[end - 1])) end -= 1;
  return end;
}

function needSpace(first, second) {
  return first !== '' && second !== '' && !ENDS_WIDE.test(first) && !BEGINS_WIDE.test(second);
}
