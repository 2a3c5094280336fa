/* All heads as small maps, the most important first; or by their place, a row a layer, a column a
   head. Beneath each stands what is known of it. One of them is chosen, as in a radio group. */

import { EFFECTS, headsOf, labelOf, rankHeads, rankedBy, studyOf } from "./ablation.js";
import { captionOf, counterpart, headMap, isDifference, otherMaps } from "./compare.js";
import { button, element, formatNumber, isolated, panel, showError } from "./dom.js";
import { markBorder } from "./pairs.js";
import { MapControls } from "./toolbar.js";

const FEW = 16; // maps, which may be large
const SOME = 48; // of middle size
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const NO_LABEL = { mark: "", mean: "", error: "", role: "", lines: [] };
const LEGEND_NAMES = ["maps", "numbers", "bestNumbers", "order", "compare", "other"];

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
    const drawn = ["maps", "other", "compare", "scale", "theme", "index", "part"];
    store.subscribe(drawn, () => this.draw(true));
    store.subscribe(["numbers", "bestNumbers", "order", "filter"], () => this.draw(false));
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors", "compare"], () => this.showErrors());
    if (side === "main") store.subscribe(LEGEND_NAMES, () => this.showLegend());
  }

  get isHidden() {
    return this.side === "other" && this.store.compare?.view !== "beside";
  }

  /* Heads of each layer; on the other side those stand in the places of this side's heads. */
  get counts() {
    const { maps } = this.store;
    const other = this.side === "other" ? otherMaps(this.store) : null;
    const layers = maps?.layers ?? [];
    return layers.map((_, layer) => Math.max(maps.headsOf(layer), other?.headsOf(layer) ?? 0));
  }

  /* Lay the maps out and draw all of them, or those alone that were not listed before. */
  draw(isAll) {
    if (this.isHidden) return;
    const before = new Set(this.listed.map(keyOf));
    const heads = headsOf(this.store);
    this.lay(heads);
    markBorder(this.grid, this.store.segments);
    const [layer, head] = this.listed[0] ?? [0, 0];
    this.width = this.maps[layer]?.[head]?.firstChild.clientWidth ?? 0;
    for (const place of this.listed) {
      if (isAll || !before.has(keyOf(place))) this.drawMap(...place);
    }
    this.showLabels(heads);
    this.showChosen();
    this.showHeading();
  }

  /* The heads that are listed, in their order: [layer, head]. */
  list(heads, ranked) {
    const { order, filter } = this.store;
    let listed = this.counts.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => [layer, head]);
    });
    if (filter === "matter" && studyOf(this.store)?.effects) {
      const matters = heads.filter(({ effect }) => effect === EFFECTS[1]);
      const keys = new Set(matters.map(({ layer, head }) => keyOf([layer, head])));
      listed = listed.filter((place) => keys.has(keyOf(place)));
    }
    if (order !== "importance" || ranked === null) return listed;
    const ranks = new Map(ranked.map(({ layer, head }, rank) => [keyOf([layer, head]), rank]));
    const rank = (place) => ranks.get(keyOf(place)) ?? ranked.length;
    return listed.sort((a, b) => rank(a) - rank(b));
  }

  /* Make the buttons, if there are not the right ones already, and put them where they belong. */
  lay(heads) {
    const ranked = rankHeads(heads);
    const listed = this.list(heads, ranked);
    const flows = this.store.order === "importance" && ranked !== null;
    const layout = JSON.stringify([this.counts, this.store.index?.layers, listed, flows]);
    if (layout === this.layout) return;
    const hadFocus = this.grid.contains(document.activeElement);
    Object.assign(this, { layout, listed, flows });
    this.grid.classList.toggle("flow", flows);
    this.grid.dataset.size = "many";
    if (listed.length <= SOME) this.grid.dataset.size = "some";
    if (listed.length <= FEW) this.grid.dataset.size = "few";
    const mapOf = (layer, head) => this.maps[layer]?.[head] ?? this.createMap(layer, head);
    this.maps = this.counts.map((count, layer) => {
      return Array.from({ length: count }, (_, head) => mapOf(layer, head));
    });
    const buttons = listed.map(([layer, head]) => this.maps[layer][head]);
    this.grid.replaceChildren(...(flows ? buttons : this.rows(new Set(buttons))));
    if (listed.length === 0 && heads.length > 0) {
      this.grid.append(element("p", "none-listed", "No single head is shown to matter."));
    }
    if (hadFocus) this.maps[this.store.layer]?.[this.store.head]?.focus();
  }

  /* A row a layer, of those that have any head to show; what is left out keeps its place free. */
  rows(shown) {
    const widest = Math.max(0, ...this.counts);
    this.grid.style.setProperty("--heads", String(widest));
    if (shown.size === 0) return [];
    const numbers = [...Array(widest).keys()].map((head) => element("span", "column-name", head));
    const rows = this.maps.flatMap((maps, layer) => {
      if (!maps.some((map) => shown.has(map))) return [];
      const cellOf = (_, head) => (shown.has(maps[head]) ? maps[head] : element("span"));
      const cells = numbers.map(cellOf);
      return [isolated(this.store.layerName(layer), "row-name"), ...cells];
    });
    return [element("span", "row-name", "head"), ...numbers, ...rows];
  }

  createMap(layer, head) {
    const inFrame = ["place", "answer-row", "ticks"].map((name) => element("span", name));
    const frame = element("span", "frame", element("canvas"), ...inFrame);
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
    const [canvas, place] = node.firstChild.children;
    node.classList.toggle("none", map === null);
    const isMatched = side === "other" && store.compare.order === "matched";
    place.textContent = isMatched ? (counterpart(store, layer, head) ?? "") : "";
    if (map === null) return;
    canvas.classList.toggle("dense", map.side > this.width);
    map.drawSmall(canvas);
  }

  /* Beneath each map, what is known of its head; on the other side the heads are others. */
  showLabels(heads) {
    const { store, side } = this;
    const isOwn = side === "main" && !isDifference(store);
    const study = isOwn ? studyOf(store) : null;
    const byPlace = new Map(heads.map((each) => [keyOf([each.layer, each.head]), each]));
    const largest = Math.max(...heads.map(({ increase }) => Math.abs(increase ?? 0)), 1e-9);
    for (const [layer, head] of this.listed) {
      const node = this.maps[layer][head];
      const known = isOwn ? byPlace.get(keyOf([layer, head])) : null;
      const label = known ? labelOf(known, study) : NO_LABEL;
      const there = side === "main" ? head : counterpart(store, layer, head);
      const name = this.flows && there !== null ? `${layer}·${there}` : "";
      const caption = captionOf(store, side, layer, head);
      const share = study?.isShown ? Math.abs(known?.increase ?? 0) / largest : 0;
      node.dataset.effect = study?.isShown ? (known?.effect?.name ?? "") : "";
      node.style.setProperty("--effect", String(share));
      node.title = [caption, ...label.lines].join("\n");
      node.setAttribute("aria-label", caption);
      const words = [`${label.mark} ${name}`.trim(), label.mean, label.error, label.role];
      [...node.lastChild.children].forEach((part, at) => (part.textContent = words[at]));
    }
  }

  /* What the marks and the numbers mean. */
  showLegend() {
    const { store } = this;
    const heads = headsOf(store);
    const study = isDifference(store) ? null : studyOf(store);
    const has = (key) => heads.some((head) => head[key] !== null);
    const nodes = study?.isShown && study.effects ? this.legendOfEffects(study.minEffect) : [];
    const words = [];
    if (store.order === "importance" && rankedBy(heads) === "contribution") {
      words.push("order: contribution to the answer of this text");
    }
    if (study?.isShown && has("increase")) {
      words.push("beneath: change of the loss when ablated ± standard error, in nats; role");
    } else if (has("contribution")) words.push("beneath: contribution to the answer, in nats");
    nodes.push(...words.map((each) => element("span", {}, each)));
    nodes.push(element("span", "of-readout", "marked row: where the answer is read"));
    nodes.push(element("span", "of-special", "ticks: special tokens"));
    this.legend.replaceChildren(...nodes);
  }

  legendOfEffects(minEffect) {
    const bound = formatNumber(minEffect).replace(/0+$/, "");
    return [EFFECTS[1], EFFECTS[0], EFFECTS[-1]].map(({ name, mark, meaning }) => {
      const title = minEffect === null ? meaning : `${meaning}; from ${bound} nats, 95 % intervals`;
      return element("span", { "data-effect": name, title }, `${mark} ${name}`);
    });
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
    const isListed = this.maps[layer]?.[head]?.isConnected;
    const first = this.grid.querySelector(".map");
    this.maps.forEach((maps, row) => maps.forEach((map, column) => {
      const isChosen = row === layer && column === head;
      map.setAttribute("aria-checked", String(isChosen));
      map.tabIndex = isChosen || (!isListed && map === first) ? 0 : -1;
    }));
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
    const [layer, head] = this.flows ? this.beside(arrow) : [row + arrow[0], column + arrow[1]];
    const map = this.maps[layer]?.[head];
    if (!map?.isConnected || !maps?.has(layer, head)) return;
    this.store.chooseHead(layer, head);
    map.focus();
  }

  /* The head that an arrow leads to where maps flow: the next one, or the one above or below. */
  beside([down, right]) {
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const { layer, head } = this.store;
    const at = this.listed.findIndex((place) => place[0] === layer && place[1] === head);
    return this.listed[at + down * columns + right] ?? [];
  }
}
