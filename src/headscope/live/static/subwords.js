/* Tokens that are parts of words, as Hugging Face's tokenizers find them. */

/* The inside of a regular expression's character class: ranges are first, last, first, last ... */
export function inside(ranges) {
  const escapes = ranges.map((code) => `\\u{${code.toString(16)}}`);
  return escapes.map((escape, at) => (at % 2 ? `-${escape}` : escape)).join("");
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

/* Byte pair encoding (Sennrich et al. 2016) of bytes, words cut as GPT-2 does: turns the characters
   of a text's normal form, [character, start, end], into [{ token, start, end }]. */
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
        const start = bytes[first][1];
        first += token.length;
        found.push({ token, start, end: bytes[first - 1][2] });
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
