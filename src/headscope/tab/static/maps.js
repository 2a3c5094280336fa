/* The answer of `maps`, arrays in one buffer. The server has checked them (record/schema.py). */

const TYPES = { uint8: Uint8Array, int32: Int32Array, float32: Float32Array };
const SMALL = 48; // cells along a side of a small map

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

/* The part of a table that is of one entry along its first axes. */
function part({ shape, values }, ...places) {
  const size = shape.slice(places.length).reduce((product, side) => product * side, 1);
  const start = size * places.reduce((sum, place, axis) => sum * shape[axis] + place, 0);
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
    return head >= 0 && head < this.headsOf(layer);
  }

  /* A table [layers, heads, ...] at one head, or null. */
  ofHead(name, layer, head) {
    const table = this.arrays.get(name);
    return table && this.has(layer, head) ? part(table, layer, head) : null;
  }

  /* Each class's probability as it is, with a head ablated, and with its layer; or null. */
  ablated(layer, head) {
    const whole = this.values("probabilities");
    const ofHead = this.ofHead("without/heads", layer, head);
    const layers = this.arrays.get("without/layers");
    if (!whole || !ofHead || !layers) return null;
    return { whole, head: ofHead, layer: part(layers, layer) };
  }

  /* The weights of a head, row after row: of a long text, its overview. */
  cells(layer, head) {
    const { levels, scales, weights, overview, overview_scales: ofOverview } = this.layers[layer];
    if (weights) return part(weights, head);
    const cells = new Float32Array(part(overview ?? levels, head));
    const ofRow = part(overview ? ofOverview : scales, head);
    for (let row = 0; row < this.places; row += 1) {
      const end = (row + 1) * this.places;
      for (let cell = row * this.places; cell < end; cell += 1) cells[cell] *= ofRow[row] / 255;
    }
    return cells;
  }

  /* What is drawn small: queries averaged and keys summed over stretches, so that a thin line does
     not fade and rows still sum to 1. */
  small(layer, head) {
    const cells = this.cells(layer, head);
    const side = this.places;
    if (side <= SMALL || this.isLong) return cells; // an overview is small already
    const stretchOf = Array.from({ length: side }, (_, token) => inStretch(token, side, SMALL));
    const lengths = new Float32Array(SMALL);
    for (const stretch of stretchOf) lengths[stretch] += 1;
    const small = new Float32Array(SMALL * SMALL);
    for (let row = 0; row < side; row += 1) {
      const stretch = stretchOf[row];
      for (let column = 0; column < side; column += 1) {
        const weight = cells[row * side + column] / lengths[stretch];
        small[stretch * SMALL + stretchOf[column]] += weight;
      }
    }
    return small;
  }

  /* One row drawn small: keys summed over stretches; of a long text the top keys alone. */
  smallRow(layer, head, query) {
    const { tokens } = this;
    const small = new Float32Array(Math.min(SMALL, tokens));
    this.row(layer, head, query).forEach((weight, key) => {
      small[inStretch(key, tokens, small.length)] += weight || 0;
    });
    return small;
  }

  /* The first token of a stretch and of the next. A short text has one for each token. */
  stretch(place) {
    const firstOf = (at) => Math.floor((at * this.tokens) / this.places);
    return [firstOf(place), firstOf(place + 1)];
  }

  stretchOf(token) {
    return inStretch(token, this.tokens, this.places);
  }

  /* The weights that a query gives to each key. */
  row(layer, head, query) {
    const { top_keys: keys, top_levels: levels, scales } = this.layers[layer];
    if (!keys) {
      const start = query * this.tokens;
      return this.cells(layer, head).slice(start, start + this.tokens);
    }
    const row = new Float32Array(this.tokens).fill(NaN);
    const scale = part(scales, head, query)[0];
    const known = part(levels, head, query);
    part(keys, head, query).forEach((key, place) => (row[key] = (known[place] / 255) * scale));
    return row;
  }

  /* The weights that a key is given by each query. */
  column(layer, head, key) {
    const length = this.tokens;
    if (this.isLong) {
      return Float32Array.from({ length }, (_, query) => this.row(layer, head, query)[key]);
    }
    const cells = this.cells(layer, head);
    return Float32Array.from({ length }, (_, query) => cells[query * length + key]);
  }
}

/* The stretch that a token is in, where `tokens` of them are cut into `places` stretches. */
function inStretch(token, tokens, places) {
  return Math.floor(((token + 1) * places - 1) / tokens);
}
