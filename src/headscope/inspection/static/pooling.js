/* How much each token counts in the vector of the whole text: one weight a token, the same for every head. The
   tokens choose the query as those of the text do, so that what counts can be followed into the heads. */

class PoolingView {
  constructor(report, selection) {
    Object.assign(this, { report, selection });
    document.getElementById("pooling").hidden = false; // before the tokens, which are scrolled into sight
    new TokenRow(document.getElementById("pooling-tokens"), report, selection).shade(report.pooling, 0);
    showRanking(document.getElementById("pooling-ranked"), report, report.pooling, 0);
    selection.subscribe("token", () => this.showReadout());
    this.showReadout();
  }

  showReadout() {
    const index = this.selection.key ?? this.selection.query;
    const weight = element("strong", "", formatWeight(this.report, this.report.pooling, 0, index));
    document.getElementById("pooling-readout").replaceChildren(...nameToken(this.report, "token", index), weight);
  }
}
