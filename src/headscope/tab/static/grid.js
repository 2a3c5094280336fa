/* All heads as small maps, a row a layer, a column a head. Beneath each stands what is known of it.
   One of them is chosen, as in a radio group. */

import { headsOf, labelOf, legendOf, studyOf } from "./ablation.js";
import { captionOf, headMap, isBeside, isDifference, otherMaps } from "./compare.js";
import { button, element, isolated, panel, showError } from "./dom.js";
import { markBorder } from "./pairs.js";
import { MapControls } from "./toolbar.js";

const SOME = 48; // maps, beyond which each has less around it
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const NO_LABEL = { mark: "", mean: "", error: "", role: "", lines: [], effect: "" };

function keyOf(place) {
  return place.join(" ");
}

export class Grid {
  constructor(store, side) {
    Object.assign(this, { store, side, layout: "", maps: [], listed: [], width: 0 });
    const label = "Attention maps; arrow keys choose a head";
    this.grid = element("div", { class: "maps", role: "radiogroup", "aria-label": label });
    this.legend = element("p", "key");
    this.panel = panel(side === "main" ? "grid" : "other-grid", "Heads", this.legend, this.grid);
    this.root = this.panel.root;
    if (side === "main") this.panel.tools.append(...new MapControls(store).nodes);
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    const drawn = ["maps", "other", "compare", "scale", "theme", "index"];
    store.subscribe(drawn, () => this.draw(true));
    store.subscribe(["numbers", "bestNumbers"], () => this.draw(false));
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors", "compare"], () => this.showErrors());
  }

  get isHidden() {
    return this.side === "other" && !isBeside(this.store);
  }

  /* Heads of each layer; on the other side those stand in the places of this side's heads. */
  get counts() {
    const { maps } = this.store;
    const other = this.side === "other" ? otherMaps(this.store) : null;
    const layers = maps?.layers ?? [];
    return layers.map((_, layer) => Math.max(maps.headsOf(layer), other?.headsOf(layer) ?? 0));
  }

  /* Lay the maps out and draw them, unless the numbers alone are new. */
  draw(isAll) {
    if (this.isHidden) return;
    const heads = headsOf(this.store);
    const isNew = this.lay();
    markBorder(this.grid, this.store.segments);
    const isFolded = this.root.closest("details")?.open === false; // draws when it opens
    if ((isAll || isNew) && !isFolded) {
      const [layer, head] = this.listed[0] ?? [0, 0];
      this.width = this.maps[layer]?.[head]?.firstChild.clientWidth ?? 0;
      this.listed.forEach((place) => this.drawMap(...place));
      this.root.classList.toggle("rows", this.grid.querySelector(".map:not(.row)") === null);
    }
    this.showLabels(heads);
    this.showChosen();
    this.showHeading();
  }

  /* Make the buttons, if there are not the right ones already; say whether they are new. */
  lay() {
    const layout = JSON.stringify([this.counts, this.store.index?.layers]);
    if (layout === this.layout) return false;
    this.layout = layout;
    this.listed = this.counts.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => [layer, head]);
    });
    this.grid.classList.toggle("many", this.listed.length > SOME);
    this.maps = this.counts.map((count, layer) => {
      return Array.from({ length: count }, (_, head) => this.createMap(layer, head));
    });
    this.grid.replaceChildren(...this.rows());
    return true;
  }

  /* A row a layer. */
  rows() {
    const widest = Math.max(0, ...this.counts);
    this.grid.style.setProperty("--heads", String(widest));
    const numbers = Array.from({ length: widest }, (_, head) => head);
    const rows = this.maps.flatMap((maps, layer) => {
      const cells = numbers.map((head) => maps[head] ?? element("span"));
      return [isolated(this.store.layerName(layer), "row-name"), ...cells];
    });
    const names = numbers.map((head) => element("span", "column-name", head));
    return [element("span", "row-name", "head"), ...names, ...rows];
  }

  createMap(layer, head) {
    const frame = element("span", "frame", element("canvas"), element("span", "answer-row"));
    const parts = ["name", "mean", "error-of", "role-of"].map((name) => element("span", name));
    const node = button("", "", () => this.choose(layer, head), "map");
    node.setAttribute("role", "radio");
    node.replaceChildren(frame, element("span", "under", ...parts));
    return node;
  }

  choose(layer, head) {
    if (this.store.maps.has(layer, head)) this.store.chooseHead(layer, head);
  }

  drawMap(layer, head) {
    const { store, side } = this;
    const map = headMap(store, side, layer, head);
    const node = this.maps[layer][head];
    node.classList.toggle("none", map === null);
    if (map === null) return;
    node.classList.toggle("row", map.readout !== null);
    const canvas = node.firstChild.firstChild;
    canvas.classList.toggle("dense", map.side > this.width);
    map.drawSmall(canvas, store);
  }

  /* Beneath each map, what is known of its head; on the other side the heads are others. */
  showLabels(heads) {
    const { store, side } = this;
    const isOwn = side === "main" && !isDifference(store);
    const study = isOwn ? studyOf(store) : null;
    const known = new Map(isOwn ? heads.map((head) => [keyOf([head.layer, head.head]), head]) : []);
    const largest = Math.max(...heads.map(({ increase }) => Math.abs(increase ?? 0)), 1e-9);
    for (const [layer, head] of this.listed) {
      const node = this.maps[layer][head];
      const own = known.get(keyOf([layer, head]));
      const label = own ? labelOf(own, study) : NO_LABEL;
      const caption = captionOf(store, side, layer, head);
      node.dataset.effect = label.effect;
      const share = label.effect ? Math.abs(own.increase) / largest : 0;
      node.style.setProperty("--effect", String(share));
      node.title = [caption, ...label.lines].join("\n");
      node.setAttribute("aria-label", caption);
      const words = [label.mark, label.mean, label.error, label.role];
      [...node.lastChild.children].forEach((part, at) => (part.textContent = words[at]));
    }
    this.legend.replaceChildren(...(isOwn ? legendOf(heads, study) : []));
  }

  showHeading() {
    const { run, shown, compare, other, page } = this.store;
    if (page) return;
    const step = (name, at) => [isolated(name ?? ""), at === null ? "" : ` · step ${at}`];
    const isSigned = isDifference(this.store);
    const note = element("span", "caption");
    if (this.side === "other") note.append(...step(other?.run ?? compare.run, other?.step ?? null));
    else note.append(...step(run, shown));
    if (this.side === "main" && isSigned) note.append(" − ", ...step(other.run, other.step));
    this.panel.title.replaceChildren(isSigned ? "Differences " : "Heads ", note);
  }

  showChosen() {
    const { layer, head } = this.store;
    const isListed = this.maps[layer]?.[head] !== undefined;
    const [row, column] = isListed ? [layer, head] : (this.listed[0] ?? []);
    for (const place of this.listed) {
      const map = this.maps[place[0]][place[1]];
      map.setAttribute("aria-checked", String(place[0] === layer && place[1] === head));
      map.tabIndex = place[0] === row && place[1] === column ? 0 : -1;
    }
  }

  showErrors() {
    const { errors, compare } = this.store;
    const ofOther = this.side === "other" || compare?.view === "difference" ? errors.other : null;
    const ofMaps = this.side === "main" ? errors.maps : null;
    showError(this.panel.error, ofMaps ?? ofOther);
    this.grid.hidden = Boolean(ofMaps ?? (this.side === "other" && ofOther));
  }

  onKey(event) {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const { layer: row, head: column, maps } = this.store;
    const [layer, head] = [row + arrow[0], column + arrow[1]];
    const map = this.maps[layer]?.[head];
    if (!map || !maps?.has(layer, head)) return;
    this.store.chooseHead(layer, head);
    map.focus();
  }
}
