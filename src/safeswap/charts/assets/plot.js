// The scatter plot, drawn by Plotly. All text is escaped first, because Plotly interprets tags in labels.

const CONFIG = {
  ...QUIET,
  modeBarButtonsToRemove: ["sendDataToCloud", "autoScale2d"],
  toImageButtonOptions: { format: "svg", filename: "risk-utility-map" },
};
const MOST_SVG_POINTS = 1000;
const MOST_LABELS = 150;

const FONT = 'system-ui, "Segoe UI", "Liberation Sans", sans-serif';

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// One line, without bidirectional control characters, of limited length.
function cutTo(most, text) {
  const signs = Array.from(text.replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " "));
  return signs.length > most ? signs.slice(0, most - 1).join("") + "…" : signs.join("");
}

const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text, bold) {
  ruler.font = (bold ? "bold " : "") + "12px " + FONT;
  return ruler.measureText(text).width;
}

function hasWebGL() {
  try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch (error) { return false; }
}

function rateColours(colours, number) {
  const anchors = colours.rates.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
  if (number === 1) return [colours.rates[1]];
  return Array.from({ length: number }, (_, i) => {
    const step = i * (anchors.length - 1) / (number - 1), low = Math.min(Math.floor(step), anchors.length - 2);
    const mixed = anchors[low].map((a, j) => Math.round(a + (anchors[low + 1][j] - a) * (step - low)));
    return "#" + mixed.map((part) => part.toString(16).padStart(2, "0")).join("");
  });
}

function traceType(number) {
  return number > MOST_SVG_POINTS && hasWebGL() ? "scattergl" : "scatter";
}

// The traces from back to front; "points" lists the points of each trace.
function picture(data, state, colours) {
  const points = currentPoints(data, state), cloud = cloudPoints(data, state);
  const palette = rateColours(colours, data.rates.length);
  const colour = (rate) => (rate < 0 ? colours.other : palette[rate]);
  const symbol = (p) => SYMBOLS[data.specs.mark[p.spec] % SYMBOLS.length];
  const combined = frontierOf(points), best = new Set(combined);
  const traces = [], held = [];
  const add = (trace, of) => { traces.push(trace); held.push(of || []); };

  const faint = Math.min(0.35, 12 / Math.sqrt(cloud.length));
  if (cloud.length) add(markers(cloud, cloud.map((p) => colour(p.rate)), { size: 4, opacity: faint }), cloud);
  for (const rate of new Set(points.map((p) => p.rate))) {
    const own = frontierOf(points.filter((p) => p.rate === rate));
    if (own.length > 1 && rate >= 0) add(line(own, colour(rate), 1.2));
  }
  if (combined.length > 1) add(line(combined, colours.ink, 2.6));
  const rest = points.filter((p) => !best.has(p));
  const small = points.length > MOST_SVG_POINTS;
  add(markers(rest, rest.map((p) => colour(p.rate)), {
    size: small ? 5 : 8, opacity: small ? 0.5 : 0.9,
    symbol: rest.map(symbol),
  }), rest);
  add(markers(combined, combined.map((p) => colour(p.rate)), {
    size: 12, symbol: combined.map(symbol), line: { color: colours.ink, width: 1.8 },
  }), combined);
  const original = originalPoints(data, state);
  if (original.length) add({ ...markers(original, colours.ink, { size: 14, symbol: "cross-thin-open", line: { color: colours.ink, width: 2.4 } }),
    hoverinfo: "text", hovertext: ["the untouched original"] });
  const chosen = points.filter((p) => isChosen(data, p));
  if (chosen.length) add({ ...markers(chosen, colours.gain, { size: 24, symbol: "circle-open", line: { width: 3 } }), hoverinfo: "skip" });
  add({ type: "scatter", mode: "markers+text", x: [], y: [], text: [], hoverinfo: "skip", marker: { opacity: 0 },
    textfont: { size: 12, color: colours.ink }, unselected: { textfont: { color: colours.ink } } });
  const all = [...points, ...cloud, ...original];
  const ranges = all.length ? { x: axisRange(all.map((p) => p.x), state.zero), y: axisRange(all.map((p) => p.y), state.zero) } : null;
  return { traces, held, points, combined, chosen, original, ranges };
}

function markers(points, color, style) {
  return { type: traceType(points.length), mode: "markers", x: points.map((p) => p.x), y: points.map((p) => p.y),
    hoverinfo: "none", marker: { color, ...style, line: { width: 0, ...(style.line || {}) } },
    selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.15 } } };
}

function line(points, color, width) {
  return { type: "scatter", mode: "lines", x: points.map((p) => p.x), y: points.map((p) => p.y), hoverinfo: "skip",
    line: { color, width } };
}

function layoutOf(data, state, colours, ranges) {
  const axis = (measure, word, range) => ({
    ...(range ? { range: range.slice(), autorange: false } : {}),
    title: { text: word + ": " + escaped(cutTo(60, data.measures[measure].title)), standoff: 12 }, gridcolor: colours.line,
    linecolor: colours.muted, zeroline: false, showline: true, ticks: "outside", tickcolor: colours.muted,
    exponentformat: "power", ticklabeloverflow: "allow",
    tickangle: 0,  // explicit, or Plotly measures every number to see whether it must be rotated
  });
  return {
    showlegend: false, hovermode: "closest", hoverdistance: 12, dragmode: state.drag,
    uirevision: [state.risk, state.distortion, state.of].join(), selectionrevision: String(state.selection === null),
    // Room for the longest numbers: for automatic margins Plotly would draw everything twice.
    margin: { l: 92, r: 20, t: 30, b: 58 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colours.ink, size: 13, family: FONT },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.accent },
    newselection: { line: { color: colours.accent } },
    xaxis: axis(state.distortion, "Distortion", ranges?.x), yaxis: axis(state.risk, "Risk", ranges?.y),
    shapes: ranges ? shapesOf(data, state, colours, ranges) : [],
  };
}

// Behind the points, what is accepted; on an axis that does not start at 0, the sign of a break.
function shapesOf(data, state, colours, ranges) {
  const { x, y } = limitsOf(data, state), shapes = [];
  const side = (limit, axis) => (limit === null ? { [`${axis}ref`]: "paper", [`${axis}0`]: 0, [`${axis}1`]: 1 } : { [`${axis}ref`]: axis, [`${axis}0`]: Math.min(0, ranges[axis][0]) - 1, [`${axis}1`]: limit });
  if (x !== null || y !== null) shapes.push({ type: "rect", layer: "below", ...side(x, "x"), ...side(y, "y"), fillcolor: tinted(colours.accent, 0.12), line: { color: colours.accent, width: 1.2, dash: "dot" } });
  const sign = { type: "path", xref: "paper", yref: "paper", xsizemode: "pixel", ysizemode: "pixel", xanchor: 0, yanchor: 0, line: { color: colours.ink, width: 1.8 } };
  if (isCut(ranges.y)) shapes.push({ ...sign, path: "M-8,9 L8,15 M-8,15 L8,21" });
  if (isCut(ranges.x)) shapes.push({ ...sign, path: "M9,-8 L15,8 M15,-8 L21,8" });
  return shapes;
}

// The position of a value in pixels from the left and the top.
function scaleOf(plot) {
  const { xaxis, yaxis } = plot._fullLayout;
  return { x: (value) => xaxis.l2p(value), y: (value) => yaxis.l2p(value), width: xaxis._length, height: yaxis._length };
}

// The same before anything is drawn: labels placed this way need no second drawing.
function expectedScale(plot, ranges, { margin }) {
  const width = plot.clientWidth - margin.l - margin.r, height = plot.clientHeight - margin.t - margin.b;
  const { x, y } = ranges ?? { x: [0, 1], y: [0, 1] }, part = (value, [low, high]) => (value - low) / (high - low);
  return { x: (value) => width * part(value, x), y: (value) => height * (1 - part(value, y)), width, height };
}

const isNear = (a, b, points) => Math.abs(a.width - b.width) < 1 && Math.abs(a.height - b.height) < 1
  && points.every((p) => Math.abs(a.x(p.x) - b.x(p.x)) < 1.5 && Math.abs(a.y(p.y) - b.y(p.y)) < 1.5);

// As many labels as fit without overlapping, the chosen one and the frontier first.
function placedLabels(scale, data, state, shown) {
  if (state.labels === "none") return [];
  const many = shown.points.length > MOST_SVG_POINTS, best = new Set(shown.combined), ringed = new Set(shown.chosen);
  const wanted = state.labels === "fit" && !many ? shown.points : [];
  const order = [...new Set([...shown.original, ...shown.chosen, ...shown.combined, ...wanted])];
  const box = (p) => ({ x: scale.x(p.x), y: scale.y(p.y) });
  const inside = (c) => c.x >= 0 && c.y >= 0 && c.x <= scale.width && c.y <= scale.height;
  const marks = [...shown.original, ...(many ? shown.combined : shown.points)]
    .map((p) => ({ ...box(p), best: best.has(p) || p.kind === "original" })).filter(inside);
  const taken = [], placed = [];
  for (const point of order) {
    if (placed.length >= MOST_LABELS) break;
    const centre = box(point);
    if (!inside(centre)) continue;
    const isOriginal = point.kind === "original", important = best.has(point) || isOriginal;
    const text = isOriginal ? "original" : cutTo(16, data.specs.label[point.spec]);
    const size = ringed.has(point) ? 24 : important ? 12 : 7;
    const spot = freeSpot(centre, text, { taken, marks, important, size, scale });
    if (spot) {
      taken.push(spot.box);
      placed.push({ point, text: isOriginal ? "<i>original</i>" : important ? "<b>" + escaped(text) + "</b>" : escaped(text), position: spot.position, size });
    }
  }
  return placed;
}

const POSITIONS = { top: [-0.5, -1], bottom: [-0.5, 0], "middle right": [0, -0.5], "middle left": [-1, -0.5], "top right": [0, -1],
  "top left": [-1, -1], "bottom right": [0, 0], "bottom left": [-1, 0] };
// Below and left of the frontier there is nothing, so its labels go there; the others go the opposite way.
const BELOW = ["bottom left", "middle left", "bottom", "bottom right", "top right", "middle right", "top", "top left"];
const ABOVE = ["top right", "middle right", "top", "bottom right", "top left", "bottom", "middle left", "bottom left"];

// Plotly offsets text by the size of its marker, so labels are attached to invisible markers.
function freeSpot(centre, text, { taken, marks, important, size, scale }) {
  const width = widthOf(text, important) + 2, height = 14, gap = 0.4 * size + 1;
  let second = null;
  for (const name of important ? BELOW : ABOVE) {
    const [left, top] = POSITIONS[name];
    const x = centre.x + left * width + (left === 0 ? gap : left === -1 ? -gap : 0);
    const y = centre.y + top * height + (top === -1 ? -gap : top === 0 ? gap : 0);
    const box = { left: x, right: x + width, top: y, bottom: y + height };
    if (box.left < 0 || box.right > scale.width || box.top < 0 || box.bottom > scale.height) continue;
    if (taken.some((t) => t.left < box.right && box.left < t.right && t.top < box.bottom && box.top < t.bottom)) continue;
    const covered = marks.filter((m) => (Math.abs(m.x - centre.x) > 0.5 || Math.abs(m.y - centre.y) > 0.5)
      && m.x > box.left - 4 && m.x < box.right + 4 && m.y > box.top - 4 && m.y < box.bottom + 4);
    const position = name.includes(" ") ? name : name + " center";
    if (!covered.length) return { position, box };
    if (!covered.some((m) => m.best)) second = second || { position, box };
  }
  return important ? second : null;
}
