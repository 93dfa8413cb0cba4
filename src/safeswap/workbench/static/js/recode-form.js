// Manual recode: a field for the new value beside each level of an attribute.

import { count, el, fill, name, several } from "./dom.js";

// What happens to all other levels, in the plural and in the singular.
const OTHERWISE = [["keep", "stay unchanged", "stays"], ["blank", "become missing", "becomes missing"], ["error", "must not occur", "must not occur"]];

// `made` returns the values that earlier steps created for an attribute; `first` is the step being edited.
export function recodeForm(attributes, made, first = {}) {
  const rows = el("tbody", {}), rare = el("tr", { hidden: true }), rareTitle = el("th", { scope: "row" });
  const others = el("input", { placeholder: "stay unchanged", "aria-label": "Levels that are not shown become", maxlength: 500, value: first.others ?? "" });
  const otherwise = el("select", {}, OTHERWISE.map(([value, words]) => el("option", { value, selected: value === (first.otherwise ?? (first.attribute && !first.others && Object.keys(asMap(first)).length ? "error" : "keep")) }, words)));
  const picker = el("select", { name: "attribute", on: { change: () => draw({}) } }, attributes.map((attribute) => el("option", { value: attribute.name, selected: attribute.name === first.attribute }, attribute.name)));
  const fields = new Map(), ofOne = () => OTHERWISE.find(([value]) => value === otherwise.value)[2], told = el("p", { class: "note", role: "status" });
  otherwise.addEventListener("change", () => { for (const input of fields.values()) input.placeholder = ofOne(); });
  const show = () => {
    const news = [...fields].map(([level, input]) => input.value.trim() || level);
    told.textContent = `${several(fields.size, "level becomes", "levels become")} ${new Set([...news, ...(others.value.trim() ? [others.value.trim()] : [])]).size}.`;
  };
  // Drag a level onto another: both get the same new value.
  const merge = (from, to) => {
    if (!fields.has(from) || from === to) return;
    const value = fields.get(to).value.trim() || to;
    fields.get(from).value = fields.get(to).value = value;
    rows.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const draw = (stated) => {
    fields.clear();
    const attribute = attributes.find((each) => each.name === picker.value), counts = new Map((attribute?.levels ?? []).map((level) => [level.level, level.count])), labels = new Map((attribute?.levels ?? []).map((level) => [level.level, level.label]));
    const most = Math.max(1, ...[...counts.values()].map((value) => value ?? 0)), hidden = attribute?.levels_below_tolerance?.number ?? 0;
    const levels = [...new Set([...counts.keys(), ...made(picker.value), ...Object.keys(stated)])];
    fill(rows, levels.map((level) => {
      const number = counts.get(level), bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${Math.round((100 * (number ?? 0)) / most)}%`;
      const input = el("input", { "aria-label": `${labels.get(level) || level} becomes`, placeholder: ofOne(), maxlength: 500, value: stated[level] ?? "" });
      fields.set(level, input);
      return el("tr", { draggable: "true", title: "Drag onto another level to merge the two", on: {
        dragstart: (event) => event.dataTransfer.setData("text/plain", level), dragover: (event) => { event.preventDefault(); event.currentTarget.classList.add("over"); },
        dragleave: (event) => event.currentTarget.classList.remove("over"), drop: (event) => { event.preventDefault(); event.currentTarget.classList.remove("over"); merge(event.dataTransfer.getData("text/plain"), level); } } },
      el("th", { scope: "row" }, name(labels.get(level) || level), labels.get(level) ? el("span", { class: "note" }, " ", name(level)) : null), el("td", { class: "counted" }, bar, el("span", { class: "n" }, number === undefined ? "" : number === null ? "not shown" : count(number))), el("td", {}, input));
    }));
    fill(rareTitle, hidden ? several(hidden, "rare level") : "Levels that are not shown");
    rare.hidden = !hidden && !first.others;
    if (rare.hidden) others.value = "";
    show();
  };
  fill(rare, rareTitle, el("td", { class: "note" }, "not named"), el("td", {}, others));
  draw(asMap(first));
  const element = el("div", { class: "schema", on: { input: show } }, el("label", {}, "Attribute", picker),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { class: "recoding", "aria-label": "New value of each level" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Level"), el("th", { scope: "col" }, "Records"), el("th", { scope: "col", title: "Levels with the same new value are merged" }, "Becomes"))), rows, el("tfoot", {}, rare))),
    el("p", { class: "note" }, "Levels with the same new value are merged. Type it, or drag a level onto another."), told,
    el("label", { title: "Levels without a new value" }, "All others", otherwise));
  const read = () => {
    const map = Object.fromEntries([...fields].map(([level, input]) => [level, input.value.trim()]).filter(([, value]) => value)), rest = others.value.trim();
    if (!rest) return { attribute: picker.value, map, otherwise: otherwise.value };
    // Levels that are shown and stay are named, so that only those that are not shown become the others.
    const stay = otherwise.value === "keep" ? Object.fromEntries([...fields.keys()].map((level) => [level, level])) : {};
    return { attribute: picker.value, map: { ...stay, ...map }, others: rest };
  };
  return { element, read, isFaulty: () => false, missing: () => (Object.keys(read().map).length ? [] : ["a new value for a level"]) };
}

function asMap({ map, groups }) {
  return { ...map, ...Object.fromEntries(Object.entries(groups ?? {}).flatMap(([value, levels]) => levels.map((level) => [level, value]))) };
}

// The values that the recodes so far created for an attribute.
export function valuesMade(recodes, attribute) {
  const made = recodes.filter((step) => step.step === "recode" && step.attribute === attribute);
  return made.flatMap((step) => [...new Set([...Object.values(asMap(step)), ...(step.others ? [step.others] : [])])]);
}
