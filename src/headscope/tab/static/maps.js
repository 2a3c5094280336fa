/* The answer of `maps`, arrays in one buffer. The server has checked them (record/schema.py). */

const TYPES = { uint8: Uint8Array, int32: Int32Array, float32: Float32Array };

export const SMALL = 48; // cells along a side of a small map

export function decodeBundle(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = new Map();
  for (const { name, type, shape, offset } of header) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays.set(name, { shape, values: new TYPES[type](buffer, start + offset, count) });
  }
  return new Maps(arrays);
}

/* The stretch that each token is in, and how long each of them is. */
function stretchesOf(tokens, count) {
  const stretchOf = new Uint8Array(tokens);
  const lengths = new Uint32Array(count);
  for (let place = 0; place < count; place += 1) {
    const first = Math.floor((place * tokens) / count);
    const end = Math.floor(((place + 1) * tokens) / count);
    stretchOf.fill(place, first, end);
    lengths[place] = end - first;
  }
  return { stretchOf, lengths };
}

/* The entries of a table [layers, heads, ...] that are of one head. */
function ofHead({ shape, values }, layer, head) {
  const size = shape.slice(2).reduce((product, side) => product * side, 1);
  const start = (layer * shape[1] + head) * size;
  return values.subarray(start, start + size);
}

/* All maps of one text at one step. Of a long text only the top keys of each query are known (NaN
   elsewhere), and an overview of all of it, in stretches of tokens. */
export class Maps {
  constructor(arrays) {
    this.arrays = arrays;
    this.layers = [];
    for (const [name, array] of arrays) {
      const [, layer, own] = name.match(/^layer_(\d{1,3})\/(\w+)$/) ?? [];
      if (own) (this.layers[layer] ??= {})[own] = array;
    }
    this.tokens = this.shapeOf(0)[1];
    this.isLong = "top_keys" in this.layers[0];
    this.places = this.isLong ? this.layers[0].overview.shape[1] : this.tokens; // along a side
  }

  values(name) {
    return this.arrays.get(name)?.values ?? null;
  }

  number(name) {
    return this.values(name)?.[0] ?? null;
  }

  /* Classes by falling probability as [name, probability], and the prediction. */
  prediction(classes) {
    const nameOf = (place) => classes[place] ?? `class ${place}`;
    const shares = Array.from(this.values("probabilities") ?? []);
    const given = this.values("given");
    const ranked = shares.map((share, place) => [nameOf(place), share]);
    const chosen = given && ranked.filter((_, place) => given[place]).map(([name]) => name);
    ranked.sort((left, right) => right[1] - left[1]);
    const predicted = chosen ? chosen.join(", ") || "none" : (ranked[0]?.[0] ?? null);
    return { ranked, predicted };
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

  /* What a head contributes to the answer, in nats (direct logit attribution), or null. */
  contributionOf(layer, head) {
    const heads = this.arrays.get("nats/heads");
    return heads && this.has(layer, head) ? ofHead(heads, layer, head)[0] : null;
  }

  /* The tokens that a head's contribution is mostly from: [place, nats]. */
  contributionsByToken(layer, head) {
    const keys = this.arrays.get("nats/keys");
    if (!keys || !this.has(layer, head)) return [];
    const nats = ofHead(this.arrays.get("nats/by_key"), layer, head);
    return Array.from(ofHead(keys, layer, head), (key, place) => [key, nats[place]]);
  }

  /* Each class's probability as it is, with a head ablated, and with its layer; or null. */
  ablated(layer, head) {
    const heads = this.arrays.get("without/heads");
    const layers = this.arrays.get("without/layers");
    const whole = this.values("probabilities");
    if (!heads || !layers || !whole || !this.has(layer, head)) return null;
    const count = whole.length;
    const ofLayer = layers.values.subarray(layer * count, (layer + 1) * count);
    return { whole, head: ofHead(heads, layer, head), layer: ofLayer };
  }

  /* What is drawn of a head: rows of levels with a scale each, or of weights. */
  picture(layer, head) {
    const { levels, scales, weights, overview, overview_scales: ofOverview } = this.layers[layer];
    const side = this.places;
    const cells = (overview ?? levels ?? weights).values;
    const own = cells.subarray(head * side * side, (head + 1) * side * side);
    const rowScales = (overview ? ofOverview : scales)?.values;
    if (!rowScales) return { side, weights: own };
    return { side, levels: own, scales: rowScales.subarray(head * side, (head + 1) * side) };
  }

  /* The picture as plain numbers, row after row. */
  cells(layer, head) {
    const { side, levels, scales, weights } = this.picture(layer, head);
    if (weights) return weights;
    const cells = new Float32Array(levels.length);
    for (let row = 0; row < side; row += 1) {
      const scale = scales[row] / 255;
      const end = (row + 1) * side;
      for (let cell = row * side; cell < end; cell += 1) cells[cell] = levels[cell] * scale;
    }
    return cells;
  }

  /* What the texts of a pair give to each: A→A, A→B, B→A, B→B; null if not recorded. */
  quadrants(layer, head) {
    return this.layers[layer].quadrants?.values.subarray(4 * head, 4 * head + 4) ?? null;
  }

  /* What is drawn small: queries averaged and keys summed over stretches, so that a thin line does
     not fade and rows still sum to 1. Cells that do not show are left out of the sums. */
  small(layer, head, shown = null) {
    const picture = this.picture(layer, head);
    const { side, levels, scales, weights } = picture;
    if (side <= SMALL || this.isLong) return picture; // an overview is small already
    this.stretches ??= stretchesOf(side, SMALL);
    const { stretchOf, lengths } = this.stretches;
    const sums = new Float32Array(SMALL * SMALL);
    const cells = levels ?? weights;
    for (let row = 0; row < side; row += 1) {
      const factor = (levels ? scales[row] / 255 : 1) / lengths[stretchOf[row]];
      const start = stretchOf[row] * SMALL;
      for (let column = 0; column < side; column += 1) {
        const cell = row * side + column;
        if (shown === null || shown[cell]) sums[start + stretchOf[column]] += cells[cell] * factor;
      }
    }
    return { side: SMALL, weights: sums };
  }

  /* The length || W_O v_k || of what each key adds per unit of weight; null if not known. */
  norms(layer, head) {
    const { value_norms: norms } = this.layers[layer];
    const own = norms?.values.subarray(head * this.tokens, (head + 1) * this.tokens);
    return own?.every((norm) => norm >= 0 && norm < Infinity) ? own : null;
  }

  /* The same for each column of the picture: of a long text, the mean over its stretch. */
  columnNorms(layer, head) {
    const norms = this.norms(layer, head);
    if (norms === null || !this.isLong) return norms;
    return Float32Array.from({ length: this.places }, (_, place) => {
      const part = norms.subarray(...this.stretch(place));
      return part.reduce((sum, norm) => sum + norm, 0) / Math.max(1, part.length);
    });
  }

  /* The picture of weight x value: what each key really adds to a query (Kobayashi et al. 2020). */
  valued(layer, head) {
    const side = this.places;
    const norms = this.columnNorms(layer, head);
    const weights = this.cells(layer, head).map((weight, cell) => weight * norms[cell % side]);
    return { side, weights };
  }

  /* The first token of a stretch and of the next. A short text has one for each token. */
  stretch(place) {
    const firstOf = (at) => Math.floor((at * this.tokens) / this.places);
    return [firstOf(place), firstOf(place + 1)];
  }

  stretchOf(token) {
    let place = Math.min(this.places - 1, Math.floor((token * this.places) / this.tokens));
    while (place + 1 < this.places && this.stretch(place)[1] <= token) place += 1;
    return place;
  }

  /* The weights that a query gives to each key. */
  row(layer, head, query) {
    const length = this.tokens;
    const { top_keys: keys, top_levels: levels, scales } = this.layers[layer];
    const weightOf = (_, key) => this.weight(layer, head, query, key);
    if (!keys) return Float32Array.from({ length }, weightOf);
    const row = new Float32Array(length).fill(NaN);
    const kept = keys.shape[2];
    const at = head * length + query;
    for (let place = at * kept; place < (at + 1) * kept; place += 1) {
      row[keys.values[place]] = (levels.values[place] / 255) * scales.values[at];
    }
    return row;
  }

  weight(layer, head, query, key) {
    if (this.isLong) return this.row(layer, head, query)[key];
    const { levels, scales, weights } = this.layers[layer];
    const row = head * this.tokens + query;
    const cell = row * this.tokens + key;
    return weights ? weights.values[cell] : (levels.values[cell] / 255) * scales.values[row];
  }

  /* The weights that a key is given by each query. */
  column(layer, head, key) {
    const length = this.tokens;
    return Float32Array.from({ length }, (_, query) => this.weight(layer, head, query, key));
  }

  /* Of a long text: the sum of a query's weights that are not kept, and how many those are. */
  rest(layer, head, query) {
    const { rest, top_keys: keys } = this.layers[layer];
    if (!rest) return null;
    return { weight: rest.values[head * this.tokens + query], count: this.tokens - keys.shape[2] };
  }
}
