/* Where one head looks: queries down, keys across; of a last layer the row that is read. */

import { contributionsOf } from "./contributions.js";
import { Fold, Panel, formatNumber, isolated, legible, useWidth } from "./parts.js";
import { html, useLayoutEffect, useRef } from "./preact.js";
import { headName } from "./store.js";
import { t } from "./strings.js";
import { sideOf } from "./text.js";
import viridis from "./viridis.json" with { type: "json" };

const LABEL = 12; // pixels that a label takes
const AXIS = 104; // and the labels beside a map
const CELLS = [2, 28]; // pixels of a cell, at least and at most
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/* The 256 colours of viridis, each as one opaque 32-bit pixel. */
const WEIGHTS = new Uint32Array(
  Uint8ClampedArray.from(viridis.flatMap((color) => {
    return [...color.match(/../g).map((pair) => parseInt(pair, 16)), 255];
  })).buffer,
);

/* Paint weights from 0 to `most`, one pixel a cell. */
function paint(canvas, cells, width, most) {
  const image = new ImageData(width, cells.length / width);
  const pixels = new Uint32Array(image.data.buffer);
  cells.forEach((cell, at) => (pixels[at] = WEIGHTS[Math.floor((255 * cell) / most + 0.5)]));
  Object.assign(canvas, { width, height: image.height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/* The chosen head on one side; null where it has none. `first` is the query of the first row. */
function mapOf(store, other) {
  const { layer, head, shownText } = store;
  const { maps, index } = other ?? store;
  if (!maps?.has(layer, head)) return null;
  const text = other?.text ?? shownText;
  const isRead = layer === index.layers.length - 1 && (text.readout ?? null) !== null;
  const first = isRead ? text.readout : 0;
  const cells = isRead ? maps.row(layer, head, first) : maps.cells(layer, head);
  const most = cells.reduce((top, weight) => Math.max(top, weight || 0), 0);
  return { text, isRead, first, cells, most, side: maps.tokens };
}

/* The map of this run or text, and of the one that it is compared with. */
export function Maps({ store }) {
  const { compare, other, layer, head } = store;
  const isAlone = store.maps !== null && contributionsOf(store) === null; // there is nothing else
  const name = store.headName(layer, head);
  const own = other && `${other.name}: ${headName(other.index.layers, layer, head)}`;
  const content = () => html`<div class="side-by-side">
    <${HeadMap} store=${store} name="head" title=${name} />
    ${compare && html`<${HeadMap} store=${store} other=${other} name="other-head" title=${own} />`}
  </div>`;
  const looks = t`Where the chosen head looks`;
  return html`<${Fold} title=${looks} isOpen=${isAlone}>${content}</${Fold}>`;
}

function HeadMap({ store, other, name, title }) {
  const map = other === null ? null : mapOf(store, other);
  const reader = map?.isRead ? legible(map.text.tokens[map.first]) : null;
  const looks = reader === null ? title : t`${title}: where ${reader} looks`;
  const scale = map && html`<span class="scale">
    0<span class="map-legend"></span>${formatNumber(map.most)}
  </span>`;
  const isMissing = map === null && store.maps !== null && other !== null;
  return html`<${Panel} name=${name} title=${looks} tools=${scale}>
    ${isMissing && t`There is no head here.`}
    ${map && html`<${Cells} store=${store} map=${map} title=${looks} />`}
  </${Panel}>`;
}

function Cells({ store, map, title }) {
  const [node, width] = useWidth();
  const canvas = useRef(null);
  const { side, first, cells, text, isRead, most } = map;
  const rows = cells.length / side;
  useLayoutEffect(() => paint(canvas.current, cells, side, most || 1), [cells.buffer, title, side]);
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
  const label = t`Attention weights of ${title}: rows are queries, columns are keys`;
  const listeners = { onpointermove: hover, onpointerleave: () => store.leave(), onkeydown: move };
  const mark = { top: `${query * tall}px`, left: key === null ? 0 : `${key * cell}px` };
  return html`<p class="readout" aria-live="polite">${readingOf(map, query, key)}</p>
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
    </p>`}`;
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

function readingOf({ text: { tokens, special }, first, cells, side }, query, key) {
  const named = (role, place) => {
    return [html`<small>${role} ${place} </small>`, isolated(tokens[place], "name")];
  };
  const own = named(t`query`, first + query);
  if (key === null) return own;
  const weight = html`<strong>${formatNumber(cells[query * side + key])}</strong>`;
  const rest = special?.includes(key) && html`<small> · ${t`a special token`}</small>`;
  return [own, " → ", named(t`key`, key), weight, rest];
}
