// A table of the original and the masked data, side by side. Small counts stay hidden.

import { get, isCancelled, Refused, showProblem } from "./api.js";
import { dumbbells } from "./dumbbell.js";
import { count, el, fill, name, several } from "./dom.js";

const WIDEST = 12;
const CATEGORICAL = new Set(["nominal", "ordinal", "geography"]);

export const categorical = (description) => description.attributes.filter((attribute) => CATEGORICAL.has(attribute.kind));

// The label of a level, where the description has one.
export const labelOf = (description, attribute, level) => description.attributes.find((each) => each.name === attribute)?.levels?.find((each) => each.level === level)?.label || level;

// How two counts are drawn: as numbers, or as colours of the change.
const VIEWS = [["counts", "counts"], ["heat", "change, as colours"]];

// `path` returns the address for a query; `preferred` attributes are shown first.
export function beforeAfter(description, path, preferred = []) {
  const attributes = categorical(description), box = el("div", { class: "before-after", "aria-live": "polite" });
  if (!attributes.length) return box;
  const names = attributes.map((attribute) => attribute.name);
  const first = preferred.find((each) => names.includes(each)) ?? names[0];
  const others = attributes.toSorted((a, b) => Number(Boolean(a.design)) - Number(Boolean(b.design))).map((each) => each.name).filter((each) => each !== first);  // strata tell the least
  const second = others.find((each) => !preferred.includes(each)) ?? others[0] ?? "";
  const picker = (label, chosen, none) => el("select", { "aria-label": label }, none ? el("option", { value: "" }, "nothing") : null,
    names.map((each) => el("option", { value: each, selected: each === chosen }, each)));
  const rows = picker("Attribute of the rows", first), columns = picker("Attribute of the columns", second, true), table = el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" });
  const view = el("select", { "aria-label": "How it is shown" }, VIEWS.map(([value, text]) => el("option", { value }, text)));
  let asked = 0, last = null;
  const draw = () => { if (last) fill(table, drawTable(last, attributes, view.value)); view.hidden = last?.attributes.length !== 2; };
  const load = async () => {
    const own = ++asked, chosen = [...new Set([rows.value, columns.value].filter(Boolean))];
    fill(table, el("p", { class: "note" }, "Repeating the masking…"));
    try {
      const found = await get(path(new URLSearchParams(chosen.map((each) => ["attributes", each]))));
      if (own !== asked) return;
      last = found;
      draw();
    } catch (error) {
      if (own !== asked) return;
      if (isCancelled(error) && last) { [rows.value, columns.value] = [last.attributes[0], last.attributes[1] ?? ""]; draw(); showProblem(error); } else fill(table, el("p", { class: "warning" }, name(error instanceof Refused ? error.text : "This table cannot be shown.")));
    }
  };
  rows.addEventListener("change", load);
  columns.addEventListener("change", load);
  view.addEventListener("change", draw);
  document.addEventListener("safeswap-theme", draw);  // cells are coloured for the theme
  load();
  box.append(el("p", { class: "pickers" }, rows, " × ", columns, " ", view), table);
  return box;
}

function drawTable({ attributes, cells, tolerance, is_sampled: isSampled }, described, view) {
  const orders = attributes.map((attribute) => {
    const known = described.find((each) => each.name === attribute)?.levels?.map((level) => level.level) ?? [];
    const place = (level) => (known.includes(level) ? known.indexOf(level) : known.length);
    return (a, b) => place(a) - place(b) || a.localeCompare(b);
  });
  const labels = attributes.map((attribute) => new Map(described.find((each) => each.name === attribute)?.levels?.map(({ level, label }) => [level, label || level])));
  const title = (level, i) => labels[i].get(level) ?? level;
  const levels = attributes.map((_, i) => [...new Set(cells.map((cell) => cell.levels[i]))].sort(orders[i]));
  const open = cells.filter((cell) => cell.changed !== null), changed = open.filter((cell) => cell.changed).length;
  const line = el("p", { class: "note" }, `${count(changed)} of ${several(open.length, "cell")} shown changed. Of two counts, the first is the original; `
    + `“·” is a count below ${tolerance}, or one from which such a count could be derived.${isSampled ? " Counted on a random sample of the records: the figures are approximate." : ""}`);
  if (attributes.length === 1) return [line, drawLevels(attributes[0], levels[0], cells, title)];
  if (view === "heat") return [line, ...drawHeat(attributes, levels, cells, title)];
  return [line, attributes.length === 2 && levels[1].length <= WIDEST ? drawCrossTable(attributes, levels, cells, title) : drawList(attributes, cells, title)];
}

const format = (value) => (value === null ? "·" : count(value));

function drawCell(cell) {
  if (!cell) return el("td", { class: "n" }, "0");
  if (cell.changed === null) return el("td", { class: "n", title: "not shown" }, "·");
  const before = format(cell.before), after = format(cell.after);
  return el("td", { class: cell.changed ? "n changed" : "n", title: cell.changed ? `before ${before}, after ${after}` : "unchanged" },
    before, cell.changed ? [el("span", { "aria-label": " becomes " }, " → "), after] : null);
}

// One attribute: each level before and after.
function drawLevels(attribute, levels, cells, title) {
  const at = new Map(cells.map((cell) => [cell.levels[0], cell])), known = (cell, side) => (cell.changed === null ? null : cell[side]);
  return dumbbells(levels.map((level) => { const cell = at.get(level); return { title: title(level, 0), before: known(cell, "before"), after: known(cell, "after") }; }),
    { format, title: attribute, label: `${attribute}, before and after` });
}

// Two attributes: the change of each cell in standard deviations of a count, (after − before) / √before. Only counts that
// are shown are coloured.
function drawHeat(attributes, levels, cells, title) {
  const at = new Map(cells.map((cell) => [JSON.stringify(cell.levels), cell]));
  const residual = (cell) => (!cell || cell.changed === null || cell.before === null || cell.after === null ? null : (cell.after - cell.before) / Math.sqrt(Math.max(cell.before, 1)));
  const largest = Math.max(1, ...cells.map((cell) => Math.abs(residual(cell) ?? 0)));
  const drawn = (cell) => {
    const value = residual(cell);
    if (value === null) return el("td", { class: "n", title: cell ? "not shown" : "empty" }, cell ? "·" : "");
    const made = el("td", { class: "n", data: { residual: value }, title: `before ${format(cell.before)}, after ${format(cell.after)}` }, value === 0 ? "0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(2)}`);
    colour(made, value, largest);
    return made;
  };
  return [el("p", { class: "note" }, "Change in standard deviations of a count, (after − before) / √before: blue cells lost records, brown ones gained."),
    el("table", { class: "heat", "aria-label": `${attributes.join(" by ")}: change of each cell` },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, name(`${attributes[0]} \\ ${attributes[1]}`)), levels[1].map((level) => el("th", { scope: "col", class: "n" }, name(title(level, 1)))))),
      el("tbody", {}, levels[0].map((row) => el("tr", {}, el("th", { scope: "row" }, name(title(row, 0))), levels[1].map((column) => drawn(at.get(JSON.stringify([row, column]))))))))];
}

// Black or white text, whichever has more contrast with the colour: at least 4.5 to 1 on any.
function colour(cell, value, largest) {
  const style = getComputedStyle(document.documentElement), part = (text) => [1, 3, 5].map((i) => parseInt(text.trim().slice(i, i + 2), 16));
  const ground = part(style.getPropertyValue("--ground")), full = part(style.getPropertyValue(value < 0 ? "--loss" : "--gain")), strength = value === 0 ? 0 : 0.15 + 0.85 * (Math.abs(value) / largest);
  const mixed = full.map((channel, i) => Math.round(channel * strength + ground[i] * (1 - strength)));
  const [r, g, b] = mixed.map((channel) => channel / 255).map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  cell.style.background = `rgb(${mixed.join(", ")})`;
  cell.style.color = 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

function drawCrossTable(attributes, levels, cells, title) {
  const at = new Map(cells.map((cell) => [JSON.stringify(cell.levels), cell]));
  return el("table", { "aria-label": `${attributes.join(" by ")}, before and after` },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, name(`${attributes[0]} \\ ${attributes[1]}`)), levels[1].map((level) => el("th", { scope: "col", class: "n" }, name(title(level, 1)))))),
    el("tbody", {}, levels[0].map((row) => el("tr", {}, el("th", { scope: "row" }, name(title(row, 0))), levels[1].map((column) => drawCell(at.get(JSON.stringify([row, column]))))))));
}

function drawList(attributes, cells, title) {
  return el("table", { "aria-label": `${attributes.join(" by ")}, before and after` }, el("thead", {}, el("tr", {}, attributes.map((each) => el("th", { scope: "col" }, name(each))), ["Before", "After"].map((word) => el("th", { scope: "col", class: "n" }, word)))),
    el("tbody", {}, cells.slice(0, 500).map((cell) => el("tr", {}, cell.levels.map((level, i) => el("td", {}, name(title(level, i)))),
      el("td", { class: "n" }, format(cell.before)), el("td", { class: cell.changed ? "n changed" : "n" }, format(cell.after))))));
}
