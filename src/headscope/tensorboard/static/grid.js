/* All heads as small maps: a row a layer, a column a head. One of them is chosen, as in a radio group. */

import { element, isolated, showError } from "./dom.js";
import { captionOf, isDifference, otherOf, readingOf } from "./reading.js";
import { markBorder } from "./pairs.js";

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Grid {
  constructor(section, store, side) {
    Object.assign(this, { section, store, side, shape: "" });
    this.root = section.querySelector(".maps");
    this.heading = section.querySelector("h2");
    this.error = section.querySelector(".error");
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["maps", "other", "compare", "scale", "theme", "index", "part"], () => this.draw());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors", "compare"], () => this.showErrors());
  }

  /* Heads of each layer; on the other side those stand in the places of this side's heads. */
  get heads() {
    const { maps } = this.store;
    const other = this.side === "other" ? otherOf(this.store) : null;
    return (maps?.layers ?? []).map((_, layer) => Math.max(maps.headsOf(layer), other?.headsOf(layer) ?? 0));
  }

  /* Make the buttons, if there are not as many as there have to be already. */
  lay() {
    const { heads } = this;
    const names = this.store.layerNames;
    const shape = JSON.stringify([heads, names]);
    if (shape === this.shape) return;
    this.shape = shape;
    const widest = Math.max(0, ...heads);
    this.root.style.setProperty("--heads", String(widest));
    this.maps = [];
    const header = [element("span", "row-name", "head")];
    for (let head = 0; head < widest; head += 1) header.push(element("span", "column-name", String(head)));
    const rows = heads.flatMap((count, layer) => {
      const maps = Array.from({ length: count }, (_, head) => this.createMap(layer, head));
      this.maps.push(maps);
      const empty = Array.from({ length: widest - count }, () => element("span"));
      return [isolated(names[layer] ?? `layer ${layer}`, "row-name"), ...maps, ...empty];
    });
    this.root.replaceChildren(...header, ...rows);
  }

  createMap(layer, head) {
    const map = element("button", "map");
    map.type = "button";
    map.setAttribute("role", "radio");
    map.append(element("canvas"), element("span", "place"));
    map.addEventListener("click", () => this.choose(layer, head));
    return map;
  }

  choose(layer, head) {
    if (head < this.store.maps.headsOf(layer)) this.store.set({ layer, head });
  }

  draw() {
    if (this.side === "other" && this.store.compare?.view !== "beside") return;
    this.lay();
    markBorder(this.root, this.store.segments);
    this.width = this.maps[0]?.[0]?.clientWidth ?? 0;
    this.maps.forEach((maps, layer) => maps.forEach((map, head) => this.drawMap(map, layer, head)));
    this.showChosen();
    this.showHeading();
  }

  drawMap(map, layer, head) {
    const reading = readingOf(this.store, this.side, layer, head);
    const caption = captionOf(this.store, this.side, layer, head);
    const [canvas, place] = map.children;
    if (map.title !== caption) {
      map.title = caption;
      map.setAttribute("aria-label", caption);
    }
    map.classList.toggle("none", reading === null);
    const matched = this.side === "other" && this.store.compare.order === "matched";
    place.textContent = matched ? (caption.match(/head (\d+)$/)?.[1] ?? "") : "";
    if (reading === null) return;
    canvas.classList.toggle("dense", reading.side > this.width);
    reading.drawSmall(canvas);
  }

  showHeading() {
    const { run, shown, compare, other, page } = this.store;
    if (page) return;
    const step = (of, at) => [isolated(of ?? ""), at === null ? "" : ` · step ${at}`];
    const name = this.side === "other" ? step(other?.run ?? compare.run, other?.step ?? null) : step(run, shown);
    if (this.side === "main" && isDifference(this.store)) name.push(" − ", ...step(other.run, other.step));
    const note = element("span", "caption");
    note.append(...name);
    this.heading.replaceChildren(isDifference(this.store) ? "Differences " : "Heads ", note);
  }

  showChosen() {
    const { layer, head } = this.store;
    this.maps?.forEach((maps, row) =>
      maps.forEach((map, column) => {
        const chosen = row === layer && column === head;
        map.setAttribute("aria-checked", String(chosen));
        map.tabIndex = chosen ? 0 : -1;
      }),
    );
  }

  showErrors() {
    const { errors, compare } = this.store;
    const differs = this.side === "main" && compare?.view === "difference";
    const message = this.side === "other" ? errors.other : (errors.maps ?? (differs ? errors.other : null));
    showError(this.error, message);
    this.root.hidden = Boolean(message) && !(differs && !errors.maps);
  }

  onKey(event) {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const [layer, head] = [this.store.layer + arrow[0], this.store.head + arrow[1]];
    if (!this.store.maps?.has(layer, head)) return;
    this.store.set({ layer, head });
    this.maps[layer][head].focus();
  }
}
