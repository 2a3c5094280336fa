/* The text, each word coloured by what it adds to the log-odds; plain where that is not known. */

import { contributionsOf, otherContributions } from "./contributions.js";
import { mapOf } from "./map.js";
import {
  Failure, Panel, Term, chooser, classLabel, formatSigned, isolated, legible, pointing, tint,
  useRow, useWidth,
} from "./parts.js";
import { html } from "./preact.js";
import { Question } from "./prediction.js";
import { Look, Ribbons, sizesOf, usePicture } from "./ribbons.js";
import { addedUp } from "./rounding.js";
import { placeOf } from "./store.js";
import { parts, t } from "./strings.js";
import { directionOf, languageOf, sideOf, unitsOf, unreadOf } from "./words.js";

const UNITS = [["word", t`by word`], ["token", t`by token`]];
const NUMBERED = 0.12; // share of the scale, from which a word has its number
const CHANGED = 8; // words of another text that are named
const LEFT = [80, 600]; // characters that were not read and are shown; a box has the whole text
const SIDES = [t`Text A`, t`Text B`];

/* Units of a text as buttons in a row, which is one stop of the Tab key: arrow keys move along it.
   `words` has what each adds, as contributions have it; null where that is not known. */
function Units({ store, shownText, words, scale, label, looksAt = () => null, sizes = null }) {
  const { text, special, segments } = shownText;
  const units = words?.units ?? unitsOf(shownText, "token");
  const own = shownText === store.shownText ? store : { lit: null, query: null };
  const isIn = (token, { start, end }) => token !== null && token >= start && token < end;
  const { tabOf, focusOn, onkeydown } = useRow(units.length);
  const nodes = units.map((each, at) => {
    const value = words?.sums[at] ?? null;
    const names = ["token"];
    if (each.isGlued) names.push("glued");
    if (special?.includes(each.start)) names.push("special");
    if (segments) names.push(sideOf(segments[each.start]));
    if (isIn(own.lit, each)) names.push("lit");
    if (!words && isIn(own.query, each)) names.push("query");
    const title = words ? `${legible(each.word)} ${formatSigned(value)}` : null;
    const number = Math.abs(value) >= NUMBERED * scale ? formatSigned(value) : "";
    const { style, ...tinted } = tint(value, scale, names.join(" "));
    const look = looksAt([at]);
    return html`<button
      type="button" key=${at} ...${tinted} style=${{ ...style, ...sizeOf(sizes, at) }}
      title=${title} aria-label=${title} data-place=${at} data-token=${each.start}
      tabindex=${tabOf(at)}
    >${isolated(each.word)}${words && html`<small dir="ltr">${number}</small>`}
      ${look !== null && html`<${Look} share=${look} />`}
    </button>`;
  });
  const listeners = pointing(store);
  const onfocusin = (event) => {
    focusOn(event);
    listeners.onfocusin(event);
  };
  // A pair has a direction for each block.
  return html`<div
    class="tokens ${words ? "signed" : ""} ${sizes ? "one-line" : ""}"
    role="group" aria-label=${label}
    dir=${segments ? "ltr" : directionOf(text)} lang=${languageOf(text)}
    style=${sizes && { "--start": `${sizes.start}px` }}
    ...${listeners} onfocusin=${onfocusin} onkeydown=${onkeydown}
  >${segments ? blocksOf(nodes, units, shownText) : nodes}</div>`;
}

/* How wide a word is over its ribbons. */
function sizeOf(sizes, at) {
  return sizes && { width: `${sizes.all[at]}px` };
}

/* The words of a pair in a block for each text; special tokens stand with the text before them. */
function blocksOf(nodes, units, { segments }) {
  const owners = units.map(({ start }) => segments[start]);
  const first = owners.indexOf(1);
  const border = first < 0 ? nodes.length : first;
  return [[0, border], [border, nodes.length]].map(([start, end], side) => {
    const own = units.slice(start, end).filter((_, at) => owners[start + at] !== null);
    const direction = directionOf(own.map(({ word }) => word).join(" "));
    return start < end && html`<div
      class="block ${sideOf(side)}" role="group" aria-label=${SIDES[side]} dir=${direction}
    ><span class="block-name" aria-hidden="true">${"AB"[side]}</span>${
      nodes.slice(start, end)
    }</div>`;
  });
}

export function TextView({ store }) {
  const { shownText, unit, errors } = store;
  const [node, width] = useWidth();
  const found = contributionsOf(store);
  const words = found?.inWords(shownText, unit);
  const picture = usePicture(store, found, words, width);
  const unread = unreadOf(shownText);
  const left = store.canSwitch ? LEFT[0] : LEFT[1];
  const rest = unread && html`<p class="unread" dir=${directionOf(unread.rest)}>
    <b>${t`Cut here, not read: `}</b>${isolated(legible(unread.rest.trim(), left))}
  </p>`;
  const chooseUnit = (each) => store.set({ unit: each });
  const looksAt = weightsOf(store, words?.units);
  const tools = found && [
    legendOf(store, found, words), chooser("unit", t`Sums`, unit, UNITS, chooseUnit),
  ];
  const title = found ? titleOf(store, found) : t`Text`;
  return html`<${Panel} name="text" title=${title} tools=${tools} error=${errors.maps}>
    ${found && html`<${Question} store=${store} />`}
    <${Failure} message=${errors.other} />
    ${found && store.other && html`<h3>${nameOf(store, t`This text`, store.maps, found)}</h3>`}
    <div ref=${node}>
      <${Units}
        store=${store} shownText=${shownText} words=${words} scale=${words?.scale}
        label=${t`Words; arrow keys move`} looksAt=${looksAt}
        sizes=${picture && sizesOf(picture)}
      />
      ${rest}
      ${picture && html`<${Ribbons}
        store=${store} found=${found} picture=${picture} looksAt=${looksAt} units=${words.units}
      />`}
    </div>
    ${found && html`<p class="sum">${sumLine(store, found)}</p>`}
    ${picture && html`<p class="key">${keyOf(found, picture)}</p>`}
    ${found && besideOf(store, found, words)}
  </${Panel}>`;
}

function titleOf(store, { asked }) {
  const { predicted } = store.maps.prediction(store.index.classes);
  const name = classLabel(store, asked);
  return predicted === store.index.classes[asked] ? parts`How this text becomes ${name}`
    : parts`What this text has for ${name}`;
}

/* What the picture shows, in words. */
function keyOf({ shown }, { rows }) {
  const total = formatSigned(shown.total);
  const isPartial = rows.some(({ kind }) => kind === "rest");
  return [
    t`A ribbon is what one head brings from one word; its width is its part of ${total}, and all add
      up. Purple boxes: where the chosen head looks. Point at a word, a head or the answer: only its
      ribbons stay.`,
    isPartial && t` What is not shared out among heads yet has a ribbon of its own.`,
  ];
}

/* The share of its attention that the chosen head gives some units of the text, of the largest
   weight; null where it is not known. */
function weightsOf(store, units) {
  const { layer, head } = store;
  const map = mapOf(store, layer, head, { isRow: true });
  if (map === null || !units) return () => null;
  const { cells, side, most } = map;
  const rows = cells.length / side;
  return (places) => {
    let share = 0;
    for (const place of places) {
      for (let at = units[place].start; at < units[place].end; at += 1) {
        for (let row = 0; row < rows; row += 1) share += cells[row * side + at] / rows;
      }
    }
    return share / most;
  };
}

function legendOf(store, { asked, against }, { scale }) {
  const [near, far] = [asked, against].map((place) => classLabel(store, place));
  return html`<span class="scale" title=${t`linear; full colour: ${`±${scale.toFixed(2)}`}`}>
    ${far}<span class="ramp" aria-hidden="true"></span>${near}
    <small>±${scale.toFixed(2)}</small>
  </span>`;
}

/* A row's name: whose it is, what is predicted there, and its log-odds. */
function nameOf(store, name, maps, found) {
  const { predicted } = maps.prediction(store.index.classes);
  const words = [isolated(name, "name"), ": ", isolated(predicted)];
  return [...words, t`, ${formatSigned(found.shown.total)} log-odds`];
}

/* What is compared with, on the same scale, and the words by which another text differs. */
function besideOf(store, found, { scale }) {
  const other = otherContributions(store);
  if (other === null) return null;
  const text = store.other.text ?? store.shownText;
  const words = other.inWords(text, store.unit);
  return html`<div class="beside">
    <h3>${nameOf(store, store.other.name, store.other.maps, other)}</h3>
    <${Units}
      store=${store} shownText=${text} words=${words} scale=${scale}
      label=${t`Words of what is compared with`}
    />
    ${changesOf(store, found, other, words)}
  </div>`;
}

/* The words, and the heads, that add most more or less here than there, of the same two classes;
   equal words as one. */
function changesOf(store, found, other, others) {
  const own = found.inWords(store.shownText, store.unit);
  const all = addedUp([found.shown.total, -other.shown.total]);
  const words = differences(own.groups, others.groups, ({ word }) => word, ({ value }) => value);
  const heads = differences(found.heads, other.heads, placeOf, ({ sum }) => sum);
  const named = listOf(words, all, (word) => ["“", isolated(word), "”"]);
  const ofHeads = listOf(heads, all, (place) => store.headName(...place.split(",").map(Number)));
  const [first, second] = [found.asked, found.against].map((place) => classLabel(store, place));
  const end = parts` = ${formatSigned(all)} log-odds of ${first} over ${second}`;
  const { classes } = store.index;
  const now = store.maps.prediction(classes).predicted;
  const before = store.other.maps.prediction(classes).predicted;
  const turned = parts`What turned ${isolated(before)} into ${isolated(now)}: `;
  const lead = now === before ? t`What changed: ` : turned;
  return [
    html`<p class="changes">${lead}${named}${end}</p>`,
    heads.length > 0 && html`<p class="heads-changed">${t`Through which heads: `}${ofHeads}</p>`,
  ];
}

/* By how much each thing of the one list is more than in the other, the largest change first. */
function differences(own, others, nameOf, valueOf) {
  const changes = new Map(own.map((each) => [nameOf(each), valueOf(each)]));
  for (const each of others) {
    changes.set(nameOf(each), (changes.get(nameOf(each)) ?? 0) - valueOf(each));
  }
  const ranked = [...changes].filter(([, value]) => Math.abs(value) >= 0.005);
  return ranked.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, CHANGED);
}

/* Changes with their names, and what is left of all. */
function listOf(changes, all, nameOf) {
  const named = changes.map(([name, value], at) => {
    return [at > 0 && t`, `, nameOf(name), ` ${formatSigned(value)}`];
  });
  const rest = addedUp([all, ...changes.map(([, value]) => -addedUp([value]))]);
  return [named, rest !== 0 && t`, others and biases ${formatSigned(rest)}`];
}

/* The sum in words: all words, and what stands beside them. */
function sumLine(store, found) {
  const { asked, against, missed, shown } = found;
  const { total, biases } = shown;
  const { ends } = found.inWords(store.shownText, store.unit);
  const words = addedUp([total, -biases, -ends.value, -(missed === 0 ? 0 : shown.missed)]);
  const sums = [[words, t`words`]];
  if (ends.places.length > 0) sums.push([ends.value, html`<${Term} name="ends" />`]);
  sums.push([biases, html`<${Term} name="biases" />`]);
  if (missed !== 0) sums.push([shown.missed, t`not attributed`]);
  const all = sums.map(([number, name]) => {
    return [html`<strong>${formatSigned(number)}</strong>`, " ", name, " "];
  });
  const end = html`<strong>${formatSigned(total)}</strong>`;
  const [first, second] = [asked, against].map((place) => classLabel(store, place));
  const term = html`<${Term} name="log-odds" />`;
  return [all, "= ", parts`${end} ${term} of ${first} over ${second}`];
}
