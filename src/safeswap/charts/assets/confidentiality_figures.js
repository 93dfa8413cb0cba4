// The model of the confidentiality plot: policy line, unsafe records, traces. Nothing here touches the page.

const MARKS = ["", "true one in the neighbourhood", "nearest is the true one", "nearest is the true one"];

// The perturbation below which a record with x neighbours is unsafe: (n/k)^p + (z/r)^p = 1, p = 2^−curvature.
function lineAt(policy, x) {
  if (x >= policy.k) return 0;
  if (policy.r === null) return Infinity;
  const power = 2 ** -policy.curvature;
  return policy.r * (1 - Math.max(0, x / policy.k) ** power) ** (1 / power);
}

const isUnsafe = (policy, x, y) => y < lineAt(policy, x);

function countUnsafe(records, policy) {
  let number = 0;
  for (let i = 0; i < records.x.length; i++) number += isUnsafe(policy, records.x[i], records.y[i]);
  return Math.round(number * records.each);
}

function policyLine(policy, top) {
  if (policy.r === null) return { x: [policy.k, policy.k], y: [0, top] };
  const x = Array.from({ length: 121 }, (_, i) => policy.k * i / 120);
  return { x, y: x.map((at) => lineAt(policy, at)) };
}

function zone(policy, top) {
  if (policy.r === null) return { x: [0, policy.k, policy.k, 0], y: [0, 0, top, top] };
  const line = policyLine(policy, top);
  return { x: [0, ...line.x], y: [0, ...line.y] };
}

// The indices of points with the wanted marks.
const places = (points, wanted) => points.mark.flatMap((mark, i) => (wanted(mark, i) ? [i] : []));

// Records at the same place, drawn as one dot whose area tells their number: of each place the first record, and how many.
function stack(points, which) {
  const found = new Map();
  for (const i of which) {
    const place = points.x[i] + " " + points.y[i], held = found.get(place);
    if (held) held.count += 1; else found.set(place, { first: i, count: 1 });
  }
  return [...found.values()].sort((a, b) => b.count - a.count);  // small dots on top of large ones
}

const LARGEST = 36, SMALLEST = 6;

function dotSizes(stacks) {
  const most = Math.max(1, ...stacks.map((each) => each.count));
  return stacks.map(({ count }) => (most === 1 ? SMALLEST : Math.max(SMALLEST, LARGEST * Math.sqrt(count / most))));
}

function heat(bins, colours) {
  const width = Math.max(...bins.i) + 1, height = Math.max(...bins.j) + 1;
  const z = Array.from({ length: height }, () => new Array(width).fill(null)), text = z.map((row) => row.slice());
  bins.count.forEach((count, n) => { z[bins.j[n]][bins.i[n]] = Math.log10(count); text[bins.j[n]][bins.i[n]] = several(count, "record"); });
  const most = Math.max(1, ...z.flat().map((v) => v ?? 0));
  return { type: "heatmap", z, text, x0: bins.first + bins.step[0] / 2, dx: bins.step[0], y0: bins.step[1] / 2, dy: bins.step[1],
    zmin: 0, zmax: most, hoverinfo: "text", hoverongaps: false, xgap: 0.5, ygap: 0.5,
    colorscale: [[0, colours.line], [0.5, colours.accent], [1, colours.ink]],
    colorbar: { title: { text: "records", side: "right" }, thickness: 12, len: 0.6, outlinewidth: 0,
      tickvals: [0, 1, 2, 3, 4, 5, 6].filter((v) => v <= most), ticktext: ["1", "10", "100", "1,000", "10⁴", "10⁵", "10⁶"] } };
}

// The traces from back to front; "held" lists the points of each trace.
function picture(data, state, colours, top) {
  const traces = [], held = [], points = data.points;
  const add = (trace, of) => { traces.push(trace); held.push(of || []); };
  const faint = colours.gain + "22";
  if (data.bins) add(heat(data.bins[state.view], colours));
  add({ ...zone(state.policy, top), type: "scatter", mode: "lines", fill: "toself", fillcolor: faint, line: { width: 0 }, hoverinfo: "skip" });
  const dots = (which, marker) => { if (which.length) add({ type: "scatter", mode: "markers", x: which.map((i) => points.x[i]),
    y: which.map((i) => points.y[i]), hoverinfo: "none", marker }, which); };
  const stacks = stack(points, places(points, (mark) => mark === 0));
  if (stacks.length) add({ type: "scatter", mode: "markers", x: stacks.map(({ first }) => points.x[first]), y: stacks.map(({ first }) => points.y[first]),
    text: stacks.map(({ count }) => several(count, "record")), hoverinfo: "text", cliponaxis: false,
    marker: { size: dotSizes(stacks), color: data.bins ? colours.gain : colours.other, opacity: 0.85, line: { width: 0 } } }, stacks.map(({ first }) => first));
  dots(places(points, (mark) => mark === 1 || mark === 3), { size: 8, symbol: "x-thin", line: { width: 1.6, color: colours.accent } });
  dots(places(points, (mark) => mark >= 2), { size: 11, symbol: "square-open", color: colours.gain, line: { width: 1.8 } });
  if (points.largest >= 0) dots([points.largest], { size: 11, symbol: "square", color: colours.ink });
  add({ ...policyLine(state.policy, top), type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colours.gain, width: 2.4 } });
  if (state.second) add({ ...policyLine(state.second, top), type: "scatter", mode: "lines", hoverinfo: "skip",
    line: { color: colours.gain, width: 1.4, dash: "dash" } });
  if (state.open !== null) add({ type: "scatter", mode: "markers", x: [points.x[state.open]], y: [points.y[state.open]], hoverinfo: "skip",
    marker: { size: 22, symbol: "circle-open", color: colours.ink, line: { width: 2 } } });
  return { traces, held };
}
