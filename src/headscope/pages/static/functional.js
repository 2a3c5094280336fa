/* The formulas of the network, on rows of numbers: x is [T, I] end to end in a Float32Array. */

/* x W^T: [T, I], [O, I] -> [T, O], some rows of it, two rows by four columns at once, from which an
   engine makes fast code. What would be beyond the end is the last row or column once more. */
export function product(x, weight, inner, target, first, last) {
  const outer = weight.length / inner;
  const column = (o) => Math.min(o, outer - 1);
  for (let t = first; t < last; t += 2) {
    const next = Math.min(t + 1, last - 1);
    for (let o = 0; o < outer; o += 4) {
      const [i, j, k] = [column(o + 1), column(o + 2), column(o + 3)];
      let [p, q] = [t * inner, next * inner];
      let [r, s, u, v] = [o * inner, i * inner, j * inner, k * inner];
      let [a, b, c, d, e, f, g, h] = [0, 0, 0, 0, 0, 0, 0, 0];
      for (const end = p + inner; p < end; p += 1, q += 1, r += 1, s += 1, u += 1, v += 1) {
        const one = x[p];
        const two = x[q];
        const w = weight[r];
        const y = weight[s];
        const z = weight[u];
        const m = weight[v];
        a += one * w;
        b += one * y;
        c += one * z;
        d += one * m;
        e += two * w;
        f += two * y;
        g += two * z;
        h += two * m;
      }
      const [own, other] = [t * outer, next * outer];
      target[own + o] = a;
      target[own + i] = b;
      target[own + j] = c;
      target[own + k] = d;
      target[other + o] = e;
      target[other + i] = f;
      target[other + j] = g;
      target[other + k] = h;
    }
  }
}

/* [T, O] of [O, T]. */
export function transposed(x, columns) {
  const rows = x.length / columns;
  const result = new Float32Array(x.length);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      result[column * rows + row] = x[row * columns + column];
    }
  }
  return result;
}

function meanOf(x, start, width) {
  let sum = 0;
  for (let at = start; at < start + width; at += 1) sum += x[at];
  return sum / width;
}

/* gamma (x - mean) / sigma + beta for each row, and 1 / sigma of each. Without bias beta is null. */
export function layerNorm(x, { gamma, beta, eps }) {
  const width = gamma.length;
  const scales = new Float32Array(x.length / width);
  for (let start = 0; start < x.length; start += width) {
    const mean = meanOf(x, start, width);
    let squares = 0;
    for (let i = 0; i < width; i += 1) squares += (x[start + i] - mean) ** 2;
    scales[start / width] = 1 / Math.sqrt(squares / width + eps);
  }
  return [scaledNorm(x, { gamma, beta }, scales), scales];
}

/* The same with scales that are given, of as many rows or of each of several times as many. */
export function scaledNorm(x, { gamma, beta }, scales) {
  const width = gamma.length;
  const result = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const mean = meanOf(x, start, width);
    const scale = scales[(start / width) % scales.length];
    for (let i = 0; i < width; i += 1) {
      result[start + i] = gamma[i] * (x[start + i] - mean) * scale + (beta ? beta[i] : 0);
    }
  }
  return result;
}

/* From the gradients after a norm to those before it, its scales held fixed. */
export function normBack(gradients, { gamma }, scales) {
  const width = gamma.length;
  const result = new Float32Array(gradients.length);
  for (let start = 0; start < result.length; start += width) {
    let sum = 0;
    for (let i = 0; i < width; i += 1) sum += gamma[i] * gradients[start + i];
    const mean = sum / width;
    const scale = scales[(start / width) % scales.length];
    for (let i = 0; i < width; i += 1) {
      result[start + i] = (gamma[i] * gradients[start + i] - mean) * scale;
    }
  }
  return result;
}

/* Rotate each pair of a head by an angle that grows with the position (RoFormer, section 3.2). */
export function rotate(x, heads, width, base) {
  const row = heads * width;
  for (let t = 0; t * row < x.length; t += 1) {
    for (let j = 0; j < width / 2; j += 1) {
      const angle = t * base ** ((-2 * j) / width);
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      for (let at = t * row + 2 * j; at < (t + 1) * row; at += width) {
        const [a, b] = [x[at], x[at + 1]];
        x[at] = a * cosine - b * sine;
        x[at + 1] = a * sine + b * cosine;
      }
    }
  }
}

/* softmax(x), in place. */
export function softmax(x) {
  let [most, sum] = [-Infinity, 0];
  for (let at = 0; at < x.length; at += 1) most = Math.max(most, x[at]);
  for (let at = 0; at < x.length; at += 1) {
    x[at] = Math.exp(x[at] - most);
    sum += x[at];
  }
  for (let at = 0; at < x.length; at += 1) x[at] /= sum;
}

/* The share of a normal distribution below x: 1 - erfc(x / sqrt(2)) / 2, erfc within 1.2e-7
   (Numerical Recipes, erfcc). */
function normal(x) {
  const z = Math.abs(x) / Math.SQRT2;
  const t = 1 / (1 + z / 2);
  const low = 0.09678418 + t * (-0.18628806 + t * (0.27886807 + t * (-1.13520398 +
    t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))));
  const sum = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * low));
  const tail = (t * Math.exp(sum - z * z)) / 2;
  return x < 0 ? tail : 1 - tail;
}

/* f(x) / x of each activation, by its name in model/architecture.py. */
const GATES = {
  gelu: normal,
  gelu_tanh: (x) => (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))) / 2,
  relu: (x) => (x > 0 ? 1 : 0),
  silu: (x) => 1 / (1 + Math.exp(-x)),
  tanh: (x) => (x === 0 ? 0 : Math.tanh(x) / x),
};

/* f(x) / x for each x. */
export function gatesOf(x, activation) {
  const gate = GATES[activation];
  const result = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += 1) result[at] = gate(x[at]);
  return result;
}

/* x + y, in place of x; y is as many rows as x, more, or one. */
export function plus(x, y) {
  const size = Math.min(y.length, x.length);
  for (let start = 0; start < x.length; start += size) {
    for (let at = 0; at < size; at += 1) x[start + at] += y[at];
  }
  return x;
}

/* x y, in place of x; y is as many rows as x, or a part of them, which is repeated. */
export function times(x, y) {
  for (let start = 0; start < x.length; start += y.length) {
    for (let at = 0; at < y.length; at += 1) x[start + at] *= y[at];
  }
  return x;
}

/* N equal parts of x, each times its number. */
export function scaled(x, numbers) {
  const size = x.length / numbers.length;
  const result = new Float32Array(x.length);
  numbers.forEach((number, n) => {
    for (let at = n * size; at < (n + 1) * size; at += 1) result[at] = number * x[at];
  });
  return result;
}

/* The sum of x y over each of N equal parts of x; y is as many rows as a part, or one, or null. */
export function dots(x, y, N) {
  const sums = new Float64Array(N);
  const size = x.length / N;
  for (let n = 0; y !== null && n < N; n += 1) {
    let sum = 0;
    for (let start = n * size; start < (n + 1) * size; start += y.length) {
      for (let at = 0; at < y.length; at += 1) sum += x[start + at] * y[at];
    }
    sums[n] = sum;
  }
  return sums;
}

/* The sum of x y over each row of x, a token: y has as many rows, or a part of them. */
export function rowDots(x, y, width) {
  const sums = new Float64Array(x.length / width);
  const rows = y.length / width;
  for (let row = 0; row < sums.length; row += 1) {
    const [own, other] = [row * width, (row % rows) * width];
    let sum = 0;
    for (let at = 0; at < width; at += 1) sum += x[own + at] * y[other + at];
    sums[row] = sum;
  }
  return sums;
}
