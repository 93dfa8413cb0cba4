// A recode by hand: beside each level of an attribute stands what it becomes.

import { el, fill, name } from "./dom.js";

// What becomes of all others, in the words for them and for one of them.
const OTHERWISE = [["keep", "stay as they are", "stays"], ["blank", "become missing", "becomes missing"], ["error", "must not be there", "must not be there"]];

// `made` gives the values that earlier steps have made of an attribute; `first` is a step that is being edited.
export function recodeForm(attributes, made, first = {}) {
  const rows = el("tbody", {}), others = el("input", { placeholder: "a value that is not shown", "aria-label": "A value that is not shown", maxlength: 500 });
  const becomes = el("input", { placeholder: "becomes", "aria-label": "What that value becomes", maxlength: 500 });
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
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { "aria-label": "What each level becomes" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Level"), el("th", { scope: "col", title: "Levels that become the same are one level from then on" }, "Becomes"))), rows,
      el("tfoot", {}, el("tr", { title: "Levels that few records have are not shown; whoever knows one may name it" }, el("td", {}, others), el("td", {}, becomes))))),
    el("p", { class: "note" }, "Levels that become the same are one level from then on."),
    el("label", { title: "Levels that nothing is written beside, and those that are not shown" }, "All others", otherwise));
  const read = () => {
    const map = Object.fromEntries([...fields].map(([level, input]) => [level, input.value.trim()]).filter(([, value]) => value));
    if (others.value && becomes.value) map[others.value] = becomes.value;
    return { attribute: picker.value, map, otherwise: otherwise.value };
  };
  return { element, read, missing: () => (Object.keys(read().map).length ? [] : ["what a level becomes"]) };
}

function asMap({ map, groups }) {
  return { ...map, ...Object.fromEntries(Object.entries(groups ?? {}).flatMap(([value, levels]) => levels.map((level) => [level, value]))) };
}

// The values that the steps so far have made of an attribute.
export function valuesMade(steps, attribute) {
  return steps.filter((step) => step.step === "recode" && step.attribute === attribute).flatMap((step) => [...new Set(Object.values(asMap(step)))]);
}
