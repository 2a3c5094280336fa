/* The text, each word coloured by what it adds to the log-odds; plain where that is not known. */

import { contributionsOf, otherContributions, sumOf } from "./contributions.js";
import {
  Chooser, Failure, Panel, classLabel, formatNumber, formatSigned, isolated, legible, tint,
} from "./parts.js";
import { html, useState } from "./preact.js";
import { parts, t } from "./strings.js";
import { directionOf, languageOf, unitsOf, unreadOf } from "./words.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };
const UNITS = [["word", t`by word`], ["token", t`by token`]];
const NUMBERED = 0.12; // share of the scale, from which a word has its number
const CHANGED = 8; // words of another text that are named
const LEFT = 600; // characters that were not read and are shown all the same
const SIDES = ["A", "B"];

/* Units of a text as buttons in a row, which is one stop of the Tab key: arrow keys move along it.
   `values` has a number for each, `signed` of contributions, else weights; null where there are
   none. */
function Units({ store, shownText, unit, values, scale, signed = false, label, onchoose }) {
  const [focus, setFocus] = useState(0);
  const { text, special, segments } = shownText;
  const units = unitsOf(shownText, unit ?? "token");
  const isIn = (token, { start, end }) => token !== null && token >= start && token < end;
  const own = shownText === store.shownText ? store : { lit: null, word: null, query: null };
  const nodes = units.map((each, at) => {
    const value = values?.[at] ?? null;
    const names = ["token"];
    if (each.isGlued) names.push("glued");
    if (special?.includes(each.start)) names.push("special");
    if (segments) names.push(sideOf(segments[each.start]));
    if (isIn(own.lit, each)) names.push("lit");
    if (!signed && isIn(own.query, each)) names.push("query");
    const words = signed ? formatSigned(value) : t`token ${each.start}, weight ${formatNumber(value)}`;
    const title = value === null ? null : `${legible(each.word)} ${words}`;
    const isNumbered = signed && Math.abs(value) >= NUMBERED * scale;
    return html`<button
      type="button" key=${at} ...${tint(value, scale, names.join(" "))} title=${title}
      aria-label=${title} aria-pressed=${String(isIn(own.word, each))} data-place=${at}
      tabindex=${at === Math.min(focus, units.length - 1) ? 0 : -1}
    >${isolated(each.word)}${signed && html`<small dir="ltr">${
      isNumbered ? formatSigned(value) : ""
    }</small>`}</button>`;
  });
  const act = (run) => (event) => {
    const { place } = event.target.closest("[data-place]")?.dataset ?? {};
    if (place !== undefined) run(Number(place), event);
  };
  const point = act((place) => store.pointWord(units[place].start));
  const move = act((place, event) => {
    const step = STEPS[event.target.closest("[dir]").dir][event.key];
    const next = { Home: 0, End: units.length - 1 }[event.key] ?? place + step;
    if (Number.isNaN(next)) return;
    event.preventDefault();
    event.currentTarget.querySelector(`[data-place="${next}"]`)?.focus();
  });
  const focusOn = act((place) => {
    setFocus(place);
    store.pointWord(units[place].start);
  });
  const listeners = {
    onpointerover: point, onfocusin: focusOn, onkeydown: move,
    onpointerleave: () => store.leave(), onfocusout: () => store.leave(),
    onclick: act((place) => onchoose?.(units[place].start)),
  };
  // A pair has a direction for each block.
  return html`<div
    class=${signed ? "tokens signed" : "tokens"} role="group" aria-label=${label}
    dir=${segments ? "ltr" : directionOf(text)} lang=${languageOf(text)} ...${listeners}
  >${segments ? blocksOf(nodes, units, shownText) : nodes}</div>`;
}

/* The class of what belongs to a text of a pair, or to neither. */
export function sideOf(segment) {
  return segment === null ? "of-neither" : `of-${"ab"[segment]}`;
}

/* The words of a pair in a block for each text, under its name. Special tokens stand with the text
   before them. */
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
  const { shownText, unit } = store;
  const found = contributionsOf(store);
  const words = found?.inWords(shownText, unit);
  const choose = (token) => store.set({ word: store.word === token ? null : token });
  const unread = unreadOf(shownText);
  const rest = unread && html`<p class="unread" dir=${directionOf(unread.rest)}>
    ${legible(unread.rest.trim(), LEFT)}
  </p>`;
  const units = html`<${Chooser}
    name="unit" label=${t`Sums`} value=${unit} options=${UNITS}
    onchoose=${(each) => store.set({ unit: each })}
  />`;
  const tools = found && [legendOf(store, found, words), units];
  const { errors } = store;
  return html`<${Panel} name="text" title=${t`Text`} tools=${tools} error=${errors.maps}>
    ${children}
    <${Failure} message=${errors.other} />
    ${found && store.other && html`<h3>${nameOf(store, t`This text`, store.maps, found)}</h3>`}
    <${Units}
      store=${store} shownText=${shownText} label=${t`Words; arrow keys move`} signed=${found !== null}
      unit=${found && unit} values=${words?.sums} scale=${words?.scale} onchoose=${choose}
    />
    ${rest}
    ${found && besideOf(store, found, words)}
    ${poolingOf(store)}
  </${Panel}>`;
}

function legendOf(store, { asked, against }, { scale }) {
  const far = against < 0 ? t`against` : classLabel(store, against);
  return html`<span class="scale">
    ${far}<span class="ramp" aria-hidden="true"></span>${classLabel(store, asked)}
    <small>${t`linear; full colour: ${`±${scale.toFixed(2)}`}`}</small>
  </span>`;
}

/* A row's name: whose it is, what is predicted there, and its log-odds. */
function nameOf(store, name, maps, found) {
  const { predicted } = maps.prediction(store.index.classes);
  const words = [isolated(name, "name"), ": ", isolated(predicted)];
  return [...words, t`, ${formatSigned(found.total)} log-odds`];
}

/* What is compared with, on the same scale, and the words by which another text differs. */
function besideOf(store, found, { scale }) {
  const other = otherContributions(store);
  if (other === null) return null;
  const { unit } = store;
  const text = store.other.text ?? store.shownText;
  const words = other.inWords(text, unit);
  return html`<div class="beside">
    <h3>${nameOf(store, store.other.name, store.other.maps, other)}</h3>
    <${Units}
      store=${store} shownText=${text} unit=${unit} values=${words.sums} scale=${scale} signed
      label=${t`Words of what is compared with`}
    />
    <p class="changes">${changesOf(store, found, words)}</p>
  </div>`;
}

/* The words that add most more or less here than there; equal words as one. */
function changesOf(store, found, others) {
  const own = found.inWords(store.shownText, store.unit);
  const changes = new Map(own.groups.map(({ word, value }) => [word, value]));
  for (const { word, value } of others.groups) changes.set(word, (changes.get(word) ?? 0) - value);
  const ranked = [...changes].filter(([, value]) => Math.abs(value) >= 0.005);
  ranked.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const named = ranked.slice(0, CHANGED).flatMap(([word, value], at) => {
    return [at === 0 ? "“" : ", “", isolated(word), `” ${formatSigned(value)}`];
  });
  const rest = sumOf(ranked.slice(CHANGED).map(([, value]) => value));
  const more = ranked.length > CHANGED ? t`, others ${formatSigned(rest)}` : "";
  const { classes } = store.index;
  const [now, before] = [store.maps, store.other.maps].map((maps) => {
    return maps.prediction(classes).predicted;
  });
  const turned = parts`What turned ${isolated(before)} into ${isolated(now)}: `;
  return [now === before ? t`What changed: ` : turned, named, more];
}

function poolingOf(store) {
  const { maps, shownText } = store;
  const pooling = maps?.values("pooling");
  if (!pooling) return null;
  const scale = pooling.reduce((most, weight) => Math.max(most, weight), 0);
  return html`<div class="pooling">
    <h3>${t`Pooling weights of the tokens`}</h3>
    <${Units}
      store=${store} shownText=${shownText} values=${pooling} scale=${scale}
      label=${t`Tokens by pooling weight`}
    />
  </div>`;
}
