/* Put the views together. */

function showCaptions(report, selection) {
  const caption = report.heads[selection.head].caption;
  for (const place of document.querySelectorAll(".caption")) place.textContent = caption;
}

function main() {
  const report = readReport();
  const selection = new Selection();
  const palette = new Palette(report.colors);
  showHeader(report);
  showLegend(palette);
  showCaptions(report, selection);
  selection.subscribe("head", () => showCaptions(report, selection));
  new TextView(report, selection);
  if (report.pooling !== null) new PoolingView(report, selection);
  new Grid(report, selection, palette);
  new HeadView(report, selection, palette);
  new NumberTable(report, selection);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") selection.release();
  });
}

main();
