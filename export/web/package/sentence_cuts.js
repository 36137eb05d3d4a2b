// Sentences that are too long for a model, cut at the best places.

/** Unicode's property White_Space, for a class of a regular expression. */
export const WHITE =
  '\\t\\n\\v\\f\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';

export const IS_WHITE = new RegExp(`^[${WHITE}]`, 'u');
const MARKS = ';:,.!?–—-…،؛'; // before white space
const WIDE_MARKS = '、，；：。！？';
const CLOSERS = '」』）】》〉”’'; // behind a mark
const WESTERN_CLOSERS = `${CLOSERS}"')]»`; // of which some open too, where there is no white space
const NOT_FIRST = `${WIDE_MARKS}${CLOSERS}…`;
let clusters;

/**
 * Yields a sentence without white space at its ends in parts that fit: joined they are the sentence.
 * What is no sentence is white space at a cut, or a character that alone does not fit.
 */
export function* fittingParts(sentence, fits) {
  const waiting = sentence === '' ? [] : [Array.from(sentence)]; // code points
  while (waiting.length) {
    const characters = waiting.pop();
    const begin = characters.findIndex((character) => !IS_WHITE.test(character));
    if (begin) yield { part: characters.slice(0, begin).join(''), isSentence: false };
    const content = characters.slice(begin);
    const part = content.join('');
    if (fits(part)) {
      yield { part, isSentence: true };
    } else if (content.length === 1) {
      yield { part, isSentence: false };
    } else {
      const place = bestPlace(content);
      waiting.push(content.slice(place), content.slice(0, place));
    }
  }
}

/** How many characters of at least two come before the cut. */
function bestPlace(characters) {
  for (const places of [behindMarks, beforeWhite, aroundMiddle]) {
    const place = nearestToMiddle(places(characters), characters.length);
    if (place) return place;
  }
  return Math.floor(characters.length / 2);
}

function* behindMarks(characters) {
  const size = characters.length;
  for (let place = Math.ceil(size / 4); place <= Math.floor((size * 3) / 4); place += 1) {
    const after = characters[place];
    const markBefore = (closers) => {
      const closes = place > 1 && closers.includes(characters[place - 1]);
      return characters[place - (closes ? 2 : 1)];
    };
    const isEnd = IS_WHITE.test(after) && MARKS.includes(markBefore(WESTERN_CLOSERS));
    if (isEnd || (!NOT_FIRST.includes(after) && WIDE_MARKS.includes(markBefore(CLOSERS)))) yield place;
  }
}

function* beforeWhite(characters) {
  for (let place = 1; place < characters.length; place += 1) {
    if (IS_WHITE.test(characters[place]) && !IS_WHITE.test(characters[place - 1])) yield place;
  }
}

/** The ends of the grapheme cluster in the middle: no other is nearer to it. */
function* aroundMiddle(characters) {
  const middle = Math.floor(characters.length / 2);
  const text = characters.join('').replace(/\p{Surrogate}/gu, '\ufffd');
  const unit = characters.slice(0, middle).join('').length;
  clusters ??= new Intl.Segmenter('en');
  // To go through all segments would copy the text for each.
  const { index, segment } = clusters.segment(text).containing(unit);
  const begin = middle - Array.from(text.slice(index, unit)).length;
  const end = begin + Array.from(segment).length;
  if (begin) yield begin;
  if (end < characters.length) yield end;
}

function nearestToMiddle(places, size) {
  let best;
  for (const place of places) {
    if (best === undefined || Math.abs(2 * place - size) < Math.abs(2 * best - size)) best = place;
  }
  return best;
}
