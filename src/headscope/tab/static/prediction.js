/* The prediction: which class, how sure, against which other; and what to mind about this text. */

import { contributionsOf, knownClasses, ownPair } from "./contributions.js";
import {
  Panel, button, chooser, classLabel, className, formatSigned, isolated, percent,
} from "./parts.js";
import { html } from "./preact.js";
import { count, parts, t } from "./strings.js";
import { unreadOf } from "./words.js";

const CLASSES = 4; // of the list
const SOME = 100; // validation texts, which tell how sure a prediction is

/* Odds in words: 1,130 of 1,130 to 1. */
function oddsOf(logOdds) {
  const odds = Math.exp(Math.abs(logOdds));
  if (odds < 10) return odds.toFixed(1);
  return odds < 1e6 ? count(Math.round(odds.toPrecision(3))) : t`over a million`;
}

export function Prediction({ store }) {
  const { index, maps } = store;
  const { ranked, predicted } = maps?.prediction(index.classes) ?? { ranked: [] };
  if (ranked.length === 0) return null;
  const found = contributionsOf(store);
  const isOne = maps.values("given") === null;
  const facts = factsOf(store, predicted).map(([words, kind]) => {
    return html`<li class=${kind}>${words}</li>`;
  });
  // A screen reader hears the first line where its words change.
  return html`<${Panel} name="prediction" title=${t`Prediction`}>
    <p class="predicted ${sideOf(index, predicted, found)}" aria-live="polite" aria-atomic="true">
      ${isolated(predicted, "name")} <strong>${isOne ? percent(ranked[0][1]) : ""}</strong>
    </p>
    <ul class="facts-of-text">${facts}</ul>
    ${found && questionOf(store, found)}
    <p class="offer" role="status">${found && offerOf(store, found)}</p>
    <ul class="bars classes">${classesOf(store, ranked, found)}</ul>
  </${Panel}>`;
}

/* Blue is for the class that is asked for, orange for the one that it is held against. */
function sideOf({ classes }, name, found) {
  if (found === null) return "";
  if (name === classes[found.asked]) return "for";
  return name === classes[found.against] ? "against" : "";
}

function questionOf(store, { asked, against, shown: { total } }) {
  const places = knownClasses(store.maps).sort((a, b) => a - b);
  const options = places.map((place) => [String(place), className(store, place)]);
  // The two change places rather than be the same.
  const ask = (place) => {
    store.choosePair([Number(place), Number(place) === against ? asked : against]);
  };
  const hold = (place) => {
    store.choosePair([Number(place) === asked ? against : asked, Number(place)]);
  };
  const names = [t`Class that is asked for`, t`Class that it is held against`];
  const first = chooser("asked", names[0], String(asked), options, ask);
  const second = chooser("against", names[1], String(against), options, hold);
  const toward = classLabel(store, total < 0 ? against : asked);
  const odds = [formatSigned(total), oddsOf(total)];
  return html`<div class="question">
    ${parts`${first} over ${against < 0 ? t`its absence` : second}`}
    <p class="odds">${parts`${odds[0]} log-odds, ${odds[1]} to 1 for ${toward}`}</p>
  </div>`;
}

/* What is explained, where that is not the likeliest class over the runner-up; these, or classes
   that were chosen before, are a click away. */
function offerOf(store, { asked, against }) {
  const { pair, chosen, maps } = store;
  const own = ownPair(maps);
  const isShown = (places) => places.join() === `${asked},${against}`;
  if (pair !== null && !isShown(pair)) {
    return t`The sums of the classes chosen before are not known here.`;
  }
  const offer = isShown(own) ? chosen : own;
  if (offer === null || isShown(offer)) return null;
  const [first, second] = offer.map((place) => className(store, place));
  const words = t`${first} over ${second}`;
  if (offer === chosen) return button(t`Back to ${words}`, () => store.choosePair(chosen));
  const isElse = own[0] !== asked && own[0] !== against;
  const look = { name: isElse ? "plain primary" : "plain" };
  const names = [asked, against, own[0]].map((place) => classLabel(store, place));
  return [
    parts`Explained below: ${names[0]} over ${names[1]}`,
    isElse && parts`, not ${names[2]}`,
    html`<br />${button(t`Explain ${words}`, () => store.choosePair(own, null), look)}`,
  ];
}

/* What to mind: [words, class] of each line. */
function factsOf({ shownText, index, maps }, predicted) {
  const { label, tokens, special, unknown = [] } = shownText;
  const facts = [];
  const all = tokens.length - (special ?? []).length;
  const unread = unreadOf(shownText);
  if (all === 0) facts.push([t`The text is empty: its biases alone decide.`, "warns"]);
  if (unknown.length > 0) {
    const words = t`${unknown.length} of ${all} tokens are unknown to the model.`;
    const isUnlike = unknown.length / all > (index.most_unknown ?? 1);
    facts.push([words + (isUnlike ? t` That is more than in texts of training.` : ""), "warns"]);
  }
  if (unread !== null) {
    const [left, whole] = [unread.words, unread.all].map(count);
    facts.push([t`${left} of ${whole} words are not read.`, "warns"]);
  }
  const sure = sureOf(index.curve, maps);
  if (sure !== null) facts.push([sure, ""]);
  if (label !== null) {
    const isRight = predicted === label;
    const mark = isRight ? "✓ " : "✗ ";
    facts.push([parts`Given label ${mark}${isolated(label)}`, isRight ? "known" : "known wrong"]);
  }
  return facts;
}

/* The likeliest classes, and the two that are held against each other. */
function classesOf({ index, reference }, ranked, found) {
  const inPair = [found?.asked, found?.against];
  const isShown = ([name], at) => at < CLASSES || inPair.includes(index.classes.indexOf(name));
  const lines = ranked.filter(isShown).map(([name, share]) => {
    const before = reference?.probabilities[index.classes.indexOf(name)];
    const change = reference && html`<small>${formatSigned(100 * (share - before), 1)}</small>`;
    return html`<li class=${sideOf(index, name, found)}>
      ${isolated(name, "name")}<span class="bar" style=${{ "--share": String(share) }}></span>
      <span class="number">${percent(share)}${change && [" ", change]}</span>
    </li>`;
  });
  const note = reference && html`<li class="note">${t`points: change from ${reference.name}`}</li>`;
  return [...lines, note];
}

/* How many of the validation texts with such a probability or a higher one were right. The curve
   has [least probability, texts, right], the surest first. */
function sureOf(curve, maps) {
  const shares = maps.values("probabilities");
  if (!curve || maps.values("given") !== null || shares === null) return null;
  const most = Math.max(...shares);
  const [, all = 0] = curve.at(-1) ?? [];
  const isFit = ([least, texts]) => most >= least && texts >= Math.min(SOME, all / 4);
  const found = curve.find(isFit);
  if (found === undefined) return t`Less sure than every validation text.`;
  const [least, texts, right] = found;
  const from = (Math.floor(1000 * least) / 10).toFixed(1);
  const share = html`<strong>${t`${count(right)} of ${count(texts)}`}</strong>`;
  return parts`${share} validation texts with ${from} % or more were right.`;
}
