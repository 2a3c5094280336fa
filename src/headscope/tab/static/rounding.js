/* Numbers to two decimals, which add up as they are shown. */

const hundredthsOf = (value) => Math.round(100 * value);

/* The sum of numbers, to two decimals. */
export function addedUp(values) {
  return hundredthsOf(values.reduce((total, value) => total + value, 0)) / 100;
}

/* Numbers whose sum is `total`: where rounding misses it, the nearest to the next one move. */
export function roundedTo(values, total) {
  const numbers = values.map(hundredthsOf);
  let rest = numbers.reduce((left, number) => left - number, hundredthsOf(total));
  const by = Math.sign(rest);
  const gain = (at) => by * (100 * values[at] - numbers[at]);
  const order = [...values.keys()].sort((a, b) => gain(b) - gain(a));
  for (let at = 0; rest !== 0 && order.length > 0; at = (at + 1) % order.length) {
    numbers[order[at]] += by;
    rest -= by;
  }
  return numbers.map((number) => number / 100);
}
