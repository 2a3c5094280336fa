/* The verdict: which class, how sure and how often that was right, against which other class. */

import { contributionsOf } from "./contributions.js";
import { knownClasses, offeredPair, ownPair } from "./pair.js";
import {
  Panel, Term, button, chooser, classLabel, className, formatSigned, isolated, percent,
} from "./parts.js";
import { html, useEffect, useState } from "./preact.js";
import { count, parts, t } from "./strings.js";
import { unreadOf } from "./words.js";

const CLASSES = 4; // of the list
const NEAR = 0.1; // of confidence: a text within it is as sure
const MOST = 60; // of these texts, the nearest
const FEW = 20; // too few to tell
const UNSURE = 0.8; // confidence below which a text is called unsure
const UNSEEN = 0.5; // share of unknown words beyond which there is no verdict
const REST = 700; // milliseconds without a key, after which a screen reader hears the verdict

/* Odds in words: 1,130 of 1,130 to 1. */
function oddsOf(logOdds) {
  const odds = Math.exp(Math.abs(logOdds));
  if (odds < 10) return odds.toFixed(1);
  return odds < 1e6 ? count(Math.round(odds.toPrecision(3))) : t`over a million`;
}

/* `children`: the box in which a text is typed. */
export function Prediction({ store, children }) {
  const { index, maps, shownText } = store;
  const { ranked, predicted } = maps?.prediction(index.classes) ?? { ranked: [] };
  const title = t`Prediction`;
  if (ranked.length === 0) {
    return children && html`<${Panel} name="prediction" title=${title}>${children}</${Panel}>`;
  }
  const found = contributionsOf(store);
  const isOne = maps.values("given") === null;
  const isUnseen = isOne && isUnseenText(shownText);
  const share = isOne ? percent(ranked[0][1]) : "";
  const isUnlike = isUnlikeTraining(index, shownText);
  const facts = factsOf(store, predicted, isUnseen, isUnlike).map(([words, kind]) => {
    return html`<li class=${kind}>${words}</li>`;
  });
  const listed = html`<ul class="facts-of-text">${facts}</ul>`;
  const isWrong = shownText.label !== null && shownText.label !== predicted; // said first
  const side = isUnseen ? "none" : sideOf(index, predicted, found);
  const said = isOne || predicted !== "none" ? predicted : t`none`; // of several labels
  const name = isUnseen ? t`No verdict` : isolated(said, "name");
  const sure = isOne && !isUnseen && sureOf(store, ranked[0][1], isUnlike);
  return html`<${Panel} name="prediction" title=${title}>
    <p class="predicted ${side}">${name} <strong>${isUnseen ? "" : share}</strong></p>
    <${Announced} words=${isUnseen ? t`No verdict` : `${said} ${share}`} />
    <div class="trust-line">${isWrong ? [listed, sure] : [sure, listed]}</div>
    ${children}
    <ul class="bars classes">${classesOf(store, ranked, found)}</ul>
  </${Panel}>`;
}

/* What a screen reader hears once typing rests. */
function Announced({ words }) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => say(words), REST);
    return () => clearTimeout(timer);
  }, [words]);
  return html`<p class="unseen" aria-live="polite" aria-atomic="true">${said}</p>`;
}

/* Whether the text is empty, or more than half of its tokens are unknown to the model. */
function isUnseenText({ tokens, special, unknown }) {
  const all = tokens.length - (special ?? []).length;
  return all <= 0 || (unknown ?? []).length > UNSEEN * all;
}

/* Whether more of the text is unknown than of nearly all texts of training; null where that was
   not measured. */
function isUnlikeTraining({ most_unknown: most = null }, { tokens, special, unknown }) {
  const all = tokens.length - (special ?? []).length;
  return most === null ? null : (unknown ?? []).length > most * all;
}

/* The colours of the class that is asked for, and of the one that it is held against. */
function sideOf({ classes }, name, found) {
  if (found === null) return "";
  if (name === classes[found.asked]) return "for";
  return name === classes[found.against] ? "against" : "";
}

/* Which class over which, and a click to what the text itself asks for. */
export function Question({ store }) {
  const found = contributionsOf(store);
  return html`${questionOf(store, found)}
    <p class="offer" role="status">${offerOf(store, found)}</p>`;
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
  const term = html`<${Term} name="log-odds" />`;
  const odds = [formatSigned(total), oddsOf(total)];
  return html`<div class="question">
    ${parts`${first} over ${against < 0 ? t`its absence` : second}`}
    <p class="odds">${parts`${odds[0]} ${term}, ${odds[1]} to 1 for ${toward}`}</p>
  </div>`;
}

/* Where others than the text's own classes are explained, or than the chosen, these are a click
   away. */
function offerOf(store, { asked, against }) {
  const { pair, chosen, maps } = store;
  const shown = [asked, against];
  if (chosen !== null && pair?.join() === chosen.join() && pair.join() !== shown.join()) {
    return t`The sums of the classes chosen before are not known here.`;
  }
  const offer = offeredPair(store, shown);
  if (offer === null) return null;
  const [first, second] = offer.map((place) => className(store, place));
  const words = t`${first} over ${second}`;
  if (offer === chosen) return button(t`Back to ${words}`, () => store.choosePair(chosen));
  const [likeliest] = ownPair(maps);
  const isElse = !shown.includes(likeliest);
  const look = { name: isElse ? "plain primary" : "plain" };
  const names = [asked, against, likeliest].map((place) => classLabel(store, place));
  return [
    parts`Explained below: ${names[0]} over ${names[1]}`,
    isElse && parts`, not ${names[2]}`,
    html`<br />${button(t`Explain ${words}`, () => store.choosePair(offer, null), look)}`,
  ];
}

/* What to mind: [words, class] of each line. */
function factsOf({ shownText, maps, run, shown }, predicted, isUnseen, isUnlike) {
  const { label, tokens, special } = shownText;
  const unknown = shownText.unknown ?? [];
  const facts = [];
  const all = tokens.length - (special ?? []).length;
  const unread = unreadOf(shownText);
  if (run !== "" && shown === 0) facts.push([t`Nothing is learned yet: this is step 0.`, ""]);
  if (all === 0) facts.push([t`The text is empty.`, "warns"]);
  else if (isUnseen) facts.push([t`It has not seen such words.`, "warns"]);
  if (unknown.length > 0 && isUnlike !== false) {
    const words = t`Unknown to the model: ${unknown.length} of ${all} tokens.`;
    const more = isUnlike ? t` That is more than in texts of training.` : "";
    facts.push([words + more, isUnlike ? "warns" : ""]);
  }
  if (isUnseen) {
    const share = percent(Math.max(...maps.values("probabilities")));
    const name = isolated(predicted, "class-name");
    const prior = parts`What it says without words (its class prior): ${name} ${share}`;
    facts.push([all === 0 ? prior : parts`A guess from letters alone: ${name} ${share}`, ""]);
  }
  if (unread !== null) {
    const [left, whole] = [unread.words, unread.all].map(count);
    facts.push([t`${left} of ${whole} words are not read.`, "warns"]);
  }
  if (label !== null) {
    const isRight = predicted === label;
    const name = isolated(label);
    const words = isRight ? parts`Given label ✓ ${name}` : parts`Given label ✗ ${name}`;
    facts.push([words, isRight ? "known" : "known wrong"]);
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

/* Of the validation texts nearest in confidence, at most some 60: how many, and how many of them
   were right. The curve has [least confidence, texts that reach it, right ones], the surest first;
   the texts of one point are taken together. */
export function nearestTexts(curve, share) {
  const groups = curve.map(([confidence, texts, right], at) => {
    const [, before, rightBefore] = curve[at - 1] ?? [1, 0, 0];
    const distance = Math.abs(confidence - share);
    return { distance, texts: texts - before, right: right - rightBefore };
  });
  const near = groups.filter(({ distance }) => distance <= NEAR);
  near.sort((a, b) => a.distance - b.distance);
  const found = { texts: 0, right: 0 };
  for (const { texts, right } of near) {
    if (found.texts >= MOST) break;
    found.texts += texts;
    found.right += right;
  }
  return found;
}

/* A dot for each of these texts, and a sentence; nothing of what was measured with other heads or
   at another step. */
function sureOf({ index, run, shown, ablated }, share, isUnlike) {
  if (ablated.size > 0) return null;
  const isMeasured = index.curve && (run === "" || shown === index.best); // a page has no run
  if (!isMeasured || isUnlike) {
    const words = isUnlike ? t`How often it is right was not measured on such texts.`
      : t`How often such answers are right was not measured here.`;
    return html`<p class="sure note">${words}</p>`;
  }
  const { texts, right } = nearestTexts(index.curve, share);
  if (texts === 0) {
    return html`<p class="sure note">${t`No labelled text was about as sure as this.`}</p>`;
  }
  const all = html`<strong>${count(texts)}</strong>`;
  const known = html`<strong>${count(right)}</strong>`;
  const words = share < UNSURE
    ? parts`Of ${all} texts as unsure as this, ${known} were right.`
    : parts`Of ${all} texts as sure as this, ${known} were right.`;
  const few = texts < FEW && t` Too few to tell how often it is right.`;
  const dots = html`<span class="dots" aria-hidden="true">
    <span class="known">${"●".repeat(right)}</span><span class="known wrong">${
      "✗".repeat(texts - right)
    }</span>
  </span>`;
  const about = t`labelled texts of about this confidence; ✗ were wrong`;
  return html`<div class="sure" title=${about}>
    ${texts <= 4 * MOST && dots}<p>${words}${few}</p>
  </div>`;
}
