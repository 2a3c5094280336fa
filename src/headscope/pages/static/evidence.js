/* What the n-grams of a token say about the classes (data/ngrams.py, data/evidence.py). */

import { lowerCase } from "./normalize.js";

// What Python strips.
const SPACES = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const ENDS = new RegExp(`^[${SPACES}]+|(?<![${SPACES}])[${SPACES}]+$`, "gu");
const SIZES = [3, 4]; // of character n-grams within a word, its marked ends counted
const MOST_UNSCALED = 64; // n-grams of a token
const WIDE = (value) => BigInt.asUintN(64, value);

/* FNV-1a over code points. */
function keyOf(text) {
  let key = 0xcbf29ce484222325n;
  for (const sign of text) key = WIDE((key ^ BigInt(sign.codePointAt(0))) * 0x100000001b3n);
  return key;
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
      const within = Array.from(characterNgrams(word), (ngram) => `\0${ngram}`);
      const keys = [word, ...within].map(keyOf);
      const numbers = keys.map((key) => this.numberOf(key)).filter((number) => number >= 0);
      const isCharacter = this.character.test(word);
      this.known.set(piece, word === "" ? null : { key: keys[0], numbers, isCharacter });
    }
    return this.known.get(piece);
  }

  /* [tokens, classes]: the sum of the ratios of each token's n-grams, at the last tokens those of
     the rest, which is not read, a section each; scaled down where there are many. */
  ofTokens(pieces, rest = []) {
    const { classes, ratios } = this;
    const first = rest.length > 0 ? pieces.indexOf(null, 1) : pieces.length - 1;
    const sums = new Float32Array(pieces.length * classes);
    const counts = new Uint32Array(pieces.length);
    const all = [...pieces.slice(0, first), ...rest, null];
    const words = all.map((piece) => (piece === null ? null : this.wordOf(piece)));
    let before = null; // the key of the pair that ends at the token before
    words.forEach((word, place) => {
      const section = ((place - first) * (pieces.length - first)) / (all.length - first);
      const token = Math.min(place, first + Math.floor(section));
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
        counts[token] += 1;
        for (let c = 0; c < classes; c += 1) {
          sums[token * classes + c] += ratios[number * classes + c];
        }
      }
    });
    const scaleOf = (at) => Math.sqrt(MOST_UNSCALED / Math.max(MOST_UNSCALED, counts[at]));
    return sums.map((sum, at) => sum * scaleOf(Math.floor(at / classes)));
  }
}
