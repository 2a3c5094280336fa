/* One colour scale for every map: weight 0 is the first colour of the table, weight `top` and above the last. */

/* The table of 256 rows of red, green, blue as one opaque 32-bit pixel per row. */
function pixelsOf(colors) {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let row = 0; row < 256; row += 1) {
    bytes.set(colors.subarray(3 * row, 3 * row + 3), 4 * row);
    bytes[4 * row + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

class Palette {
  constructor(colors, top) {
    this.pixels = pixelsOf(colors);
    this.top = top;
    this.listeners = [];
  }

  subscribe(listener) {
    this.listeners.push(listener);
  }

  setTop(top) {
    this.top = top;
    for (const listener of this.listeners) listener();
  }

  /* Draw a head at one pixel a cell; the style sheet enlarges it. Cells that are not to show stay clear. */
  draw(canvas, head, count, shown = null) {
    const image = new ImageData(count, count);
    const pixels = new Uint32Array(image.data.buffer);
    for (let query = 0; query < count; query += 1) {
      const factor = head.scales[query] / this.top;
      for (let cell = query * count; cell < (query + 1) * count; cell += 1) {
        const shows = shown === null || shown[cell];
        pixels[cell] = shows ? this.pixels[Math.min(255, Math.round(head.levels[cell] * factor))] : 0;
      }
    }
    canvas.width = count;
    canvas.height = count;
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

function showLegend(palette) {
  const image = new ImageData(256, 1);
  new Uint32Array(image.data.buffer).set(palette.pixels);
  document.getElementById("legend").getContext("2d").putImageData(image, 0, 0);
  const select = document.getElementById("top");
  select.value = String(palette.top);
  select.addEventListener("change", () => palette.setTop(Number(select.value)));
}
