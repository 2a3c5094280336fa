/* The map of a head in this run, or in the run that it is compared with. */

import { headName } from "./store.js";
import { t } from "./strings.js";

/* The maps that are compared with, or null. */
export function otherMaps(store) {
  return store.compare && store.other ? store.other.maps : null;
}

/* How a head is called on one side, "main" or "other". */
export function captionOf(store, side, layer, head) {
  if (side === "main") return headName(store.index?.layers ?? [], layer, head);
  const { other } = store;
  if (!otherMaps(store)?.has(layer, head)) return t`none`;
  const step = other.text ? "" : t` · step ${other.step}`;
  return `${other.run}${step}: ${headName(other.index.layers, layer, head)}`;
}

/* The map of a head on one side, or null if it has none there: its cells row after row, one row,
   one column. Of the last layer `readout` is the place whose row alone is read, or null. */
export function headMap(store, side, layer, head) {
  const maps = side === "other" ? otherMaps(store) : store.maps;
  if (!maps?.has(layer, head)) return null;
  const other = side === "other" ? store.other : null;
  const isLast = layer === (other ?? store).index.layers.length - 1;
  const readout = isLast ? ((other?.text ?? store.shownText).readout ?? null) : null;
  const read = (name) => (place) => maps[name](layer, head, place);
  const parts = { cells: read("cells"), row: read("row"), column: read("column") };
  return { side: maps.tokens, readout, ...parts };
}
