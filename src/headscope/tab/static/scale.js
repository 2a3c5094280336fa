/* One colour scale for every map: weight 0 has the first colour, the weight at the top of the scale and above it the
   last. Differences have a symmetric one: no difference is its middle. */

/* viridis: 256 colours as hexadecimal red, green, blue. */
const VIRIDIS =
  "44015444025645045745055946075a46085c460a5d460b5e470d60470e6147106347116447136548146748166848176948186a481a6c" +
  "481b6d481c6e481d6f481f70482071482173482374482475482576482677482878482979472a7a472c7a472d7b472e7c472f7d46307e" +
  "46327e46337f463480453581453781453882443983443a83443b84433d84433e85423f85424086424186414287414487404588404688" +
  "3f47883f48893e49893e4a893e4c8a3d4d8a3d4e8a3c4f8a3c508b3b518b3b528b3a538b3a548c39558c39568c38588c38598c375a8c" +
  "375b8d365c8d365d8d355e8d355f8d34608d34618d33628d33638d32648e32658e31668e31678e31688e30698e306a8e2f6b8e2f6c8e" +
  "2e6d8e2e6e8e2e6f8e2d708e2d718e2c718e2c728e2c738e2b748e2b758e2a768e2a778e2a788e29798e297a8e297b8e287c8e287d8e" +
  "277e8e277f8e27808e26818e26828e26828e25838e25848e25858e24868e24878e23888e23898e238a8d228b8d228c8d228d8d218e8d" +
  "218f8d21908d21918c20928c20928c20938c1f948c1f958b1f968b1f978b1f988b1f998a1f9a8a1e9b8a1e9c891e9d891f9e891f9f88" +
  "1fa0881fa1881fa1871fa28720a38620a48621a58521a68522a78522a88423a98324aa8325ab8225ac8226ad8127ad8128ae8029af7f" +
  "2ab07f2cb17e2db27d2eb37c2fb47c31b57b32b67a34b67935b77937b87838b9773aba763bbb753dbc743fbc7340bd7242be7144bf70" +
  "46c06f48c16e4ac16d4cc26c4ec36b50c46a52c56954c56856c66758c7655ac8645cc8635ec96260ca6063cb5f65cb5e67cc5c69cd5b" +
  "6ccd5a6ece5870cf5773d05675d05477d1537ad1517cd2507fd34e81d34d84d44b86d54989d5488bd6468ed64590d74393d74195d840" +
  "98d83e9bd93c9dd93ba0da39a2da37a5db36a8db34aadc32addc30b0dd2fb2dd2db5de2bb8de29bade28bddf26c0df25c2df23c5e021" +
  "c8e020cae11fcde11dd0e11cd2e21bd5e21ad8e219dae319dde318dfe318e2e418e5e419e7e419eae51aece51befe51cf1e51df4e61e" +
  "f6e620f8e621fbe723fde725";

/* Every 32nd colour of Fabio Crameri's vik (light) and berlin (dark): their middle, no difference, is near the colour of
   the page. */
const VIK = "001261 034481 307da6 94bed2 ebe6e2 dcac90 c37243 942f06 590008";
const BERLIN = "9eb0ff 519fd3 286886 14303e 180c0a 3f1201 7b321c bc6d61 ffadad";

function bytesOf(colors) {
  return Array.from({ length: colors.length / 6 }, (_, at) => [0, 2, 4].map((part) => parseInt(colors.slice(6 * at + part, 6 * at + part + 2), 16)));
}

/* 256 colours, each as one opaque 32-bit pixel; where fewer are given, those between are mixed. */
function pixelsOf(colors) {
  const given = bytesOf(colors.replaceAll(" ", ""));
  const bytes = new Uint8ClampedArray(256 * 4).fill(255);
  for (let row = 0; row < 256; row += 1) {
    const place = (row * (given.length - 1)) / 255;
    const [below, above] = [given[Math.floor(place)], given[Math.ceil(place)]];
    below.forEach((value, part) => (bytes[4 * row + part] = value + (above[part] - value) * (place % 1)));
  }
  return new Uint32Array(bytes.buffer);
}

const WEIGHTS = pixelsOf(VIRIDIS);
const DIFFERENCES = { light: pixelsOf(VIK), dark: pixelsOf(BERLIN) };
const LINEAR = Float64Array.from({ length: 256 }, (_, level) => level);
const ROOTS = Float64Array.from({ length: 256 }, (_, level) => 255 * Math.sqrt(level / 255));

/* Colours up to the largest weight of each map; or fixed ones, the same for every map. */
export const OWN = "map";

export const SCALES = [
  ["sqrt:1", "√ 0 – 1"], ["sqrt:0.25", "√ 0 – 0.25"], ["linear:1", "0 – 1"], ["linear:0.5", "0 – 0.5"],
  ["linear:0.2", "0 – 0.2"], ["linear:0.1", "0 – 0.1"], ["linear:0.05", "0 – 0.05"], ["linear:row", "row’s largest"],
]; // prettier-ignore

/* A scale's curve, and the weight at its top (null: each row's largest). Differences have no map's own largest. */
export function parseScale(scale) {
  if (scale === OWN) return parseScale(SCALES[0][0]);
  const [curve, top] = scale.split(":");
  return { root: curve === "sqrt", top: top === "row" ? null : Number(top) };
}

/* How strong a weight is drawn where it is no cell, 0 to 1: its place on the scale. */
export function strengthOn(scale, largest, largestOfRow) {
  if (scale === OWN) return (weight) => Math.min(1, weight / (largest || 1));
  const { root, top } = parseScale(scale);
  return (weight, row) => {
    const share = Math.min(1, weight / (top ?? (largestOfRow(row) || 1)));
    return root ? Math.sqrt(share) : share;
  };
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

/* The largest weight of a picture, of the cells that show. */
export function topOf({ side, levels, scales, weights }, shown = null) {
  if (levels && shown === null) return scales.reduce((most, scale) => Math.max(most, scale), 0);
  let most = 0;
  for (let cell = 0; cell < side * side; cell += 1) {
    if (shown !== null && !shown[cell]) continue;
    const weight = levels ? (levels[cell] * scales[Math.floor(cell / side)]) / 255 : weights[cell];
    if (weight > most) most = weight;
  }
  return most;
}

/* Draw a picture of weights, one pixel a cell; the style sheet enlarges it. Cells that are not to show stay clear. */
export function drawWeights(canvas, picture, scale, shown = null) {
  const { side, levels, scales, weights } = picture;
  const { root, top } = scale === OWN ? { root: false, top: topOf(picture, shown) || 1 } : parseScale(scale);
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
