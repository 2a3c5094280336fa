/* How `tokenizers` cuts a normalized text into tokens: first into words, then each word by a model.
   A token is {token, id, start, end}: its name, its row in the vocabulary, its place in the text. */

import { SPACE, WHITE, bytesOf, cut, inside, oneOf, prepended, textOf } from "./normalize.js";

const placed = (token, id, characters) => {
  return { token, id, start: characters[0][1], end: characters.at(-1)[2] };
};

/* GPT-2's: a letter or sign for every byte, that of a space is Ġ. */
const isShown = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
const others = [...Array(256).keys()].filter((byte) => !isShown(byte));
const BYTES = Array.from(Array(256).keys(), (byte) => {
  return String.fromCharCode(isShown(byte) ? byte : 256 + others.indexOf(byte));
});

const CUTS = {
  /* Characters of one kind that stand side by side; any other is alone, and spaces are in none. */
  Words: ({ joins }) => {
    const kinds = joins.map(oneOf);
    const kindOf = (character) => kinds.findIndex((kind) => kind.test(character));
    return (characters) => {
      const words = [];
      let last = -1;
      for (const character of characters) {
        const kind = SPACE.test(character[0]) ? -2 : kindOf(character[0]);
        if (kind >= 0 && kind === last) words.at(-1).push(character);
        else if (kind > -2) words.push([character]);
        last = kind;
      }
      return words;
    };
  },
  Metaspace: ({ replacement, prepend_scheme: scheme, split }) => {
    const mark = ([each, ...place]) => [each === " " ? replacement : each, ...place];
    return (characters) => {
      let text = characters.map(mark);
      const isFirst = scheme === "always" || (scheme === "first" && text[0][1] === 0);
      if (isFirst && text[0][0] !== replacement) text = prepended(text, replacement);
      const words = [];
      for (const character of text) {
        if (words.length === 0 || (split && character[0] === replacement)) words.push([]);
        words.at(-1).push(character);
      }
      return words;
    };
  },
  ByteLevel: ({ add_prefix_space: prefix, classes }) => {
    const [letter, number] = (classes ?? []).map(inside);
    const expression = classes && new RegExp(
      `'s|'t|'re|'ve|'m|'ll|'d| ?[${letter}]+| ?[${number}]+| ?[^${WHITE}${letter}${number}]+|` +
      `[${WHITE}]+(?![^${WHITE}])|[${WHITE}]+`, "gu",
    );
    const bytes = ([each, ...place]) => Array.from(bytesOf(each), (byte) => [BYTES[byte], ...place]);
    return (characters) => {
      const text = prefix && characters[0][0] !== " " ? prepended(characters, " ") : characters;
      const words = expression ? cut(text, expression).map(([word]) => word) : [text];
      return words.map((word) => word.flatMap(bytes));
    };
  },
};

/* All cuts of a text, one after the other. */
export function cutterOf(steps) {
  const all = steps.map((step) => CUTS[step.type](step));
  return (text) => all.reduce((words, step) => words.flatMap(step), text.length > 0 ? [text] : []);
}

class WordLevel {
  constructor(ids, { unknown }, pieces) {
    Object.assign(this, { ids, unknown, pieces });
  }

  tokens(word) {
    const id = this.ids.get(textOf(word)) ?? this.unknown;
    return [placed(this.pieces[id], id, word)];
  }
}

/* The longest piece from the start, then from its end on. */
class WordPiece {
  constructor(ids, content, pieces) {
    Object.assign(this, { ids, pieces, unknown: content.unknown });
    this.prefix = content.continuing_subword_prefix;
    this.most = content.max_input_chars_per_word;
  }

  tokens(word) {
    const tokens = [];
    let start = 0;
    while (start < word.length && word.length <= this.most) {
      let piece = (start > 0 ? this.prefix : "") + textOf(word.slice(start));
      let end = word.length;
      for (; end > start && !this.ids.has(piece); end -= 1) {
        piece = piece.slice(0, piece.length - word[end - 1][0].length);
      }
      if (end === start) break;
      tokens.push(placed(piece, this.ids.get(piece), word.slice(start, end)));
      start = end;
    }
    return start === word.length ? tokens : [placed(this.pieces[this.unknown], this.unknown, word)];
  }
}

/* The smallest of many numbers comes out first. */
class Heap {
  values = [];

  push(value) {
    const { values } = this;
    let at = values.push(value) - 1;
    for (let up; at > 0 && values[(up = (at - 1) >> 1)] > value; at = up) values[at] = values[up];
    values[at] = value;
  }

  pop() {
    const { values } = this;
    const [first] = values;
    const value = values.pop();
    let at = 0;
    for (let down = 1; down < values.length; down = 2 * at + 1) {
      if (values[down + 1] < values[down]) down += 1;
      if (values[down] >= value) break;
      values[at] = values[down];
      at = down;
    }
    if (values.length > 0) values[at] = value;
    return first;
  }
}

/* Neighbours become one in the order in which training has joined them. */
class BytePairs {
  constructor(ids, { merges, ignore_merges: whole }, pieces) {
    Object.assign(this, { ids, whole, pieces, ranks: new Map() });
    for (let at = 0; at < merges.length; at += 3) {
      this.ranks.set(merges[at] * pieces.length + merges[at + 1], [at / 3, merges[at + 2]]);
    }
  }

  tokens(word) {
    const name = textOf(word);
    if (this.whole && this.ids.has(name)) return [placed(name, this.ids.get(name), word)];
    const parts = word.map(([byte], at) => ({ id: this.ids.get(byte), start: at, end: at + 1 }));
    return this.joined(parts).map(({ id, start, end }) => {
      return placed(this.pieces[id], id, word.slice(start, end));
    });
  }

  joined(parts) {
    const size = parts.length;
    const before = parts.map((_, at) => at - 1);
    const after = parts.map((_, at) => at + 1);
    const heap = new Heap();
    const mergeAt = (at) => {
      const second = parts[after[at]];
      return second && this.ranks.get(parts[at].id * this.pieces.length + second.id);
    };
    const offer = (at) => {
      const merge = at < 0 ? undefined : mergeAt(at);
      if (merge) heap.push(merge[0] * size + at);
    };
    parts.forEach((_, at) => offer(at));
    while (heap.values.length > 0) {
      const first = heap.pop();
      const at = first % size;
      const merge = parts[at] && mergeAt(at);
      if (merge?.[0] !== Math.floor(first / size)) continue; // one of the two is joined already
      const gone = after[at];
      parts[at] = { id: merge[1], start: parts[at].start, end: parts[gone].end };
      parts[gone] = null;
      after[at] = after[gone];
      if (after[at] < size) before[after[at]] = at;
      offer(before[at]);
      offer(at);
    }
    return parts.filter((part) => part !== null);
  }
}

/* The cut whose pieces' scores have the largest sum; neighbours without a piece are one unknown. */
class Unigram {
  constructor(ids, { unknown, scores, unknown_score: penalty, bytes }, pieces) {
    Object.assign(this, { ids, unknown, scores, penalty, bytes, pieces });
    this.most = pieces.reduce((most, { length }) => Math.max(most, length), 2);
  }

  /* For each place of a text the best piece that ends there: {score, start, id}. */
  bestOf(text, starts) {
    const best = new Map([[0, { score: 0 }]]);
    const offer = (end, candidate) => {
      if (!(best.get(end)?.score >= candidate.score)) best.set(end, candidate);
    };
    starts.slice(0, -1).forEach((start, at) => {
      const { score } = best.get(start);
      for (let to = at + 1; to < starts.length && starts[to] - start <= this.most; to += 1) {
        const id = this.ids.get(text.slice(start, starts[to]));
        if (id !== undefined) offer(starts[to], { score: score + this.scores[id], from: at, id });
        else if (to === at + 1) {
          offer(starts[to], { score: score + this.penalty, from: at, id: this.unknown });
        }
      }
    });
    return best;
  }

  tokens(word) {
    const text = textOf(word);
    const starts = [0];
    for (const [{ length }] of word) starts.push(starts.at(-1) + length);
    const best = this.bestOf(text, starts);
    const parts = [];
    for (let to = word.length; to > 0; ) {
      const { from, id } = best.get(starts[to]);
      if (id === this.unknown && parts.at(-1)?.id === id) parts.at(-1).from = from;
      else parts.push({ id, from, to });
      to = from;
    }
    return parts.reverse().flatMap(({ from, to }) => this.named(word.slice(from, to)));
  }

  named(characters) {
    const token = textOf(characters);
    const bytes = this.ids.has(token) ? null : this.bytes && Array.from(bytesOf(token));
    if (bytes === null) return [placed(token, this.ids.get(token) ?? this.unknown, characters)];
    return bytes.map((byte) => {
      return placed(this.pieces[this.bytes[byte]], this.bytes[byte], characters);
    });
  }
}

const MODELS = { WordLevel, WordPiece, BPE: BytePairs, Unigram };

export function modelOf(content, pieces) {
  const outside = new Set(content.outside);
  const known = pieces.map((piece, id) => [piece, id]).filter(([, id]) => !outside.has(id));
  return new MODELS[content.type](new Map(known), content, pieces);
}
