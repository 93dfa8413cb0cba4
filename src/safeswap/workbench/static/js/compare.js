// Two candidates side by side: their specifications, their scores, and the two-way tables that each distorts.

import { get, guarded } from "./api.js";
import { byId, el, figure, fill, name } from "./dom.js";
import { specText } from "./masking.js";
import { at } from "./page.js";

const sides = [null, null];
const MOST = 12;

// Take the free place, or replace the older candidate.
export async function compare(studyId, point, titles) {
  const found = await get(at(`/studies/${studyId}/candidates/${point.candidate}`));
  if (sides[0] === null) sides[0] = found; else if (sides[1] === null) sides[1] = found; else sides.splice(0, 2, sides[1], found);
  show(titles);
}

// Two lists to choose any two candidates from, each at its first draw.
export function compareAny(studyId, { specs, rates, constraints, all_specifications: number }, titles) {
  const text = (i) => [specs.label[i], specs.rate[i] < 0 ? null : `rate ${rates[specs.rate[i]]}`, constraints[specs.constraint[i]], specs.label[i] === specs.swap[i] ? null : specs.swap[i]].filter(Boolean).join(" · ");
  const pick = async () => {
    const chosen = pickers.map((picker) => picker.value);
    if (chosen.includes("")) return;
    const found = await Promise.all(chosen.map((candidate) => get(at(`/studies/${studyId}/candidates/${candidate}`))));
    sides.splice(0, 2, ...found);
    show(titles);
  };
  const picker = (letter) => el("select", { "aria-label": `Candidate ${letter}`, on: { change: guarded(pick) } }, el("option", { value: "" }, "choose…"),
    specs.number.map((each, i) => (specs.made[i] ? el("option", { value: each % number }, text(i)) : null)));
  const pickers = ["A", "B"].map(picker);
  fill(byId("compare-pickers"), ["A ", pickers[0], " B ", pickers[1]]);
}

function show(titles, measure) {
  const [a, b] = sides;
  byId("compared").open = true;
  if (!b) {
    fill(byId("sides"), el("p", {}, "A is ", name(describe(a)), ". To compare, open another candidate and choose “Compare”."));
    return;
  }
  const measures = Object.keys(a.tables[0]?.values ?? {}), used = measure ?? measures[0];
  fill(byId("sides"),
    el("p", { class: "note" }, "Figures of single draws: the replicate that each title names. The map shows the means of all draws."),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { "aria-label": "Scores of both candidates" }, head(["", `A: ${describe(a)}`, `B: ${describe(b)}`, "B − A"]), el("tbody", {},
      ...Object.keys(a.scores).map((key) => row(titles.get(key) ?? key, a.scores[key], b.scores[key])),
      el("tr", {}, el("th", { scope: "row" }, "on the frontier"), el("td", { class: "n" }, a.on_frontier ? "yes" : "no"), el("td", { class: "n" }, b.on_frontier ? "yes" : "no"), el("td", {})),
      el("tr", {}, el("th", { scope: "row" }, "specification"), ...[a, b].map((side) => el("td", { class: "words" }, name(specText(side.spec)))), el("td", {}))))),
    measures.length ? tables(a, b, measures, used, titles) : null,
    el("p", { class: "actions" }, el("button", { type: "button", on: { click: () => { sides.fill(null); fill(byId("sides")); byId("compared").open = false; } } }, "Done comparing")));
}

function tables(a, b, measures, used, titles) {
  const picker = el("select", { "aria-label": "Measure of the two-way tables", on: { change: (event) => { show(titles, event.target.value); byId("sides").querySelector("select").focus(); } } },
    measures.map((each) => el("option", { value: each, selected: each === used }, titles.get(each) ?? each)));
  const other = new Map(b.tables.map((table) => [table.attributes.join("\u0000"), table.values[used]]));
  const lines = a.tables.map((table) => [table.attributes, table.values[used], other.get(table.attributes.join("\u0000"))])
    .sort((one, two) => Math.max(Math.abs(two[1]), Math.abs(two[2])) - Math.max(Math.abs(one[1]), Math.abs(one[2])));
  return el("details", { open: true }, el("summary", {}, `The ${Math.min(MOST, lines.length)} most distorted two-way tables`), el("p", {}, picker),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { "aria-label": "Two-way tables of both candidates" }, head(["Table", "A", "B", "B − A"]),
      el("tbody", {}, lines.slice(0, MOST).map(([attributes, one, two]) => row(attributes.join(" × "), one, two))))));
}

const head = (titles) => el("thead", {}, el("tr", {}, titles.map((title, i) => el("th", { scope: "col", class: i ? "n" : "" }, name(title)))));

function row(title, one, two) {
  const gap = one === null || two === null || one === undefined || two === undefined ? null : two - one;
  return el("tr", {}, el("th", { scope: "row" }, name(title)), el("td", { class: "n" }, figure(one)), el("td", { class: "n" }, figure(two)),
    el("td", { class: "n" }, gap > 0 ? `+${figure(gap)}` : figure(gap)));
}

const describe = (side) => [side.label, side.rate === null ? null : `rate ${side.rate}`, side.constraint, `replicate ${side.replicate}`].filter(Boolean).join(", ");
