// A small bar chart of frequencies. Levels below the tolerance share one bar "<Q"; a count from which theirs could be
// derived is not shown.

import { count, el, name, several, svg } from "./dom.js";

const WIDTH = 340, LINE = 18, LABEL = 130, COUNT = 70, MOST = 8, LONGEST = 20;

export function bars(levels, below, tolerance) {
  const shown = levels.slice(0, MOST), rest = levels.slice(MOST);
  const lines = shown.map((level) => ({ text: level.label || level.level, value: level.count ?? 0, shown: level.count === null ? "not shown" : count(level.count), small: level.count === null }));
  const open = rest.every((level) => level.count !== null);
  if (rest.length) lines.push({ text: several(rest.length, "more level"), value: rest.reduce((sum, level) => sum + (level.count ?? 0), 0), shown: open ? "" : "not shown", small: true });
  if (below) lines.push({ text: several(below, "rare level"), value: 0, shown: `<${tolerance} each`, small: true });
  if (!lines.length) return el("span", { class: "note" }, "no levels");
  const largest = Math.max(1, ...lines.map((line) => line.value));
  const label = lines.map((line) => `${line.text}: ${line.shown || count(line.value)}`).join("; ");
  const chart = svg("svg", { class: "bars", width: WIDTH, height: LINE * lines.length, viewBox: `0 0 ${WIDTH} ${LINE * lines.length}`, role: "img", "aria-label": label });
  lines.forEach((line, i) => {
    const y = LINE * i, room = WIDTH - LABEL - COUNT;
    const caption = svg("text", { x: 0, y: y + 13 });
    caption.textContent = line.text.length > LONGEST ? line.text.slice(0, LONGEST - 1) + "…" : line.text;
    const title = svg("title");
    title.textContent = `${line.text}: ${line.shown || count(line.value)}`;
    const bar = svg("rect", { x: LABEL, y: y + 3, width: Math.max(1, (room * line.value) / largest), height: LINE - 6, class: line.small ? "small" : "" });
    const value = svg("text", { x: WIDTH, y: y + 13, class: "count" });
    value.textContent = line.shown || count(line.value);
    chart.append(svg("g", {}, title, caption, bar, value));
  });
  return chart;
}

// Figures now, with those before beside them where there are any: a table, so that it can be read without the bars.
export function pairs(title, rows, [now, before] = ["now", "in the file"]) {
  const compared = rows.some((row) => row.before !== null && row.before !== undefined), most = Math.max(1, ...rows.flatMap((row) => [row.now, row.before ?? 0]));
  if (!rows.length) return null;
  const bar = (value, kind) => {
    const made = el("span", { class: `bar ${kind}`, "aria-hidden": "true" });
    made.style.width = value ? `max(2px, ${(100 * value) / most}%)` : "0";
    return made;
  };
  return el("table", { class: "pairs" }, el("caption", {}, title),
    el("thead", {}, el("tr", {}, el("td", {}), el("td", { "aria-hidden": "true" }), el("th", { scope: "col", class: "n" }, compared ? el("span", { class: "key now" }) : null, now), compared ? el("th", { scope: "col", class: "n" }, el("span", { class: "key before" }), before) : null)),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, name(row.label)), el("td", { class: "track", "aria-hidden": "true" }, bar(row.now, "now"), compared ? bar(row.before, "before") : null),
      el("td", { class: "n" }, count(row.now)), compared ? el("td", { class: "n" }, count(row.before)) : null))));
}
