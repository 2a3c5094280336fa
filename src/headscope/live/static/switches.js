/* Every head as a button: on, set to zero, or an average of what it may see, in any combination. */

import { button, element, panel } from "./dom.js";
import { ABLATIONS, layerNames } from "./store.js";

const NEXT = { zero: "uniform", uniform: null }; // a head that is on is set to zero

/* The fewest heads that keep the accuracy to a point; null where it takes all, or none is known. */
function enoughOf({ extra }) {
  const count = extra["sets/enough"] ?? 0;
  const heads = extra["sets/heads"] ?? [];
  return count > 0 && count < heads.length ? heads.slice(0, count) : null;
}

export class HeadSwitches {
  constructor(store, { index, numbers }) {
    Object.assign(this, { store, index, buttons: new Map() });
    const isOne = index.layers.length === 1;
    const names = layerNames(index.layers);
    const rows = index.heads.map((count, layer) => {
      const heads = Array.from({ length: count }, (_, head) => this.headButton(layer, head, isOne));
      const all = button(names[layer], "all heads of this layer: zero, average, on", () => {
        this.turnLayer(layer);
      });
      return element("div", "switch-row", ...(isOne ? [] : [all]), ...heads);
    });
    const note =
      "A click sets a head to zero, the next makes its map an average, the third undoes it.";
    this.panel = panel("switches", "With and without heads", ...rows, element("p", "key", note));
    this.root = this.panel.root;
    const enough = enoughOf(numbers);
    if (enough !== null) {
      const { length } = enough;
      const words = length === 1 ? "1 head alone" : `${length} heads alone`;
      const only = () => this.keepOnly(enough);
      const title = "set all others to zero; chosen on validation texts";
      this.panel.tools.append(button(words, title, only));
    }
    this.all = button("All heads on", "undo (a)", () => this.reset());
    this.panel.tools.append(this.all);
    store.subscribe(["ablated"], () => this.show());
    this.show();
  }

  headButton(layer, head, isOne) {
    const name = isOne ? `head ${head}` : String(head);
    const node = button("", "", () => this.turn(layer, head), "plain head-switch");
    this.buttons.set(`${layer},${head}`, { node, name });
    return node;
  }

  /* The next state of a head: zero, average, on. */
  turn(layer, head) {
    const ablated = new Map(this.store.ablated);
    const key = `${layer},${head}`;
    const next = ablated.has(key) ? NEXT[ablated.get(key)] : "zero";
    if (next === null) ablated.delete(key);
    else ablated.set(key, next);
    this.store.set({ ablated, layer, head, headChosen: true });
  }

  turnLayer(layer) {
    const ablated = new Map(this.store.ablated);
    const keys = [...this.buttons.keys()].filter((key) => key.startsWith(`${layer},`));
    const first = ablated.get(keys[0]);
    const next = first === undefined ? "zero" : NEXT[first];
    for (const key of keys) {
      if (next === null) ablated.delete(key);
      else ablated.set(key, next);
    }
    this.store.set({ ablated });
  }

  keepOnly(heads) {
    const kept = new Set(heads.map((place) => place.join()));
    const others = [...this.buttons.keys()].filter((key) => !kept.has(key));
    this.store.set({ ablated: new Map(others.map((key) => [key, "zero"])) });
  }

  reset() {
    if (this.store.ablated.size > 0) this.store.set({ ablated: new Map() });
  }

  show() {
    const { ablated } = this.store;
    for (const [key, { node, name }] of this.buttons) {
      const state = ABLATIONS[ablated.get(key)] ?? "on";
      node.dataset.state = state;
      node.setAttribute("aria-label", `layer ${key.replace(",", " head ")}: ${state}`);
      node.replaceChildren(name, element("small", {}, state === "on" ? "" : state));
    }
    this.all.disabled = ablated.size === 0;
  }
}
