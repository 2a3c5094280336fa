/* What would change the prediction: each word is removed and the network run again, and the fewest
   removals that lead to another class are found greedily. */

import { contributionsOf } from "./contributions.js";
import { button, element, formatSigned, isolated, panel } from "./dom.js";
import { unitsOf } from "./words.js";
import { parts, t } from "./strings.js";

const REST = 400; // milliseconds without a new text before words are removed
const MOST = 60; // words that are removed one by one, those that add most
const TRIED = 12; // of them that are tried together with those removed before
const FEWEST = 6; // removals, at most
const NAMED = 8;

export class MindView {
  constructor(store) {
    Object.assign(this, { store, turn: 0, onOpen: () => null });
    this.flip = element("p", "flip");
    this.effects = element("p", "effects");
    const note = t`Measured by removal: the network reads the text without the word. The bar above
      is the exact sum for the text as it stands.`;
    const content = [this.flip, this.effects, element("p", "key", note)];
    this.panel = panel("mind", t`What would change its mind`, ...content);
    this.root = this.panel.root;
    this.root.hidden = true;
  }

  /* Start over with a text; `run` gives the logits of others, in pieces of work. */
  async show(text, logits, run) {
    this.turn += 1;
    const { turn, store } = this;
    const units = unitsOf(text, "word").filter(({ from }) => from !== null);
    this.root.hidden = units.length < 2 || text.text === "" || store.maps.values("given") !== null;
    await new Promise((resolve) => setTimeout(resolve, REST));
    if (turn !== this.turn || this.root.hidden) return;
    const predicted = largestOf(logits);
    const margin = (own) => own[predicted] - Math.max(...own.filter((_, c) => c !== predicted));
    const without = async (removed) => {
      const found = await run(cutOut(text.text, removed));
      return turn === this.turn ? found : null;
    };
    const effects = [];
    const sums = contributionsOf(store)?.words ?? [];
    const size = ({ start }) => Math.abs(sums[start] ?? 0);
    const first = [...units].sort((a, b) => size(b) - size(a)).slice(0, MOST);
    for (const unit of first) {
      const own = await without([unit]);
      if (own === null) return;
      effects.push({ unit, change: margin(own) - margin(logits), logits: own });
      this.showEffects(effects, first.length);
    }
    effects.sort((a, b) => a.change - b.change);
    await this.find(effects, predicted, margin, without, text);
  }

  /* Remove the word after which the class leads least, until another leads. */
  async find(effects, predicted, margin, without, text) {
    const left = effects.slice(0, TRIED);
    let { unit, logits } = left.shift();
    const removed = [unit];
    while (largestOf(logits) === predicted && removed.length < FEWEST && left.length > 0) {
      let best = null;
      for (const each of left) {
        const own = await without([...removed, each.unit]);
        if (own === null) return;
        if (best === null || margin(own) < margin(best.logits)) best = { each, logits: own };
      }
      left.splice(left.indexOf(best.each), 1);
      removed.push(best.each.unit);
      ({ logits } = best);
    }
    this.showFlip(removed, logits, predicted, text);
  }

  showEffects(effects, count) {
    const ranked = [...effects].sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
    const named = ranked.slice(0, NAMED).flatMap(({ unit, change }, at) => {
      return [at === 0 ? t`without ` : " · ", isolated(unit.word), ` ${formatSigned(change, 2)}`];
    });
    const progress = effects.length < count ? t` (${effects.length} of ${count} words)` : "";
    this.effects.replaceChildren(t`Change of its lead in log-odds `, ...named, progress);
  }

  showFlip(removed, logits, predicted, text) {
    const { classes } = this.store.index;
    const names = removed.flatMap(({ word }, at) => {
      const before = at === removed.length - 1 ? t` and “` : t`, “`;
      return [at === 0 ? t`“` : before, isolated(word), t`”`];
    });
    const now = largestOf(logits);
    const name = element("strong", {}, isolated(classes[now]));
    const apply = button(t`Remove them`, "", () => this.onOpen(cutOut(text.text, removed)));
    const stays = [t`No removal of up to ${removed.length} words was found that changes it.`];
    const flips = parts`Without ${element("span", {}, ...names)} it is ${name}. ${apply}`;
    this.flip.replaceChildren(...(now === predicted ? stays : flips));
  }
}

function largestOf(logits) {
  return logits.reduce((best, value, at) => (value > logits[best] ? at : best), 0);
}

/* A text without some of its words, and without the space after each. */
function cutOut(text, units) {
  const sorted = [...units].sort((a, b) => b.from - a.from);
  return sorted.reduce((rest, { from, to }) => {
    const end = /\s/.test(rest[from - 1] ?? " ") && /\s/.test(rest[to] ?? "") ? to + 1 : to;
    return rest.slice(0, from) + rest.slice(end);
  }, text);
}
