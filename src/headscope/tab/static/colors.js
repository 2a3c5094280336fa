/* The colours of weights, from 0 to the top of a scale. */

import viridis from "./viridis.json" with { type: "json" };

/* The 256 colours of viridis, each as one opaque 32-bit pixel. */
const WEIGHTS = new Uint32Array(
  Uint8ClampedArray.from(viridis.flatMap((color) => {
    return [...color.match(/../g).map((pair) => parseInt(pair, 16)), 255];
  })).buffer,
);

/* The largest of some weights. */
export function largest(weights) {
  return weights.reduce((most, weight) => Math.max(most, Math.abs(weight) || 0), 0);
}

/* Draw a colour for each cell, one pixel a cell. */
function paint(canvas, [width, height], colorOf) {
  if (canvas.image?.width !== width || canvas.image.height !== height) {
    Object.assign(canvas, { width, height });
    canvas.image = new ImageData(width, height); // made once for each size
  }
  const pixels = new Uint32Array(canvas.image.data.buffer);
  for (let cell = 0; cell < pixels.length; cell += 1) pixels[cell] = colorOf(cell);
  canvas.getContext("2d").putImageData(canvas.image, 0, 0);
}

/* Draw the weights of a map, row after row; square, unless it has another number of rows. */
export function drawWeights(canvas, cells, rows = Math.sqrt(cells.length)) {
  const most = largest(cells) || 1;
  const colorOf = (cell) => WEIGHTS[Math.floor((255 * cells[cell]) / most + 0.5)];
  paint(canvas, [cells.length / rows, rows], colorOf);
}

/* The scale itself, from one end to the other. */
export function drawLegend(canvas) {
  paint(canvas, [256, 1], (cell) => WEIGHTS[cell]);
}
