// A table of the original and the masked data, side by side. Small counts stay hidden.

import { get, Refused } from "./api.js";
import { count, el, fill, name, several } from "./dom.js";

const WIDEST = 12;
const CATEGORICAL = new Set(["nominal", "ordinal", "geography"]);

export const categorical = (description) => description.attributes.filter((attribute) => CATEGORICAL.has(attribute.kind));

// `path` returns the address for a query; `preferred` attributes are shown first.
export function beforeAfter(description, path, preferred = []) {
  const attributes = categorical(description), box = el("div", { class: "before-after", "aria-live": "polite" });
  if (!attributes.length) return box;
  const names = attributes.map((attribute) => attribute.name);
  const first = preferred.find((each) => names.includes(each)) ?? names[0];
  const second = names.find((each) => each !== first && !preferred.includes(each)) ?? names.find((each) => each !== first) ?? "";
  const picker = (label, chosen, none) => el("select", { "aria-label": label }, none ? el("option", { value: "" }, "nothing") : null,
    names.map((each) => el("option", { value: each, selected: each === chosen }, each)));
  const rows = picker("Attribute of the rows", first), columns = picker("Attribute of the columns", second, true), table = el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" });
  let asked = 0;
  const load = async () => {
    const own = ++asked, chosen = [...new Set([rows.value, columns.value].filter(Boolean))];
    fill(table, el("p", { class: "note" }, "Repeating the masking…"));
    try {
      const found = await get(path(new URLSearchParams(chosen.map((each) => ["attributes", each]))));
      if (own === asked) fill(table, drawTable(found, attributes));
    } catch (error) {
      if (own === asked) fill(table, el("p", { class: "warning" }, name(error instanceof Refused ? `${error.message} ${error.hint}` : "This table cannot be shown.")));
    }
  };
  rows.addEventListener("change", load);
  columns.addEventListener("change", load);
  load();
  box.append(el("p", { class: "pickers" }, rows, " × ", columns), table);
  return box;
}

function drawTable({ attributes, cells, tolerance, is_sampled: isSampled }, described) {
  const orders = attributes.map((attribute) => {
    const known = described.find((each) => each.name === attribute)?.levels?.map((level) => level.level) ?? [];
    const place = (level) => (known.includes(level) ? known.indexOf(level) : known.length);
    return (a, b) => place(a) - place(b) || a.localeCompare(b);
  });
  const levels = attributes.map((_, i) => [...new Set(cells.map((cell) => cell.levels[i]))].sort(orders[i]));
  const open = cells.filter((cell) => cell.changed !== null), changed = open.filter((cell) => cell.changed).length;
  const line = el("p", { class: "note" }, `${count(changed)} of ${several(open.length, "cell")} shown changed. Of two counts, the first is the original; `
    + `“·” is a count below ${tolerance}, or one from which such a count could be derived.${isSampled ? " Counted on a random sample of the records: the figures are approximate." : ""}`);
  return [line, attributes.length === 2 && levels[1].length <= WIDEST ? drawCrossTable(attributes, levels, cells) : drawList(attributes, cells)];
}

const format = (value) => (value === null ? "·" : count(value));

function drawCell(cell) {
  if (!cell) return el("td", { class: "n" }, "0");
  if (cell.changed === null) return el("td", { class: "n", title: "not shown" }, "·");
  const before = format(cell.before), after = format(cell.after);
  return el("td", { class: cell.changed ? "n changed" : "n", title: cell.changed ? `before ${before}, after ${after}` : "unchanged" },
    before, cell.changed ? [el("span", { "aria-label": " becomes " }, " → "), after] : null);
}

function drawCrossTable(attributes, levels, cells) {
  const at = new Map(cells.map((cell) => [JSON.stringify(cell.levels), cell]));
  return el("table", { "aria-label": `${attributes.join(" by ")}, before and after` },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, name(`${attributes[0]} \\ ${attributes[1]}`)), levels[1].map((level) => el("th", { scope: "col", class: "n" }, name(level))))),
    el("tbody", {}, levels[0].map((row) => el("tr", {}, el("th", { scope: "row" }, name(row)), levels[1].map((column) => drawCell(at.get(JSON.stringify([row, column]))))))));
}

function drawList(attributes, cells) {
  return el("table", { "aria-label": `${attributes.join(" by ")}, before and after` }, el("thead", {}, el("tr", {}, attributes.map((each) => el("th", { scope: "col" }, name(each))), ["Before", "After"].map((word) => el("th", { scope: "col", class: "n" }, word)))),
    el("tbody", {}, cells.slice(0, 500).map((cell) => el("tr", {}, cell.levels.map((level) => el("td", {}, name(level))),
      el("td", { class: "n" }, format(cell.before)), el("td", { class: cell.changed ? "n changed" : "n" }, format(cell.after))))));
}
