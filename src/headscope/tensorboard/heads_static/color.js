/* One colour scale for every map: weight 0 has the first colour, the weight at the top of the scale and above it the
   last. Differences have a symmetric one: no difference is its middle. */

import { BERLIN, VIK, VIRIDIS } from "./tables.js";

/* A table of 256 colours, each as one opaque 32-bit pixel. */
function pixelsOf(colors) {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let row = 0; row < 256; row += 1) {
    for (let part = 0; part < 3; part += 1) {
      bytes[4 * row + part] = parseInt(colors.slice(6 * row + 2 * part, 6 * row + 2 * part + 2), 16);
    }
    bytes[4 * row + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

const WEIGHTS = pixelsOf(VIRIDIS);
const DIFFERENCES = { light: pixelsOf(VIK), dark: pixelsOf(BERLIN) };
const LINEAR = Float64Array.from({ length: 256 }, (_, level) => level);
const ROOTS = Float64Array.from({ length: 256 }, (_, level) => 255 * Math.sqrt(level / 255));

export const SCALES = [
  ["sqrt:1", "√ 0 – 1"], ["sqrt:0.25", "√ 0 – 0.25"], ["linear:1", "0 – 1"], ["linear:0.5", "0 – 0.5"],
  ["linear:0.2", "0 – 0.2"], ["linear:0.1", "0 – 0.1"], ["linear:0.05", "0 – 0.05"], ["linear:row", "row’s largest"],
]; // prettier-ignore

/* A scale's curve, and the weight at its top (null: each row's largest). */
export function parseScale(scale) {
  const [curve, top] = scale.split(":");
  return { root: curve === "sqrt", top: top === "row" ? null : Number(top) };
}

/* The image that a canvas is drawn from, made once for each size. */
function imageOf(canvas, width, height) {
  if (canvas.image?.width !== width || canvas.image.height !== height) {
    Object.assign(canvas, { width, height });
    canvas.image = new ImageData(width, height);
    canvas.pixels = new Uint32Array(canvas.image.data.buffer);
  }
  return canvas.pixels;
}

function flush(canvas, shown = null) {
  shown?.forEach((shows, cell) => {
    if (!shows) canvas.pixels[cell] = 0;
  });
  canvas.getContext("2d").putImageData(canvas.image, 0, 0);
}

/* Draw a picture of weights, one pixel a cell; the style sheet enlarges it. Cells that are not to show stay clear. */
export function drawWeights(canvas, { side, levels, scales, weights }, scale, shown = null) {
  const { root, top } = parseScale(scale);
  const pixels = imageOf(canvas, side, side);
  const curve = root ? ROOTS : LINEAR;
  for (let row = 0; row < side; row += 1) {
    const [start, end] = [row * side, (row + 1) * side];
    if (levels) {
      const share = top === null ? 1 : scales[row] / top;
      const factor = root ? Math.sqrt(share) : share;
      for (let cell = start; cell < end; cell += 1) {
        pixels[cell] = WEIGHTS[Math.min(255, Math.floor(curve[levels[cell]] * factor + 0.5))];
      }
    } else {
      const limit = top ?? Math.max(...weights.subarray(start, end), 1e-30);
      for (let cell = start; cell < end; cell += 1) {
        const share = weights[cell] / limit;
        pixels[cell] = WEIGHTS[Math.min(255, Math.floor(255 * (root ? Math.sqrt(share) : share) + 0.5))];
      }
    }
  }
  flush(canvas, shown);
}

/* Where a difference lies in its table: 0 at -top, 255 at +top. */
export function placeOfDifference(difference, root, top) {
  const share = Math.min(1, Math.abs(difference) / top);
  return Math.round(127.5 + 127.5 * Math.sign(difference) * (root ? Math.sqrt(share) : share));
}

export function drawDifferences(canvas, side, left, right, scale, theme, shown = null) {
  const { root, top } = parseScale(scale);
  const pixels = imageOf(canvas, side, side);
  const colors = DIFFERENCES[theme];
  for (let cell = 0; cell < side * side; cell += 1) {
    pixels[cell] = colors[placeOfDifference(left[cell] - right[cell], root, top ?? 1)];
  }
  flush(canvas, shown);
}

/* The scale itself, from one end to the other. */
export function drawLegend(canvas, differences, theme) {
  imageOf(canvas, 256, 1).set(differences ? DIFFERENCES[theme] : WEIGHTS);
  flush(canvas);
}
