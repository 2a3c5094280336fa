/* All heads as small maps, a row a layer, a column a head. One of them is chosen, as in a radio
   group. */

import { drawWeights } from "./colors.js";
import { headMap } from "./compare.js";
import { button, element, isolated, panel, showError } from "./dom.js";
import { t } from "./strings.js";

const SOME = 48; // maps, beyond which each has less around it
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Grid {
  constructor(store) {
    Object.assign(this, { store, layout: "", maps: [] });
    const label = t`Attention maps; arrow keys choose a head`;
    this.grid = element("div", { class: "maps", role: "radiogroup", "aria-label": label });
    const note = t`each map up to its own largest weight; marked row: where the answer is read`;
    this.panel = panel("grid", t`Heads`, this.grid);
    this.panel.title.append(element("small", {}, note));
    this.root = this.panel.root;
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["maps", "index"], () => this.draw());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors"], () => {
      showError(this.panel.error, store.errors.maps);
      this.grid.hidden = Boolean(store.errors.maps);
    });
  }

  /* Lay the maps out and draw them: of a folded view, once it opens. */
  draw() {
    this.lay();
    if (this.root.closest("details")?.open === false) return;
    const width = this.maps[0]?.[0]?.firstChild.clientWidth ?? 0;
    this.maps.forEach((maps, layer) => maps.forEach((node, head) => {
      const map = headMap(this.store, "main", layer, head);
      node.classList.toggle("row", map?.readout !== null);
      const canvas = node.querySelector("canvas");
      canvas.classList.toggle("dense", map?.side > width);
      if (map?.readout === null) drawWeights(canvas, map.cells());
      else if (map) drawWeights(canvas, map.row(map.readout), 1);
    }));
    this.showChosen();
  }

  /* Make the buttons, if there are not the right ones already: a row a layer. */
  lay() {
    const { store } = this;
    const counts = (store.maps?.layers ?? []).map((_, layer) => store.maps.headsOf(layer));
    const layout = JSON.stringify([counts, store.index?.layers]);
    if (layout === this.layout) return;
    this.layout = layout;
    this.maps = counts.map((count, layer) => {
      return Array.from({ length: count }, (_, head) => this.createMap(layer, head));
    });
    const widest = Math.max(0, ...counts);
    this.grid.classList.toggle("many", this.maps.flat().length > SOME);
    this.grid.style.setProperty("--heads", String(widest));
    const numbers = Array.from({ length: widest }, (_, head) => head);
    const rows = this.maps.flatMap((maps, layer) => {
      const cells = numbers.map((head) => maps[head] ?? element("span"));
      return [isolated(store.layerName(layer), "row-name"), ...cells];
    });
    const names = numbers.map((head) => element("span", "column-name", head));
    this.grid.replaceChildren(element("span", "row-name", t`head`), ...names, ...rows);
  }

  createMap(layer, head) {
    const name = this.store.headName(layer, head);
    const node = button("", name, () => this.store.chooseHead(layer, head), "map");
    node.setAttribute("role", "radio");
    node.setAttribute("aria-label", name);
    node.append(element("span", "frame", element("canvas"), element("span", "answer-row")));
    return node;
  }

  showChosen() {
    const { layer, head } = this.store;
    const chosen = this.maps[layer]?.[head] ?? this.maps[0]?.[0];
    for (const map of this.maps.flat()) {
      map.setAttribute("aria-checked", String(map === this.maps[layer]?.[head]));
      map.tabIndex = map === chosen ? 0 : -1;
    }
  }

  onKey(event) {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const [layer, head] = [this.store.layer + arrow[0], this.store.head + arrow[1]];
    const map = this.maps[layer]?.[head];
    if (!map) return;
    this.store.chooseHead(layer, head);
    map.focus();
  }
}
