/* The tokenizer of words and signs (data/tokenizer.py): NFKC, lower case, one character of Chinese,
   Japanese or Korean at a time, runs of Katakana, runs of letters, any other sign alone. */

const [UNKNOWN, CLASS, SEPARATOR] = [1, 2, 3];
const SPACE = /^[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$/u;
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡" };
const HIDDEN = /^[\p{Cf}\p{Cc}\p{Cs}\p{Zl}\p{Zp}]$/u;

/* A text with signs for whitespace and control characters. */
function visible(text) {
  return Array.from(text, (character) => {
    if (SIGNS[character]) return SIGNS[character];
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (!HIDDEN.test(character)) return character;
    return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  }).join("");
}

/* Every character's lower case by itself: unlike toLowerCase of a word, ΟΔΟΣ becomes οδοσ. */
export function lowerCase(text, lower) {
  return Array.from(text, (character) => lower.get(character) ?? character).join("");
}

/* The normal form of a text, with the piece of the text that each character comes from: [character,
   start, end]. Characters that combine are normalized together, all others alone. */
function normalized(text, lower) {
  const characters = [];
  const put = (piece, start) => {
    for (const character of piece.normalize("NFKC")) {
      const written = lower ? lowerCase(character, lower) : character;
      for (const each of written) characters.push([each, start, start + piece.length]);
    }
  };
  for (const { 0: piece, index } of text.matchAll(/(?:[\u1100-\u11ff]+|\P{M}|^)\p{M}*/gsu)) {
    const own = Array.from(piece);
    const isApart = own.map((each) => each.normalize("NFKC")).join("") === piece.normalize("NFKC");
    let start = index;
    for (const each of isApart ? own : [piece]) {
      put(each, start);
      start += each.length;
    }
  }
  return characters;
}

/* Tokens that are parts of one character are numbered: ½ is 1₁ ⁄₂ 2₃ of it. */
function numbered(words, tokens) {
  let repeats = 1;
  return tokens.map((token, at) => {
    const isSame = (other) => other?.start === words[at].start && other.end === words[at].end;
    repeats = isSame(words[at - 1]) ? repeats + 1 : 1;
    const isOne = repeats === 1 && !isSame(words[at + 1]);
    const number = String(repeats).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
    return isOne ? token : token + number;
  });
}

export class Tokenizer {
  constructor({ vocabulary, lowercase, lower, max_length: limit, letters, ...classes }) {
    Object.assign(this, { vocabulary, lowercase, limit, letters });
    this.lower = new Map(lower.map(([upper, ...written]) => [upper, written.join("")]));
    this.ids = new Map(vocabulary.map((token, id) => [token, id]));
    this.character = new RegExp(`^[${classes.characters}]$`, "u");
    this.katakana = new RegExp(`^[${classes.katakana}]$`, "u");
  }

  /* What a character joins with: letters with letters, Katakana with Katakana, no other. */
  kindOf(character) {
    if (SPACE.test(character)) return "space";
    if (this.character.test(character)) return "character";
    if (this.katakana.test(character)) return "katakana";
    return this.isLetter(character.codePointAt(0)) ? "letter" : "sign";
  }

  isLetter(code) {
    const { letters } = this; // first, last, first, last, ...
    let low = 0;
    let high = letters.length / 2;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (letters[2 * middle + 1] < code) low = middle + 1;
      else high = middle;
    }
    return low < letters.length / 2 && letters[2 * low] <= code;
  }

  /* {ids, tokens, pieces, special}: pieces of the text itself, null for special tokens. */
  encode(text) {
    const found = [];
    let last = null;
    for (const [character, start, end] of normalized(text, this.lowercase ? this.lower : null)) {
      const kind = this.kindOf(character);
      const joins = last === kind && (kind === "letter" || kind === "katakana");
      last = kind;
      if (kind === "space") continue;
      if (joins) {
        const word = found.at(-1);
        word.token += character;
        word.end = Math.max(word.end, end);
      } else {
        found.push({ token: character, start, end });
      }
    }
    const words = found.slice(0, this.limit - 2);
    const pieces = words.map(({ start, end }) => text.slice(start, end));
    const ids = words.map(({ token }) => this.ids.get(token) ?? UNKNOWN);
    const named = [CLASS, SEPARATOR].map((id) => this.vocabulary[id]);
    return {
      ids: [CLASS, ...ids, SEPARATOR],
      tokens: [named[0], ...numbered(words, pieces.map(visible)), named[1]],
      pieces: [null, ...pieces, null],
      special: [0, ids.length + 1],
    };
  }
}
