/* Where one head looks, or what passes through it: queries down, keys across; of a last layer the
   row that is read. All maps of a text have one colour scale. */

import { contributionsOf } from "./contributions.js";
import { Sparkline } from "./history.js";
import { captionOf, looksOf } from "./looks.js";
import { isTurned } from "./pair.js";
import {
  Panel, chooser, formatNumber, formatSigned, isolated, legible, percent, useWidth,
} from "./parts.js";
import { html, useLayoutEffect, useRef } from "./preact.js";
import { headName, isLastLayer } from "./store.js";
import { t } from "./strings.js";
import { sideOf, unitsOf } from "./words.js";

const LABEL = 12; // pixels that a label takes
const AXIS = 104; // and the labels beside a map
const CELLS = [2, 26]; // pixels of a cell, at least and at most
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const MODES = [["looks", t`where it looks`], ["passes", t`what passes`]];
// Colours of a light page, as blue, green, red; the style sheet turns them in a dark one.
const WEIGHT = 0x7a2a43;
const FOR = 0xbe6e1f;
const AGAINST = 0x1854bd;

/* Paint a map, one pixel a cell: the root of its share of `most` is how strong its colour is. */
function paint(canvas, { cells, side, most, colors: [more, less] }) {
  const image = new ImageData(side, cells.length / side);
  const pixels = new Uint32Array(image.data.buffer);
  cells.forEach((cell, at) => {
    const strength = Math.sqrt(Math.min(1, Math.abs(cell) / most));
    pixels[at] = (Math.round(255 * strength) << 24) | (cell < 0 ? less : more);
  });
  Object.assign(canvas, { width: side, height: image.height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/* A map of the shown text, or of what is compared with; null where there is none. `first` is the
   query of the first row; `isRow` asks for the answer's row alone, where there is one. */
export function mapOf(store, layer, head, { other = null, mode = "looks", isRow = false } = {}) {
  const { maps, index } = other ?? store;
  if (!maps?.has(layer, head)) return null;
  const text = other?.text ?? store.shownText;
  const isKnown = (text.readout ?? null) !== null;
  const isRead = isKnown && (isRow || isLastLayer(index.layers, layer));
  const shape = { text, isRead, first: isRead ? text.readout : 0, side: maps.tokens, mode };
  if (mode === "passes") return passedOf(store, layer, head, shape);
  const cells = isRead ? maps.row(layer, head, text.readout) : maps.cells(layer, head);
  return { ...shape, cells, most: mostOf(store), colors: [WEIGHT, WEIGHT] };
}

/* The end of the one scale of all maps, of what is compared with too. */
export function mostOf({ maps, other }) {
  return Math.max(maps?.most ?? 0, other?.maps.most ?? 0);
}

function passedOf(store, layer, head, shape) {
  const found = contributionsOf(store);
  const passed = found?.passed(layer, head) ?? null;
  if (passed === null) return null;
  const { side, first, isRead } = shape;
  const start = isRead && passed.rows > 1 ? first * side : 0;
  const cells = isRead ? passed.values.subarray(start, start + side) : passed.values;
  const colors = isTurned(store.index, found.asked) ? [AGAINST, FOR] : [FOR, AGAINST];
  return { ...shape, cells, most: found.mostPassed, colors };
}

/* A map without its words, as small as an icon. */
export function Thumbnail({ map }) {
  const canvas = useRef(null);
  useLayoutEffect(() => map && paint(canvas.current, map), [map?.cells, map?.most, map?.side]);
  const kind = map?.isRead ? "thumbnail strip" : "thumbnail";
  return map && html`<canvas class=${kind} ref=${canvas} aria-hidden="true"></canvas>`;
}

/* The scale of all maps of a text: the root of a weight, with 1/n marked, what a head gives each of
   the n tokens if it looks at all of them alike. */
export function Scale({ most, side, isSigned = false }) {
  const even = 1 / side;
  const mark = !isSigned && even < most && html`<span
    class="even" style=${{ "--at": percent(Math.sqrt(even / most)).replace(" ", "") }}
    title=${t`1/${side}: each token alike`}
  >1/n</span>`;
  const about = t`colour: the root of the number, the same in all maps of this text`;
  return html`<span class="scale" title=${about}>
    ${isSigned ? formatSigned(-most) : "0"}
    <span class=${isSigned ? "ramp" : "map-legend"}>${mark}</span>
    ${isSigned ? formatSigned(most) : formatNumber(most)}
  </span>`;
}

/* The chosen head's map where the reader asked for it, or where there is no more, and that of the
   run or text which it is compared with. Esc folds it. */
export function ChosenMap({ store }) {
  const { compare, other, layer, head, isUnfolded } = store;
  const node = useRef(null);
  const isShown = isUnfolded || contributionsOf(store) === null;
  useLayoutEffect(() => {
    if (isUnfolded) node.current?.scrollIntoView({ block: "nearest" });
  }, [layer, head, isUnfolded]);
  if (!isShown || store.maps === null) return null;
  const own = other && `${other.name}: ${headName(other.index.layers, layer, head)}`;
  const name = store.headName(layer, head);
  const close = (event) => event.key === "Escape" && store.set({ isUnfolded: false });
  return html`<div class="side-by-side" ref=${node} onkeydown=${close}>
    <${HeadMap} store=${store} name="head" title=${name}>
      <${Sparkline} store=${store} />
    </${HeadMap}>
    ${compare && html`<${HeadMap} store=${store} other=${other} name="other-head" title=${own} />`}
  </div>`;
}

function HeadMap({ store, other, name, title, children }) {
  const { layer, head } = store;
  const isKnown = other === undefined && mapOf(store, layer, head, { mode: "passes" }) !== null;
  const mode = isKnown ? store.mode : "looks";
  const map = other === null ? null : mapOf(store, layer, head, { other, mode });
  const reader = map?.isRead ? legible(map.text.tokens[map.first]) : null;
  const looks = reader === null ? title : t`${title}: where ${reader} looks`;
  const choose = (each) => store.set({ mode: each });
  const tools = map && [
    html`<${Scale} most=${map.most} side=${map.side} isSigned=${mode === "passes"} />`,
    isKnown && chooser("mode", t`What the map shows`, mode, MODES, choose),
  ];
  const units = map && unitsOf(map.text, "word");
  const { layers } = (other ?? store).index;
  const caption = map && mode === "looks" && captionOf(looksOf(map, units), layers, layer);
  const isMissing = map === null && store.maps !== null && other !== null;
  return html`<${Panel} name=${name} title=${looks} tools=${tools}>
    ${isMissing && t`There is no head here.`}
    ${caption && html`<p class="caption">${caption}</p>`}
    <div class="beside-map">
      ${map && html`<${Cells} store=${store} map=${map} title=${looks} />`}
      ${children}
    </div>
  </${Panel}>`;
}

function Cells({ store, map, title }) {
  const [node, width] = useWidth();
  const canvas = useRef(null);
  const { side, first, cells, text, isRead, most } = map;
  const rows = cells.length / side;
  useLayoutEffect(() => paint(canvas.current, map), [cells, most, map.mode]);
  const room = Math.floor((width - AXIS - 8) / side);
  const cell = Math.min(CELLS[1], Math.max(CELLS[0], room));
  const tall = isRead ? 24 : cell;
  const within = (place, count) => Math.min(count - 1, Math.max(0, place));
  const query = isRead ? 0 : within(store.query, rows);
  const key = store.key === null ? null : within(store.key, side);
  const point = (row, column) => {
    const token = within(column, side);
    store.set({ query: first + within(row, rows), key: token, lit: token });
  };
  const hover = ({ offsetX: x, offsetY: y }) => point(Math.floor(y / tall), Math.floor(x / cell));
  const move = (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    if (key === null) point(query, 0);
    else point(query + arrow[0], key + arrow[1]);
  };
  const sizes = { "--cell": `${cell}px`, "--tall": `${tall}px`, "--axis": `${AXIS}px` };
  const style = { ...sizes, "--side": `${cell * side}px`, "--high": `${tall * rows}px` };
  const label = t`Map of ${title}: rows are queries, columns are keys; arrow keys move`;
  const listeners = { onpointermove: hover, onpointerleave: () => store.leave(), onkeydown: move };
  const mark = { top: `${query * tall}px`, left: key === null ? 0 : `${key * cell}px` };
  return html`<div class="map">
    <p class="readout" aria-live="polite">${readingOf(map, query, key)}</p>
    <div class="map-scroll" style=${style} ref=${node}>
      <div class="corner" aria-hidden="true">${t`key →`}<br />${t`query ↓`}</div>
      <div class="axis keys" aria-hidden="true">${labelsOf(text, 0, side, cell, key)}</div>
      <div class="axis queries" aria-hidden="true">
        ${labelsOf(text, first, rows, tall, query)}
      </div>
      <div class="cells">
        <canvas
          class="large" tabindex="0" role="img" aria-label=${label} ref=${canvas} ...${listeners}
        />
        <div class=${key === null ? "row-mark" : "cell-mark"} style=${mark}></div>
      </div>
    </div>
    ${isRead && html`<p class="key">
      ${t`This row alone is read out: the other ${side - 1} decide nothing.`}
    </p>`}</div>`;
}

/* Every n-th label, where cells are too small for one each, and the one that is chosen. */
function labelsOf({ tokens, special, segments, readout }, from, count, size, chosen) {
  const every = Math.ceil(LABEL / size);
  const half = Math.floor(every / 2); // those at the ends need room as well
  return Array.from({ length: count }, (_, at) => {
    const isNear = chosen !== null && at !== chosen && Math.abs(at - chosen) < every;
    const hasRoom = at % every === half && at + half < count && !isNear;
    if (at !== chosen && count > 1 && !hasRoom) return null;
    const place = from + at;
    const names = ["label", at === chosen && "active", special?.includes(place) && "special"];
    names.push(segments && sideOf(segments[place]), place === readout && "reads");
    const name = names.filter(Boolean).join(" ");
    return html`<span key=${at} class=${name} style=${{ "--at": String(at) }}>
      ${isolated(tokens[place])}
    </span>`;
  });
}

function readingOf({ text: { tokens, special }, first, cells, side, mode }, query, key) {
  const named = (role, place) => {
    return [html`<small>${role} ${place} </small>`, isolated(tokens[place], "name")];
  };
  const own = named(t`query`, first + query);
  if (key === null) return own;
  const value = cells[query * side + key];
  const number = mode === "looks" ? formatNumber(value) : formatSigned(value);
  const weight = html`<strong>${number}</strong>`;
  const rest = special?.includes(key) && html`<small> · ${t`a special token`}</small>`;
  return [own, " → ", named(t`key`, key), weight, rest];
}
