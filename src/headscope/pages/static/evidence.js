/* What the n-grams of a token say about the classes (data/evidence.py). */

import { lowerCase } from "./tokenizer.js";

// What Python strips.
const SPACES = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const ENDS = new RegExp(`^[${SPACES}]+|[${SPACES}]+$`, "gu");
const SIZES = [3, 4]; // of character n-grams within a word, its marked ends counted
const WIDE = (value) => BigInt.asUintN(64, value);

/* BLAKE2b (RFC 7693) in halves of 32 bits, low before high; 8 bytes of digest. */
const START = new Uint32Array([
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
]);
const ORDERS = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753",
].map((order) => Array.from(order, (digit) => parseInt(digit, 16)));
const QUARTERS = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];

function add(v, a, low, high) {
  const sum = v[2 * a] + low;
  v[2 * a + 1] = v[2 * a + 1] + high + (sum > 0xffffffff ? 1 : 0);
  v[2 * a] = sum;
}

/* v[a] = (v[a] ^ v[b]) rotated right by a number of bits. */
function turn(v, a, b, bits) {
  let [low, high] = [v[2 * a] ^ v[2 * b], v[2 * a + 1] ^ v[2 * b + 1]];
  if (bits >= 32) [low, high] = [high, low];
  const rest = bits % 32;
  v[2 * a] = rest === 0 ? low : (low >>> rest) | (high << (32 - rest));
  v[2 * a + 1] = rest === 0 ? high : (high >>> rest) | (low << (32 - rest));
}

function compress(state, block, count, isLast) {
  const v = new Uint32Array(32);
  v.set(state);
  v.set(START, 16);
  v[24] ^= count;
  if (isLast) {
    v[28] = ~v[28];
    v[29] = ~v[29];
  }
  for (const order of ORDERS) {
    QUARTERS.forEach(([a, b, c, d], at) => {
      const [x, y] = [order[2 * at], order[2 * at + 1]];
      add(v, a, v[2 * b], v[2 * b + 1]);
      add(v, a, block[2 * x], block[2 * x + 1]);
      turn(v, d, a, 32);
      add(v, c, v[2 * d], v[2 * d + 1]);
      turn(v, b, c, 24);
      add(v, a, v[2 * b], v[2 * b + 1]);
      add(v, a, block[2 * y], block[2 * y + 1]);
      turn(v, d, a, 16);
      add(v, c, v[2 * d], v[2 * d + 1]);
      turn(v, b, c, 63);
    });
  }
  for (let at = 0; at < 16; at += 1) state[at] ^= v[at] ^ v[at + 16];
}

/* The first 8 bytes of the digest, as one number. */
function keyOf(text) {
  const bytes = new TextEncoder().encode(text);
  const state = Uint32Array.from(START);
  state[0] ^= 0x01010000 ^ 8;
  const blocks = Math.max(1, Math.ceil(bytes.length / 128));
  const padded = new Uint8Array(128 * blocks);
  padded.set(bytes);
  for (let at = 0; at < blocks; at += 1) {
    const isLast = at === blocks - 1;
    const block = new Uint32Array(padded.buffer, 128 * at, 32);
    compress(state, block, isLast ? bytes.length : 128 * (at + 1), isLast);
  }
  return (BigInt(state[1]) << 32n) | BigInt(state[0]);
}

/* The key of two n-grams in this order. */
function jointKey(first, second) {
  const mixed = WIDE((first ^ (first >> 29n)) * 0x9e3779b97f4a7c15n + second);
  return WIDE((mixed ^ (mixed >> 32n)) * 0xd6e8feb86659fd93n);
}

function characterNgrams(word) {
  const marked = Array.from(`<${word}>`);
  const ngrams = SIZES.flatMap((size) => {
    return marked.slice(size - 1).map((_, start) => marked.slice(start, start + size).join(""));
  });
  return new Set(ngrams.filter((ngram) => ngram !== marked.join("")));
}

export class Evidence {
  constructor(keys, ratios, classes, { character, lower }) {
    Object.assign(this, { keys, ratios, classes, character, lower, known: new Map() });
  }

  /* The number of a key, -1 where it is unknown. */
  numberOf(key) {
    const { keys } = this;
    let low = 0;
    let high = keys.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (keys[middle] < key) low = middle + 1;
      else high = middle;
    }
    return keys[low] === key ? low : -1;
  }

  /* Of a piece of text {key, ngrams, isCharacter}; null where nothing is left of it. */
  wordOf(piece) {
    if (!this.known.has(piece)) {
      const word = lowerCase(piece.normalize("NFKC"), this.lower).replace(ENDS, "");
      const ngrams = [`word ${word}`];
      for (const ngram of characterNgrams(word)) ngrams.push(`run ${ngram}`);
      const keys = ngrams.map(keyOf);
      const numbers = keys.map((key) => this.numberOf(key)).filter((number) => number >= 0);
      const isCharacter = this.character.test(word);
      this.known.set(piece, word === "" ? null : { key: keys[0], numbers, isCharacter });
    }
    return this.known.get(piece);
  }

  /* [tokens, classes]: the sum of the ratios of each token's n-grams. */
  ofTokens(pieces) {
    const { classes, ratios } = this;
    const sums = new Float32Array(pieces.length * classes);
    const words = pieces.map((piece) => (piece === null ? null : this.wordOf(piece)));
    let before = null; // the key of the pair that ends at the token before
    words.forEach((word, place) => {
      const previous = words[place - 1] ?? null;
      const numbers = word === null ? [] : [...word.numbers];
      const pair = word && previous ? jointKey(previous.key, word.key) : null;
      if (pair !== null) numbers.push(this.numberOf(pair));
      const three = [words[place - 2], previous, word];
      if (before !== null && pair !== null && three.every((each) => each?.isCharacter)) {
        numbers.push(this.numberOf(jointKey(before, word.key)));
      }
      before = pair;
      for (const number of numbers) {
        if (number < 0) continue;
        for (let c = 0; c < classes; c += 1) {
          sums[place * classes + c] += ratios[number * classes + c];
        }
      }
    });
    return sums;
  }
}
