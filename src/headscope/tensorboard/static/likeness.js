/* How unlike the maps of two heads are: the Jensen-Shannon distance of their rows, the mean over the rows. It is
   0 for equal maps and 1 for maps that never look at the same key. Long texts are compared by their overviews. */

const STEPS = 2 ** 14;
const ENTROPY = Float64Array.from({ length: STEPS + 2 }, (_, at) => (at === 0 ? 0 : -(at / STEPS) * Math.log2(at / STEPS)));

/* -p log2 p, read off a table: a logarithm for each cell of each pair of heads would take seconds. */
function entropyAt(weight) {
  const at = Math.min(1, Math.max(0, weight)) * STEPS;
  const below = Math.floor(at);
  return ENTROPY[below] + (at - below) * (ENTROPY[below + 1] - ENTROPY[below]);
}

function entropies(values, side) {
  const sums = new Float64Array(side);
  for (let cell = 0; cell < side * side; cell += 1) sums[Math.floor(cell / side)] += entropyAt(values[cell]);
  return sums;
}

/* The mean over rows of the square root of H((p + q) / 2) - (H(p) + H(q)) / 2, in bits. */
export function distance(left, right, side, ownLeft = entropies(left, side), ownRight = entropies(right, side)) {
  let sum = 0;
  for (let row = 0; row < side; row += 1) {
    let mixed = 0;
    for (let cell = row * side; cell < (row + 1) * side; cell += 1) mixed += entropyAt((left[cell] + right[cell]) / 2);
    sum += Math.sqrt(Math.max(0, mixed - (ownLeft[row] + ownRight[row]) / 2));
  }
  return sum / side;
}

function valuesOf(maps, layer) {
  return Array.from({ length: maps.headsOf(layer) }, (_, head) => {
    const values = maps.values(layer, head);
    const { side } = maps.picture(layer, head);
    return { values, own: entropies(values, side), side };
  });
}

/* For each head of a layer of `left` the head of `right` that is to stand beside it, or null; heads of `right` that
   are left over follow. Together they are as like as they can be. */
export function matchLayer(left, right, layer) {
  const [lefts, rights] = [valuesOf(left, layer), valuesOf(right, layer)];
  const n = Math.max(lefts.length, rights.length);
  const cost = (row, column) => {
    const [a, b] = [lefts[row], rights[column]];
    const found = a && b && a.side === b.side ? distance(a.values, b.values, a.side, a.own, b.own) : 1;
    return Number.isNaN(found) ? 1 : found; // of a map that is no numbers; no assignment would end with such costs
  };
  const costs = Array.from({ length: n }, (_, row) => Array.from({ length: n }, (_, column) => cost(row, column)));
  return assign(costs).map((column) => (column < rights.length ? column : null));
}

export function distanceOf(left, right, layer, leftHead, rightHead) {
  const { side } = left.picture(layer, leftHead);
  if (right.picture(layer, rightHead).side !== side) return null;
  return distance(left.values(layer, leftHead), right.values(layer, rightHead), side);
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
