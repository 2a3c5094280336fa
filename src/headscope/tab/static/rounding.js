/* Numbers to two decimals that add up as they are shown. All results are whole hundredths. */

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/* Hundredths whose sum is `total`: where rounding misses it, the nearest to the next one move. */
export function roundedTo(values, total) {
  const hundredths = values.map((value) => Math.round(100 * value));
  let rest = total - sum(hundredths);
  const by = Math.sign(rest);
  const gain = (at) => by * (100 * values[at] - hundredths[at]);
  const order = [...values.keys()].sort((a, b) => gain(b) - gain(a));
  for (let at = 0; rest !== 0 && order.length > 0; at = (at + 1) % order.length) {
    hundredths[order[at]] += by;
    rest -= by;
  }
  return hundredths;
}

/* Hundredths of a table whose rows and columns have these sums. */
export function roundedTable(cells, ofRows, ofColumns) {
  const table = cells.map((row) => row.map((value) => Math.round(100 * value)));
  const rows = ofRows.map((total, row) => total - sum(table[row]));
  const columns = ofColumns.map((total, column) => total - sum(table.map((row) => row[column])));
  const cost = (row, column, by) => Math.abs(100 * cells[row][column] - table[row][column] - by);
  const add = (row, column, by) => {
    table[row][column] += by;
    rows[row] -= by;
    columns[column] -= by;
  };
  const least = (places, costOf) => places.reduce((a, b) => (costOf(b) < costOf(a) ? b : a));
  rows.forEach((_, row) => {
    while (rows[row] !== 0) {
      const by = Math.sign(rows[row]);
      const wanting = [...columns.keys()].filter((at) => Math.sign(columns[at]) === by);
      const places = wanting.length > 0 ? wanting : [...columns.keys()];
      add(row, least(places, (at) => cost(row, at, by)), by);
    }
  });
  for (;;) {
    const [more, less] = [1, -1].map((sign) => columns.findIndex((rest) => rest * sign > 0));
    if (more < 0) return table;
    const row = least([...rows.keys()], (at) => cost(at, more, 1) + cost(at, less, -1));
    add(row, more, 1);
    add(row, less, -1);
  }
}
