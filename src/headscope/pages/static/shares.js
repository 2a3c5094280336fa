/* The sums of a text as a record has them (heads/linear.py): the log-odds of one class over another
   as words and biases, and as what the heads share of these. Where the way from every head to the
   words takes long, cells are not a number but for the heads that are asked for, and the heads'
   `sums` alone are of all. Shape letters: L layers of all members, H heads, T tokens, K classes. */

export class Shares {
  /* `fixed`: the network as a text left it. */
  constructor(fixed, temperature, [asked, against]) {
    Object.assign(this, { fixed, temperature, asked, against });
    const { network, T, logits } = fixed;
    this.isWhole = network.costOfCells * T <= network.mostAtOnce;
    this.direction = logits.map((_, c) => ((c === asked) - (c === against)) / temperature);
  }

  /* In pieces: the arrays of all but the cells, or with them where that is quick. */
  *run() {
    const { fixed, direction, isWhole } = this;
    const words = yield* fixed.words(direction);
    const past = yield* fixed.past(direction);
    const cells = isWhole ? yield* fixed.cells(direction) : new Map();
    const sums = isWhole ? sumsOf(cells) : yield* fixed.totals(words, past);
    return this.arrays({ words, past, cells, sums, maps: yield* this.maps(words.heads) });
  }

  /* The cells of some heads, by their places among all: layer * H + h. */
  *some(places) {
    const { heads } = this.fixed.network;
    const isChosen = (layer, h) => places.includes(layer * heads + h);
    return yield* this.fixed.cells(this.direction, isChosen);
  }

  /* What passes from each key at each query of each head, [L, H, T, T]; of a last layer in the row of
     [CLS] alone. */
  *maps(ofHeads) {
    const { network, T, blocks } = this.fixed;
    const H = network.heads;
    const maps = new Float32Array(blocks.length * H * T * T);
    for (const [layer, block] of blocks.entries()) {
      for (let h = 0; h < H; h += 1) {
        const passed = yield* block.heads.passed(h, ofHeads[layer]);
        if (passed) maps.set(passed, (layer * H + h) * T * T);
      }
    }
    return maps;
  }

  /* The first class has the difference. */
  arrays({ words, past, cells, sums, maps }) {
    const { network, T, logits } = this.fixed;
    const { asked, against } = this;
    const { layers: L, heads: H } = network;
    const size = T * T;
    const through = Array.from({ length: L * H }, (_, at) => {
      let sum = 0;
      for (let place = at * size; place < (at + 1) * size; place += 1) sum += maps[place];
      return sum;
    });
    const logit = (c) => (c < 0 ? 0 : logits[c]) / this.temperature;
    const numbers = {
      words: [[T], words.tokens], past: [[T], past.tokens], past_biases: [[], [past.bias]],
      biases: [[], [words.bias]], through: [[L, H], through], sums: [[L, H], sums],
      log_odds: [[], [logit(asked) - logit(against)]], ...cellsOf(cells, L, H, T),
    };
    const K = against < 0 ? 1 : 2;
    const arrays = Object.entries(numbers).map(([name, [shape, values]]) => {
      const columns = new Float32Array(K * values.length);
      values.forEach((value, at) => (columns[K * at] = value));
      return [name, { shape: [...shape, K], values: columns }];
    });
    const classes = against < 0 ? [asked] : [asked, against];
    arrays.push(["maps", { shape: [L, H, T, T], values: maps }]);
    arrays.push(["classes", { shape: [K], values: Int32Array.from(classes) }]);
    arrays.push(["shown", { shape: [2], values: Int32Array.from([asked, against]) }]);
    return new Map(arrays.map(([name, array]) => [`contributions/${name}`, array]));
  }
}

/* The arrays of sums with the cells of more heads. */
export function withCells(arrays, cells) {
  const [heads, biases] = ["heads", "head_biases"].map((name) => {
    const { shape, values } = arrays.get(`contributions/${name}`);
    return { shape, values: values.slice() };
  });
  const [, , T, K] = heads.shape;
  for (const [at, { tokens, bias }] of cells) {
    tokens.forEach((value, t) => (heads.values[K * (at * T + t)] = value));
    biases.values[K * at] = bias;
  }
  return new Map([
    ...arrays, ["contributions/heads", heads], ["contributions/head_biases", biases],
  ]);
}

/* The cells of some heads as arrays of all: not a number of the others. */
function cellsOf(cells, L, H, T) {
  const heads = new Float64Array(L * H * T).fill(NaN);
  const biases = new Float64Array(L * H).fill(NaN);
  for (const [at, { tokens, bias }] of cells) {
    heads.set(tokens, at * T);
    biases[at] = bias;
  }
  return { heads: [[L, H, T], heads], head_biases: [[L, H], biases] };
}

function sumsOf(cells) {
  const sums = new Float64Array(cells.size);
  for (const [at, { tokens, bias }] of cells) {
    sums[at] = tokens.reduce((sum, value) => sum + value, bias);
  }
  return sums;
}
