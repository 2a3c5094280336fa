/* One table of heads and words: rows are heads of all layers, the largest first, and add up to what
   each brings; columns add up to the words of the bar. Each head has its map, which unfolds. */

import { contributionsOf, sumOf } from "./contributions.js";
import { Sparkline } from "./history.js";
import { ChosenMap, Scale, Thumbnail, mapOf, mostOf } from "./map.js";
import {
  Panel, SumBar, Term, button, className, formatSigned, isolated, percent, pointing, tint, unfolder,
  useWidth,
} from "./parts.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { addedUp } from "./rounding.js";
import { count, parts, t } from "./strings.js";
import { Switch, switches } from "./switch.js";
import { languageOf } from "./words.js";

const FEW = 12; // heads that all have a row
const MOST = 10; // rows of more heads, before all are shown
const NARROW = 640; // pixels: the sum stands beside the name, and words can be scrolled to
const FIXED = [300, 670]; // pixels that all but the words take, in a narrow table and a wide one
const COLUMN = 74;
const NAMED = 2; // words at which a head looks
const TWICE = 2; // as much as if it looked at all tokens alike

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
  const table = merged(found.table({ ...words, groups }, isWhole ? Infinity : room));
  const ofHeads = table.rows.filter(({ kind }) => kind === "head");
  const all = inOrder(ofHeads, heads, placeOf);
  const most = isWhole || all.length <= FEW ? all.length : Math.min(MOST, found.enough());
  const others = table.rows.filter(({ kind }) => kind !== "head");
  const together = others.filter(({ kind }) => kind === "heads");
  const past = others.filter(({ kind }) => kind !== "heads");
  const rows = [...all.slice(0, most), ...restOf([...all.slice(most), ...together]), ...past];
  const unfold = (isOpen) => {
    setWhole(isOpen);
    store.set({ isAllAsked: isOpen }); // of heads whose cells take long
  };
  const view = { store, found, words, table, rows, isNarrow, width };
  const about = t`parts of the sum, not effects of removal; rows and columns add up`;
  const tools = [
    html`<${Scale} most=${mostOf(store)} side=${store.maps.tokens} />`,
    store.canSwitch && switches(store),
    unfolder(t`All heads and words`, isWhole, unfold),
  ];
  const term = html`<${Term} name="head" />`;
  const title = parts`Which ${term} brings which word`;
  return html`<${Panel} name="heads-words" title=${title} about=${about} tools=${tools}>
    <div
      class="table-scroll" role="region" aria-label=${t`Heads and words`} tabindex="0" ref=${node}
    ><table class="cells-table" lang=${languageOf(shownText.text)} ...${pointing(store)}>
      ${grid(view)}
    </table></div>
  </${Panel}>`;
}

function placeOf({ layer, head }) {
  return `${layer},${head}`;
}

/* Things in an order of names that was kept; new ones at the end. */
function inOrder(things, names, nameOf) {
  const places = new Map(names.map((name, at) => [name, at]));
  const at = (thing) => places.get(nameOf(thing)) ?? names.length;
  return [...things].sort((a, b) => at(a) - at(b));
}

/* A table whose last column has all but the words that stand in one of their own. */
function merged({ columns, rows, foot, missed }) {
  const size = columns.findLastIndex(({ kind }) => kind === "word") + 1;
  const rest = columns.slice(size);
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
  const number = heads.reduce((all, row) => all + (row.number ?? 1), 0);
  return [{ kind: "heads", number, cells, sum }];
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

function titleOf({ kind, word, places, parts: rest }) {
  if (kind === "word") {
    const times = places.length > 1 ? ` ×${places.length}` : "";
    return [isolated(word), html`<small>${times}</small>`];
  }
  const others = rest.find((each) => each.kind === "others");
  const hasEnds = rest.some((each) => each.kind === "ends");
  const biases = html`<${Term} name="biases" />`;
  const ends = html`<${Term} name="ends" words=${t`ends`} />`;
  const isOne = others?.count === 1;
  const number = others && (isOne ? t`1 other` : t`${count(others.count)} others`);
  const names = [number, hasEnds && ends, biases].filter(Boolean);
  return names.map((name, at) => [at > 0 && ", ", name]);
}

function otherOf({ kind, number }) {
  if (kind === "heads") return t`${number} other heads`;
  return kind === "past" ? t`past every head` : t`not shared out`;
}

function isShown(store, { layer, head }) {
  return store.isUnfolded && store.layer === layer && store.head === head;
}

/* A head's switch and name; of a record, what the asked class would have without it. */
function nameOf({ store, found }, row) {
  const { layer, head } = row;
  const without = store.maps.ablated(layer, head)?.[found.asked];
  const about = t`probability of ${className(store, found.asked)} with this head off`;
  const label = t`show its map`;
  const isOpen = String(isShown(store, row));
  const own = { name: "head-name", title: label, "aria-expanded": isOpen };
  return [
    store.canSwitch && html`<${Switch} store=${store} layer=${layer} head=${head} />`,
    button(store.headName(layer, head), () => store.unfoldHead(layer, head), own),
    without !== undefined && html`<small class="without" title=${about}>
      ${t`${percent(without)} without it`}
    </small>`,
  ];
}

/* A head's map, and below it the words that have most of the weight. */
function lookOf({ store, words: { units } }, { layer, head }) {
  const map = mapOf(store, layer, head);
  const open = () => store.unfoldHead(layer, head);
  const names = map && lookedAt(map, units).map((word) => isolated(word));
  const seen = names?.length ? names.map((name, at) => [at > 0 && ", ", name]) : t`evenly`;
  return html`<td class="look" onclick=${open}>
    <${Thumbnail} map=${map} />${map && html`<small>${seen}</small>`}
  </td>`;
}

/* The words at which a head looks most from the position that the classifier reads, else on average
   over all queries: those with twice the weight, or more, of a head that looks at all alike. */
function lookedAt({ cells, side, text, first }, units) {
  const queries = cells.length / side;
  const read = (text.readout ?? null) === null ? null : text.readout - first;
  const rows = read === null ? [...Array(queries).keys()] : [read];
  const weight = ({ start, end }) => {
    return sumOf(rows.map((row) => sumOf(cells.slice(row * side + start, row * side + end))))
      / rows.length;
  };
  const found = units.map((unit) => ({ ...unit, weight: weight(unit) }));
  return found
    .filter(({ start, end, weight: own }) => own * side >= TWICE * (end - start))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, NAMED)
    .map(({ word }) => word);
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
