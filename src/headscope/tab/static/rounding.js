/* Numbers to two decimals, which add up as they are shown. */

const KEPT = 1e3; // what moving an exact 0 costs: it stays one

const hundredthsOf = (value) => Math.round(100 * value);

const sumOf = (numbers) => numbers.reduce((total, number) => total + number, 0);

/* The place of the largest value among some places. */
function best(places, valueOf) {
  return places.reduce((top, at) => (valueOf(at) > valueOf(top) ? at : top));
}

/* What a number that stands for `value` gains in truth where it moves by a hundredth. */
function gainOf(value, number, by) {
  return value === 0 ? -KEPT : by * (100 * value - number);
}

/* The sum of numbers, to two decimals. */
export function addedUp(values) {
  return hundredthsOf(sumOf(values)) / 100;
}

/* Numbers whose sum is `total`: where rounding misses it, the nearest to the next one move. */
export function roundedTo(values, total) {
  const numbers = values.map(hundredthsOf);
  let rest = hundredthsOf(total) - sumOf(numbers);
  const by = Math.sign(rest);
  const gains = values.map((value, at) => gainOf(value, numbers[at], by));
  const order = [...values.keys()].sort((a, b) => gains[b] - gains[a]);
  for (let at = 0; rest !== 0 && order.length > 0; at = (at + 1) % order.length) {
    numbers[order[at]] += by;
    rest -= by;
  }
  return numbers.map((number) => number / 100);
}

/* A table whose rows and columns have these sums, which have two decimals and one total: cells that
   are nearest to the next number move by a hundredth, first such as both sums ask for. */
export function roundedTable(cells, ofRows, ofColumns) {
  const numbers = cells.map((row) => row.map(hundredthsOf));
  const rows = ofRows.map((sum, i) => hundredthsOf(sum) - sumOf(numbers[i]));
  const columns = ofColumns.map((sum, j) => {
    return hundredthsOf(sum) - sumOf(numbers.map((row) => row[j]));
  });
  const gain = (i, j, by) => gainOf(cells[i][j], numbers[i][j], by);
  const move = (i, j, by) => {
    numbers[i][j] += by;
    rows[i] -= by;
    columns[j] -= by;
  };
  const all = [...columns.keys()];
  for (let i = 0; i < rows.length; ) {
    const by = Math.sign(rows[i]);
    const asked = all.filter((j) => Math.sign(columns[j]) === by);
    if (by === 0 || all.length === 0) i += 1;
    else move(i, best(asked.length > 0 ? asked : all, (j) => gain(i, j, by)), by);
  }
  for (;;) {
    const [more, less] = [columns.findIndex((rest) => rest > 0), columns.findIndex((it) => it < 0)];
    if (more < 0 || less < 0 || rows.length === 0) break;
    const row = best([...rows.keys()], (i) => gain(i, more, 1) + gain(i, less, -1));
    move(row, more, 1);
    move(row, less, -1);
  }
  return numbers.map((row) => row.map((number) => number / 100));
}
