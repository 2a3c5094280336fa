/* The prediction: which class, how sure, against which other; and what to mind about this text. */

import { contributionsOf, knownClasses, ownPair } from "./contributions.js";
import {
  bar, button, chooser, classLabel, element, fillSelect, formatSigned, isolated, panel, percent,
} from "./dom.js";
import { unreadOf } from "./words.js";
import { count, parts, t } from "./strings.js";

const CLASSES = 4; // of the list
const SOME = 100; // validation texts, which tell how sure a prediction is

/* Odds in words: 1,130 to 1, or 1 to 12. */
export function oddsOf(logOdds) {
  const odds = Math.exp(Math.abs(logOdds));
  let words = t`over a million`;
  if (odds < 10) words = odds.toFixed(1);
  else if (odds < 1e6) words = count(Math.round(odds.toPrecision(3)));
  return logOdds >= 0 ? t`${words} to 1` : t`1 to ${words}`;
}

export class PredictionView {
  constructor(store) {
    this.store = store;
    this.line = element("p", { class: "predicted", "aria-live": "polite", "aria-atomic": "true" });
    const select = (name, label, at) => {
      return chooser(name, label, (place) => this.choose(at, Number(place)));
    };
    this.asked = select("asked", t`Class that is asked for`, 0);
    this.against = select("against", t`Class that it is held against`, 1);
    this.absence = element("span", {}, t`its absence`);
    this.odds = element("p", "odds");
    const of = parts`${this.asked} over ${this.against}`;
    this.question = element("div", "question", ...of, this.absence, this.odds);
    this.offer = element("p", { class: "offer", role: "status" });
    this.facts = element("ul", "facts-of-text");
    this.classes = element("ul", "bars classes");
    const content = [this.line, this.question, this.offer, this.facts, this.classes];
    this.panel = panel("prediction", t`Prediction`, ...content);
    this.root = this.panel.root;
    this.panel.title.parentNode.classList.add("unseen");
    const shown = ["maps", "index", "text", "pair", "reference", "compare", "other"];
    store.subscribe(shown, () => this.show());
    this.show();
  }

  /* Ask for a class, or hold it against another; the two change places rather than be the same. */
  choose(at, place) {
    const pair = [...this.store.pair];
    if (pair[1 - at] === place) pair[1 - at] = pair[at];
    pair[at] = place;
    this.store.set({ pair });
  }

  show() {
    const { store } = this;
    const { index, maps, shownText } = store;
    const { ranked, predicted } = maps?.prediction(index.classes) ?? { ranked: [] };
    this.root.hidden = ranked.length === 0 || shownText === null;
    if (this.root.hidden) return;
    const contributions = contributionsOf(store);
    this.showLine(ranked, predicted, contributions);
    this.question.hidden = contributions === null;
    if (contributions !== null) this.showQuestion(contributions);
    this.facts.replaceChildren(...this.factsOf(predicted).map(([words, kind]) => {
      return element("li", kind, ...words);
    }));
    this.showClasses(ranked, contributions);
  }

  /* Changed only where its words change: a screen reader hears each change. */
  showLine(ranked, predicted, contributions) {
    const isOne = this.store.maps.values("given") === null;
    const share = isOne ? percent(ranked[0][1]) : "";
    const key = JSON.stringify([predicted, share]);
    this.line.className = `predicted ${this.sideOf(predicted, contributions)}`;
    if (key === this.said) return;
    this.said = key;
    this.line.replaceChildren(isolated(predicted, "name"), " ", element("strong", {}, share));
  }

  /* Blue is for the class that is asked for, orange for the one that it is held against. */
  sideOf(name, contributions) {
    const { classes } = this.store.index;
    if (contributions === null) return "";
    if (name === classes[contributions.asked]) return "for";
    return name === classes[contributions.against] ? "against" : "";
  }

  showQuestion(contributions) {
    const { store } = this;
    const { classes } = store.index;
    const { asked, against, total } = contributions;
    const known = [...new Set([...knownClasses(store.maps), asked, against])];
    const places = known.filter((place) => place >= 0).sort((a, b) => a - b);
    const options = places.map((place) => [String(place), classes[place] ?? `class ${place}`]);
    fillSelect(this.asked, options, String(asked));
    this.against.hidden = against < 0;
    this.absence.hidden = against >= 0;
    fillSelect(this.against, options, String(against));
    this.odds.textContent = t`${formatSigned(total, 2)} log-odds, about ${oddsOf(total)}`;
    this.showOffer(contributions);
  }

  /* Where other classes are the likeliest now, they are a click away. */
  showOffer({ asked, against }) {
    const { store } = this;
    const own = ownPair(store.maps);
    const isHeld = own[0] === asked && own[1] === against;
    const isLost = store.pair !== null && (store.pair[0] !== asked || store.pair[1] !== against);
    this.offer.hidden = isHeld && !isLost;
    if (this.offer.hidden) this.offer.textContent = "";
    if (this.offer.hidden) return;
    if (isLost) {
      this.offer.textContent = t`The sums of the classes chosen before are not known here.`;
      return;
    }
    const [first, second] = own.map((place) => store.index.classes[place] ?? t`its absence`);
    const ask = button(t`Ask for ${first} over ${second}`, "", () => store.set({ pair: own }));
    const name = classLabel(store, own[0] === asked ? own[1] : own[0]);
    const runnerUp = parts`Now the runner-up is ${name}. ${ask}`;
    const likeliest = parts`Now the likeliest is ${name}. ${ask}`;
    this.offer.replaceChildren(...(own[0] === asked ? runnerUp : likeliest));
  }

  /* What to mind: [words, class] of each line. */
  factsOf(predicted) {
    const { shownText, index } = this.store;
    const { label, tokens, special, unknown = [] } = shownText;
    const facts = [];
    const all = tokens.length - (special ?? []).length;
    const unread = unreadOf(shownText);
    if (all === 0) facts.push([[t`The text is empty: its biases alone decide.`], "warns"]);
    if (unknown.length > 0) {
      const words = t`${unknown.length} of ${all} tokens are unknown to the model.`;
      const isUnlike = unknown.length / all > (index.most_unknown ?? 1);
      const unlike = isUnlike ? t` That is more than in texts of training.` : "";
      facts.push([[words, unlike], "warns"]);
    }
    if (unread !== null) {
      const [left, whole] = unread.map(count);
      facts.push([[t`${left} of ${whole} words are not read.`], "warns"]);
    }
    const sure = sureOf(index.curve, this.store.maps);
    if (sure !== null) facts.push([[sure], ""]);
    if (label !== null) {
      const isRight = predicted === label;
      const mark = isRight ? "✓ " : "✗ ";
      facts.push([parts`Given label ${mark}${isolated(label)}`, isRight ? "known" : "known wrong"]);
    }
    return facts;
  }

  showClasses(ranked, contributions) {
    const { index, reference } = this.store;
    const shown = ranked.slice(0, CLASSES);
    const inPair = [contributions?.asked, contributions?.against];
    for (const entry of ranked.slice(CLASSES)) {
      if (inPair.includes(index.classes.indexOf(entry[0]))) shown.push(entry);
    }
    const change = (name, share) => {
      const place = index.classes.indexOf(name);
      return ` ${formatSigned(100 * (share - reference.probabilities[place]), 1)}`;
    };
    this.classes.replaceChildren(...shown.map(([name, share]) => {
      const side = this.sideOf(name, contributions);
      const words = reference === null ? "" : element("small", {}, change(name, share));
      const number = element("span", "number", percent(share), words);
      return element("li", side, isolated(name, "name"), bar(share), number);
    }));
    if (reference !== null) {
      const note = t`points: change from ${reference.name}`;
      this.classes.append(element("li", "note", note));
    }
  }
}

/* How many of the validation texts with such a probability or a higher one were right. The curve
   has [least probability, texts, right], the surest first. */
function sureOf(curve, maps) {
  const shares = maps.values("probabilities");
  if (!curve || maps.values("given") !== null || shares === null) return null;
  const most = Math.max(...shares);
  const [, all = 0] = curve.at(-1) ?? [];
  const isFit = ([least, texts]) => most >= least && texts >= Math.min(SOME, all);
  const found = curve.find(isFit);
  if (found === undefined) return t`Less sure than every validation text.`;
  const [least, texts, right] = found;
  const from = (Math.floor(1000 * least) / 10).toFixed(1);
  return t`At ${from} % or more ${count(right)} of ${count(texts)} validation texts were right.`;
}
