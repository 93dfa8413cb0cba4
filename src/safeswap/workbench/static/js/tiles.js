// Areas within areas as tiles: the darker, the more records. Counts that must not be shown are not.

import { count, el, name, several } from "./dom.js";

const STEPS = 5;

export function tiles({ coarse, fine, areas, rare }, labelOf) {
  const known = areas.flatMap((area) => area.areas.map((each) => each.records)).filter((records) => records !== null);
  const most = Math.max(1, ...known), shade = (records) => (records === null ? 0 : 1 + Math.min(STEPS - 1, Math.floor((STEPS * records) / (most + 1))));
  const words = (records) => (records === null ? "not shown" : count(records));
  return el("div", { class: "geography" }, el("ul", { class: "outer", "aria-label": `${coarse}, with ${fine} inside` }, areas.map((area) => el("li", {}, el("h3", {}, name(labelOf(coarse, area.name)), " ", el("span", { class: "note" }, words(area.records))),
    el("ul", { class: "inner" }, area.areas.map((each) => el("li", { class: `shade${shade(each.records)}` }, name(labelOf(fine, each.name)), el("span", { class: "n" }, words(each.records)))),
      area.rare ? el("li", { class: "shade0" }, several(area.rare, "small area"), el("span", { class: "n" }, "not shown")) : null)))),
  rare ? el("p", { class: "note" }, `${several(rare, "area has", "areas have")} too few records to be named.`) : null);
}
