/* A text that is kept beside the one that is typed, with its tokens put where those are. */

import { Maps } from "./maps.js";

/* For each token of one text, the token of another that stands for it: those before and after what
   changed are the same; of those between, the first with the first, and the last takes what is
   over. */
export function placesIn(tokens, others) {
  const shorter = Math.min(tokens.length, others.length);
  let start = 0;
  while (start < shorter && tokens[start] === others[start]) start += 1;
  let end = 0;
  while (end < shorter - start && tokens.at(-1 - end) === others.at(-1 - end)) end += 1;
  const last = Math.max(0, others.length - end - 1);
  return tokens.map((_, place) => {
    const fromEnd = tokens.length - place;
    if (fromEnd <= end) return others.length - fromEnd;
    return Math.min(place, Math.max(last, start - 1), others.length - 1);
  });
}

/* A table with the tokens of some axes moved; what meets in one place is added up. */
function moved({ shape, values }, axes, places, length) {
  const target = shape.map((side, axis) => (axes.includes(axis) ? length : side));
  const result = new Float32Array(target.reduce((product, side) => product * side, 1));
  const at = shape.map(() => 0);
  for (const value of values) {
    let to = 0;
    at.forEach((place, axis) => {
      to = to * target[axis] + (axes.includes(axis) ? places[place] : place);
    });
    result[to] += value;
    for (let axis = at.length - 1; axis >= 0; axis -= 1) {
      at[axis] += 1;
      if (at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
  return { shape: target, values: result };
}

export class KeptText {
  constructor({ parts, text, maps, probabilities }) {
    Object.assign(this, { parts, text, maps, probabilities });
  }

  /* What views compare a text with: this one as it is, and aligned to that one. */
  beside({ text }) {
    const isSame = JSON.stringify(this.text.tokens) === JSON.stringify(text.tokens);
    const aligned = isSame ? this.maps : this.alignedTo(text.tokens);
    const index = { layers: this.maps.layers.map((_, layer) => `layer ${layer}`) };
    return { run: "the kept text", step: 0, index, text: this.text, maps: this.maps, aligned };
  }

  alignedTo(tokens) {
    const { length } = tokens;
    const places = placesIn(this.text.tokens, tokens);
    const arrays = new Map();
    for (const [name, array] of this.maps.arrays) {
      if (name.endsWith("/weights")) arrays.set(name, this.alignedMap(array, places, length));
      else if (name === "contributions/tokens") arrays.set(name, moved(array, [2], places, length));
      else if (!/value_norms|pooling|quadrants/.test(name)) arrays.set(name, array);
    }
    return new Maps(arrays);
  }

  /* Weights on keys that meet are added, rows of queries that meet are averaged. */
  alignedMap(array, places, length) {
    const map = moved(array, [1, 2], places, length);
    const counts = new Float32Array(length);
    for (const place of places) counts[place] += 1;
    map.values.forEach((value, cell) => {
      map.values[cell] = value / Math.max(1, counts[Math.floor(cell / length) % length]);
    });
    return map;
  }
}
