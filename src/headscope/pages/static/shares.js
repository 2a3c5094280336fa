/* The log-odds of one class over another as the sums of a table (heads/shares.py): attention
   weights, norms' scales and gates are held fixed, and heads share alike what passes several of
   them. A path from the logits back to a token's vector or to a bias that passes k heads gives each
   of them 1 / k of what flows along it; one that passes none counts as past.

   What flows back is kept apart by the head that it is counted for, the owner, and by k. Since a
   path of k heads is counted for each of them, all that has passed k heads is the sum over the
   owners, divided by k. Shape letters as in classifier.js. */

import { dot, normBack, plus, times, transposed } from "./functional.js";

export class Shares {
  /* `found` is what the forward pass of a text has left. */
  constructor(network, found, [asked, against]) {
    Object.assign(this, { network, found, asked, against });
    const count = network.heads * network.layers;
    this.transposed = new Map(); // of maps
    this.past = count; // the owner of what passes no head
    this.T = found.start.length / network.d;
    this.words = new Float64Array((count + 1) * this.T); // of each owner
    this.biases = new Float64Array(count + 1);
    this.through = new Float64Array(count);
    this.maps = new Float32Array(count * this.T * this.T);
  }

  /* From the logits back to the tokens, in pieces; the arrays of a record. */
  *run() {
    const { network, found } = this;
    const norm = network.norm("encoder.norm");
    const direction = this.ofClasses("head.weight", network.d); // the gradient of the log-odds
    const [bias] = this.ofClasses("head.bias", 1);
    this.biases[this.past] += bias + dot(direction, norm.beta);
    let flows = [{ owner: this.past, k: 0, gradient: normBack(direction, norm, found.scales) }];
    for (let layer = network.layers - 1; layer >= 0; layer -= 1) {
      flows = yield* this.back(layer, flows);
    }
    for (const flow of flows) this.addWords(flow, found.start, flow.gradient);
    return this.arrays();
  }

  /* Of a weight [C, size] what is of the asked class and not of the other. */
  ofClasses(name, size) {
    const values = this.network.get(name);
    const { temperature } = this.network.content;
    const own = values.slice(this.asked * size, (this.asked + 1) * size);
    const from = this.against * size;
    return own.map((value, at) => {
      return (value - (this.against < 0 ? 0 : values[from + at])) / temperature;
    });
  }

  addBias({ owner, k }, value) {
    this.biases[owner] += value / Math.max(1, k);
  }

  addWords({ owner, k }, vectors, gradients) {
    const { T, words } = this;
    const size = vectors.length / T;
    const start = owner * T;
    for (let t = 0; t * size < gradients.length; t += 1) {
      let sum = 0;
      for (let at = t * size; at < (t + 1) * size; at += 1) sum += vectors[at] * gradients[at];
      words[start + t] += sum / Math.max(1, k);
    }
  }

  /* Through a block: what goes past its heads, and what passes one of them. */
  *back(layer, flows) {
    const { heads } = this.network;
    const next = new Map();
    const put = (owner, k, gradient) => {
      const former = next.get(`${owner} ${k}`);
      next.set(`${owner} ${k}`, {
        owner, k, gradient: former ? added(former.gradient, gradient) : gradient,
      });
    };
    const atHeads = []; // by k, all that arrives at the outputs of the heads
    for (const flow of flows) {
      const { owner, k } = flow;
      const gradient = yield* this.feedforwardBack(layer, flow);
      put(owner, k, gradient);
      this.addBias(flow, dot(gradient, this.network.blocks[layer].output.bias));
      const { back } = this.network.blocks[layer].output;
      const ofHeads = yield* this.network.products.of(gradient, back, this.network.d);
      const part = ofHeads.map((value) => value / Math.max(1, k));
      atHeads[k] = atHeads[k] ? added(atHeads[k], part) : part;
      if (owner === this.past) continue;
      const all = [...Array(heads).keys()];
      const before = yield* this.attentionBack(layer, { owner, k: k + 1 }, ofHeads, all);
      if (before) put(owner, k + 1, before);
    }
    for (const [k, ofHeads] of atHeads.entries()) {
      for (let h = 0; ofHeads && h < heads; h += 1) {
        const owner = layer * heads + h;
        const before = yield* this.attentionBack(layer, { owner, k: k + 1 }, ofHeads, [h]);
        if (before) put(owner, k + 1, before);
      }
    }
    yield* this.pass(layer, atHeads.filter(Boolean).reduce(added));
    return [...next.values()];
  }

  /* From the output of a block back to the sum before its feed-forward network. */
  *feedforwardBack(layer, flow) {
    const { up, down, feedforwardNorm } = this.network.blocks[layer];
    const { gates, betweenScales } = this.found.passed[layer];
    const { products, d } = this.network;
    const after = yield* products.of(flow.gradient, down.back, d);
    const hidden = times(after, gates);
    const between = yield* products.of(hidden, up.back, up.bias.length);
    const biases = dot(flow.gradient, down.bias) + dot(hidden, up.bias);
    this.addBias(flow, biases + dot(between, feedforwardNorm.beta));
    return plus(flow.gradient, normBack(between, feedforwardNorm, betweenScales));
  }

  /* From the outputs of some heads [Q, H E] back to the input of the block, whose words and biases
     are those of a flow; null at the first layer, where nothing is below. */
  *attentionBack(layer, flow, ofHeads, heads) {
    const { network } = this;
    const { attentionNorm, value } = network.blocks[layer];
    const { values, scales, added: evidence, maps } = this.found.passed[layer];
    let before = null;
    for (const h of heads) {
      if (maps[h] === null) continue;
      const shared = network.shared(h);
      const own = network.headOf(ofHeads, h, network.heads); // [Q, E]
      const Q = own.length / network.width;
      const taken = yield* network.products.of(
        this.toKeys(layer, h, Q), transposed(own, network.width), Q,
      ); // [T, E]
      const bias = value.biases[shared];
      if (layer === 0) {
        const ofWords = network.headOf(values, shared, network.keyHeads);
        for (let at = 0; at < ofWords.length; at += 1) ofWords[at] -= bias[at % bias.length];
        this.addWords(flow, ofWords, taken);
        this.addBias(flow, dot(taken, bias));
        continue;
      }
      this.addBias(flow, dot(taken, value.ofHeads[shared]));
      const ofKeys = yield* network.products.of(taken, value.backs[shared], network.width);
      before = before ? added(before, ofKeys) : ofKeys;
    }
    if (before === null) return null;
    this.addBias(flow, dot(before, attentionNorm.beta));
    if (evidence) this.addWords(flow, evidence, before);
    return normBack(before, attentionNorm, scales);
  }

  /* The first Q queries of a map, transposed: [T, Q]. */
  toKeys(layer, h, Q) {
    const { maps } = this.found.passed[layer];
    const name = `${layer} ${h} ${Q}`;
    if (!this.transposed.has(name)) {
      this.transposed.set(name, transposed(maps[h].subarray(0, Q * this.T), this.T));
    }
    return this.transposed.get(name);
  }

  /* What passes through each head: a_qt v_t . g_q from each key at each query. */
  *pass(layer, ofHeads) {
    const { network, T } = this;
    const { values, maps } = this.found.passed[layer];
    for (const [h, map] of maps.entries()) {
      if (map === null) continue;
      const own = network.headOf(ofHeads, h, network.heads);
      const ofKeys = network.headOf(values, network.shared(h), network.keyHeads);
      const passed = yield* network.products.of(own, ofKeys, network.width); // [Q, T]
      const at = layer * network.heads + h;
      for (let place = 0; place < passed.length; place += 1) {
        passed[place] *= map[place];
        this.through[at] += passed[place];
      }
      this.maps.set(passed, at * T * T);
    }
  }

  /* The sums of the two classes as a record has them: the first class has the difference. */
  arrays() {
    const { network, found, T, words, biases, asked, against } = this;
    const { heads: H, layers: L } = network;
    const classes = against < 0 ? [asked] : [asked, against];
    const K = classes.length;
    const [shared, past] = [words.subarray(0, L * H * T), words.subarray(L * H * T)];
    const total = past.map((value, t) => {
      let sum = value;
      for (let head = 0; head < L * H; head += 1) sum += shared[head * T + t];
      return sum;
    });
    const logit = (c) => (c < 0 ? 0 : found.logits[c]) / network.content.temperature;
    const numbers = {
      words: [[T], total], heads: [[L, H, T], shared], past: [[T], past],
      head_biases: [[L, H], biases.subarray(0, L * H)], past_biases: [[], biases.subarray(L * H)],
      biases: [[], [biases.reduce((sum, value) => sum + value, 0)]],
      through: [[L, H], this.through], log_odds: [[], [logit(asked) - logit(against)]],
    };
    const arrays = Object.entries(numbers).map(([name, [shape, values]]) => {
      const columns = new Float32Array(K * values.length);
      values.forEach((value, at) => (columns[K * at] = value));
      return [name, { shape: [...shape, K], values: columns }];
    });
    arrays.push(["maps", { shape: [L, H, T, T], values: this.maps }]);
    arrays.push(["classes", { shape: [K], values: Int32Array.from(classes) }]);
    arrays.push(["shown", { shape: [2], values: Int32Array.from([asked, against]) }]);
    return new Map(arrays.map(([name, array]) => [`contributions/${name}`, array]));
  }
}

/* The sum of two gradients, of which one may be of the first positions alone. */
function added(x, y) {
  const [long, short] = x.length < y.length ? [y, x] : [x, y];
  const result = long.slice();
  for (let at = 0; at < short.length; at += 1) result[at] += short[at];
  return result;
}
