// What is accepted on the axes of the map: the requirements of the project's release, stated here and shaded there.

import { guarded } from "./api.js";
import { byId, el, fill, name, say } from "./dom.js";
import { change, state as kept } from "./scenario.js";

const REQUIREMENT = /^\s*([^<>=\s][^<>]*?)\s*<=?\s*(\d+(?:\.\d+)?)\s*$/;

// One requirement is a text, several are a list.
const textsOf = (scenario) => [kept.settings?.release.require?.[scenario] ?? []].flat();

// The largest value of each measure that the requirements allow; the strictest of several.
function limitsOf(scenario) {
  const found = new Map();
  for (const text of textsOf(scenario)) {
    const [, measure, limit] = REQUIREMENT.exec(text) ?? [];
    if (measure) found.set(measure, Math.min(found.get(measure) ?? Infinity, Number(limit)));
  }
  return found;
}

// `names` are the measures in the order of the map, `scenario` is the one of the study.
export function acceptance(view, { names, titles, scenario, mayWork }) {
  const shade = () => {
    const limits = limitsOf(scenario);
    return view.accept(Object.fromEntries(names.flatMap((measure, i) => (limits.has(measure) ? [[i, limits.get(measure)]] : []))));
  };
  const keep = guarded(async (inputs) => {
    const own = names.filter((measure) => inputs.has(measure)), release = kept.settings.release;
    const others = textsOf(scenario).filter((text) => !own.includes(REQUIREMENT.exec(text)?.[1]));
    const stated = own.filter((measure) => inputs.get(measure).value !== "").map((measure) => `${measure} <= ${inputs.get(measure).value}`);
    await change({ release: { ...release, require: { ...release.require, [scenario]: [...others, ...stated] } } });
    say("The limits are kept with the project.");
    await shade();
  });
  const draw = () => {
    const limits = limitsOf(scenario), shown = [...new Set(view.axes())].map((i) => names[i]);
    if (!kept.settings?.scenarios.some((each) => each.name === scenario)) {
      fill(byId("accepted"), el("p", { class: "note" }, "Set up a scenario above to state what is accepted: the map then shades it."));
      return;
    }
    if (!mayWork) {
      fill(byId("accepted"), el("p", { class: "note" }, limits.size ? "The shaded part of the map meets the project's requirements." : "Nobody has stated what is accepted."));
      return;
    }
    const inputs = new Map(shown.map((measure) => [measure, el("input", { type: "number", min: 0, step: "any", size: 8, value: limits.get(measure) ?? "", placeholder: "no limit" })]));
    fill(byId("accepted"), el("form", { class: "fields", "aria-label": "What is accepted", on: { submit: (event) => { event.preventDefault(); keep(inputs); } } },
      shown.map((measure) => el("label", {}, "Accepted: ", name(titles.get(measure) ?? measure), " at most ", inputs.get(measure))),
      el("p", {}, el("button", { type: "submit", class: "small" }, "Keep as requirement"), " ", el("span", { class: "note" }, "Shaded on the map, and checked against the result on release."))));
  };
  draw();
  return { draw, shade };
}
