/* Texts to tokens, as `tokenizers` and data/tokenizer.py have them: a specification that
   pages/tokenizer.py has written, and a text in. */

import { SPACE, WHITE, charactersOf, cut, inside, normalizerOf, oneOf, textOf } from "./normalize.js";
import { signOf } from "./parts.js";
import { cutterOf, modelOf } from "./subwords.js";
import { Units } from "./units.js";

export const JOIN = " ⏐ "; // between the two texts of a pair, where they are shown as one

const MOST_CHARACTERS = 100_000; // that are read of a text
const CHARACTERS_PER_TOKEN = 64;
const WORD_START = "▁"; // before a text it stands for no letter
const BEFORE = new RegExp(`^[${WHITE}]+`, "u");
const AFTER = new RegExp(`(?<![${WHITE}])[${WHITE}]+$`, "u"); // tried once at each run of spaces
const SIGNS = /[\\^$.*+?()[\]{}|/]/g; // that have a meaning in an expression

/* A text with signs for whitespace and control characters. */
function visible(text, hidden) {
  const isShown = (character) => character > " " && character !== "\x7f" && !hidden.test(character);
  return Array.from(text, (each) => (isShown(each) ? each : signOf(each))).join("");
}

/* Tokens that are parts of one character are numbered: ½ is 1₁ ⁄₂ 2₃ of it. */
function numbered(tokens, shown) {
  const placeOf = ({ token, start, end }) => [start, token === WORD_START ? start : end];
  const places = tokens.map(placeOf);
  let repeats = 1;
  return shown.map((piece, at) => {
    const [start, end] = places[at];
    const isSame = (other) => end > start && other?.[0] === start && other[1] === end;
    repeats = isSame(places[at - 1]) ? repeats + 1 : 1;
    const isOne = repeats === 1 && !isSame(places[at + 1]);
    const number = String(repeats).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
    return isOne ? piece : piece + number;
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
  return texts.map((tokens, at) => tokens.slice(0, most[at]));
}

/* Tokens with all that NFKC joins to their letters, up to the next token: é, as e and a mark. */
function whole(text, tokens, joined) {
  if (!joined.test(text)) return tokens;
  const starts = new Set(tokens.map(({ start }) => start));
  return tokens.map((token) => {
    let { end } = token;
    while (token.start < end && !starts.has(end) && joined.test(text.charAt(end))) end += 1;
    return { ...token, end };
  });
}

/* A token's place without spaces. The start of a word before a text is no letter of it. */
function lettersOf(text, { token, start, end }) {
  let piece = text.slice(start, end);
  if (token === WORD_START && !SPACE.test(piece)) piece = "";
  const letters = piece.replace(BEFORE, "");
  const from = start + piece.length - letters.length;
  return [from, from + letters.replace(AFTER, "").length];
}

/* Byte-level tokens without the spaces at their ends, as RoBERTa's post-processor has them; but the
   place of a space that is put before a text is that of its first letter. */
function trimmed(tokens, hasPrefix) {
  return tokens.map((token, at) => {
    const letters = Array.from(token.token, (each) => each !== "Ġ" && !SPACE.test(each));
    const first = letters.indexOf(true);
    let leading = first < 0 ? letters.length : first;
    if (hasPrefix && leading === 1 && (at === 0 || token.start === 0)) leading = 0;
    const start = Math.min(token.start + leading, token.end);
    const trailing = letters.length - 1 - letters.lastIndexOf(true);
    return { ...token, start, end: first < 0 ? start : Math.max(token.end - trailing, start) };
  });
}

/* Texts that are a token wherever they stand. A special token's own text is no token. */
class AddedTokens {
  constructor(tokens) {
    this.ids = new Map(tokens.map(({ content, id, special }) => [content, special ? null : id]));
    const longest = [...this.ids.keys()].sort((a, b) => b.length - a.length);
    const escaped = longest.map((content) => content.replace(SIGNS, "\\$&"));
    this.expression = longest.length > 0 ? new RegExp(escaped.join("|"), "gu") : null;
  }

  /* Of a text [characters, the id of the token that they are, null for other characters]. */
  split(characters) {
    if (this.expression === null) return [[characters, null]];
    const parts = [];
    for (const [part, isFound] of cut(characters, this.expression)) {
      const id = isFound ? this.ids.get(textOf(part)) : null;
      if (id === null && parts.at(-1)?.[1] === null) parts.at(-1)[0].push(...part);
      else parts.push([part, id]);
    }
    return parts;
  }
}

export class Tokenizer {
  constructor({ pieces, lower, max_length: limit, template, unknown, trim, ...content }) {
    Object.assign(this, { pieces, limit, template, unknown, trim });
    this.lower = new Map(lower.map(([upper, ...written]) => [upper, written.join("")]));
    this.character = new RegExp(`^[${content.characters}]$`, "u");
    this.hidden = oneOf(content.hidden);
    this.units = new Units(content.units, `[${inside(content.units.letters)}]`);
    this.normalize = normalizerOf(content.normalizer, this.lower);
    this.cut = cutterOf(content.pre_tokenizer);
    this.model = modelOf(content.model, pieces);
    const asWritten = (token) => textOf(this.normalize(charactersOf(token.content)));
    const normal = content.added.filter(({ normalized }) => normalized);
    this.added = new AddedTokens(content.added.filter(({ normalized }) => !normalized));
    this.normal = new AddedTokens(normal.map((it) => ({ ...it, content: asWritten(it) })));
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

  /* The tokens of a text, {token, id, start, end}. */
  tokensOf(text) {
    const added = (part, id) => {
      return { token: textOf(part), id, start: part[0][1], end: part.at(-1)[2] };
    };
    const words = (part) => this.cut(part).flatMap((word) => this.model.tokens(word));
    const parts = this.added.split(charactersOf(text)).flatMap(([part, id]) => {
      return id === null ? this.normal.split(this.normalize(part)) : [[part, id]];
    });
    const tokens = parts.flatMap(([part, id]) => (id === null ? words(part) : [added(part, id)]));
    return this.trim ? trimmed(tokens, this.trim.add_prefix_space) : tokens;
  }

  /* Of [text] or two texts {ids, tokens, pieces, rest, segments, sides, special, words, places,
     unknown}: ids are rows of the vocabulary; pieces of the texts, null for special tokens; those of
     a text's rest, not read; segments that the network reads; which text each token is of; the
     places of tokens that are special, and of those that the vocabulary does not have; words and
     places as a record's text has them. If cut, `carriesRest` adds last tokens. */
  encode(parts, carriesRest = false) {
    const template = this.template[parts.length - 1];
    const around = template.filter(({ side }) => side === null).length;
    const read = parts.map((part) => this.beginning(part));
    const all = read.map((part) => whole(part, this.tokensOf(part), this.units.joined));
    const texts = truncated(all, this.limit - around);
    const left = carriesRest && parts.length === 1 ? all[0].length - texts[0].length : 0;
    const count = Math.max(1, Math.min((texts[0].length + around) >> 2, Math.ceil(left / 8)));
    if (count > 1) texts[0] = texts[0].slice(0, 1 - count);
    const result = { ids: [], tokens: [], pieces: [], segments: [], sides: [], special: [] };
    Object.assign(result, { words: [], places: [] });
    template.forEach(({ side, id, segment }, at) => {
      const isLast = at === template.length - 1;
      if (side === null) this.addSpecial(result, { id, segment }, isLast ? count : 1);
      else this.addText(result, { text: read[side], tokens: texts[side], segment, side }, parts);
    });
    const cut = parts.length === 1 ? all[0].slice(texts[0].length) : [];
    const rest = cut.map(({ start, end }) => read[0].slice(start, end));
    const unknown = [...result.ids.keys()].filter((at) => this.unknown.includes(result.ids[at]));
    return { ...result, rest, unknown };
  }

  addSpecial(result, { id, segment }, count) {
    const name = visible(this.pieces[id], this.hidden);
    for (let copy = 0; copy < count; copy += 1) {
      result.ids.push(id);
      result.tokens.push(name);
      result.pieces.push(null);
      result.segments.push(segment);
      result.sides.push(null);
      result.places.push([0, 0]);
    }
    result.special.push(result.ids.length - 1);
  }

  addText(result, { text, tokens, segment, side }, parts) {
    const before = result.ids.length;
    const origin = side === 0 ? 0 : parts[0].length + JOIN.length;
    const letters = tokens.map((token) => lettersOf(text, token));
    for (const [name, from, to] of this.units.wordsOf(text, tokens, letters)) {
      result.words.push([visible(name, this.hidden), before + from, before + to]);
    }
    const pieces = tokens.map(({ start, end }) => text.slice(start, end));
    const shown = tokens.map(({ token }, at) => {
      return token === WORD_START ? "␣" : visible(pieces[at] || token, this.hidden);
    });
    result.ids.push(...tokens.map(({ id }) => id));
    result.tokens.push(...numbered(tokens, shown));
    result.pieces.push(...pieces);
    result.segments.push(...tokens.map(() => segment));
    result.sides.push(...tokens.map(() => side));
    result.places.push(...letters.map(([start, end]) => [origin + start, origin + end]));
  }
}
