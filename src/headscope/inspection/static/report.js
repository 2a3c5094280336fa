/* The report that the page carries, decoded; and how its parts are written as text. */

function bytesOf(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = characters.charCodeAt(index);
  return bytes;
}

/* A map: levels [query * tokens + key] in 0..255, scales [query]. The pooling is one of a single row. */
function decodeMap(raw) {
  return { levels: bytesOf(raw.levels), scales: new Float32Array(bytesOf(raw.scales).buffer) };
}

/* A head: its map, its names, and its numbers in the order of report.columns. */
function decodeHead(raw, layer, layerName, position) {
  return {
    ...decodeMap(raw),
    layer,
    layerName,
    position,
    caption: `${layerName}, head ${position}`,
    numbers: raw.numbers,
    quadrants: raw.quadrants,
    spoken: raw.spoken,
  };
}

/* What the page carries: a report, or a title and a list of reports. */
function readData() {
  return JSON.parse(document.getElementById("data").textContent);
}

/* All heads stand in one list, layer after layer: a head's index in it names the head everywhere. */
function decodeReport(raw) {
  const heads = raw.layers.flatMap((layer, index) =>
    layer.heads.map((head, position) => decodeHead(head, index, layer.name, position)),
  );
  const pooling = raw.pooling && decodeMap(raw.pooling);
  return { ...raw, heads, pooling, colors: bytesOf(raw.colors), count: raw.tokens.length };
}

/* weight / the maximum of its row */
function shareOf(report, map, query, key) {
  return map.levels[query * report.count + key] / 255;
}

/* weight = level / 255 * scale of the query's row */
function weightOf(report, map, query, key) {
  return shareOf(report, map, query, key) * map.scales[query];
}

/* As many decimals as a step of scale / 255 can tell apart: 3 for a row maximum of 1, 5 for one of 0.01. */
function decimalsOf(scale) {
  return scale > 0 ? Math.min(9, Math.max(3, Math.ceil(-Math.log10(scale / 255)))) : 3;
}

function formatWeight(report, map, query, key) {
  return weightOf(report, map, query, key).toFixed(decimalsOf(map.scales[query]));
}

/* A probability as a number; a dash where there is none. */
function formatShare(probability) {
  return probability === null ? "–" : probability.toFixed(3);
}

/* An element with text inside; text is only ever set as textContent, so it cannot become markup. */
function element(tag, className = "", text = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}

/* A token or a name whose writing direction must not reach the words around it. */
function isolated(text, className = "") {
  return element("bdi", className, text);
}

/* A token in a readout: what it is there, and its text. */
function nameToken(report, role, index) {
  return [element("small", "", `${role} ${index}`), isolated(report.tokens[index], "name")];
}

/* Scroll a view, and not the page, until the node inside is in sight below the view's first `covered` pixels. */
function reveal(view, node, covered = 0) {
  const above = node.offsetTop - covered - view.scrollTop;
  const below = node.offsetTop + node.offsetHeight - view.clientHeight - view.scrollTop;
  if (above < 0) view.scrollTop += above;
  else if (below > 0) view.scrollTop += below;
}

/* One line of a bar list: a name, a bar of the given share of the width, a number. */
function barLine(name, share, number) {
  const line = element("li");
  const bar = element("span", "bar");
  bar.style.setProperty("--share", String(share));
  line.append(isolated(name, "name"), bar, element("span", "number", number));
  return line;
}
