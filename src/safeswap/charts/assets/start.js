// One map: its controls and their event handlers. A surrounding page passes the payload, learns from the event
// "safeswap-detail" what is shown in detail, and moves the choice through the object that `start` returns. If Plotly is
// still loading, `drawable` resolves when it is ready; everything else is built meanwhile.

function start(root, given, drawable = Promise.resolve()) {
  const data = given ?? JSON.parse(root.parentNode.querySelector('script[type="application/json"]').textContent);
  const parts = {};
  for (const part of root.querySelectorAll("[data-part]")) parts[part.dataset.part] = part;
  const state = {
    risk: data.axes[0], distortion: data.axes[1], of: "means", labels: "fit", cloud: true, drag: "zoom", zero: false,
    rates: new Set(data.specs.rate), marks: new Set(data.marks.keys()),
    selection: null, alsoDraws: 0, sort: { column: null, down: false }, heat: 0, text: 0, best: new Set(),
    open: data.chosen === null ? null : { kind: "mean", index: data.chosen.spec, spec: data.chosen.spec },
  };
  let shown = null, colours = null;

  const showTable = () => {
    const rows = state.selection === null ? shown.combined : state.selection;
    fillTable(parts, data, state, rows, open, showTable);
  };
  const showDetail = (focus) => {
    fillDetail(parts, data, state, colours, showDetail);
    const detail = { point: state.open && described(data, state.open), panel: parts.detail };
    root.dispatchEvent(new CustomEvent("safeswap-detail", { detail }));
    if (typeof focus === "string") parts.detail.querySelector(focus)?.focus();
  };
  const open = (point) => { state.open = point; showDetail(); parts.detail.focus({ preventScroll: false }); };

  const draw = () => {
    colours = isDark() ? data.themes.dark : data.themes.light;
    shown = picture(data, state, colours);
    state.best = new Set(shown.combined.map((p) => p.index));
    markSelection(shown, state);
    parts.empty.hidden = shown.points.length > 0;
    parts.empty.textContent = data.specs.number.length === data.specs.made.filter((n) => n === 0).length
      ? "No candidate could be made. The reasons are below." : "Nothing to show: tick at least one rate and one mark.";
    parts.plot.setAttribute("aria-label", "Scatter of " + several(shown.points.length, "point") + ": distortion across, risk up; "
      + several(shown.combined.length, "point") + " on the frontier, listed in the table below."
      + (shown.original.length ? " The untouched original is at distortion " + formatted(shown.original[0].x) + ", risk " + formatted(shown.original[0].y) + "." : ""));
    legend(parts, data, state, shown, colours);
    showTable();
    showDetail();
    const layout = layoutOf(data, state, colours, shown.ranges), last = shown.traces.length - 1;
    const expected = parts.plot._fullLayout ? scaleOf(parts.plot) : expectedScale(parts.plot, shown.ranges, layout);
    const { "marker.size": size, ...labels } = labelled(expected);
    Object.assign(shown.traces[last], labels, { marker: { ...shown.traces[last].marker, size } });
    const own = shown;
    // Changes made while Plotly was loading are drawn once, in their final state.
    return drawable.then(() => own !== shown || Plotly.react(parts.plot, own.traces, layout, CONFIG))
      .then(() => own !== shown || isNear(expected, scaleOf(parts.plot), own.points) || label());
  };
  const labelled = (scale) => {
    const placed = placedLabels(scale, data, state, shown);
    return { x: placed.map((l) => l.point.x), y: placed.map((l) => l.point.y), text: placed.map((l) => l.text),
      textposition: placed.map((l) => l.position), "marker.size": placed.map((l) => l.size) };
  };
  const label = () => {
    const labels = Object.entries(labelled(scaleOf(parts.plot))).map(([name, values]) => [name, [values]]);
    return Plotly.restyle(parts.plot, Object.fromEntries(labels), [shown.traces.length - 1]);
  };
  // After zooming, an axis may be cut that was not, or the other way round.
  const showBreaks = () => {
    const { xaxis, yaxis } = parts.plot._fullLayout, ranges = { x: xaxis.range, y: yaxis.range };
    legend(parts, data, state, { ...shown, ranges }, colours);
    return Plotly.relayout(parts.plot, { shapes: shapesOf(data, state, colours, ranges) });
  };
  const pointAt = (event) => (event.points.length ? shown.held[event.points[0].curveNumber][event.points[0].pointNumber] : null);
  const forget = () => { state.selection = null; state.alsoDraws = 0; };

  const relayout = (change) => drawn.then(() => Plotly.relayout(parts.plot, change));
  parts.reset.addEventListener("click", () => {
    forget();
    relayout({ "xaxis.range": shown.ranges?.x, "yaxis.range": shown.ranges?.y, selections: [] }).then(draw);
  });
  for (const mode of ["zoom", "select"]) parts[mode].addEventListener("click", () => { setDrag(parts, state, mode); relayout({ dragmode: mode }); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("safeswap-theme", draw);
  controls(parts, data, state, { draw, forget });
  fillRejected(parts, data);
  const drawn = draw().then(() => {
    parts.plot.on("plotly_relayout", (change) => {
      if (change.dragmode) setDrag(parts, state, change.dragmode);
      if (Object.keys(change).some((key) => key.startsWith("xaxis") || key.startsWith("yaxis") || key === "autosize")) { label(); showBreaks(); }
    });
    parts.plot.on("plotly_click", (event) => { const point = pointAt(event); if (point) open(point); });
    parts.plot.on("plotly_selected", (event) => {
      if (!event || !(event.range || event.lassoPoints)) return;
      const inside = event.points.map((p) => shown.held[p.curveNumber][p.pointNumber]).filter(Boolean);
      const kind = state.of === "draws" && data.draws ? "draw" : "mean";
      state.selection = inside.filter((p) => p.kind === kind);
      state.alsoDraws = inside.length - state.selection.length;
      showTable();
    });
    parts.plot.on("plotly_deselect", () => { forget(); showTable(); });
    parts.plot.on("plotly_hover", (event) => showTip(parts, data, state, pointAt(event), event.event));
    parts.plot.on("plotly_unhover", () => { parts.tip.hidden = true; });
    window.addEventListener("resize", () => setTimeout(label, 250));
    root.dataset.ready = "true";
    root.dispatchEvent(new Event("safeswap-ready"));
  });

  // Move the choice to a specification by its number, and the panel with it if it showed the choice.
  const choose = (number, candidate, sentence) => {
    const spec = data.specs.number.indexOf(number), followed = state.open === null || state.open.spec === data.chosen?.spec;
    data.chosen = spec < 0 ? null : { spec, candidate, sentence };
    if (followed && spec >= 0) state.open = { kind: "mean", index: spec, spec };
    return draw();
  };
  const look = (number) => {
    const spec = data.specs.number.indexOf(number);
    if (spec >= 0) open({ kind: "mean", index: spec, spec });
  };
  // Shade what is accepted: the largest values by the number of their measure.
  const accept = (limits) => { data.accepts = limits; return draw(); };
  return { drawn, choose, look, accept, axes: () => [state.risk, state.distortion], show: showDetail };
}

function described(data, point) {
  const number = data.specs.number[point.spec], draw = point.kind === "draw";
  const chosen = !draw && data.chosen?.spec === point.spec ? data.chosen.candidate : number;
  const candidate = draw ? data.draws.candidate[point.index] : chosen;
  return { number, candidate, replicate: Math.floor(candidate / data.all_specifications), single: draw, name: nameOf(data, point) };
}

function markSelection(shown, state) {
  if (state.selection === null) return;
  const chosen = new Set(state.selection.map((p) => p.kind + p.index));
  shown.held.forEach((points, i) => {
    if (points.length) shown.traces[i].selectedpoints = points.flatMap((p, j) => (chosen.has(p.kind + p.index) ? [j] : []));
  });
}

function setDrag(parts, state, mode) {
  state.drag = mode;
  parts.zoom.setAttribute("aria-pressed", String(mode === "zoom"));
  parts.select.setAttribute("aria-pressed", String(mode === "select"));
}

function controls(parts, data, state, { draw, forget }) {
  for (const axis of ["risk", "distortion"]) {
    data.measures.forEach((measure, i) => {
      if (measure.axis === axis) parts[axis].append(element("option", { value: i, selected: i === state[axis] }, measure.title));
    });
    parts[axis].disabled = parts[axis].options.length < 2;
    parts[axis].addEventListener("change", () => { state[axis] = Number(parts[axis].value); forget(); draw(); });
  }
  parts["of-box"].hidden = parts["cloud-box"].hidden = !data.draws;
  parts.of.addEventListener("change", () => { state.of = parts.of.value; parts["cloud-box"].hidden = state.of === "draws"; forget(); draw(); });
  parts.labels.addEventListener("change", () => { state.labels = parts.labels.value; draw(); });
  parts.cloud.addEventListener("change", () => { state.cloud = parts.cloud.checked; draw(); });
  const rates = [...new Set(data.specs.rate)].sort((a, b) => (a < 0 ? 1 : b < 0 ? -1 : a - b));
  ticks(parts.rates, rates, state.rates, (rate) => [element("span", { class: "ssm-swatch", "data-rate": rate }),
    rate < 0 ? "none (other methods)" : String(data.rates[rate])], () => { forget(); draw(); });
  parts.zero.addEventListener("change", () => { state.zero = parts.zero.checked; forget(); draw(); });
  parts.marks.hidden = data.marks.length < 2;
  parts.marks.querySelector("legend").textContent = data.several_methods ? "Method" : "Constraint";
  ticks(parts.marks, [...data.marks.keys()], state.marks, (i) => [SIGNS[i % SIGNS.length] + " ",
    isolated(data.marks[i])], () => { forget(); draw(); });
}

function ticks(box, values, chosen, face, changed) {
  for (const value of values) {
    const tick = element("input", { type: "checkbox", value, checked: true });
    tick.addEventListener("change", () => { if (tick.checked) chosen.add(value); else chosen.delete(value); changed(); });
    box.append(element("label", {}, tick, " ", ...face(value)));
  }
}

function legend(parts, data, state, shown, colours) {
  const palette = rateColours(colours, data.rates.length);
  for (const swatch of parts.rates.querySelectorAll(".ssm-swatch")) {
    swatch.style.background = Number(swatch.dataset.rate) < 0 ? colours.other : palette[Number(swatch.dataset.rate)];
  }
  const number = data.specs.number.length, draws = data.draws ? data.draws.candidate.length : 0;
  const limits = limitsOf(data, state), accepted = shown.points.filter((p) => isAccepted(limits, p)).length;
  const stated = [[state.risk, limits.y], [state.distortion, limits.x]].filter(([, limit]) => limit !== null)
    .map(([measure, limit]) => data.measures[measure].title + " ≤ " + formatted(limit)).join(", ");
  const cut = [["risk", shown.ranges?.y], ["distortion", shown.ranges?.x]].filter(([, range]) => range && isCut(range))
    .map(([word, range]) => "⌇ the axis of " + word + " is cut: it starts at " + formatted(range[0]) + ", not at 0");
  const lines = ["outlined: on the frontier of all points shown (bold line)", "thin lines: the frontier of each rate",
    stated && "shaded: accepted (" + stated + "), " + counted(accepted) + " of " + several(shown.points.length, "point"), ...cut,
    data.chosen !== null && "◯ chosen",
    shown.original.length && "+ the untouched original, for comparison",
    data.draws && state.of === "means" && state.cloud && "small dots: single draws",
    number < data.all_specifications && counted(number) + " of " + several(data.all_specifications, "specification")
      + " are in this page, including the whole frontier",
    data.draws && draws < data.candidates - data.rejected.candidates && counted(draws) + " of " + several(data.candidates, "draw") + " are in this page",
    data.note];
  fill(parts.legend, ...lines.filter(Boolean).map((text) => element("span", {}, text)));
}

function showTip(parts, data, state, point, mouse) {
  if (!point) return;
  const lines = data.measures.map((measure, i) => measure.title + ": " + formatted(valueOf(data, point, i)));
  fill(parts.tip, element("b", {}, isolated(nameOf(data, point))),
    ...[data.specs.swap[point.spec], drawText(data, point), ...lines].filter(Boolean).map((text) => element("div", {}, isolated(text))));
  parts.tip.hidden = false;
  const frame = parts.plot.getBoundingClientRect(), tip = parts.tip.getBoundingClientRect();
  const x = mouse.clientX - frame.left, y = mouse.clientY - frame.top;
  parts.tip.style.left = Math.max(0, x + 16 + tip.width > frame.width ? x - 16 - tip.width : x + 16) + "px";
  parts.tip.style.top = Math.max(0, y + 16 + tip.height > frame.height ? y - 16 - tip.height : y + 16) + "px";
}

for (const root of document.querySelectorAll(".safeswap-map:not([data-ready])")) start(root);
