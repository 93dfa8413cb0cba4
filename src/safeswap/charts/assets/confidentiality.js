// The page of one confidentiality plot: drag the policy, click records. Text is inserted as text, never as markup.

const CONFIG = {
  ...QUIET, modeBarButtonsToRemove: ["sendDataToCloud", "autoScale2d", "select2d", "lasso2d"],
  toImageButtonOptions: { format: "svg", filename: "confidentiality-plot" },
};
const MOST_ROWS = 300;

function plain(text) {
  return text.replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " ")
    .replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function axis(title, colours, range) {
  // On a phone the longest title takes two lines.
  return { title: { text: innerWidth < 600 ? plain(title).replace(" in the ", "<br>in the ") : plain(title), standoff: 12 }, gridcolor: colours.line, linecolor: colours.muted, zeroline: false, showline: true,
    ticks: "outside", tickcolor: colours.muted, ticklabeloverflow: "allow", range };
}

function layoutOf(data, state, colours, limits) {
  const [x, y] = limits;
  return { showlegend: false, hovermode: "closest", hoverdistance: 12, dragmode: "zoom", uirevision: state.view,
    // Room for the longest numbers and the colour bar: for automatic margins Plotly would draw twice.
    margin: { l: 84, r: data.bins ? 92 : 20, t: 20, b: 58, autoexpand: false }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colours.ink, size: 13, family: 'system-ui, "Segoe UI", "Liberation Sans", sans-serif' },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.accent },
    xaxis: axis(data.across, colours, [-0.015 * x, x]), yaxis: axis(data.up, colours, [-0.02 * y, y]) };
}

function start(root, given) {
  const data = given ?? JSON.parse(root.parentNode.querySelector('script[type="application/json"]').textContent);
  const parts = {};
  for (const part of root.querySelectorAll("[data-part]")) parts[part.dataset.part] = part;
  const state = { policy: { ...data.policy }, second: data.second && { ...data.second }, open: null,
    view: data.bins || data.policy.k < data.limits.all[0] / 12 ? "near" : "all" };
  const most = { r: data.limits.near[1], k: data.limits.near[0] };
  let shown = null, colours = null, drawing = Promise.resolve();

  const limits = () => data.limits[state.view];
  const draw = () => {
    colours = isDark() ? data.themes.dark : data.themes.light;
    shown = picture(data, state, colours, 4 * limits()[1]);
    controls();
    drawing = drawing.then(() => Plotly.react(parts.plot, shown.traces, layoutOf(data, state, colours, limits()), CONFIG)).then(handles);
    return drawing;
  };
  const controls = () => {
    for (const name of ["r", "k", "curvature"]) {
      const value = state.policy[name];
      if (value === null) continue;
      parts[name].value = value;
      parts[name + "-now"].textContent = name === "r" && data.kind !== "categorical" && data.up.includes("relative")
        ? formatted(100 * value) + "%" : formatted(value);
    }
    const number = countUnsafe(data.counted, state.policy), about = data.counted.exact ? "" : "about ";
    parts.unsafe.textContent = about + several(number, "unsafe record") + " of " + counted(data.placed);
    parts.unsafe.dataset.value = number;
    parts.other.textContent = state.second
      ? "(" + about + counted(countUnsafe(data.counted, state.second)) + " under the dashed policy, curvature " + formatted(state.second.curvature) + ")" : "";
    for (const view of ["all", "near"]) parts[view].setAttribute("aria-pressed", String(state.view === view));
    parts.plot.setAttribute("aria-label", "Scatter of records: " + data.across + " across, " + data.up + " up; "
      + several(number, "record") + " under the policy line, listed in the table below.");
    fillTable();
  };
  const moved = (change) => {
    const { r, k } = { ...state.policy, ...change };
    Object.assign(state.policy, change, r === null ? { k: clamp(k, most.k) } : { r: clamp(r, most.r), k: clamp(k, most.k) });
    if (state.second) Object.assign(state.second, { r: state.policy.r, k: state.policy.k });
    draw();
  };
  const clamp = (value, limit) => Math.min(limit, Math.max(limit / 1000, value));

  const handles = () => {
    const layout = parts.plot._fullLayout, left = parts.plot.offsetLeft, top = parts.plot.offsetTop;
    const place = (handle, x, y) => {
      handle.style.left = left + layout.xaxis._offset + layout.xaxis.l2p(x) + "px";
      handle.style.top = top + layout.yaxis._offset + layout.yaxis.l2p(y) + "px";
      const inside = x <= layout.xaxis.range[1] && y <= layout.yaxis.range[1] && x >= layout.xaxis.range[0] && y >= layout.yaxis.range[0];
      handle.hidden = !inside;
    };
    parts["handle-r"].setAttribute("aria-valuenow", state.policy.r ?? "");
    parts["handle-k"].setAttribute("aria-valuenow", state.policy.k);
    if (state.policy.r === null) parts["handle-r"].hidden = true;
    else place(parts["handle-r"], 0, state.policy.r);
    place(parts["handle-k"], state.policy.k, 0);
  };
  const dragged = (handle, change, step) => {
    handle.addEventListener("pointerdown", (event) => { handle.setPointerCapture(event.pointerId); event.preventDefault(); handle.focus(); });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const layout = parts.plot._fullLayout, frame = parts.plot.getBoundingClientRect();
      moved(change(layout.xaxis.p2l(event.clientX - frame.left - layout.xaxis._offset),
        layout.yaxis.p2l(event.clientY - frame.top - layout.yaxis._offset)));
    });
    handle.addEventListener("keydown", (event) => {
      const sign = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
      if (sign) { event.preventDefault(); moved(step(sign)); }
    });
  };

  const open = (place) => {
    state.open = place;
    const points = data.points, names = points.neighbours && points.neighbours[place];
    const across = points.x[place], number = data.kind === "categorical" ? "frequency " + formatted(across) : several(across, "neighbour");
    const lines = [element("h3", {}, "Record ", isolated(points.label[place])),
      element("p", { class: "scp-note" }, number + ", " + (data.kind === "categorical" ? "loss " : "perturbation ") + formatted(points.y[place])
        + (MARKS[points.mark[place]] ? "; " + MARKS[points.mark[place]] : "") + (place === points.largest ? "; the largest unit" : "")
        + (isUnsafe(state.policy, across, points.y[place]) ? "; unsafe" : "; safe") + ".")];
    if (names) lines.push(element("p", {}, names.length ? "Its neighbours, nearest first" + (names.length < across ? " (" + names.length + " of "
      + counted(across) + ")" : "") + ":" : "It has no neighbour."), element("ol", {}, ...names.map((name) => element("li", {}, isolated(name)))));
    else if (data.kind === "distance") lines.push(element("p", { class: "scp-note" }, "Its neighbours are not kept in this page."));
    parts.detail.replaceChildren(...lines);
    draw();
  };
  const fillTable = () => {
    const points = data.points, unsafe = places(points, (_, i) => isUnsafe(state.policy, points.x[i], points.y[i]));
    unsafe.sort((a, b) => points.y[a] - points.y[b]);
    const number = countUnsafe(data.counted, state.policy);
    parts["table-title"].textContent = "Unsafe records" + (unsafe.length > MOST_ROWS || unsafe.length < number
      ? ": " + counted(Math.min(MOST_ROWS, unsafe.length)) + " of " + counted(number) : "");
    const head = ["Record", data.kind === "categorical" ? "Frequency" : "Neighbours", data.kind === "categorical" ? "Loss" : "Perturbation", ""];
    parts.table.replaceChildren(element("thead", {}, element("tr", {}, ...head.map((title, i) => element("th", { scope: "col", class: i === 1 || i === 2 ? "num" : "" }, title)))),
      element("tbody", {}, ...unsafe.slice(0, MOST_ROWS).map((i) => element("tr", { "data-place": i },
        element("td", {}, element("button", { type: "button", onclick: () => { open(i); parts.detail.focus(); } }, isolated(points.label[i]))),
        element("td", { class: "num" }, counted(points.x[i])), element("td", { class: "num" }, formatted(points.y[i])), element("td", {}, MARKS[points.mark[i]])))));
  };

  setUp(parts, data, most);
  for (const name of ["r", "k", "curvature"]) parts[name].addEventListener("input", () => moved({ [name]: Number(parts[name].value) }));
  dragged(parts["handle-r"], (_, y) => ({ r: y }), (sign) => ({ r: state.policy.r + sign * most.r / 100 }));
  dragged(parts["handle-k"], (x) => ({ k: x }), (sign) => ({ k: state.policy.k + sign * most.k / 100 }));
  parts.reset.addEventListener("click", () => { state.policy = { ...data.policy }; state.second = data.second && { ...data.second }; draw(); });
  for (const view of ["all", "near"]) parts[view].addEventListener("click", () => { state.view = view; draw(); });
  draw().then(() => {
    parts.plot.on("plotly_click", (event) => {
      const point = event.points.map((p) => shown.held[p.curveNumber][p.pointNumber]).find((p) => p !== undefined);
      if (point !== undefined) open(point);
    });
    parts.plot.on("plotly_relayout", handles);
    const recolour = () => { draw(); densities(parts, data); };
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    document.addEventListener("safeswap-theme", recolour);
    window.addEventListener("resize", () => setTimeout(handles, 250));
    densities(parts, data);
    root.dataset.ready = "true";
    root.dispatchEvent(new Event("safeswap-ready"));
  });
}

function setUp(parts, data, most) {
  for (const name of ["r", "k"]) { parts[name].min = most[name] / 1000; parts[name].max = most[name]; }
  parts["r-box"].hidden = parts["curvature-box"].hidden = data.policy.r === null;
  parts.detail.append(element("p", { class: "scp-note" }, "Click a record, or its name in the table below, to see "
    + (data.points.neighbours ? "its neighbours" : "its details") + ". Drag the round handles, or the sliders, to try other policies."));
  parts.totals.append(element("tbody", {}, ...data.totals.map(([word, value]) => element("tr", {}, element("td", {}, word), element("td", { class: "num" }, value)))));
  const notes = [...data.notes, data.beyond && several(data.beyond, "record") + " with infinite perturbation not drawn (safe)."];
  parts.notes.append(...notes.filter(Boolean).map((text) => element("p", { class: "scp-note" }, text)));
  const lines = data.kind === "categorical" ? ["● records at one place; the larger, the more", "shaded: unsafe"] : ["□ nearest neighbour is the true one", "✕ true one in the neighbourhood",
    data.points.largest >= 0 && "■ largest unit", "● other records", "shaded: unsafe", data.second && "dashed: the second policy"];
  if (data.bins) lines.push("many records: counted in bins; " + counted(data.points.x.length) + " drawn one by one");
  parts.legend.append(...lines.filter(Boolean).map((text) => element("span", {}, text)));
}

function densities(parts, data) {
  parts["densities-box"].hidden = !data.densities;
  if (!data.densities) return;
  const colours = isDark() ? data.themes.dark : data.themes.light, { z, m, u, delta } = data.densities;
  const line = (y, name, color) => ({ type: "scatter", mode: "lines", x: z, y, name, line: { color, width: 2, shape: "hvh" }, hoverinfo: "skip" });
  Plotly.react(parts.densities, [line(m, "m(z), true pairs", colours.gain), line(u, "u(z), other pairs", colours.accent)], {
    margin: { l: 44, r: 10, t: 8, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colours.ink, size: 12 },
    legend: { x: 1, xanchor: "right", y: 1 }, xaxis: { title: { text: "z" }, gridcolor: colours.line, zeroline: false }, yaxis: { gridcolor: colours.line, zeroline: false },
    shapes: [{ type: "line", x0: delta, x1: delta, yref: "paper", y0: 0, y1: 1, line: { color: colours.ink, width: 1, dash: "dot" } }],
    annotations: [{ x: delta, y: 1, yref: "paper", text: "δ", showarrow: false, xanchor: "left", xshift: 3 }] }, { ...CONFIG, displayModeBar: false, staticPlot: true });
}

for (const root of document.querySelectorAll(".safeswap-plot:not([data-ready])")) start(root);
