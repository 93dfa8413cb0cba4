// Manual recode: a field for the new value beside each level of an attribute.

import { el, fill, name } from "./dom.js";

// What happens to all other levels, in the plural and in the singular.
const OTHERWISE = [["keep", "stay unchanged", "stays"], ["blank", "become missing", "becomes missing"], ["error", "must not occur", "must not occur"]];

// `made` returns the values that earlier steps created for an attribute; `first` is the step being edited.
export function recodeForm(attributes, made, first = {}) {
  const rows = el("tbody", {}), others = el("input", { placeholder: "a value that is not shown", "aria-label": "A value that is not shown", maxlength: 500 });
  const becomes = el("input", { placeholder: "becomes", "aria-label": "New value for it", maxlength: 500 });
  const otherwise = el("select", {}, OTHERWISE.map(([value, words]) => el("option", { value, selected: value === (first.otherwise ?? (first.attribute ? "error" : "keep")) }, words)));
  const picker = el("select", { name: "attribute", on: { change: () => draw({}) } }, attributes.map((attribute) => el("option", { value: attribute.name, selected: attribute.name === first.attribute }, attribute.name)));
  const fields = new Map(), ofOne = () => OTHERWISE.find(([value]) => value === otherwise.value)[2];
  otherwise.addEventListener("change", () => { for (const input of fields.values()) input.placeholder = ofOne(); });
  const draw = (stated) => {
    fields.clear();
    const attribute = attributes.find((each) => each.name === picker.value);
    const levels = [...new Set([...(attribute?.levels ?? []).map((level) => level.level), ...made(picker.value), ...Object.keys(stated)])];
    fill(rows, levels.map((level) => {
      const input = el("input", { "aria-label": `${level} becomes`, placeholder: ofOne(), maxlength: 500, value: stated[level] ?? "" });
      fields.set(level, input);
      return el("tr", {}, el("th", { scope: "row" }, name(level)), el("td", {}, input));
    }));
    others.value = becomes.value = "";
  };
  draw(asMap(first));
  const element = el("div", { class: "schema" }, el("label", {}, "Attribute", picker),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { "aria-label": "New value of each level" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Level"), el("th", { scope: "col", title: "Levels with the same new value are merged" }, "Becomes"))), rows,
      el("tfoot", {}, el("tr", { title: "Levels that few records have are not shown; enter one here if you know it" }, el("td", {}, others), el("td", {}, becomes))))),
    el("p", { class: "note" }, "Levels with the same new value are merged."),
    el("label", { title: "Levels without a new value, and those that are not shown" }, "All others", otherwise));
  const read = () => {
    const map = Object.fromEntries([...fields].map(([level, input]) => [level, input.value.trim()]).filter(([, value]) => value));
    if (others.value && becomes.value) map[others.value] = becomes.value;
    return { attribute: picker.value, map, otherwise: otherwise.value };
  };
  return { element, read, missing: () => (Object.keys(read().map).length ? [] : ["a new value for a level"]) };
}

function asMap({ map, groups }) {
  return { ...map, ...Object.fromEntries(Object.entries(groups ?? {}).flatMap(([value, levels]) => levels.map((level) => [level, value]))) };
}

// The values that the steps so far created for an attribute.
export function valuesMade(steps, attribute) {
  return steps.filter((step) => step.step === "recode" && step.attribute === attribute).flatMap((step) => [...new Set(Object.values(asMap(step)))]);
}
