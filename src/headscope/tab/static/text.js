/* The text, each word coloured by what it adds to the log-odds; plain where that is not known. */

import { contributionsOf, otherContributions } from "./contributions.js";
import {
  Failure, Panel, chooser, classLabel, formatSigned, isolated, legible, pointing, tint,
  useRow,
} from "./parts.js";
import { html } from "./preact.js";
import { addedUp } from "./rounding.js";
import { placeOf } from "./store.js";
import { parts, t } from "./strings.js";
import { directionOf, languageOf, unitsOf, unreadOf } from "./words.js";

const UNITS = [["word", t`by word`], ["token", t`by token`]];
const NUMBERED = 0.12; // share of the scale, from which a word has its number
const CHANGED = 8; // words of another text that are named
const LEFT = 600; // characters that were not read and are shown all the same
const SIDES = ["A", "B"];

/* Units of a text as buttons in a row, which is one stop of the Tab key: arrow keys move along it.
   `words` has what each adds, as contributions have it; null where that is not known. */
function Units({ store, shownText, words, scale, label }) {
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
    return html`<button
      type="button" key=${at} ...${tint(value, scale, names.join(" "))} title=${title}
      aria-label=${title} data-place=${at} data-token=${each.start}
      tabindex=${tabOf(at)}
    >${isolated(each.word)}${words && html`<small dir="ltr">${number}</small>`}</button>`;
  });
  const listeners = pointing(store);
  const onfocusin = (event) => {
    focusOn(event);
    listeners.onfocusin(event);
  };
  // A pair has a direction for each block.
  return html`<div
    class=${words ? "tokens signed" : "tokens"} role="group" aria-label=${label}
    dir=${segments ? "ltr" : directionOf(text)} lang=${languageOf(text)}
    ...${listeners} onfocusin=${onfocusin} onkeydown=${onkeydown}
  >${segments ? blocksOf(nodes, units, shownText) : nodes}</div>`;
}

/* The class of what belongs to a text of a pair, or to neither. */
export function sideOf(segment) {
  return segment === null ? "of-neither" : `of-${"ab"[segment]}`;
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
      class="block ${sideOf(side)}" role="group" aria-label="Text ${SIDES[side]}" dir=${direction}
    ><span class="block-name" aria-hidden="true">${SIDES[side]}</span>${
      nodes.slice(start, end)
    }</div>`;
  });
}

export function TextView({ store, children }) {
  const { shownText, unit, errors } = store;
  const found = contributionsOf(store);
  const words = found?.inWords(shownText, unit);
  const unread = unreadOf(shownText);
  // A box above has the whole text.
  const rest = unread && !children && html`<p class="unread" dir=${directionOf(unread.rest)}>
    ${legible(unread.rest.trim(), LEFT)}
  </p>`;
  const chooseUnit = (each) => store.set({ unit: each });
  const tools = found && [
    legendOf(store, found, words), chooser("unit", t`Sums`, unit, UNITS, chooseUnit),
  ];
  return html`<${Panel} name="text" title=${t`Text`} tools=${tools} error=${errors.maps}>
    ${children}
    <${Failure} message=${errors.other} />
    ${found && store.other && html`<h3>${nameOf(store, t`This text`, store.maps, found)}</h3>`}
    <${Units}
      store=${store} shownText=${shownText} words=${words} scale=${words?.scale}
      label=${t`Words; arrow keys move`}
    />
    ${rest}
    ${found && besideOf(store, found, words)}
  </${Panel}>`;
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
    return [at > 0 && ", ", nameOf(name), ` ${formatSigned(value)}`];
  });
  const rest = addedUp([all, ...changes.map(([, value]) => -addedUp([value]))]);
  return [named, rest !== 0 && t`, others and biases ${formatSigned(rest)}`];
}
