/* What one place of the page shows: the maps of the run, those it is compared with, or the difference of both. The
   grid, the large map and the text all read from here. */

import { SMALL } from "./maps.js";
import { drawDifferences, drawWeights } from "./scale.js";
import { matchLayer } from "./likeness.js";
import { isShown, shownCells } from "./pairs.js";

/* The maps that are compared with, if there are any and they can be laid beside the shown ones. */
export function otherOf(store) {
  return store.compare && store.other?.maps ? store.other.maps : null;
}

export function isDifference(store) {
  return store.compare?.view === "difference" && otherOf(store) !== null;
}

const matches = new WeakMap(); // maps -> other maps -> heads of each layer

function matchOf(maps, other, layer) {
  if (!matches.has(maps)) matches.set(maps, new WeakMap());
  const known = matches.get(maps);
  if (!known.has(other)) known.set(other, []);
  const layers = known.get(other);
  layers[layer] ??= layer < other.layers.length ? matchLayer(maps, other, layer) : [];
  return layers[layer];
}

/* The head of the other maps that stands in the place of `head`, or null. */
export function counterpart(store, layer, head) {
  const other = otherOf(store);
  if (other === null || !store.maps || layer >= other.layers.length) return null;
  const there = store.compare.order === "matched" ? (matchOf(store.maps, other, layer)[head] ?? null) : head;
  return other.has(layer, there) ? there : null;
}

/* How a head is called on one side. */
export function captionOf(store, side, layer, head) {
  const name = (names, at) => `${names?.[layer] ?? `layer ${layer}`}, head ${at}`;
  if (side === "main" && !isDifference(store)) return name(store.layerNames, head);
  const there = counterpart(store, layer, head);
  const otherName = there === null ? "none" : name(store.other?.index?.layers ?? store.layerNames, there);
  if (side === "other") return otherName;
  return `${name(store.layerNames, head)} − ${there === head ? "the same head there" : `head ${there ?? "none"} there`}`;
}

/* How the large map of a head is drawn: as the reader chose, where that can be. */
export function viewOf(store, reading) {
  if (reading === null || reading.difference) return "weight";
  return store.view === "value" && reading.norms() === null ? "weight" : store.view;
}

const masks = new WeakMap(); // segments -> part and places -> cells

/* Which cells of a picture of so many places show, where the text is a pair and a part of it was chosen; else null. */
export function shownOf(store, side) {
  const { segments, part } = store;
  if (segments === null || part === "all") return null;
  if (!masks.has(segments)) masks.set(segments, new Map());
  const known = masks.get(segments);
  const key = `${part} ${side}`;
  if (!known.has(key)) known.set(key, shownCells(segments, part, side));
  return known.get(key);
}

/* Which tokens show beside one of them, as keys of a query or as queries of a key; null for all. */
export function shownBeside(store, token) {
  const { segments, part, tokens } = store;
  if (segments === null || part === "all") return null;
  return tokens.map((_, other) => isShown(segments, part, token, other));
}

/* Drawing and weights of a head on one side ("main" or "other"), or null if it has none there. */
export function readingOf(store, side, layer, head) {
  const { maps } = store;
  const other = otherOf(store);
  const there = counterpart(store, layer, head);
  if (side === "other") return there === null ? null : plain(store, other, layer, there);
  if (!maps?.has(layer, head)) return null;
  if (!isDifference(store)) return plain(store, maps, layer, head);
  return there === null ? null : difference(store, maps, layer, head, other, there);
}

function plain(store, maps, layer, head) {
  return {
    difference: false,
    maps,
    side: maps.picture(layer, head).side,
    draw: (canvas) => drawWeights(canvas, maps.picture(layer, head), store.scale, shownOf(store, maps.picture(layer, head).side)),
    picture: () => maps.picture(layer, head),
    norms: () => maps.columnNorms(layer, head),
    norm: (key) => maps.norms(layer, head)?.[key] ?? null,
    valued: () => maps.valued(layer, head),
    drawSmall: (canvas) => {
      const small = maps.small(layer, head, shownOf(store, maps.picture(layer, head).side));
      drawWeights(canvas, small, store.scale, shownOf(store, small.side));
    },
    quadrants: () => maps.quadrants(layer, head),
    cell: (row, column) => maps.values(layer, head)[row * maps.picture(layer, head).side + column],
    row: (query) => maps.row(layer, head, query),
    column: (key) => maps.column(layer, head, key),
    parts: () => [],
    rest: (query) => maps.rest(layer, head, query),
  };
}

function difference(store, maps, layer, head, other, there) {
  const { side } = maps.picture(layer, head);
  if (other.picture(layer, there).side !== side) return null;
  const minus = (left, right) => left.map((weight, place) => weight - right[place]);
  const values = () => [maps.values(layer, head), other.values(layer, there)];
  return {
    difference: true,
    maps,
    side,
    draw: (canvas) => drawDifferences(canvas, side, ...values(), store.scale, store.theme, shownOf(store, side)),
    drawSmall: (canvas) => {
      const shown = shownOf(store, side);
      if (side <= SMALL || maps.long) return drawDifferences(canvas, side, ...values(), store.scale, store.theme, shown);
      const [left, right] = [maps.small(layer, head, shown).weights, other.small(layer, there, shown).weights];
      return drawDifferences(canvas, SMALL, left, right, store.scale, store.theme, shownOf(store, SMALL));
    },
    quadrants: () => {
      const [own, theirs] = [maps.quadrants(layer, head), other.quadrants(layer, there)];
      return own && theirs && minus(own, theirs);
    },
    cell: (row, column) => values().reduce((left, right) => left[row * side + column] - right[row * side + column]),
    row: (query) => minus(maps.row(layer, head, query), other.row(layer, there, query)),
    column: (key) => minus(maps.column(layer, head, key), other.column(layer, there, key)),
    parts: (query, key) => [maps.weight(layer, head, query, key), other.weight(layer, there, query, key)],
    rest: () => null,
  };
}

/* The largest weight of a row, against which its text is shaded. */
export function largest(row) {
  return row.reduce((most, weight) => Math.max(most, Math.abs(weight) || 0), 0);
}
