/* Tokens that are parts of words, as Hugging Face's tokenizers find them. Each class turns the
   characters of a text's normal form, [character, start, end], into [{ token, start, end }]. */

export const WORD_START = "▁"; // Unigram's sign for a space, also before a text
const LONGEST_WORD = 100; // characters; WordPiece does not know a longer one
const UNKNOWN_PENALTY = 10; // below the least likely piece

/* The inside of a regular expression's character class: ranges are first, last, first, last ... */
export function inside(ranges) {
  const escapes = ranges.map((code) => `\\u{${code.toString(16)}}`);
  return escapes.map((escape, at) => (at % 2 ? `-${escape}` : escape)).join("");
}

function spanOf(characters, token) {
  return { token, start: characters[0][1], end: characters.at(-1)[2] };
}

/* GPT-2's signs for the 256 bytes: those that can be printed are themselves. */
function byteSigns() {
  const isPrinted = (byte) =>
    (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let other = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    if (isPrinted(byte)) return String.fromCharCode(byte);
    other += 1;
    return String.fromCharCode(other - 1);
  });
}

/* Byte pair encoding (Sennrich et al. 2016) of bytes, words cut as GPT-2 does. */
export class BytePairs {
  constructor({ merges, classes }) {
    const names = ["letter", "digit", "space"];
    const [letter, digit, space] = names.map((name) => inside(classes[name]));
    this.words = new RegExp(
      `'s|'t|'re|'ve|'m|'ll|'d| ?[${letter}]+| ?[${digit}]+| ?[^${space}${letter}${digit}]+` +
        `|[${space}]+(?![^${space}])|[${space}]+`,
      "gu",
    );
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
    this.signs = byteSigns();
    this.encoder = new TextEncoder();
    this.known = new Map();
  }

  tokensOf(characters) {
    const text = characters.map(([character]) => character).join("");
    const found = [];
    let at = 0;
    for (const [word] of text.matchAll(this.words)) {
      const bytes = []; // the sign of each byte, with the character that it is of
      for (const _ of word) {
        const character = characters[at];
        for (const byte of this.encoder.encode(character[0])) {
          bytes.push([this.signs[byte], character[1], character[2]]);
        }
        at += 1;
      }
      let first = 0;
      for (const token of this.merged(bytes.map(([sign]) => sign))) {
        found.push(spanOf(bytes.slice(first, first + token.length), token));
        first += token.length;
      }
    }
    return found;
  }

  /* The pair of the lowest rank is merged wherever it stands, until there is none. */
  merged(signs) {
    const word = signs.join("");
    if (this.known.has(word)) return this.known.get(word);
    let parts = signs;
    for (;;) {
      let best = Infinity;
      for (let at = 0; at + 1 < parts.length; at += 1) {
        best = Math.min(best, this.ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity);
      }
      if (best === Infinity) break;
      const next = [];
      for (let at = 0; at < parts.length; at += 1) {
        if (this.ranks.get(`${parts[at]} ${parts[at + 1]}`) === best) {
          next.push(parts[at] + parts[at + 1]);
          at += 1;
        } else {
          next.push(parts[at]);
        }
      }
      parts = next;
    }
    this.known.set(word, parts);
    return parts;
  }
}

/* WordPiece (Schuster and Nakajima 2012): the longest piece from the left, as in BERT. */
export class WordPieces {
  constructor({ vocabulary, classes }, unknown) {
    this.pieces = new Set(vocabulary);
    this.unknown = unknown;
    const classOf = (name) => new RegExp(`^[${inside(classes[name])}]$`, "u");
    [this.dropped, this.space, this.apart] = ["dropped", "space", "apart"].map(classOf);
  }

  tokensOf(characters) {
    const words = [];
    let isOpen = false;
    for (const each of characters) {
      if (this.dropped.test(each[0])) continue;
      const isApart = this.apart.test(each[0]);
      const isSpace = this.space.test(each[0]);
      if (isOpen && !isApart && !isSpace) words.at(-1).push(each);
      else if (!isSpace) words.push([each]);
      isOpen = !isApart && !isSpace;
    }
    return words.flatMap((word) => this.piecesOf(word));
  }

  piecesOf(word) {
    const whole = [spanOf(word, this.unknown)];
    if (word.length > LONGEST_WORD) return whole;
    const found = [];
    for (let start = 0; start < word.length; ) {
      let end = word.length;
      const piece = () =>
        (start > 0 ? "##" : "") + word.slice(start, end).map(([character]) => character).join("");
      while (end > start && !this.pieces.has(piece())) end -= 1;
      if (end === start) return whole;
      found.push(spanOf(word.slice(start, end), piece()));
      start = end;
    }
    return found;
  }
}

/* Unigram (Kudo 2018): the pieces whose product of probabilities is the highest, by Viterbi. */
export class Unigrams {
  constructor({ vocabulary, scores }, unknown) {
    this.scores = new Map(vocabulary.map((piece, id) => [piece, scores[id]]));
    this.longest = Math.max(...vocabulary.map((piece) => Array.from(piece).length));
    this.least = Math.min(...scores) - UNKNOWN_PENALTY;
    this.unknown = unknown;
  }

  tokensOf(characters) {
    if (characters.length === 0) return [];
    const marked = characters.map(([character, start, end]) =>
      [character === " " ? WORD_START : character, start, end]);
    if (marked[0][0] !== WORD_START) marked.unshift([WORD_START, marked[0][1], marked[0][2]]);
    const words = [];
    let isOpen = false;
    for (const each of marked) {
      const isApart = each[0] === "[" || each[0] === "]";
      if (isOpen && !isApart && each[0] !== WORD_START) words.at(-1).push(each);
      else words.push([each]);
      isOpen = !isApart;
    }
    return words.flatMap((word) => this.piecesOf(word));
  }

  piecesOf(word) {
    const { length } = word;
    const best = [{ score: 0, start: -1, isKnown: true }]; // of the pieces that end here
    const offer = (end, score, start, isKnown) => {
      if (best[end] === undefined || score > best[end].score) best[end] = { score, start, isKnown };
    };
    for (let start = 0; start < length; start += 1) {
      const before = best[start].score;
      let piece = "";
      let hasSingle = false;
      for (let end = start + 1; end <= Math.min(length, start + this.longest); end += 1) {
        piece += word[end - 1][0];
        const score = this.scores.get(piece);
        if (score === undefined) continue;
        if (end === start + 1) hasSingle = true;
        offer(end, before + score, start, true);
      }
      if (!hasSingle) offer(start + 1, before + this.least, start, false);
    }
    const found = [];
    let wasKnown = true;
    for (let end = length; end > 0; end = best[end].start) {
      const { start, isKnown } = best[end];
      const part = word.slice(start, end);
      const token = isKnown ? part.map(([character]) => character).join("") : this.unknown;
      const span = spanOf(part, token);
      if (isKnown || wasKnown) found.push(span);
      else found.at(-1).start = span.start; // unknown characters in a row are one token
      wasKnown = isKnown;
    }
    return found.reverse();
  }
}
