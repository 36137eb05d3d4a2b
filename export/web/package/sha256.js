// SHA-256 of bytes, in hexadecimal digits: the browser's own where there is one.

const WORDS = 64;
const BLOCK = 64; // bytes

/**
 * @param {Uint8Array} bytes
 * @returns {Promise<string>}
 */
export async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle; // not over plain HTTP
  const digest = subtle ? new Uint8Array(await subtle.digest('SHA-256', bytes)) : digestOf(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** FIPS 180-4, section 6.2. */
export function digestOf(bytes) {
  const { constants, start } = numbers();
  const state = Uint32Array.from(start);
  const whole = bytes.byteLength - (bytes.byteLength % BLOCK);
  for (let at = 0; at < whole; at += BLOCK) mix(state, bytes, at, constants);
  const end = lastBlocks(bytes, whole);
  for (let at = 0; at < end.byteLength; at += BLOCK) mix(state, end, at, constants);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, index) => digest.setUint32(4 * index, word));
  return new Uint8Array(digest.buffer);
}

/** What is left behind the whole blocks, with the mark of the end and the number of bits. */
function lastBlocks(bytes, whole) {
  const rest = bytes.subarray(whole);
  const end = new Uint8Array(rest.length + 9 <= BLOCK ? BLOCK : 2 * BLOCK);
  end.set(rest);
  end[rest.length] = 0x80;
  new DataView(end.buffer).setBigUint64(end.length - 8, 8n * BigInt(bytes.byteLength));
  return end;
}

function mix(state, bytes, at, constants) {
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, BLOCK);
  const words = new Uint32Array(WORDS);
  for (let t = 0; t < 16; t += 1) words[t] = view.getUint32(4 * t);
  for (let t = 16; t < WORDS; t += 1) {
    const [x, y] = [words[t - 15], words[t - 2]];
    const small = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
    words[t] = words[t - 16] + small + words[t - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let t = 0; t < WORDS; t += 1) {
    const chosen = (e & f) ^ (~e & g);
    const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + chosen + constants[t] + words[t]) | 0;
    const most = (a & b) ^ (a & c) ^ (b & c);
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + most) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, index) => (state[index] += word));
}

function turn(word, count) {
  return (word >>> count) | (word << (32 - count));
}

/** The first 32 bits of the fractions of the roots of primes: square roots, and cube roots. */
function numbers() {
  const primes = [];
  for (let n = 2; primes.length < WORDS; n += 1) {
    if (primes.every((prime) => n % prime)) primes.push(n);
  }
  const fraction = (root) => Math.floor((root % 1) * 2 ** 32);
  return {
    start: primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime))),
    constants: Uint32Array.from(primes, (prime) => fraction(Math.cbrt(prime))),
  };
}
