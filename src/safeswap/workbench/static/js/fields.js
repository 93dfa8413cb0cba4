// The fields of a form that hold one thing each: a number, a choice, some names. Each is its element and a function that
// reads it; undefined is what is not stated. What cannot be read has a fault, which is shown beside it.

import { el, name } from "./dom.js";

export const sentence = (text) => text[0].toUpperCase() + text.slice(1);

// Another field that a description names stands there as its title does.
const plainly = (text) => sentence(text).replace(/`(\w+)`/g, (_, key) => `“${sentence(key.replaceAll("_", " "))}”`);

export const note = (part, context) => [part.description ? el("span", { class: "note block" }, name(plainly(part.description))) : null,
  context.required ? el("span", { class: "note block" }, "Has to be given.") : null];

export function choice(key, title, part, context) {
  const input = el("select", {}, part.enum.map((value) => el("option", { value, selected: value === (context.first ?? part.default) }, String(value))));
  return { key, element: el("label", {}, title, input, note(part, context)), read: () => (input.value === part.default ? undefined : input.value) };
}

export function tick(key, title, part, context) {
  const input = el("input", { type: "checkbox", checked: context.first ?? part.default ?? false });
  return { key, element: el("label", {}, input, " ", title, note(part, context)), read: () => (input.checked === (part.default ?? false) ? undefined : input.checked) };
}

function numberInput(part, properties) {
  const least = part.minimum ?? part.exclusiveMinimum, most = part.maximum ?? part.exclusiveMaximum;
  return el("input", { type: "number", step: part.type === "integer" ? 1 : "any", min: least, max: most, ...properties });
}

export function number(key, title, part, context) {
  const input = numberInput(part, { value: context.first ?? part.default ?? "", required: context.required });
  return { key, element: el("label", {}, title, input, note(part, context)),
    read: () => (input.value === "" || (Number(input.value) === part.default) ? undefined : Number(input.value)) };
}

// One number for some of the attributes.
export function numberOfEach(key, title, part, context) {
  const inputs = context.attributes.map((each) => [each, numberInput(part.additionalProperties, { value: context.first?.[each] ?? "" })]);
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context),
    el("div", { class: "ticks" }, inputs.map(([each, input]) => el("label", {}, name(each), " ", input))));
  return { key, element, read: () => orNothing(Object.fromEntries(inputs.filter(([, input]) => input.value !== "").map(([each, input]) => [each, Number(input.value)]))) };
}

export function attribute(key, title, part, context) {
  const input = el("select", {}, context.required ? null : el("option", { value: "" }, "none"), context.attributes.map((each) => el("option", { value: each, selected: each === context.first }, each)));
  return { key, element: el("label", {}, title, input, note({ description: part.description }, {})), read: () => input.value || undefined };
}

let lists = 0;
export function text(key, title, part, context) {
  // A single text is the name of an attribute, unless its schema says that it is a value of one; others may be typed.
  const list = part.format === "value" ? undefined : `names-${++lists}`;
  const input = el("input", { value: context.first ?? part.default ?? "", list, maxlength: part.maxLength ?? 500, required: context.required });
  const known = list && el("datalist", { id: list }, context.attributes.map((each) => el("option", { value: each })));
  return { key, element: el("label", {}, title, input, known, note(part, context)), read: () => (input.value === "" || input.value === part.default ? undefined : input.value) };
}

export function names(key, title, part, context) {
  const first = new Set(context.first ?? part.default ?? []);
  const boxes = context.attributes.map((each) => el("input", { type: "checkbox", value: each, checked: first.has(each) }));
  // The order may matter (levels of a geography, keys in their order): the one in which they were ticked.
  const order = [...first];
  for (const box of boxes) box.addEventListener("change", () => { if (box.checked) order.push(box.value); else order.splice(order.indexOf(box.value), 1); show(); });
  const shown = el("span", { class: "note block", "aria-live": "polite" });
  const show = () => { shown.textContent = order.length > 1 ? `In this order: ${order.join(", ")}` : ""; };
  show();
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context), el("div", { class: "ticks" }, boxes.map((box) => el("label", {}, box, " ", name(box.value)))), shown);
  return { key, element, read: () => (order.length ? [...order] : undefined) };
}

// --- What is written line by line. `parse` gives undefined for a line that it cannot read.

const cut = (line, at) => line.split(at).map((each) => each.trim()).filter(Boolean);
const WAYS = {
  values: { how: "One on each line.", parse: (line) => line, write: (value) => value },
  numbers: { how: "One on each line.", parse: (line) => (Number.isFinite(Number(line)) ? Number(line) : undefined), write: String, wrong: "is no number" },
  lists: { how: "One on each line: attributes parted by commas.", example: "Race, Sex\nRace, Education", parse: (line) => orNothing(cut(line, ",")), write: (row) => row.join(", ") },
  map: { how: "One on each line: a value, an equals sign, and what belongs to it.", example: "01 = North\n02 = North", parse: (line) => pair(line), write: ([from, to]) => `${from} = ${to}`, wrong: "has no equals sign with something on both sides" },
  groups: { how: "One on each line: the new value, an equals sign, and the values that become it, parted by commas.", example: "alone = Single, Widowed",
    parse: (line) => { const [made, from] = pair(line) ?? []; return made && cut(from, ",").length ? [made, cut(from, ",")] : undefined; },
    write: ([made, from]) => `${made} = ${from.join(", ")}`, wrong: "has no equals sign with something on both sides" },
};

function pair(line) {
  const place = line.indexOf("="), both = [line.slice(0, place).trim(), line.slice(place + 1).trim()];
  return place > 0 && both.every(Boolean) ? both : undefined;
}

const lined = (kind, isMap) => (key, title, part, context) => {
  const { how, example, parse, write, wrong } = WAYS[kind], first = context.first ?? part.default ?? [];
  const input = el("textarea", { rows: 3, cols: 40, placeholder: example, required: context.required }, (isMap ? Object.entries(first) : first).map(write).join("\n"));
  const fault = el("span", { class: "note block", role: "alert" });
  const read = () => {
    const lines = cut(input.value, "\n"), found = lines.map(parse), bad = found.indexOf(undefined);
    fault.textContent = bad < 0 ? "" : `Line ${bad + 1} ${wrong}.`;
    if (bad >= 0 || !lines.length) return undefined;
    return isMap ? Object.fromEntries(found) : found;
  };
  return { key, read, isFaulty: () => { read(); return fault.textContent !== ""; },
    element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, how), fault) };
};

export const values = lined("values");
export const numbers = lined("numbers");
export const nameLists = lined("lists");
export const map = lined("map", true);
export const groups = lined("groups", true);

export function json(key, title, part, context) {
  const input = el("textarea", { rows: 3, cols: 40, placeholder: part.type === "array" ? "[ … ]" : "{ … }" }, context.first === undefined ? "" : JSON.stringify(context.first));
  const fault = el("span", { class: "note block", role: "alert" });
  const read = () => {
    fault.textContent = "";
    if (!input.value.trim()) return undefined;
    try { return JSON.parse(input.value); } catch { fault.textContent = "This is no JSON."; return undefined; }
  };
  return { key, read, isFaulty: () => { read(); return fault.textContent !== ""; },
    element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, "As JSON; empty: not stated."), fault) };
}

function orNothing(found) {
  return Object.keys(found).length ? found : undefined;
}
