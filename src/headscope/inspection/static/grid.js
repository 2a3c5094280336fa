/* All heads as small maps: a row a layer, a column a head. One of them is chosen, as in a radio group. */

class Grid {
  constructor(report, selection, palette) {
    Object.assign(this, { report, selection, palette });
    this.root = document.getElementById("grid");
    this.widest = Math.max(...report.layers.map((layer) => layer.heads.length));
    this.root.style.setProperty("--heads", String(this.widest));
    this.addColumnNames();
    this.maps = report.heads.map((head, index) => this.createMap(head, index));
    report.layers.forEach((layer, index) => this.addRow(layer, index));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    selection.subscribe("head", () => this.showChosen());
    palette.subscribe(() => this.draw());
    selection.subscribe("part", () => this.draw());
    markBorder(this.root, report.segments);
    this.draw();
    this.showChosen();
  }

  addColumnNames() {
    this.root.append(element("span", "row-name", "head"));
    for (let head = 0; head < this.widest; head += 1) this.root.append(element("span", "column-name", String(head)));
  }

  addRow(layer, index) {
    this.root.append(isolated(layer.name, "row-name"));
    const maps = this.maps.filter((map, position) => this.report.heads[position].layer === index);
    this.root.append(...maps);
    for (let missing = maps.length; missing < this.widest; missing += 1) this.root.append(element("span"));
  }

  createMap(head, index) {
    const map = element("button", "map");
    map.type = "button";
    map.title = head.caption;
    map.setAttribute("role", "radio");
    map.setAttribute("aria-label", head.caption);
    map.append(element("canvas"));
    map.addEventListener("click", () => this.selection.chooseHead(index));
    return map;
  }

  draw() {
    const { count, segments } = this.report;
    const shown = shownCells(segments, this.selection.part, count);
    this.maps.forEach((map, index) => {
      this.palette.draw(map.firstChild, this.report.heads[index], count, shown);
    });
  }

  showChosen() {
    this.maps.forEach((map, index) => {
      const chosen = index === this.selection.head;
      map.setAttribute("aria-checked", String(chosen));
      map.tabIndex = chosen ? 0 : -1;
    });
  }

  /* The head one step away in the grid, or -1 at its border. */
  neighbour(key) {
    const { layer, position } = this.report.heads[this.selection.head];
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
    return this.report.heads.findIndex((head) => head.layer === layer + down && head.position === position + right);
  }

  onKey(event) {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const head = this.neighbour(event.key);
    if (head < 0) return;
    this.selection.chooseHead(head);
    this.maps[head].focus();
  }
}
