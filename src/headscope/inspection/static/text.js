/* The text, token by token. The token in question is the query; the others are shaded by its weights. */

class TextView {
  constructor(report, selection) {
    Object.assign(this, { report, selection });
    this.row = new TokenRow(document.getElementById("tokens"), report, selection);
    this.release = document.getElementById("release");
    this.release.addEventListener("click", () => selection.release());
    selection.subscribe("token", () => this.show());
    this.show();
  }

  show() {
    const { query, lock, part } = this.selection;
    const head = this.report.heads[this.selection.head];
    const name = isolated(this.report.tokens[query], "name");
    this.row.shade(head, query, part);
    this.release.hidden = lock === null;
    const isSpecial = this.report.segments !== null && this.report.segments[query] === null;
    const verb = isSpecial && part !== "all" ? " is of neither text" : " attends most to";
    document.getElementById("ranking-heading").replaceChildren(name, verb);
    showRanking(document.getElementById("ranked"), this.report, head, query, part);
  }
}
