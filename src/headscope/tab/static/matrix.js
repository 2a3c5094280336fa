/* One table of heads and words: rows are heads of all layers, the largest first, and add up to what
   each brings; columns add up to the words of the bar. Each head has its map, which unfolds. */

import { contributionsOf } from "./contributions.js";
import { Sparkline } from "./history.js";
import { captionOf, looksOf } from "./looks.js";
import { ChosenMap, Scale, Thumbnail, mapOf, mostOf } from "./map.js";
import {
  Panel, SumBar, Term, button, className, formatSigned, isolated, pointing, tint, unfolder,
  useWidth,
} from "./parts.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { addedUp } from "./rounding.js";
import { placeOf } from "./store.js";
import { count, parts, t } from "./strings.js";
import { Switch, switches } from "./switch.js";
import { languageOf } from "./words.js";

const FEW = 12; // heads that all have a row
const MOST = 10; // rows of more heads, before all are shown
const NARROW = 640; // pixels: the sum stands beside the name, and words can be scrolled to
const FIXED = [300, 670]; // pixels that all but the words take, in a narrow table and a wide one
const COLUMN = 74;
const LARGE = 0.1; // of the log-odds: ends or biases of this size have a column of their own
const LEAST = [0.1, 0.5]; // log-odds and points, of a sum and a change that are at odds

export function Matrix({ store }) {
  const found = contributionsOf(store);
  return found && html`<${Cells} store=${store} found=${found} />`;
}

function Cells({ store, found }) {
  const [node, width] = useWidth();
  const [isWhole, setWhole] = useState(false);
  const isNarrow = width > 0 && width < NARROW;
  const room = Math.max(3, Math.floor((width - FIXED[isNarrow ? 0 : 1]) / COLUMN)) || 8;
  const words = found.inWords(store.shownText, store.unit);
  const { shownText, shown, unit } = store;
  // While heads are switched rows and columns stay where they are.
  const asked = [found.asked, found.against].join();
  const [heads, names] = useMemo(() => {
    return [found.heads.map(placeOf), words.groups.map(({ word }) => word)];
  }, [shownText, shown, unit, asked]);
  const groups = inOrder(words.groups, names, ({ word }) => word);
  const table = merged(found.table({ ...words, groups }, isWhole ? Infinity : room), isWhole);
  const ofHeads = table.rows.filter(({ kind }) => kind === "head");
  const all = inOrder(ofHeads, heads, placeOf);
  const most = isWhole || all.length <= FEW ? all.length : Math.min(MOST, found.enough());
  const others = table.rows.filter(({ kind }) => kind !== "head");
  const rows = [...all.slice(0, most), ...restOf(all.slice(most)), ...others];
  const view = { store, found, words, table, rows, isNarrow, width };
  const about = t`parts of the sum, not effects of removal; rows and columns add up`;
  const tools = [
    html`<${Scale} most=${mostOf(store)} side=${store.maps.tokens} />`,
    store.canSwitch && switches(store),
    unfolder(t`All heads and words`, isWhole, setWhole),
  ];
  const term = html`<${Term} name="head" />`;
  const title = parts`Which ${term} brings which word`;
  return html`<${Panel} name="heads-words" title=${title} about=${about} tools=${tools}>
    <div
      class="table-scroll" role="region" aria-label=${t`Heads and words`} tabindex="0" ref=${node}
    ><table
      class="cells-table" lang=${languageOf(shownText.text)} ...${pointing(store)}
      onkeydown=${(event) => event.key === "Escape" && store.set({ isUnfolded: false })}
    >
      ${grid(view)}
    </table></div>
  </${Panel}>`;
}

/* Things in an order of names that was kept; new ones at the end. */
function inOrder(things, names, nameOf) {
  const places = new Map(names.map((name, at) => [name, at]));
  const at = (thing) => places.get(nameOf(thing)) ?? names.length;
  return [...things].sort((a, b) => at(a) - at(b));
}

/* A table whose last column has all but the words that stand in one of their own, where the ends
   and the biases are small: large ones may cancel, and are seen. */
function merged(table, isWhole) {
  const { columns, rows, foot, missed } = table;
  const size = columns.findLastIndex(({ kind }) => kind === "word") + 1;
  const rest = columns.slice(size);
  const own = rest.filter(({ kind }) => kind !== "others");
  const isLarge = own.some(({ value }) => Math.abs(value) > LARGE * Math.abs(foot.sum));
  if (isWhole || isLarge) return table;
  const line = ({ cells, ...row }) => {
    return { ...row, cells: [...cells.slice(0, size), addedUp(cells.slice(size))] };
  };
  const last = { kind: "rest", places: [], parts: rest };
  const all = [...columns.slice(0, size), last];
  return { columns: all, rows: rows.map(line), foot: line(foot), missed };
}

/* The heads without a row of their own, in one. */
function restOf(heads) {
  if (heads.length === 0) return [];
  const cells = heads[0].cells.map((_, at) => addedUp(heads.map((row) => row.cells[at])));
  const sum = addedUp(heads.map((row) => row.sum));
  return [{ kind: "heads", number: heads.length, cells, sum }];
}

function grid(view) {
  const { store, words: { units, scale }, table, rows, isNarrow } = view;
  const { lit } = store;
  const isIn = (at) => lit !== null && lit >= units[at].start && lit < units[at].end;
  const of = ({ kind, places }, name) => {
    if (kind !== "word") return { class: `${name} others` };
    const names = places.some(isIn) ? `${name} lit` : name;
    return { class: names, "data-token": units[places[0]].start };
  };
  const most = rows.reduce((top, { sum }) => Math.max(top, Math.abs(sum)), 0.01);
  const sumOf = (sum) => html`<td class="sum-of">
    <b>${formatSigned(sum)}</b><${SumBar} value=${sum} scale=${most} />
  </td>`;
  // In a narrow table the sum stands beside the name.
  const ordered = (name, look, cells, sum) => {
    return isNarrow ? [name, sum, look, cells] : [name, look, cells, sum];
  };
  const header = table.columns.map((column) => html`<th scope="col" ...${of(column, "")}>
    ${titleOf(column)}
  </th>`);
  const sum = html`<th scope="col" class="sum-of">${t`sum`}</th>`;
  const looks = html`<th scope="col">${t`looks at`}</th>`;
  const lines = rows.flatMap((row) => {
    const cells = row.cells.map((number, at) => {
      const own = of(table.columns[at], "cell");
      return html`<td ...${own} ...${tint(number, scale, own.class)}>${formatSigned(number)}</td>`;
    });
    const named = row.kind === "head" ? nameOf(view, row) : otherOf(row);
    const name = html`<th scope="row">${named}</th>`;
    const look = row.kind === "head" ? lookOf(view, row) : html`<td></td>`;
    const isChosen = row.kind === "head" && isShown(store, row);
    const line = html`<tr key=${`${row.kind},${placeOf(row)}`} class=${isChosen ? "chosen" : ""}>
      ${ordered(name, look, cells, sumOf(row.sum))}
    </tr>`;
    return isChosen ? [line, html`<${Unfolded} key="map" ...${view} />`] : [line];
  });
  const below = table.foot.cells.map((number, at) => {
    return html`<td ...${of(table.columns[at], "")}>${formatSigned(number)}</td>`;
  });
  const dashes = table.columns.map(() => html`<td>–</td>`);
  const end = (name, cells, number) => html`<tr>
    ${ordered(html`<th scope="row">${name}</th>`, html`<td></td>`, cells, html`<td class="sum-of">
      <b>${formatSigned(number)}</b>
    </td>`)}
  </tr>`;
  return html`
    <thead><tr>${ordered(html`<td></td>`, looks, header, sum)}</tr></thead>
    <tbody>${lines}</tbody>
    <tfoot>
      ${table.missed !== 0 && end(t`not attributed`, dashes, table.missed)}
      ${end(t`the word`, below, table.foot.sum)}
    </tfoot>`;
}

function titleOf(column) {
  const { kind, word, places, parts: rest = [column] } = column;
  if (kind === "word") {
    const times = places.length > 1 ? ` ×${places.length}` : "";
    return [isolated(word), html`<small>${times}</small>`];
  }
  return rest.map((each, at) => [at > 0 && ", ", nameOfRest(each)]);
}

function nameOfRest({ kind, count: number }) {
  if (kind === "others") return number === 1 ? t`1 other` : t`${count(number)} others`;
  return html`<${Term} name=${kind} words=${kind === "ends" ? t`ends` : t`biases`} />`;
}

function otherOf({ kind, number }) {
  if (kind === "heads") return t`${number} other heads`;
  return kind === "past" ? t`past every head` : t`not shared out`;
}

function isShown(store, { layer, head }) {
  return store.isUnfolded && store.layer === layer && store.head === head;
}

/* How many points the asked class has more with a head off, and whether its sum says otherwise;
   null where that is not known. */
function changeWithout({ maps }, { asked }, { layer, head, sum }) {
  const without = maps.ablated(layer, head)?.[asked];
  if (without === undefined) return null;
  const points = 100 * (without - maps.values("probabilities")[asked]);
  const isLarge = Math.abs(sum) >= LEAST[0] && Math.abs(points) >= LEAST[1];
  return { points, isOther: isLarge && sum * points > 0 };
}

/* A head's switch and name; of a record, what its absence changes. */
function nameOf({ store, found }, row) {
  const { layer, head } = row;
  const change = changeWithout(store, found, row);
  const about = t`points of ${className(store, found.asked)} that it gains or loses with this head
    off`;
  const label = t`show its map`;
  const isOpen = String(isShown(store, row));
  const own = { name: "head-name", title: label, "aria-expanded": isOpen };
  return [
    store.canSwitch && html`<${Switch} store=${store} layer=${layer} head=${head} />`,
    button(store.headName(layer, head), () => store.unfoldHead(layer, head), own),
    change && html`<small class="without" title=${about}>
      ${t`without it ${formatSigned(change.points, 1)}`}
      ${change.isOther && html` <span class="differs">${t`⚠ others take over`}</span>`}
    </small>`,
  ];
}

/* The weights of the answer's row, or all where there is none, and below them where they are. */
function lookOf({ store, words: { units } }, { layer, head }) {
  const map = mapOf(store, layer, head, { isRow: true });
  const open = () => store.unfoldHead(layer, head);
  return html`<td class="look" onclick=${open}>
    <${Thumbnail} map=${map} />
    ${map && html`<small>${captionOf(looksOf(map, units), store.index.layers, layer)}</small>`}
  </td>`;
}

/* The map of the chosen head under its row, as wide as what is seen of the table. */
function Unfolded({ store, table, width }) {
  const node = useRef(null);
  const { layer, head } = store;
  useLayoutEffect(() => node.current.scrollIntoView({ block: "nearest" }), [layer, head]);
  return html`<tr class="unfolded"><td colspan=${table.columns.length + 3}>
    <div ref=${node} style=${{ "--room": `${width - 16}px` }}>
      <${ChosenMap} store=${store}><${Sparkline} store=${store} /></${ChosenMap}>
    </div>
  </td></tr>`;
}
