/* Which characters, and which tokens, make up a word: as data/units.py has it. */

/* How far before and behind a place of a text each table of BudouX looks. */
const LOOKS = {
  UW1: [-3, -2], UW2: [-2, -1], UW3: [-1, 0], UW4: [0, 1], UW5: [1, 2], UW6: [2, 3],
  BW1: [-2, 0], BW2: [-1, 1], BW3: [0, 2],
  TW1: [-3, 0], TW2: [-2, 1], TW3: [-1, 2], TW4: [0, 3],
};

/* A model of BudouX: a phrase begins where the scores of the letters around are half of all. */
class Phrases {
  constructor(model) {
    this.tables = Object.entries(model).map(([name, scores]) => {
      return [...LOOKS[name], new Map(Object.entries(scores))];
    });
    const all = this.tables.flatMap(([, , scores]) => [...scores.values()]);
    this.half = all.reduce((sum, score) => sum + score, 0) / 2;
  }

  /* Whether a phrase begins at a character of a text, the starts of which are given. */
  beginsAt(text, starts, at) {
    let sum = 0;
    for (const [first, last, scores] of this.tables) {
      const [from, to] = [starts[at + first], starts[at + last]];
      if (from !== undefined && to !== undefined) sum += scores.get(text.slice(from, to)) ?? 0;
    }
    return sum > this.half;
  }
}

export class Units {
  constructor({ unit, unspaced, joined, languages }, letter) {
    this.unit = new RegExp(unit.replaceAll("LETTER", letter), "gsu");
    this.unspaced = new RegExp(unspaced, "u");
    this.joined = new RegExp(joined, "u");
    this.languages = languages.map(([letters, model]) => {
      return [new RegExp(letters, "u"), new Phrases(model)];
    });
  }

  /* For each place of a text the number of the word, or of the sign, that it belongs to. */
  of(text) {
    const starts = [0];
    for (const { length } of text) starts.push(starts.at(-1) + length);
    const phrases = this.languages.find(([letters]) => letters.test(text))?.[1];
    const isCut = (at) => {
      const beside = text.slice(starts[at - 1], starts[at + 1]);
      if (this.joined.test(text.slice(starts[at], starts[at + 1]))) return false;
      return phrases && this.unspaced.test(beside) && phrases.beginsAt(text, starts, at);
    };
    const numbers = [];
    let number = -1;
    let at = 0;
    for (const [unit] of text.matchAll(this.unit)) {
      const start = at;
      for (const character of unit) {
        if (at === start || isCut(at)) number += 1;
        numbers.push(...Array(character.length).fill(number));
        at += 1;
      }
    }
    return numbers;
  }

  /* Tokens of a text, the letters of each from start to end of it, as words: [name, first, end] of
     tokens. One without letters is a space, which goes with the word after it. */
  wordsOf(text, tokens, letters) {
    const numbers = this.of(text.slice(0, Math.max(0, ...letters.map(([, end]) => end))));
    const words = [];
    let last; // the number of the last letter before, null after a space
    letters.forEach(([start, end], at) => {
      const joins = last === null || (start < end && last === numbers[start]);
      const first = joins ? words.pop()[1] : at;
      words.push([text.slice(letters[first][0], end) || tokens[at].token, first, at + 1]);
      last = start < end ? numbers[end - 1] : null;
    });
    return words;
  }
}
