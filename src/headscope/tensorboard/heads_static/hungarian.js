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
