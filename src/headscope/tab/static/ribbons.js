/* How a text becomes its answer: ribbons from words through heads to the log-odds. A ribbon is a
   cell of the table of heads and words, its width the cell's size: the picture is the sum. */

import { cellIn, sumIn, sumOf } from "./contributions.js";
import {
  classLabel, className, formatSigned, isolated, legible, percent, useRow,
} from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { addedUp } from "./rounding.js";
import { placeOf } from "./store.js";
import { count, t } from "./strings.js";
import { directionOf } from "./words.js";

const FEW = 12; // heads that all have ribbons of their own
const MOST = 10; // of more heads; the rest have one
const ROOM = 78; // pixels of a word in a row that has not all of them
const [GAP, NODE, DEEP, OUT, BAR] = [8, 26, 170, 48, 32]; // pixels: between nodes, and heights
const LEAST = [40, 30]; // pixels of a node at least: of a word and of a head
const WIDEST = 150; // pixels of one log-odds
const THIN = 0.2; // pixels, below which nothing can be seen
const FONT = 16; // pixels of a word
const SMALL = 0.9; // of it, in a node
const NEARLY = 0.7; // of the width of ribbons from few words, that those from all have at least
const NARROW = 640; // pixels
const SHARE = 0.8; // of the width, that names take at most
const pen = globalThis.OffscreenCanvas && new OffscreenCanvas(1, 1).getContext("2d");

/* How wide words are set in pixels. */
function wide(word) {
  if (!pen) return FONT * word.length;
  pen.font = `${FONT}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(word).width + 8;
}

/* A column for each unit of a text, in the direction of its writing. */
function everyUnit(found, { units, sums }, { special, text }) {
  const biases = { kind: "biases", places: [], value: found.shown.biases, least: wide(t`biases`) };
  const all = units.map(({ word, start }, at) => {
    const kind = special?.includes(start) ? "end" : "word";
    return { kind, word, places: [at], value: sums[at], least: wide(legible(word)) };
  });
  return directionOf(text) === "rtl" ? [biases, ...all.reverse()] : [...all, biases];
}

/* A column for each of the words that add most, in the order of the text, and the others as one. */
function largest(found, words, width) {
  const number = Math.max(2, Math.floor(width / ROOM) - 3);
  const own = found.columnsOf(words, number).map((column) => {
    const times = column.places.length > 1 ? ` ×${column.places.length}` : "";
    const name = column.kind === "word" ? `${legible(column.word)}${times}` : "";
    return { ...column, times, least: column.kind === "word" ? Math.min(110, wide(name)) : 58 };
  });
  const texts = own.filter(({ kind }) => kind === "word");
  texts.sort((a, b) => a.places[0] - b.places[0]);
  return [...texts, ...own.slice(texts.length)];
}

/* The rows of the picture: the largest heads, the others as one, what passes no head, what is not
   shared out, and what is not attributed; each with its cells, exact and as `shown`, and sum. */
function rowsOf(found, words, columns, order, width) {
  const all = found.linesIn(words).map((own) => {
    const cells = columns.map(({ kind, places }) => {
      return kind === "biases" ? own.bias : sumIn(own.line, places, words.units);
    });
    const shown = columns.map((column) => cellIn(own.shown, column));
    return { ...own, key: own.kind === "head" ? placeOf(own) : own.kind, cells, shown };
  });
  const rank = new Map(order.map((key, at) => [key, at]));
  const heads = all.filter(({ kind }) => kind === "head");
  heads.sort((a, b) => (rank.get(a.key) ?? 0) - (rank.get(b.key) ?? 0));
  const [few, least] = width < NARROW ? [MOST / 2, MOST / 2] : [FEW, MOST];
  const most = heads.length > few ? least : heads.length;
  const rest = [...heads.slice(most), ...all.filter(({ kind }) => kind === "heads")];
  const together = rest.length > 0 && {
    kind: "heads", key: "heads", number: sumOf(rest.map((row) => row.number ?? 1)),
    sum: addedUp(rest.map(({ sum }) => sum)),
    cells: columns.map((_, at) => sumOf(rest.map(({ cells }) => cells[at]))),
    shown: columns.map((_, at) => addedUp(rest.map(({ shown }) => shown[at]))),
  };
  const others = all.filter(({ kind }) => kind !== "head" && kind !== "heads");
  const none = columns.map(() => 0);
  const lost = found.missed !== 0 && {
    kind: "missed", key: "missed", sum: found.shown.missed, cells: none, shown: none,
  };
  return [...heads.slice(0, most), together, ...others, lost].filter(Boolean);
}

/* Nodes in a line of `width`, each as wide as its flow or its least, in the middle: [{x, wide}]. */
function placed(flows, leasts, scale, width) {
  const sizes = flows.map((flow, at) => Math.max(leasts[at], scale * flow));
  let x = (width - sumOf(sizes) - GAP * (sizes.length - 1)) / 2;
  return sizes.map((size) => {
    const node = { x, wide: size };
    x += size + GAP;
    return node;
  });
}

/* How wide nodes are at least, for their names: at most SHARE of a width in all. */
function roomFor(nodes, least, width) {
  const wished = nodes.map((node) => Math.max(least, node.least));
  const room = SHARE * (width - GAP * nodes.length);
  return wished.map((wish) => wish * Math.min(1, room / sumOf(wished)));
}

/* Where everything stands, for a width in pixels. */
function laidOut({ columns, rows, answer }, width) {
  const ofColumns = columns.map((_, at) => sumOf(rows.map(({ cells }) => Math.abs(cells[at]))));
  const ofRows = rows.map(({ cells, sum }) => Math.max(Math.abs(sum), sumOf(cells.map(Math.abs))));
  const leasts = [roomFor(columns, LEAST[0], width), roomFor(rows, LEAST[1], width)];
  const flows = [ofColumns, ofRows];
  const fits = (scale) => flows.every((flow, at) => {
    const sizes = flow.map((each, place) => Math.max(leasts[at][place], scale * each));
    return sumOf(sizes) + GAP * (sizes.length - 1) <= width;
  });
  let [scale, step] = [0, WIDEST];
  for (let turn = 0; turn < 12; turn += 1, step /= 2) if (fits(scale + step)) scale += step;
  const [tops, nodes] = flows.map((flow, at) => placed(flow, leasts[at], scale, width));
  const start = ({ x, wide: size }, flow) => x + (size - scale * flow) / 2;
  const from = tops.map((node, at) => start(node, ofColumns[at]));
  const ribbons = rows.flatMap(({ cells, key }, row) => {
    let to = start(nodes[row], sumOf(cells.map(Math.abs)));
    return cells.map((cell, column) => {
      const size = scale * Math.abs(cell);
      const ends = { from: from[column], to, size };
      to += size;
      from[column] += size;
      return { key: `${key}:${column}`, row: key, column, cell, ...ends };
    });
  });
  const nets = rows.map(({ sum }) => Math.abs(sum));
  const bar = { wide: Math.min(width, Math.max(wide(answer) + GAP, scale * sumOf(nets))) };
  bar.x = (width - bar.wide) / 2;
  const signs = [rows.filter(({ sum }) => sum >= 0), rows.filter(({ sum }) => sum < 0)];
  const [own, against] = signs.map((all) => scale * sumOf(all.map(({ sum }) => Math.abs(sum))));
  bar.split = bar.x + (bar.wide * own) / (own + against || 1);
  let at = (bar.x + bar.split - own) / 2;
  const outs = signs.flat().map(({ key, sum }) => {
    const size = scale * Math.abs(sum);
    if (sum < 0) at = Math.max(at, (bar.split + bar.x + bar.wide - against) / 2);
    const out = { key: `${key}:out`, row: key, cell: sum, size, to: at };
    at += size;
    out.from = start(nodes[rows.findIndex((row) => row.key === key)], Math.abs(sum));
    return out;
  });
  return { scale, tops, nodes, bar, ribbons: ribbons.filter(({ size }) => size > THIN), outs };
}

/* A ribbon from one height to another. */
function pathOf({ from, to, size }, top, low) {
  const [a, b, c, d] = [from, from + size, to + size, to].map((x) => x.toFixed(1));
  const half = (top + low) / 2;
  const down = `M${a} ${top}C${a} ${half} ${d} ${half} ${d} ${low}`;
  return `${down}H${c}C${c} ${half} ${b} ${half} ${b} ${top}Z`;
}

/* The picture of a text for a width: {columns, rows, isAll, ...}; null while the width is unknown.
   While heads are switched, and while steps are played, rows keep the order that they had. */
export function usePicture(store, found, words, width) {
  const { shownText, unit } = store;
  const pair = [found?.asked, found?.against].join();
  const order = useMemo(() => found?.heads.map(placeOf) ?? [], [shownText, pair, width > 0]);
  return useMemo(() => {
    if (found === null || width === 0) return null;
    const answer = answerOf(store, found);
    const pictureOf = (columns, isAll) => {
      const rows = rowsOf(found, words, columns, order, width);
      for (const row of rows) row.least = row.kind === "head" ? 0 : namedAt(store, row, width);
      return { isAll, columns, rows, width, answer, ...laidOut({ columns, rows, answer }, width) };
    };
    const few = pictureOf(largest(found, words, width), false);
    const every = everyUnit(found, words, shownText);
    const needed = sumOf(every.map(({ least }) => Math.max(LEAST[0], least) + GAP));
    if (shownText.segments || needed > width) return few;
    const all = pictureOf(every, true);
    return all.scale >= NEARLY * few.scale ? all : few;
  }, [found, words, width, order, unit]);
}

/* The room for the name of what is no head, in a narrow picture for its beginning. */
function namedAt(store, row, width) {
  const words = `${rowName(store, row)} ${formatSigned(row.sum)}`;
  return width < NARROW ? 2 * LEAST[1] : SMALL * wide(words) + GAP;
}

/* The log-odds of the answer, and its probability. */
function answerOf(store, { asked, against, shown: { total } }) {
  const share = store.maps.values("probabilities")?.[asked];
  const [first, second] = [asked, against].map((place) => className(store, place));
  const words = t`${first} ${formatSigned(total)} over ${second}`;
  return share === undefined ? words : `${words}: ${percent(share)}`;
}

/* How wide the words are that stand in one line over their ribbons, and how far in the first one
   begins; null where the text has several lines. */
export function sizesOf({ isAll, columns, tops, width }) {
  if (!isAll) return null;
  const sizes = [];
  columns.forEach(({ places: [place] }, at) => {
    if (place !== undefined) sizes[place] = tops[at];
  });
  const isTurned = columns[0].kind === "biases"; // of a text that is written from the right
  const start = isTurned ? width - sizes[0].x - sizes[0].wide : sizes[0].x;
  return { start, all: sizes.map(({ wide: size }) => size) };
}

/* Below the words of a text that has all in one line, else below those that add most: ribbons,
   heads, and the answer. `looksAt` is the share of its attention that the chosen head gives places;
   `children` is what follows the words. */
export function Ribbons({ store, found, picture, looksAt, units }) {
  const { columns, rows, isAll, width, answer, tops, nodes, bar, ribbons, outs } = picture;
  const [over, setOver] = useState(null); // a row's key, a column's number, or "answer"
  const isIn = (place) => store.lit >= units[place].start && store.lit < units[place].end;
  const lit = store.lit === null ? -1 : columns.findIndex(({ places }) => places.some(isIn));
  const focus = over ?? (lit < 0 ? null : lit);
  const chosen = placeOf(store);
  const strengthOf = ({ row, column }) => {
    if (focus === null) return row === chosen ? "full" : "faint";
    if (focus === "answer") return "half";
    return focus === row || focus === column ? "full" : "gone";
  };
  const drawn = (ribbon, top, low) => html`<path
    key=${ribbon.key} data-cell=${ribbon.key} d=${pathOf(ribbon, top, low)}
    class="ribbon ${strengthOf(ribbon)} ${ribbon.cell < 0 ? "less" : ""}"
  />`;
  const end = DEEP + NODE;
  const on = (place) => ({
    onpointerenter: () => setOver(place), onpointerleave: () => setOver(null),
    onfocus: () => setOver(place), onblur: () => setOver(null),
  });
  const { tabOf, focusOn, onkeydown } = useRow(rows.length);
  const heads = rows.map((row, at) => html`<${Node}
    key=${row.key} store=${store} row=${row} at=${at} node=${nodes[at]} tab=${tabOf(at)}
    listeners=${on(row.key)} isChosen=${row.key === chosen} isLit=${focus === row.key}
  />`);
  const labels = columns.map((column, at) => html`<${Label}
    key=${column.word ?? column.kind} column=${column} node=${tops[at]} listeners=${on(at)}
    look=${column.places.length > 0 ? looksAt(column.places) : null} isLit=${focus === at}
  />`);
  const isLabelled = (_, at) => !isAll || columns[at].kind === "biases";
  // Ribbons move over the steps of training; under typing hands that would take too long.
  const kind = `flow ${isAll ? "whole" : ""} ${store.steps.length > 1 ? "moving" : ""}`;
  return html`<div class=${kind} style=${{ "--width": `${width}px` }}>
    <div class="columns" role="group" aria-label=${t`Words that add most`}>
      ${labels.filter(isLabelled)}
    </div>
    <div class="drawing" style=${{ height: `${end + OUT + BAR}px` }}>
      <svg width=${width} height=${end + OUT} aria-hidden="true">
        ${ribbons.map((ribbon) => drawn(ribbon, 0, DEEP))}
        ${outs.map((ribbon) => drawn(ribbon, end, end + OUT))}
      </svg>
      <div
        class="nodes" role="group" aria-label=${t`Heads; arrow keys move, Enter chooses`}
        style=${{ top: `${DEEP}px`, height: `${NODE}px` }}
        onfocusin=${focusOn} onkeydown=${onkeydown}
      >${heads}</div>
      <div
        class="answer-bar" tabindex="0" role="note" aria-label=${answer} ...${on("answer")}
        style=${{ ...barStyle(bar), top: `${end + OUT}px` }}
      >${isolated(answer)}</div>
    </div>
    <${Behind} store=${store} found=${found} columns=${columns} rows=${rows} />
  </div>`;
}

/* A word of those that add most, or what stands for several: with its number, and where the chosen
   head looks. */
function Label({ column, node, listeners, look, isLit }) {
  const { kind, word, times, value } = column;
  const style = { left: `${node.x}px`, width: `${node.wide}px` };
  const isWord = kind === "word";
  const name = isWord ? [isolated(word), html`<small>${times}</small>`] : columnName(column);
  return html`<div
    class="column ${kind} ${value < 0 ? "less" : ""} ${isLit ? "lit" : ""}" style=${style}
    ...${listeners}
  >
    <span class="column-name">${name}</span><b>${formatSigned(value)}</b>
    ${look !== null && html`<${Look} share=${look} />`}
  </div>`;
}

/* What a column is called that is no word. */
export function columnName({ kind, count: number }) {
  if (kind === "others") return number === 1 ? t`1 other` : t`${count(number)} others`;
  return kind === "ends" ? t`ends` : t`biases`;
}

/* A box as dark as the attention that the chosen head gives there. */
export function Look({ share }) {
  const strength = Math.sqrt(Math.min(1, share)).toFixed(3); // as in the maps
  return html`<i class="looked" style=${{ "--look": strength }}></i>`;
}

/* A head, which a click chooses, or what is none. */
function Node({ store, row, at, node, tab, listeners, isChosen, isLit }) {
  const { kind, layer, head, sum } = row;
  const name = rowName(store, row);
  const title = `${name} ${formatSigned(sum)}`;
  const isHead = kind === "head";
  const label = isHead ? `${shortName(store, layer, head)} ${formatSigned(sum)}, ${name}` : title;
  const state = isHead && store.ablated.get(row.key);
  const names = ["node", kind, sum < 0 && "less", isLit && "lit", state === "zero" && "ablated"];
  return html`<button
    type="button" class=${names.filter(Boolean).join(" ")} title=${title} aria-label=${label}
    aria-pressed=${isHead ? String(isChosen) : null} data-place=${at} tabindex=${tab}
    style=${{ left: `${node.x}px`, width: `${node.wide}px` }} ...${listeners}
    onclick=${() => isHead && store.set({ layer, head, headChosen: true })}
  >
    <b>${isHead ? shortName(store, layer, head) : name}</b> <span>${formatSigned(sum)}</span>
  </button>`;
}

/* What a row is called. */
export function rowName(store, { kind, layer, head, number }) {
  if (kind === "head") return store.headName(layer, head);
  if (kind === "heads") return t`${number} other heads`;
  if (kind === "missed") return t`not attributed`;
  return kind === "past" ? t`past every head` : t`not shared out`;
}

/* A head by its numbers: 1·0 is head 0 of layer 1. */
export function shortName({ index }, layer, head) {
  return index.layers.length === 1 ? String(head) : `${layer}·${head}`;
}

/* The answer's bar: for it in one colour, against it in the other. */
function barStyle({ x, wide: size, split }) {
  const share = { "--split": `${((100 * (split - x)) / size).toFixed(2)}%` };
  return { left: `${x}px`, width: `${size}px`, ...share };
}

/* The table behind the picture, for whoever cannot see it. */
function Behind({ store, found, columns, rows }) {
  const nameOf = (column) => {
    return column.word === undefined ? columnName(column) : legible(column.word);
  };
  const line = (row) => html`<tr>
    <th scope="row">${rowName(store, row)}</th>
    ${[...row.shown, row.sum].map((number) => html`<td>${formatSigned(number)}</td>`)}
  </tr>`;
  const [first, second] = [found.asked, found.against].map((place) => classLabel(store, place));
  return html`<div class="unseen"><table>
    <caption>${t`What each head brings from each word: `}${first} / ${second}</caption>
    <tr><td></td>${columns.map((column) => html`<th scope="col">${nameOf(column)}</th>`)}
      <th scope="col">${t`sum`}</th></tr>
    ${rows.map(line)}
  </table></div>`;
}
