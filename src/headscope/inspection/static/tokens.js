/* The tokens in their order, and those of the largest weights ranked. Both show one row of a map: weight / the
   row's maximum, since weights of a long text are too small to be seen on a scale that ends at 1. */

const RANKED = 6;

class TokenRow {
  constructor(root, report, selection) {
    Object.assign(this, { root, report, selection });
    this.root.dir = directionOf(report.text);
    this.tokens = report.tokens.map((token, index) => this.createToken(token, index));
    this.root.append(...this.tokens);
    this.root.addEventListener("pointerleave", () => selection.leave());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    selection.subscribe("token", () => this.mark());
    this.mark();
  }

  createToken(text, index) {
    const token = element("button", "token");
    token.type = "button";
    token.append(isolated(text));
    token.addEventListener("pointerenter", () => this.selection.pointToken(index));
    token.addEventListener("focus", () => this.selection.pointToken(index));
    token.addEventListener("click", () => this.selection.toggle(index, null));
    return token;
  }

  mark() {
    const { query, key, lock } = this.selection;
    this.tokens.forEach((token, index) => {
      token.classList.toggle("query", index === query);
      token.classList.toggle("key", index === key);
      token.setAttribute("aria-pressed", String(lock !== null && lock.query === index));
      token.tabIndex = index === query ? 0 : -1;
    });
    if (!this.root.matches(":hover")) reveal(this.root, this.tokens[query]);
  }

  shade(map, row) {
    this.tokens.forEach((token, index) => {
      const weight = formatWeight(this.report, map, row, index);
      token.style.setProperty("--strength", String(shareOf(this.report, map, row, index)));
      token.dataset.weight = weight;
      token.title = `token ${index}, weight ${weight}`;
    });
  }

  onKey(event) {
    const along = this.root.dir === "rtl" ? { ArrowLeft: 1, ArrowRight: -1 } : { ArrowLeft: -1, ArrowRight: 1 };
    const step = along[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.tokens.indexOf(document.activeElement) + step;
    if (next >= 0 && next < this.tokens.length) this.tokens[next].focus();
  }
}

function showRanking(list, report, map, row) {
  const share = (index) => shareOf(report, map, row, index);
  const ranked = [...report.tokens.keys()].sort((a, b) => share(b) - share(a) || a - b).slice(0, RANKED);
  const line = (index) => barLine(report.tokens[index], share(index), formatWeight(report, map, row, index));
  list.replaceChildren(...ranked.map(line));
}
