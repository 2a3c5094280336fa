/* Arrays in one buffer, and the maps of a text among them. */

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, int32: Int32Array, uint64: BigUint64Array,
  float16: Float16Array, float32: Float32Array,
};

/* The arrays of a bundle (record/reader.py) by name: {shape, values}. */
export function arraysOf(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = new Map();
  for (const { name, type, shape, offset } of header) {
    const count = shape.reduce((product, side) => product * side, 1);
    const values = new TYPES[type](buffer, start + offset, count);
    arrays.set(name, { shape, values: type === "float16" ? new Float32Array(values) : values });
  }
  return arrays;
}

/* The part of a table that is of one entry along its first axes. */
function part({ shape, values }, ...places) {
  const size = shape.slice(places.length).reduce((product, side) => product * side, 1);
  const start = size * places.reduce((sum, place, axis) => sum * shape[axis] + place, 0);
  return values.subarray(start, start + size);
}

/* The largest size of some numbers, those apart that are none; never 0. */
export function largestSize(values) {
  let most = 1e-9;
  for (let at = 0; at < values.length; at += 1) {
    if (Math.abs(values[at]) > most) most = Math.abs(values[at]);
  }
  return most;
}

/* All maps of one text at one step. */
export class Maps {
  constructor(arrays) {
    this.arrays = arrays;
    this.layers = [];
    for (const [name, array] of arrays) {
      const [, layer] = name.match(/^layer_(\d{1,3})\/weights$/) ?? [];
      if (layer) this.layers[layer] = array;
    }
    this.tokens = this.layers[0].shape[2];
    this.kept = new Map(); // views of the weights, each made once: what is drawn of one stays
  }

  /* The weights of a head, and of one query if that is given. */
  view(layer, ...places) {
    const name = [layer, ...places].join();
    if (!this.kept.has(name)) this.kept.set(name, part(this.layers[layer], ...places));
    return this.kept.get(name);
  }

  /* The largest weight of all maps, the end of their one colour scale. */
  get most() {
    this.largest ??= Math.max(...this.layers.map(({ values }) => largestSize(values)));
    return this.largest;
  }

  values(name) {
    return this.arrays.get(name)?.values ?? null;
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

  headsOf(layer) {
    return this.layers[layer]?.shape[0] ?? 0;
  }

  has(layer, head) {
    return head >= 0 && head < this.headsOf(layer);
  }

  /* Each class's probability with a head ablated; or null. */
  ablated(layer, head) {
    const table = this.arrays.get("without/heads");
    return table && this.has(layer, head) ? part(table, layer, head) : null;
  }

  /* The weights of a head, a row after the other; of a last layer perhaps of one query alone. */
  cells(layer, head) {
    return this.view(layer, head);
  }

  /* The weights that a query gives to each key. */
  row(layer, head, query) {
    return this.view(layer, head, this.layers[layer].shape[1] === 1 ? 0 : query);
  }
}
