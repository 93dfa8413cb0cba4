// Before and after on one line each: an open ring for before, a filled dot for after, and the numbers beside them.

import { el, name, svg } from "./dom.js";

const WIDTH = 260, HEIGHT = 18, ROOM = 8;

// `rows` have title, before, after and, if they have them, flagged and note; `format` writes a number. Rows may lack a
// number, which is then hidden, and are drawn on one scale unless `own` gives each its own.
export function dumbbells(rows, { format, words = ["Before", "After"], title, own = false, label = "Before and after" }) {
  const known = rows.flatMap((row) => [row.before, row.after]).filter((value) => Number.isFinite(value));
  const all = own ? null : [Math.min(0, ...known), Math.max(...known, 0)];
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { class: "dumbbells", "aria-label": label },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, title), ...words.map((word) => el("th", { scope: "col", class: "n" }, word)), el("th", { scope: "col" }, el("span", { "aria-hidden": "true" }, `○ ${words[0].toLowerCase()}  ● ${words[1].toLowerCase()}`), el("span", { class: "unseen" }, "Drawn")),
      rows.some((row) => row.note !== undefined) ? el("th", { scope: "col" }, "Note") : null)),
    el("tbody", {}, rows.map((row) => el("tr", { class: row.flagged ? "flagged" : "" }, el("th", { scope: "row" }, name(row.title)), el("td", { class: "n" }, format(row.before)), el("td", { class: "n" }, format(row.after)),
      el("td", {}, drawn(row, all)), row.note === undefined ? null : el("td", {}, row.note === "" ? "" : name(row.note)))))));
}

function drawn({ before, after, flagged }, scale) {
  const picture = svg("svg", { class: flagged ? "dumbbell flagged" : "dumbbell", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  if (!Number.isFinite(before) || !Number.isFinite(after)) return picture;
  const [low, high] = scale ?? padded(before, after), x = (value) => ROOM + ((WIDTH - 2 * ROOM) * (value - low)) / (high - low || 1);
  picture.append(svg("line", { x1: ROOM, x2: WIDTH - ROOM, y1: HEIGHT / 2, y2: HEIGHT / 2, class: "ground" }),
    svg("line", { x1: x(before), x2: x(after), y1: HEIGHT / 2, y2: HEIGHT / 2, class: "bar" }),
    svg("circle", { cx: x(after), cy: HEIGHT / 2, r: 5, class: "after" }), svg("circle", { cx: x(before), cy: HEIGHT / 2, r: 5.5, class: "before" }));
  return picture;
}

// A scale of its own for a row: the two points stand well inside, and no change looks like none.
function padded(before, after) {
  const gap = Math.max(Math.abs(after - before), 0.02 * Math.max(Math.abs(before), Math.abs(after)), 1e-12);
  return [Math.min(before, after) - 2 * gap, Math.max(before, after) + 2 * gap];
}
