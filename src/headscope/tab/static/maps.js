/* The answer of `maps`: a header that lists arrays, and their bytes. Maps reads weights out of them. */

const TYPES = { uint8: Uint8Array, int32: Int32Array, float32: Float32Array };

function arraysOf(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = new Map();
  for (const { name, type, shape, offset } of header) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays.set(name, { shape, values: new TYPES[type](buffer, start + offset, count) });
  }
  return arrays;
}

export const SMALL = 48; // cells along a side of a small map

/* The stretch of tokens that each token is in, if there are so many stretches, and how long each of them is. */
function stretchesOf(tokens, stretches) {
  const at = new Uint8Array(tokens);
  const lengths = new Uint32Array(stretches);
  for (let place = 0; place < stretches; place += 1) {
    const [first, end] = [Math.floor((place * tokens) / stretches), Math.floor(((place + 1) * tokens) / stretches)];
    at.fill(place, first, end);
    lengths[place] = end - first;
  }
  return { at, lengths };
}

/* A layer's arrays, if they are a map: of every token to every token, kept in one of three ways. */
function whole(layer, place) {
  const [heads, tokens] = (layer.levels ?? layer.weights ?? layer.top_keys)?.shape ?? [];
  const top = layer.top_keys?.shape[2];
  const side = layer.overview?.shape[1];
  const shapes = layer.levels ? { levels: [heads, tokens, tokens], scales: [heads, tokens] }
    : layer.weights ? { weights: [heads, tokens, tokens] }
    : { top_keys: [heads, tokens, top], top_levels: [heads, tokens, top], scales: [heads, tokens], rest: [heads, tokens],
        overview: [heads, side, side], overview_scales: [heads, side] }; // prettier-ignore
  const wrong = Object.keys(shapes).find((name) => String(layer[name]?.shape) !== String(shapes[name]));
  if (wrong) throw new Error(`layer_${place}/${wrong} is missing, or of another shape than its map`);
  return layer;
}

export function decodeBundle(buffer) {
  return new Maps(arraysOf(buffer));
}

/* All maps of one text at one step. Of a long text only the top keys of each query are known (NaN elsewhere), and an
   overview of all of it, in stretches of tokens. */
export class Maps {
  constructor(arrays) {
    this.layers = [];
    for (const [name, array] of arrays) {
      const [, layer, own] = name.match(/^layer_(\d{1,3})\/(\w+)$/) ?? [];
      if (own) (this.layers[layer] ??= {})[own] = array;
    }
    this.layers = Array.from(this.layers, (layer, place) => whole(layer ?? {}, place));
    this.pooling = arrays.get("pooling")?.values ?? null;
    this.probabilities = arrays.get("probabilities")?.values ?? null;
    this.given = arrays.get("given")?.values ?? null; // 1 at each class that the text is given, where it may be any number
    const nats = ["heads", "keys", "by_key"].map((name) => arrays.get(`nats/${name}`));
    this.nats = nats.includes(undefined) ? null : nats; // what every head put for the answer, where it can be said
    const [blocks, constant] = ["feedforward", "constant"].map((name) => arrays.get(`nats/${name}`));
    this.spoken = !blocks || !constant || !this.nats ? null : { feedforward: Array.from(blocks.values), constant: constant.values[0] };
    this.off = ["heads", "layers"].map((name) => arrays.get(`without/${name}`) ?? null); // probabilities without a head, a layer
    this.answer = arrays.get("nats/class")?.values[0] ?? null; // the class that is the answer
    this.check = arrays.get("check")?.values[0] ?? null;
    this.rounded = arrays.get("rounding")?.values[0] ?? null; // the largest difference to the softmax, recomputed
    this.long = this.layers.length > 0 && "top_keys" in this.layers[0];
  }

  /* How far the weights that are shown may be from those that were computed, as they were rounded to be kept: to 255 levels
     of a row's largest, or to 16 bits. */
  get rounding() {
    const scales = this.layers.flatMap(({ scales: rows }) => (rows ? [rows.values] : []));
    if (scales.length === 0) return 2 ** -12;
    return Math.max(...scales.map((rows) => rows.reduce((most, scale) => Math.max(most, scale), 0))) / 510;
  }

  /* Classes by falling probability as [name, probability], and what the text is given: one class, or any number of them. */
  verdict(classes) {
    const ranked = Array.from(this.probabilities ?? [], (share, at) => [classes[at] ?? `class ${at}`, share]);
    const given = this.given && ranked.filter((_, at) => this.given[at]).map(([name]) => name);
    ranked.sort((left, right) => right[1] - left[1]);
    return { ranked, predicted: given ? given.join(", ") || "none" : (ranked[0]?.[0] ?? null) };
  }

  shapeOf(layer) {
    const { levels, weights, top_keys: top } = this.layers[layer];
    return (levels ?? weights ?? top).shape;
  }

  headsOf(layer) {
    return layer in this.layers ? this.shapeOf(layer)[0] : 0;
  }

  has(layer, head) {
    return head !== null && head >= 0 && head < this.headsOf(layer);
  }

  get tokens() {
    return this.layers.length > 0 ? this.shapeOf(0)[1] : 0;
  }

  /* What a head put for the answer, in nats; null where it is not known. */
  natsOf(layer, head) {
    return this.nats === null || !this.has(layer, head) ? null : (this.nats[0].values[layer * this.nats[0].shape[1] + head] ?? null);
  }

  /* What a head put for the answer, and the tokens that it has most of it from; null where it is not known. */
  putBy(layer, head) {
    if (this.nats === null || !this.has(layer, head)) return null;
    const [heads, keys, byKey] = this.nats;
    const at = layer * heads.shape[1] + head;
    const [first, end] = [at * keys.shape[2], (at + 1) * keys.shape[2]];
    const tokens = Array.from(keys.values.subarray(first, end), (key, place) => [key, byKey.values[first + place]]);
    return { value: heads.values[at], tokens };
  }

  /* What is drawn of a head: rows of levels with a scale each, or of weights. */
  picture(layer, head) {
    const { levels, scales, weights, overview, overview_scales: overviewScales } = this.layers[layer];
    const drawn = overview ?? levels ?? weights;
    const side = drawn.shape[1];
    const part = drawn.values.subarray(head * side * side, (head + 1) * side * side);
    const rowScales = (overview ? overviewScales : scales)?.values.subarray(head * side, (head + 1) * side);
    return { side, levels: rowScales ? part : null, scales: rowScales ?? null, weights: rowScales ? null : part };
  }

  /* Of a pair of texts, what the tokens of each give to each: A→A, A→B, B→A, B→B; null where it was not recorded. */
  quadrants(layer, head) {
    const { quadrants } = this.layers[layer];
    return quadrants?.values.length === 4 * this.headsOf(layer) ? quadrants.values.subarray(4 * head, 4 * head + 4) : null;
  }

  /* What is drawn of a head where there is little room: queries averaged and keys summed over stretches, so that a
     thin line does not fade and each row still sums to 1. Cells that are not to show are left out of the sums. */
  small(layer, head, shown = null) {
    const picture = this.picture(layer, head);
    const { side, levels, scales, weights } = picture;
    if (side <= SMALL || this.long) return picture; // an overview is small already
    if (this.stretches?.at.length !== side) this.stretches = stretchesOf(side, SMALL);
    const { at, lengths } = this.stretches;
    const sums = new Float32Array(SMALL * SMALL);
    const cells = levels ?? weights;
    for (let row = 0; row < side; row += 1) {
      const factor = (levels ? scales[row] / 255 : 1) / lengths[at[row]];
      const start = at[row] * SMALL;
      for (let column = 0; column < side; column += 1) {
        if (shown === null || shown[row * side + column]) sums[start + at[column]] += cells[row * side + column] * factor;
      }
    }
    return { side: SMALL, levels: null, scales: null, weights: sums };
  }

  /* How long the vector is that each key of a head adds per unit of weight, || W_O v_k ||; null where it is not known. */
  norms(layer, head) {
    const norms = this.layers[layer]?.value_norms;
    if (!norms || !this.has(layer, head) || norms.values.length !== this.headsOf(layer) * this.tokens) return null;
    const own = norms.values.subarray(head * this.tokens, (head + 1) * this.tokens);
    return own.every((norm) => norm >= 0 && norm < Infinity) ? own : null;
  }

  /* The same for each column of the picture: of a long text, the mean over its stretch. */
  columnNorms(layer, head) {
    const norms = this.norms(layer, head);
    if (norms === null || !this.long) return norms;
    return Float32Array.from({ length: this.picture(layer, head).side }, (_, place) => {
      const part = norms.subarray(...this.stretch(place));
      return part.reduce((sum, norm) => sum + norm, 0) / Math.max(1, part.length);
    });
  }

  /* The picture of weight x value: what each key really adds to a query (Kobayashi et al. 2020). */
  valued(layer, head) {
    const { side } = this.picture(layer, head);
    const norms = this.columnNorms(layer, head);
    const weights = this.values(layer, head).map((weight, cell) => weight * norms[cell % side]);
    return { side, levels: null, scales: null, weights };
  }

  /* Each class's probability with all heads, without one, and without all heads of its layer; null where not known. */
  without(layer, head) {
    const [heads, layers] = this.off;
    const before = this.probabilities;
    if (!heads || !layers || !before || !this.has(layer, head)) return null;
    const [, widest, count] = heads.shape;
    if (count !== before.length || layers.shape[1] !== count) return null;
    const of = ({ values }, place) => values.subarray(place * count, (place + 1) * count);
    return { before, head: of(heads, layer * widest + head), layer: of(layers, layer) };
  }

  /* The picture as plain numbers, row after row. */
  values(layer, head) {
    const { side, levels, scales, weights } = this.picture(layer, head);
    if (weights) return weights;
    const values = new Float32Array(side * side);
    for (let row = 0; row < side; row += 1) {
      const factor = scales[row] / 255;
      for (let cell = row * side; cell < (row + 1) * side; cell += 1) values[cell] = levels[cell] * factor;
    }
    return values;
  }

  /* The first token of a stretch, and of the one after it. A short text has a stretch for each token. */
  stretch(place) {
    const side = this.long ? this.layers[0].overview.shape[1] : this.tokens;
    return [Math.floor((place * this.tokens) / side), Math.floor(((place + 1) * this.tokens) / side)];
  }

  stretchOf(token) {
    const side = this.long ? this.layers[0].overview.shape[1] : this.tokens;
    let place = Math.min(side - 1, Math.floor((token * side) / this.tokens));
    while (place + 1 < side && this.stretch(place)[1] <= token) place += 1;
    return place;
  }

  /* The weights that a query gives to each key. */
  row(layer, head, query) {
    const count = this.tokens;
    const { top_keys: keys, top_levels: levels, scales } = this.layers[layer];
    if (!keys) {
      const row = new Float32Array(count);
      for (let key = 0; key < count; key += 1) row[key] = this.weight(layer, head, query, key);
      return row;
    }
    const row = new Float32Array(count).fill(NaN);
    const kept = keys.shape[2];
    const start = (head * count + query) * kept;
    for (let place = start; place < start + kept; place += 1) {
      row[keys.values[place]] = (levels.values[place] / 255) * scales.values[head * count + query];
    }
    return row;
  }

  weight(layer, head, query, key) {
    const { levels, scales, weights, top_keys: top } = this.layers[layer];
    if (top) return this.row(layer, head, query)[key];
    const count = this.tokens;
    const place = (head * count + query) * count + key;
    return weights ? weights.values[place] : (levels.values[place] / 255) * scales.values[head * count + query];
  }

  /* The weights that a key is given by each query. */
  column(layer, head, key) {
    return Float32Array.from({ length: this.tokens }, (_, query) => this.weight(layer, head, query, key));
  }

  /* Of a long text: what a query gives to all keys that are not among its top ones, and how many those are. */
  rest(layer, head, query) {
    const { rest, top_keys: keys } = this.layers[layer];
    if (!rest) return null;
    return { mass: rest.values[head * this.tokens + query], count: this.tokens - keys.shape[2] };
  }
}
