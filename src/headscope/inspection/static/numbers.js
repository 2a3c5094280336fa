/* The numbers of every head: a row a head, a column a number; a column's name sorts by it. */

class NumberTable {
  constructor(report, selection) {
    Object.assign(this, { report, selection, column: null, falling: false });
    this.table = document.getElementById("numbers");
    this.addColumn("head", null);
    report.columns.forEach((name, column) => this.addColumn(name.replaceAll("_", " "), column));
    this.rows = report.heads.map((head, index) => this.createRow(head, index));
    selection.subscribe("head", () => this.showChosen());
    this.sort();
    this.showChosen();
  }

  addColumn(name, column) {
    const cell = element("th");
    const button = element("button", "", name);
    cell.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => this.sortBy(column));
    cell.append(button);
    this.table.tHead.rows[0].append(cell);
  }

  createRow(head, index) {
    const row = element("tr");
    const name = element("th");
    const button = element("button");
    name.scope = "row";
    button.type = "button";
    button.append(isolated(head.layerName), ` · ${head.position}`);
    button.setAttribute("aria-label", head.caption);
    name.append(button);
    row.append(name, ...head.numbers.map((value) => element("td", "", value === null ? "–" : value.toFixed(3))));
    row.addEventListener("click", () => this.selection.chooseHead(index));
    return row;
  }

  /* A number is more often looked for at its largest, so the first click sorts downwards; heads start upwards. */
  sortBy(column) {
    this.falling = column === this.column ? !this.falling : column !== null;
    this.column = column;
    this.sort();
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  sort() {
    const sign = this.falling ? -1 : 1;
    const value = (index) => (this.column === null ? index : this.report.heads[index].numbers[this.column]);
    const order = [...this.rows.keys()].sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return sign * (left - right) || a - b;
    });
    this.table.tBodies[0].replaceChildren(...order.map((index) => this.rows[index]));
    this.showOrder();
  }

  showOrder() {
    const sorted = this.column === null ? 0 : this.column + 1;
    [...this.table.tHead.rows[0].cells].forEach((cell, index) => {
      const order = this.falling ? "descending" : "ascending";
      cell.setAttribute("aria-sort", index === sorted ? order : "none");
    });
  }

  showChosen() {
    this.rows.forEach((row, index) => {
      if (index === this.selection.head) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    });
    reveal(this.table.parentElement, this.rows[this.selection.head], this.table.tHead.offsetHeight);
  }
}
