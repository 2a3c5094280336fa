/* The map of a head in this run, in the run that it is compared with, or their difference. */

import { drawDifferences, drawWeights, largest } from "./colors.js";
import { layerNames } from "./store.js";

/* The maps that are compared with, or null. */
export function otherMaps(store) {
  if (!store.compare || !store.other) return null;
  const { maps, aligned } = store.other; // another text has its tokens put where these are
  return (store.compare.view === "difference" && aligned) || maps;
}

export function isDifference(store) {
  return store.compare?.view === "difference" && otherMaps(store) !== null;
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
  const isAlike = other.has(layer, head) && other.places === maps.places;
  return isAlike ? new HeadMap(maps, [layer, head], new HeadMap(other, [layer, head])) : null;
}

/* One head; less another, where one is given. */
class HeadMap {
  constructor(maps, at, other = null) {
    Object.assign(this, { maps, at, other, side: maps.places, isDifference: other !== null });
  }

  read(name, ...place) {
    const own = this.maps[name](...this.at, ...place);
    if (this.other === null || own === null) return own;
    const other = this.other.read(name, ...place);
    return other && own.map((value, at) => value - other[at]);
  }

  /* The weights that are drawn, row after row: of a long text, its overview. */
  cells() {
    return this.read("cells");
  }

  /* What the texts of a pair give to each other, or null. */
  quadrants() {
    return this.read("quadrants");
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

  /* As a small map; where one row alone is read, that row. Returns the largest weight. */
  drawSmall(canvas, { scale, theme }) {
    const { readout } = this;
    const isRow = readout !== null;
    const cells = isRow ? this.read("smallRow", readout) : this.read("small");
    this.paint(canvas, cells, scale, theme, isRow ? 1 : undefined);
    return largest(cells);
  }

  paint(canvas, cells, scale, theme, rows = undefined) {
    if (this.isDifference) drawDifferences(canvas, cells, theme, rows);
    else drawWeights(canvas, cells, scale, rows);
  }
}
