/* The words of data/tokenizer.py: NFKC and lower case, then words and signs (one character of
   Chinese, Japanese or Korean at a time, runs of Katakana, runs of letters, other signs alone). */

import { signOf } from "./parts.js";
import { Units } from "./units.js";

export const JOIN = " ⏐ "; // between the two texts of a pair, where they are shown as one

const MOST_CHARACTERS = 100_000; // that are read of a text
const CHARACTERS_PER_TOKEN = 64;
const SPACE = /^[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$/u;

/* The inside of a regular expression's character class: ranges are first, last, first, last ... */
function inside(ranges) {
  const escapes = ranges.map((code) => `\\u{${code.toString(16)}}`);
  return escapes.map((escape, at) => (at % 2 ? `-${escape}` : escape)).join("");
}

/* A text with signs for whitespace and control characters. */
function visible(text, hidden) {
  const isShown = (character) => character > " " && character !== "\x7f" && !hidden.test(character);
  return Array.from(text, (each) => (isShown(each) ? each : signOf(each))).join("");
}

/* Every character's lower case by itself: unlike toLowerCase of a word, ΟΔΟΣ becomes οδοσ. */
export function lowerCase(text, lower) {
  return Array.from(text, (character) => lower.get(character) ?? character).join("");
}

/* Characters that may change one another: a base with its marks, or a run of Hangul. */
const JAMO = "\\u1100-\\u11ff\\u3131-\\u318e\\u3200-\\u321e\\u3260-\\u327e\\uffa0-\\uffdc";
const CLUSTERS = new RegExp(`(?:[${JAMO}\\uac00-\\ud7a3]+|\\P{M}|^)[\\p{M}\\uff9e\\uff9f]*`, "gsu");
const isOrdered = (marks) => marks.normalize("NFD") === marks;
const isStarter = (character) => character !== "\u0345" && isOrdered(`\u0345${character}`);

/* NFKC, with the piece of the text that each character comes from. A browser may know a newer
   Unicode than the tokenizer: characters that the tokenizer does not decompose stay as they are. */
class NormalForm {
  constructor(decomposed, lower) {
    this.decomposed = new RegExp(`^[${inside(decomposed)}]$`, "u");
    this.lower = lower;
  }

  alone(character, form) {
    return this.decomposed.test(character) ? character.normalize(form) : character;
  }

  /* Two characters as one; null where there is none. */
  together(first, second) {
    const both = (first + second).normalize("NFC");
    return Array.from(both).length === 1 && this.decomposed.test(both) ? both : null;
  }

  /* NFKC of a cluster, step by step: [character, its place; of composed ones the first place]. */
  composed(cluster) {
    const found = []; // decomposed, with how many characters each is more than the text has
    for (const character of cluster) {
      Array.from(this.alone(character, "NFKD")).forEach((part, at) => {
        let to = found.length; // marks are put in their canonical order
        if (!isStarter(part)) while (to > 0 && !isOrdered(found[to - 1][0] + part)) to -= 1;
        found.splice(to, 0, [part, at === 0 ? 0 : 1]);
      });
    }
    const result = [];
    let starter = -1;
    let last = null; // the mark before, since the starter
    for (const [part, more] of found) {
      const isBlocked = last !== null && isOrdered(part + last) && isOrdered(last + part);
      const both = starter < 0 || isBlocked ? null : this.together(result[starter][0], part);
      if (both !== null) {
        result[starter] = [both, result[starter][1] + more - 1];
        continue;
      }
      last = isStarter(part) ? null : part;
      if (last === null) starter = result.length;
      result.push([part, more]);
    }
    let next = 0; // the character of the cluster that is not used yet
    return result.map(([character, more]) => {
      if (more > 0) return [character, Math.max(0, next - 1)];
      const place = next;
      next += 1 - more;
      return [character, place];
    });
  }

  /* [character, start, end] of a whole text. */
  of(text) {
    const characters = [];
    for (const { 0: cluster, index } of text.matchAll(CLUSTERS)) {
      const own = Array.from(cluster);
      const alone = own.map((each) => this.alone(each, "NFKC"));
      let parts = alone.flatMap((each, at) => Array.from(each, (character) => [character, at]));
      if (alone.join("") !== cluster.normalize("NFKC")) parts = this.composed(cluster);
      const starts = [];
      own.reduce((start, each) => (starts.push(start), start + each.length), index);
      for (const [character, at] of parts) {
        const written = this.lower ? lowerCase(character, this.lower) : character;
        const end = starts[at] + own[at].length;
        for (const each of written) characters.push([each, starts[at], end]);
      }
    }
    return characters;
  }
}

/* Tokens that are parts of one character are numbered: ½ is 1₁ ⁄₂ 2₃ of it. */
function numbered(words, tokens) {
  let repeats = 1;
  return tokens.map((token, at) => {
    const { start, end } = words[at];
    const isSame = (other) => end > start && other?.start === start && other.end === end;
    repeats = isSame(words[at - 1]) ? repeats + 1 : 1;
    const isOne = repeats === 1 && !isSame(words[at + 1]);
    const number = String(repeats).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
    return isOne ? token : token + number;
  });
}

/* Of two texts the longer is cut first, as tokenizers' LongestFirst does. */
function truncated(texts, limit) {
  if (texts.length === 1) return [texts[0].slice(0, limit)];
  const [shorter, longer] = texts.map(({ length }) => length).sort((a, b) => a - b);
  let most = [shorter, Math.max(shorter, limit - shorter)];
  if (shorter + most[1] > limit) most = [limit >> 1, limit - (limit >> 1)];
  if (shorter + longer <= limit) return texts;
  if (texts[0].length > texts[1].length) most.reverse();
  return texts.map((words, at) => words.slice(0, most[at]));
}

export class Tokenizer {
  constructor({ vocabulary, lowercase, lower, max_length: limit, ...content }) {
    const { letters, characters, katakana, special } = content;
    Object.assign(this, { vocabulary, limit, special });
    this.lower = new Map(lower.map(([upper, ...written]) => [upper, written.join("")]));
    this.ids = new Map(vocabulary.map((token, id) => [token, id]));
    this.character = new RegExp(`^[${characters}]$`, "u");
    this.katakana = new RegExp(`^[${katakana}]$`, "u");
    this.letter = new RegExp(`^[${inside(letters)}]$`, "u");
    this.normalForm = new NormalForm(content.decomposed, lowercase ? this.lower : null);
    this.hidden = new RegExp(`^[${inside(content.hidden)}]$`, "u");
    this.units = new Units(content.units, `[${inside(content.units.letters)}]`);
  }

  /* What a character joins with: letters with letters, Katakana with Katakana, no other. */
  kindOf(character) {
    if (SPACE.test(character)) return "space";
    if (this.character.test(character)) return "character";
    if (this.katakana.test(character)) return "katakana";
    return this.letter.test(character) ? "letter" : "sign";
  }

  wordsOf(characters) {
    const found = [];
    let last = null;
    for (const [character, start, end] of characters) {
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
    return found;
  }

  /* A text, a very long one cut after a word, if it has spaces. */
  beginning(text) {
    const most = Math.max(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * this.limit);
    if (text.length <= most) return text;
    const characters = Array.from(text);
    if (characters.length <= most) return text;
    const cut = characters.slice(0, most).join("");
    const words = cut.match(/^(.*\S)\s+\S+\s*$/su)?.[1];
    return words !== undefined && Array.from(words).length > most >> 1 ? words : cut;
  }

  /* Of [text] or two texts {ids, tokens, pieces, rest, segments, special, words, places, unknown}:
     pieces of the texts, null for special tokens; those of a text's rest, not read; which text each
     token is of; the places of tokens that are special, and of those that the vocabulary does not
     have; words and places as a record's text has them. If cut, `carriesRest` adds [SEP]s. */
  encode(parts, carriesRest = false) {
    const read = parts.map((part) => this.beginning(part));
    const all = read.map((part) => this.wordsOf(this.normalForm.of(part)));
    const texts = truncated(all, this.limit - parts.length - 1);
    const left = carriesRest && parts.length === 1 ? all[0].length - texts[0].length : 0;
    const count = Math.max(1, Math.min((texts[0].length + 2) >> 2, Math.ceil(left / 8)));
    if (count > 1) texts[0] = texts[0].slice(0, 1 - count);
    const { unknown, start, end } = this.special;
    const [first, last] = [start, end].map((id) => this.vocabulary[id]);
    const result = { ids: [start], tokens: [first], pieces: [null], segments: [0], special: [0] };
    Object.assign(result, { words: [], places: [[0, 0]] });
    texts.forEach((words, at) => {
      const pieces = words.map(({ start, end }) => read[at].slice(start, end));
      const before = result.ids.length;
      const origin = at === 0 ? 0 : parts[0].length + JOIN.length;
      for (const [name, from, to] of this.units.wordsOf(read[at], words)) {
        result.words.push([visible(name, this.hidden), before + from, before + to]);
      }
      const ends = (value) => Array(count).fill(value);
      result.places.push(...words.map(({ start, end }) => [origin + start, origin + end]));
      result.places.push(...ends([0, 0]));
      const shown = pieces.map((piece, place) => visible(piece || words[place].token, this.hidden));
      result.ids.push(...words.map(({ token }) => this.ids.get(token) ?? unknown), ...ends(end));
      result.tokens.push(...numbered(words, shown), ...ends(last));
      result.pieces.push(...pieces, ...ends(null));
      result.segments.push(...words.map(() => at), ...ends(at));
      result.special.push(result.ids.length - 1);
    });
    const cut = parts.length === 1 ? all[0].slice(texts[0].length) : [];
    const rest = cut.map(({ start, end }) => read[0].slice(start, end));
    const places = [...result.ids.keys()];
    return { ...result, rest, unknown: places.filter((place) => result.ids[place] === unknown) };
  }
}
