/* The formulas of the network, on rows of numbers: x is [T, I] end to end in a Float32Array. */

const EPSILON = 1e-5; // of a norm

/* x W^T + b: [T, I], [O, I] -> [T, O], from one row on. Four columns at once read a row once. */
export function linearRows(x, weight, bias, inner, outer, target, first, last) {
  for (let t = first; t < last; t += 1) {
    const row = t * inner;
    let o = 0;
    for (; o + 3 < outer; o += 4) {
      const w = o * inner;
      let [a, b, c, d] = [0, 0, 0, 0];
      for (let i = 0; i < inner; i += 1) {
        const value = x[row + i];
        a += value * weight[w + i];
        b += value * weight[w + inner + i];
        c += value * weight[w + 2 * inner + i];
        d += value * weight[w + 3 * inner + i];
      }
      const at = t * outer + o;
      target[at] = a;
      target[at + 1] = b;
      target[at + 2] = c;
      target[at + 3] = d;
    }
    for (; o < outer; o += 1) {
      let sum = 0;
      for (let i = 0; i < inner; i += 1) sum += x[row + i] * weight[o * inner + i];
      target[t * outer + o] = sum;
    }
    if (bias) for (o = 0; o < outer; o += 1) target[t * outer + o] += bias[o];
  }
}

/* gamma (x - mean) / sigma + beta for each row, and the sigma of the first. */
export function layerNorm(x, { gamma, beta }) {
  const width = gamma.length;
  const result = new Float32Array(x.length);
  let first = 0;
  for (let start = 0; start < x.length; start += width) {
    let [mean, variance] = [0, 0];
    for (let i = 0; i < width; i += 1) mean += x[start + i] / width;
    for (let i = 0; i < width; i += 1) variance += (x[start + i] - mean) ** 2 / width;
    const sigma = Math.sqrt(variance + EPSILON);
    if (start === 0) first = sigma;
    for (let i = 0; i < width; i += 1) {
      result[start + i] = (gamma[i] * (x[start + i] - mean)) / sigma + beta[i];
    }
  }
  return [result, first];
}

/* Rotate each pair of a head by an angle that grows with the position (RoFormer, section 3.2). */
export function rotate(x, heads, width) {
  const row = heads * width;
  for (let t = 0; t * row < x.length; t += 1) {
    for (let j = 0; j < width / 2; j += 1) {
      const angle = t * 10_000 ** ((-2 * j) / width);
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      for (let at = t * row + 2 * j; at < (t + 1) * row; at += width) {
        const [a, b] = [x[at], x[at + 1]];
        x[at] = a * cosine - b * sine;
        x[at + 1] = a * sine + b * cosine;
      }
    }
  }
}

/* softmax(q k^T / sqrt(E)) of one query: the weights of a row, as many as there are keys. */
export function attentionRow(query, keys, q, k, width, stride, weights) {
  const count = weights.length;
  let most = -Infinity;
  for (let key = 0; key < count; key += 1) {
    let score = 0;
    for (let e = 0; e < width; e += 1) score += query[q + e] * keys[k + key * stride + e];
    score /= Math.sqrt(width);
    weights[key] = score;
    if (score > most) most = score;
  }
  let sum = 0;
  for (let key = 0; key < count; key += 1) {
    weights[key] = Math.exp(weights[key] - most);
    sum += weights[key];
  }
  for (let key = 0; key < count; key += 1) weights[key] /= sum;
}

/* The error function within 1.2e-7 (Numerical Recipes, erfcc). */
function erf(x) {
  const z = Math.abs(x);
  const t = 1 / (1 + 0.5 * z);
  const terms = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
  ];
  const sum = terms.reduceRight((total, term) => total * t + term, 0);
  const rest = t * Math.exp(-z * z + sum);
  return x >= 0 ? 1 - rest : rest - 1;
}

export function gelu(value) {
  return (value * (1 + erf(value / Math.SQRT2))) / 2;
}
