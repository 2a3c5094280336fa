/* The tokens in their order, and those of the largest weights ranked. Both show one row of a map: weight / the
   row's maximum, since weights of a long text are too small to be seen on a scale that ends at 1. */

const RANKED = 6;

class TokenRow {
  constructor(root, report, selection) {
    Object.assign(this, { root, report, selection });
    // A pair has a direction for each block.
    this.root.dir = report.segments === null ? directionOf(report.text) : "ltr";
    this.tokens = report.tokens.map((token, index) => this.createToken(token, index));
    this.root.append(...blocksOf(this.tokens, report.tokens, report.segments));
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

  /* Shade each token by its weight, relative to the largest that shows; the others are left out. */
  shade(map, row, part = "all") {
    const shown = new Set(shownTokens(this.report, row, part));
    const most = Math.max(...[...shown].map((index) => shareOf(this.report, map, row, index))) || 1;
    this.tokens.forEach((token, index) => {
      const weight = formatWeight(this.report, map, row, index);
      const shows = shown.has(index);
      token.style.setProperty("--strength", String(shows ? shareOf(this.report, map, row, index) / most : 0));
      token.classList.toggle("left-out", !shows);
      token.dataset.weight = weight;
      token.title = `token ${index}, ${shows ? `weight ${weight}` : "left out"}`;
    });
  }

  onKey(event) {
    const along = event.target.closest("[dir]").dir === "rtl" ? { ArrowLeft: 1, ArrowRight: -1 } : { ArrowLeft: -1, ArrowRight: 1 };
    const step = along[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.tokens.indexOf(document.activeElement) + step;
    if (next >= 0 && next < this.tokens.length) this.tokens[next].focus();
  }
}

/* The tokens that show beside a query; of a single text, all. */
function shownTokens(report, query, part) {
  return [...report.tokens.keys()].filter((index) => isShown(report.segments, part, query, index));
}

function showRanking(list, report, map, row, part = "all") {
  const share = (index) => shareOf(report, map, row, index);
  const ranked = shownTokens(report, row, part).sort((a, b) => share(b) - share(a) || a - b).slice(0, RANKED);
  const most = share(ranked[0] ?? 0) || 1;
  const line = (index) => barLine(report.tokens[index], share(index) / most, formatWeight(report, map, row, index));
  list.replaceChildren(...ranked.map(line));
}
