/* The map of a head in this run, in the run that it is compared with, or their difference. */

import { drawDifferences, drawWeights } from "./colors.js";
import { layerNames } from "./store.js";

/* The maps that are compared with, or null. */
export function otherMaps(store) {
  return store.compare && store.other ? store.other.maps : null;
}

/* Whether what is compared with has the same tokens: else there are no differences. */
export function isAlike({ other, tokens }) {
  return !other?.text || JSON.stringify(other.text.tokens) === JSON.stringify(tokens);
}

export function isDifference(store) {
  return store.compare?.view === "difference" && otherMaps(store) !== null && isAlike(store);
}

/* Whether what is compared with stands beside. */
export function isBeside(store) {
  return store.compare !== null && (store.compare.view === "beside" || !isAlike(store));
}

/* How a head is called on one side, "main" or "other". */
export function captionOf(store, side, layer, head) {
  const nameIn = (layers) => {
    return layers.length === 1 ? `head ${head}` : `${layerNames(layers)[layer]}, head ${head}`;
  };
  const own = nameIn(store.index?.layers ?? []);
  if (side === "main") return isDifference(store) ? `${own} − the same head there` : own;
  const hasHead = otherMaps(store)?.has(layer, head) ?? false;
  return hasHead ? nameIn(store.other.index.layers) : "none";
}

/* The map of a head on one side, or null if it has none there. Of the last layer `readout` is the
   place whose row alone is read, where there is one. */
export function headMap(store, side, layer, head) {
  const maps = side === "other" ? otherMaps(store) : store.maps;
  const map = mapOf(store, side, maps, [layer, head]);
  if (map === null) return null;
  const other = side === "other" ? store.other : null;
  const isLast = layer === (other ?? store).index.layers.length - 1;
  map.readout = isLast ? ((other?.text ?? store.shownText).readout ?? null) : null;
  return map;
}

function mapOf(store, side, maps, [layer, head]) {
  if (!maps?.has(layer, head)) return null;
  const map = new HeadMap(maps, [layer, head]);
  if (side === "other" || !isDifference(store)) return map;
  const other = otherMaps(store);
  const isAlike = other.has(layer, head) && other.tokens === maps.tokens;
  return isAlike ? new HeadMap(maps, [layer, head], new HeadMap(other, [layer, head])) : null;
}

/* One head; less another, where one is given. */
class HeadMap {
  constructor(maps, at, other = null) {
    Object.assign(this, { maps, at, other, side: maps.tokens, isDifference: other !== null });
  }

  read(name, ...place) {
    const own = this.maps[name](...this.at, ...place);
    if (this.other === null || own === null) return own;
    const other = this.other.read(name, ...place);
    return other && own.map((value, at) => value - other[at]);
  }

  /* The weights that are drawn, row after row. */
  cells() {
    return this.read("cells");
  }

  /* The weights that a query gives to each key. */
  row(query) {
    return this.read("row", query);
  }

  /* The weights that a key is given by each query. */
  column(key) {
    return this.read("column", key);
  }

  draw(canvas, { scale, theme }) {
    this.paint(canvas, this.cells(), scale, theme);
  }

  /* As a small map; where one row alone is read, that row. */
  drawSmall(canvas, { scale, theme }) {
    const { readout } = this;
    const isRow = readout !== null;
    const cells = isRow ? this.read("smallRow", readout) : this.read("small");
    this.paint(canvas, cells, scale, theme, isRow ? 1 : undefined);
  }

  paint(canvas, cells, scale, theme, rows = undefined) {
    if (this.isDifference) drawDifferences(canvas, cells, theme, rows);
    else drawWeights(canvas, cells, scale, rows);
  }
}
