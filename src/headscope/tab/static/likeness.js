/* How unlike the maps of two heads are: the Jensen-Shannon distance of their rows, the mean over the rows. It is
   0 for equal maps and 1 for maps that never look at the same key. Long texts are compared by their overviews. */

const STEPS = 2 ** 16 - 1;
/* -p log2 p at half of `at` steps, from 0 to 1: a logarithm for each cell of each pair of heads would take seconds. */
const ENTROPY = Float64Array.from({ length: 2 * STEPS + 1 }, (_, at) => (at === 0 ? 0 : -(at / 2 / STEPS) * Math.log2(at / 2 / STEPS)));

/* A map in whole steps, and the entropy of each row of that; null if it holds what is no number. */
export function stepped(values, side) {
  const steps = new Uint16Array(side * side);
  const own = new Float64Array(side);
  for (let cell = 0; cell < side * side; cell += 1) {
    if (Number.isNaN(values[cell])) return null;
    steps[cell] = Math.round(Math.min(1, Math.max(0, values[cell])) * STEPS);
    own[Math.floor(cell / side)] += ENTROPY[2 * steps[cell]];
  }
  return { steps, own, side };
}

/* The mean over rows of the square root of H((p + q) / 2) - (H(p) + H(q)) / 2, in bits. */
export function distance(left, right) {
  const [p, q, side] = [left.steps, right.steps, left.side];
  let sum = 0;
  for (let row = 0; row < side; row += 1) {
    let mixed = 0;
    for (let cell = row * side; cell < (row + 1) * side; cell += 1) mixed += ENTROPY[p[cell] + q[cell]];
    sum += Math.sqrt(Math.max(0, mixed - (left.own[row] + right.own[row]) / 2));
  }
  return sum / side;
}

function mapOf(maps, layer, head) {
  return stepped(maps.values(layer, head), maps.picture(layer, head).side);
}

function mapsOf(maps, layer) {
  return Array.from({ length: maps.headsOf(layer) }, (_, head) => mapOf(maps, layer, head));
}

/* For each head of a layer of `left` the head of `right` that is to stand beside it, or null; heads of `right` that
   are left over follow. Together they are as like as they can be. */
export function matchLayer(left, right, layer) {
  const [lefts, rights] = [mapsOf(left, layer), mapsOf(right, layer)];
  const n = Math.max(lefts.length, rights.length);
  const cost = (row, column) => {
    const [a, b] = [lefts[row], rights[column]];
    return a && b && a.side === b.side ? distance(a, b) : 1; // also of a map that is no numbers
  };
  const costs = Array.from({ length: n }, (_, row) => Array.from({ length: n }, (_, column) => cost(row, column)));
  return assign(costs).map((column) => (column < rights.length ? column : null));
}

export function distanceOf(left, right, layer, leftHead, rightHead) {
  const [one, other] = [mapOf(left, layer, leftHead), mapOf(right, layer, rightHead)];
  return one && other && one.side === other.side ? distance(one, other) : null;
}

/* The assignment of columns to rows of a square table of costs that costs least in all (Kuhn 1955; the form with
   potentials and shortest augmenting paths, O(n^3)). Returns the column of each row. */
export function assign(costs) {
  const n = costs.length;
  const rowPotential = new Float64Array(n + 1);
  const columnPotential = new Float64Array(n + 1);
  const rowOf = new Int32Array(n + 1); // of each column, counted from 1; column 0 holds the row to be placed
  for (let row = 1; row <= n; row += 1) {
    const cameFrom = new Int32Array(n + 1);
    const slack = new Float64Array(n + 1).fill(Infinity);
    const reached = new Uint8Array(n + 1);
    let column = 0;
    rowOf[0] = row;
    while (rowOf[column] !== 0) {
      reached[column] = 1;
      const from = rowOf[column];
      let [delta, best] = [Infinity, 0];
      for (let next = 1; next <= n; next += 1) {
        if (reached[next]) continue;
        const cost = costs[from - 1][next - 1] - rowPotential[from] - columnPotential[next];
        if (cost < slack[next]) [slack[next], cameFrom[next]] = [cost, column];
        if (slack[next] < delta) [delta, best] = [slack[next], next];
      }
      for (let other = 0; other <= n; other += 1) {
        if (reached[other]) {
          rowPotential[rowOf[other]] += delta;
          columnPotential[other] -= delta;
        } else slack[other] -= delta;
      }
      column = best;
    }
    while (column !== 0) {
      const before = cameFrom[column];
      rowOf[column] = rowOf[before];
      column = before;
    }
  }
  const columnOf = new Array(n);
  for (let column = 1; column <= n; column += 1) columnOf[rowOf[column] - 1] = column - 1;
  return columnOf;
}
