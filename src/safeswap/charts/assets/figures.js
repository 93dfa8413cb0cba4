// The model of the map: points, filters, frontiers. Nothing here touches the page.

const SYMBOLS = ["circle", "triangle-up", "diamond", "pentagon", "star", "hexagram", "cross", "x"];
const SIGNS = ["●", "▲", "◆", "⬟", "★", "✶", "✚", "✖"];

// The points currently shown: specifications at their means, or single draws.
function currentPoints(data, state) {
  const draws = state.of === "draws" && data.draws;
  const values = draws ? data.draws.value : data.specs.mean;
  return visiblePoints(data, state, draws ? data.draws.spec : null, values, draws ? "draw" : "mean");
}

function cloudPoints(data, state) {
  if (!data.draws || state.of === "draws" || !state.cloud) return [];
  return visiblePoints(data, state, data.draws.spec, data.draws.value, "draw");
}

function visiblePoints(data, state, specOf, values, kind) {
  const x = values[state.distortion], y = values[state.risk], points = [];
  for (let i = 0; i < x.length; i++) {
    const spec = specOf ? specOf[i] : i;
    const shown = state.rates.has(data.specs.rate[spec]) && state.marks.has(data.specs.mark[spec]);
    if (shown && x[i] !== null && y[i] !== null) {
      points.push({ kind, index: i, spec, x: x[i], y: y[i], rate: data.specs.rate[spec] });
    }
  }
  return points;
}

// The untouched file on the axes shown: a landmark, not a candidate. Nothing if its figures are not known.
function originalPoints(data, state) {
  const [x, y] = [data.original?.[state.distortion] ?? null, data.original?.[state.risk] ?? null];
  return x === null || y === null ? [] : [{ kind: "original", index: -1, spec: -1, x, y, rate: -1 }];
}

// The undominated points from left to right, each below everything to its left. Coinciding points are all kept.
function frontierOf(points) {
  const sorted = points.slice().sort((a, b) => a.x - b.x || a.y - b.y);
  const found = [];
  for (const point of sorted) {
    const last = found[found.length - 1];
    if (!last || point.y < last.y || (point.y === last.y && point.x === last.x)) found.push(point);
  }
  return found;
}

function nameOf(data, point) {
  return [data.specs.label[point.spec], rateText(data, point.spec), constraintText(data, point.spec)]
    .filter(Boolean).join(" · ");
}

function rateText(data, spec) {
  const rate = data.specs.rate[spec];
  return rate < 0 ? "" : "rate " + data.rates[rate];
}

// The range of an axis, the same on every drawing: from 0, unless the figures lie so far above it that they would run
// into one another. Then it is cut, which the chart and its legend say.
function axisRange(values, fromZero) {
  const low = Math.min(...values), high = Math.max(...values), room = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
  const isCut = !fromZero && low > 0.4 * high;
  return isCut || low < 0 ? [low - room, high + room] : [-0.03 * (high || 1), high + Math.max(room, 0.03 * high)];
}

const isCut = ([low]) => low > 0;

// What is accepted on the axes shown: the largest value of each that somebody stated, null where nobody did.
const limitsOf = (data, state) => ({ x: data.accepts?.[state.distortion] ?? null, y: data.accepts?.[state.risk] ?? null });

const isAccepted = ({ x, y }, point) => (x === null || point.x <= x) && (y === null || point.y <= y);

const constraintText = (data, spec) => data.constraints[data.specs.constraint[spec]];

function drawText(data, point) {
  if (point.kind === "draw") return "replicate " + data.draws.replicate[point.index];
  return data.replicates > 1 ? "mean of " + several(data.specs.made[point.spec], "draw") : "";
}

const isChosen = (data, point) => data.chosen !== null && data.chosen.spec === point.spec && (point.kind === "mean"
  || data.draws.candidate[point.index] === data.chosen.candidate);

const valueOf = (data, point, measure) =>
  (point.kind === "draw" ? data.draws.value : data.specs.mean)[measure][point.index];

const pairsOf = (data, point) => (point.kind === "draw" ? data.draws.pairs : data.specs.pairs)[point.index];

const oftenOf = (data, state, point) => {
  const often = data.specs.often[state.risk + "," + state.distortion];
  return often ? often[point.spec] : null;
};

// The tables of this draw if they are in the file, else those of the specification's mean.
function tablesOf(data, point) {
  if (!data.tables) return null;
  const own = point.kind === "draw" ? data.tables.draws[data.draws.candidate[point.index]] : null;
  const mean = data.tables.specs[data.specs.number[point.spec]];
  if (own) return { values: own, of: "of this draw" };
  if (mean) return { values: mean, of: data.replicates > 1 ? "mean of the draws" : "" };
  const fetched = data.tables.fetched?.[data.specs.number[point.spec]];
  return fetched ? { values: fetched.values, of: "replicate " + fetched.replicate } : null;
}
