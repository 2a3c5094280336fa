/* The normalizers of `tokenizers`, step by step. A text is a list of [character, start, end]: each
   character with the place in what was typed that it comes from. Which characters a step is about
   is part of its specification (pages/tokenizer.py): no browser's Unicode counts. */

// Rust's white space, within [...].
export const WHITE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
export const SPACE = new RegExp(`^[${WHITE}]$`, "u");
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();

/* The inside of a regular expression's character class: ranges are first, last, first, last ... */
export function inside(ranges) {
  const escapes = ranges.map((code) => `\\u{${code.toString(16)}}`);
  return escapes.map((escape, at) => (at % 2 ? `-${escape}` : escape)).join("");
}

export const oneOf = (ranges) => new RegExp(`^[${inside(ranges)}]$`, "u");

export const bytesOf = (text) => ENCODER.encode(text);

/* Every character's lower case by itself: unlike toLowerCase of a word, ΟΔΟΣ becomes οδοσ. */
export function lowerCase(text, lower) {
  return Array.from(text, (character) => lower.get(character) ?? character).join("");
}

export function charactersOf(text) {
  let end = 0;
  return Array.from(text, (character) => [character, end, (end += character.length)]);
}

export const textOf = (characters) => characters.map(([character]) => character).join("");

/* What an expression finds in a text, and what stands between: [characters, whether it is found]. */
export function cut(characters, expression) {
  const places = characters.flatMap(([character], at) => Array(character.length).fill(at));
  places.push(characters.length);
  const parts = [];
  let last = 0;
  for (const { 0: found, index } of textOf(characters).matchAll(expression)) {
    const [start, end] = [places[index], places[index + found.length]];
    parts.push([characters.slice(last, start), false], [characters.slice(start, end), true]);
    last = end;
  }
  parts.push([characters.slice(last), false]);
  return parts.filter(([{ length }]) => length > 0);
}

/* New characters, [character, change], with the places of the old ones: 0 takes that of the next, -n
   leaves the n after it out, and what is added, 1, has the place of the old one before. */
function replaced(old, changes) {
  let next = 0;
  return changes.map(([character, change]) => {
    if (change > 0) {
      const [, start, end] = next > 0 ? old[next - 1] : [null, old[0][1], old[0][1]];
      return [character, start, end];
    }
    const [, start, end] = old[Math.min(next, old.length - 1)];
    next += 1 - change;
    return [character, start, end];
  });
}

/* Characters that may change one another: a base with its marks, or a run of Hangul. */
const JAMO = "\\u1100-\\u11ff\\u3131-\\u318e\\u3200-\\u321e\\u3260-\\u327e\\uffa0-\\uffdc";
const CLUSTERS = new RegExp(`(?:[${JAMO}\\uac00-\\ud7a3]+|\\P{M}|^)[\\p{M}\\uff9e\\uff9f]*`, "gsu");
const isOrdered = (marks) => marks.normalize("NFD") === marks;

/* NFC, NFD, NFKC or NFKD. A browser may know a newer Unicode: only the characters that the
   tokenizer's own decomposes change, and only the marks that it puts in order are moved. */
class NormalForm {
  constructor({ form, decomposed, marks }) {
    this.form = form;
    this.decomposed = oneOf(decomposed);
    this.mark = oneOf(marks);
  }

  alone(character, form) {
    return this.decomposed.test(character) ? character.normalize(form) : character;
  }

  /* Two characters as one; null where there is none. */
  together(first, second) {
    const both = (first + second).normalize("NFC");
    return Array.from(both).length === 1 && this.decomposed.test(both) ? both : null;
  }

  /* The characters of a cluster apart, marks in their canonical order, each with its change. */
  apart(cluster) {
    const found = [];
    for (const character of cluster) {
      Array.from(this.alone(character, this.form.replace("C", "D"))).forEach((part, at) => {
        let to = found.length;
        const isMark = this.mark.test(part);
        const isBefore = (other) => this.mark.test(other) && !isOrdered(other + part);
        if (isMark) while (to > 0 && isBefore(found[to - 1][0])) to -= 1;
        found.splice(to, 0, [part, at === 0 ? 0 : 1]);
      });
    }
    return found;
  }

  composed(found) {
    const result = [];
    let starter = -1;
    let last = null; // the mark before, since the starter
    for (const [part, change] of found) {
      const isBlocked = last !== null && isOrdered(part + last) && isOrdered(last + part);
      const both = starter < 0 || isBlocked ? null : this.together(result[starter][0], part);
      if (both !== null) {
        result[starter] = [both, result[starter][1] + change - 1];
        continue;
      }
      last = this.mark.test(part) ? part : null;
      if (last === null) starter = result.length;
      result.push([part, change]);
    }
    return result;
  }

  of(characters) {
    if (characters.every(([character]) => character < "\x80")) return characters;
    const changes = [];
    for (const [cluster] of textOf(characters).matchAll(CLUSTERS)) {
      const alone = Array.from(cluster, (each) => this.alone(each, this.form));
      if (alone.join("") === cluster.normalize(this.form)) {
        const parts = alone.flatMap((each) => Array.from(each, (part, at) => [part, at && 1]));
        changes.push(...parts);
      } else {
        const parts = this.apart(cluster);
        changes.push(...(this.form.includes("C") ? this.composed(parts) : parts));
      }
    }
    return replaced(characters, changes);
  }
}

/* SentencePiece's table of characters and what is written for them: a double array, then texts. */
class Charsmap {
  constructor({ precompiled_charsmap: charsmap }) {
    const bytes = Uint8Array.fromBase64(charsmap);
    const [size] = new Uint32Array(bytes.buffer.slice(0, 4));
    this.units = new Uint32Array(bytes.buffer.slice(4, 4 + size));
    this.texts = bytes.subarray(4 + size);
    this.graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
    this.known = new Map();
  }

  written(text) {
    if (!this.known.has(text)) this.known.set(text, this.find(text));
    return this.known.get(text);
  }

  /* What is written for the shortest beginning of a text that the table has; null without any. */
  find(text) {
    const offsetOf = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
    let place = offsetOf(this.units[0]);
    for (const byte of bytesOf(text)) {
      place ^= byte;
      const unit = this.units[place];
      if (byte === 0 || ((unit & 0x800000ff) >>> 0) !== byte) return null;
      place ^= offsetOf(unit);
      if (unit & 0x100) {
        const start = this.units[place] & 0x7fffffff;
        return DECODER.decode(this.texts.subarray(start, this.texts.indexOf(0, start)));
      }
    }
    return null;
  }

  /* Whether the table has a beginning of a text, which is then changed as a whole. */
  change(text, changes) {
    const written = this.written(text);
    if (written === null) return false;
    const old = Array.from(text).length;
    const characters = Array.from(written);
    changes.push(...characters.map((character, at) => [character, at < old ? 0 : 1]));
    const left = old - characters.length;
    if (left > 0 && changes.length > 0) changes.at(-1)[1] -= left;
    return true;
  }

  of(characters) {
    const changes = [];
    for (const { segment } of this.graphemes.segment(textOf(characters))) {
      const isShort = segment.length < 6 && bytesOf(segment).length < 6;
      if (isShort && this.change(segment, changes)) continue;
      for (const character of segment) {
        if (!this.change(character, changes)) changes.push([character, 0]);
      }
    }
    return replaced(characters, changes);
  }
}

/* The character before each where it stood, with the place of the first: where a text begins. */
export function prepended(characters, text) {
  if (characters.length === 0) return characters;
  const [, ...place] = characters[0];
  return [...Array.from(text, (character) => [character, ...place]), ...characters];
}

function stripped(characters, { strip_left: left, strip_right: right }) {
  const isText = ([character]) => !SPACE.test(character);
  const start = left ? characters.findIndex(isText) : 0;
  const end = right ? characters.findLastIndex(isText) + 1 : characters.length;
  return start < 0 ? [] : characters.slice(start, end);
}

const STEPS = {
  Form: (step) => {
    const form = new NormalForm(step);
    return (characters) => form.of(characters);
  },
  Precompiled: (step) => {
    const map = new Charsmap(step);
    return (characters) => map.of(characters);
  },
  Lowercase: (_, lower) => (characters) => {
    return characters.flatMap(([character, ...place]) => {
      return Array.from(lower.get(character) ?? character, (each) => [each, ...place]);
    });
  },
  Remove: ({ characters: ranges }) => {
    const removed = oneOf(ranges);
    return (characters) => characters.filter(([character]) => !removed.test(character));
  },
  Spaces: () => (characters) => {
    return characters.map(([each, ...place]) => [SPACE.test(each) ? " " : each, ...place]);
  },
  /* A space before and after each of some characters. */
  Apart: ({ characters: ranges }) => {
    const lonely = oneOf(ranges);
    return (characters) => {
      const apart = (each) => (lonely.test(each) ? [[" ", 1], [each, 0], [" ", 1]] : [[each, 0]]);
      return replaced(characters, characters.flatMap(([each]) => apart(each)));
    };
  },
  Replace: ({ pattern, content }) => {
    const expression = new RegExp(pattern, "gu");
    const written = ([, ...place]) => Array.from(content, (each) => [each, ...place]);
    return (characters) => {
      return cut(characters, expression).flatMap(([part, isFound]) => {
        return isFound ? written(part.at(-1)) : part;
      });
    };
  },
  Strip: (step) => (characters) => stripped(characters, step),
  Prepend: ({ prepend }) => (characters) => prepended(characters, prepend),
};

/* All steps as one function of a text's characters. */
export function normalizerOf(steps, lower) {
  const all = steps.map((step) => STEPS[step.type](step, lower));
  return (characters) => all.reduce((text, step) => step(text), characters);
}
