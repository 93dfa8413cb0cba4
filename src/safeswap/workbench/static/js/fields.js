// Single-value fields of a form: a number, a choice, a list of names. Each has an element and a function that reads it;
// undefined means not given. Input that cannot be parsed has a fault, which is shown beside it.

import { el, fill, name } from "./dom.js";

export const sentence = (text) => text[0].toUpperCase() + text.slice(1);

// Replace the names of other fields in a description by their titles.
const describe = (text) => sentence(text).replace(/`(\w+)`/g, (_, key) => `“${sentence(key.replaceAll("_", " "))}”`);

export const note = (part, context) => [part.description ? el("span", { class: "note block" }, name(describe(part.description))) : null,
  context.required ? el("span", { class: "note block" }, "Required.") : null];

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

// Show what is wrong with an input beside the field, until it is corrected.
let faults = 0;
function faultOf(inputs, wrong) {
  const told = el("span", { class: "fault block", role: "alert", id: `fault-${++faults}` });
  const look = () => {
    told.textContent = wrong();
    for (const input of inputs) {
      if (told.textContent) { input.setAttribute("aria-invalid", "true"); input.setAttribute("aria-describedby", told.id); } else input.removeAttribute("aria-invalid");
    }
    return told.textContent !== "";
  };
  for (const input of inputs) input.addEventListener("input", () => { if (told.textContent) look(); });
  return { told, isFaulty: look };
}

// Browsers report an unreadable number as an empty value.
const unread = (inputs) => (inputs.some((input) => input.validity.badInput) ? "Not a number." : "");

export function number(key, title, part, context) {
  const input = numberInput(part, { value: context.first ?? part.default ?? "", required: context.required });
  const { told, isFaulty } = faultOf([input], () => unread([input]));
  return { key, isFaulty, element: el("label", {}, title, input, note(part, context), told),
    read: () => (input.value === "" || (Number(input.value) === part.default) ? undefined : Number(input.value)) };
}

// One number for each of some attributes.
export function numberOfEach(key, title, part, context) {
  const inputs = context.attributes.map((each) => [each, numberInput(part.additionalProperties, { value: context.first?.[each] ?? "" })]);
  const only = inputs.map(([, input]) => input), { told, isFaulty } = faultOf(only, () => unread(only));
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context),
    el("div", { class: "ticks" }, inputs.map(([each, input]) => el("label", {}, name(each), " ", input))), told);
  return { key, isFaulty, element, read: () => orNothing(Object.fromEntries(inputs.filter(([, input]) => input.value !== "").map(([each, input]) => [each, Number(input.value)]))) };
}

// Attributes of the kinds that a field takes; one that it has already is always among them.
function offered(part, { attributes, kindOf, first }) {
  const chosen = [first ?? part.default ?? []].flat(), of = (kinds) => attributes.filter((each) => !kinds || !kindOf || kinds.includes(kindOf(each)) || chosen.includes(each));
  // Areas are often described as plain categories.
  return part.kinds?.join() === "geography" && !attributes.some((each) => kindOf?.(each) === "geography") ? of(["nominal", "ordinal"]) : of(part.kinds);
}

const KINDS = { numeric: "numeric", nominal: "categorical", geography: "geographic", date: "date", weight: "weight", household: "household" };
const none = (part) => el("span", { class: "note block" }, `The data have no ${part.kinds ? `${[...new Set(part.kinds.map((kind) => KINDS[kind]).filter(Boolean))].join(" or ")} ` : ""}attribute for this; kinds are set on the Data page.`);

export function attribute(key, title, part, context) {
  const list = offered(part, context);
  const input = el("select", { name: key }, context.required ? null : el("option", { value: "" }, "none"), list.map((each) => el("option", { value: each, selected: each === context.first }, each)));
  return { key, element: el("label", {}, title, input, note({ description: part.description }, {}), list.length ? null : none(part)), read: () => input.value || undefined };
}

let lists = 0;
export function text(key, title, part, context) {
  // A single text is an attribute name, unless its schema says that it is a value or a date; other texts may be typed.
  const list = ["value", "date"].includes(part.format) ? undefined : `names-${++lists}`;
  const input = el("input", { type: part.format === "date" ? "date" : "text", value: context.first ?? part.default ?? "", list, maxlength: part.maxLength ?? 500, required: context.required });
  const known = list && el("datalist", { id: list }, context.attributes.map((each) => el("option", { value: each })));
  return { key, element: el("label", {}, title, input, known, note(part, context)), read: () => (input.value === "" || input.value === part.default ? undefined : input.value) };
}

export function names(key, title, part, context) {
  const list = offered(part, context), first = new Set(context.first ?? part.default ?? []);
  if (!list.length) return { key, element: el("fieldset", {}, el("legend", {}, title), note(part, context), none(part)), read: () => undefined };
  const boxes = list.map((each) => el("input", { type: "checkbox", value: each, checked: first.has(each) }));
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context), el("div", { class: "ticks" }, boxes.map((box) => el("label", {}, box, " ", name(box.value)))));
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);
  // What was there stays in its order; what is ticked now follows.
  return { key, element, read: () => { const now = chosen(), kept = [...first].filter((each) => now.includes(each)); return now.length ? [...kept, ...now.filter((each) => !first.has(each))] : undefined; } };
}

// An ordered list: geography from coarse to fine, keys in the order of sorting.
export function orderedNames(key, title, part, context) {
  const list = offered(part, context), chosen = [...(context.first ?? part.default ?? [])];
  const rows = el("ol", { class: "ordered" }), picker = el("select", { "aria-label": `Add to ${title.toLowerCase()}` });
  const changed = (focus) => { draw(); element.querySelector(`[data-do="${CSS.escape(focus)}"]:not(:disabled)`)?.focus(); element.dispatchEvent(new Event("change", { bubbles: true })); };
  const move = (i, to) => () => { const [each] = chosen.splice(i, 1); chosen.splice(to, 0, each); changed(`${to < i ? "up" : "down"} ${each}`); };
  const act = (word, text, each, go, disabled) => el("button", { type: "button", class: "small", disabled, data: { do: `${word} ${each}` }, "aria-label": `${word === "remove" ? "Remove" : `Move ${word}`} ${each}`, on: { click: go } }, text);
  const draw = () => {
    fill(rows, chosen.map((each, i) => el("li", {}, name(each), " ", act("up", "↑", each, move(i, i - 1), i === 0), act("down", "↓", each, move(i, i + 1), i === chosen.length - 1),
      act("remove", "×", each, () => { chosen.splice(i, 1); changed(""); picker.focus(); }, false))));
    fill(picker, el("option", { value: "" }, chosen.length ? "add another…" : "choose…"), list.filter((each) => !chosen.includes(each)).map((each) => el("option", { value: each }, each)));
    picker.hidden = chosen.length === list.length;
  };
  picker.addEventListener("change", (event) => { event.stopPropagation(); if (picker.value) { chosen.push(picker.value); changed(""); picker.focus(); } });
  const every = el("button", { type: "button", class: "small", on: { click: () => { chosen.splice(0, chosen.length, ...list); changed(""); } } }, "All, in this order");
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context), rows, list.length ? el("p", { class: "adding" }, picker, every) : none(part));
  draw();
  return { key, element, read: () => (chosen.length ? [...chosen] : undefined) };
}

// Levels of the attribute in another field: picked where they are shown, typed where there are none, as of numbers.
export const levels = (isOne) => (key, title, part, context) => {
  const box = el("div", {});
  let inner = null;
  const draw = (first) => {
    const known = context.levelsOf?.(context.read(part.levels_of)) ?? [], own = [first ?? []].flat();
    if (!known.length) inner = (isOne ? text : values)(key, title, { ...part, format: "value" }, { ...context, first });
    else if (isOne) inner = choice(key, title, { ...part, enum: ["", ...new Set([...known, ...own])], default: "" }, { ...context, first: first ?? "" });
    else inner = names(key, title, { ...part, kinds: undefined }, { ...context, attributes: [...new Set([...known, ...own])], first });
    fill(box, inner.element);
  };
  draw(context.first);
  context.whenChanged?.(part.levels_of, () => draw());
  return { key, element: box, read: () => inner.read(), isFaulty: () => inner.isFaulty?.() ?? false };
};

// --- Fields with one entry per line. A value that contains a separator, or begins or ends with a space, is written in
// double quotes. `parse` returns undefined for a line that it cannot parse.

// Split a line at the separators that are outside double quotes.
function pieces(line, sign) {
  const found = [""];
  let inside = false, escaped = false;
  for (const each of line) {
    const last = found.length - 1;
    if (each === sign && !inside) { found.push(""); continue; }
    if (each === '"' && !escaped && (inside || !found[last].trim())) inside = !inside;
    escaped = inside && each === "\\" && !escaped;
    found[last] += each;
  }
  return found;
}

function plain(piece) {
  const text = piece.trim();
  if (!text.startsWith('"')) return text || undefined;
  try { return JSON.parse(text); } catch { return undefined; }
}

const written = (text, signs = "") => (text === "" || text !== text.trim() || [...signs, '"', "\n"].some((sign) => text.includes(sign)) ? JSON.stringify(text) : text);

const all = (found) => (found.length && !found.includes(undefined) ? found : undefined);
const listOf = (piece) => all(pieces(piece, ",").filter((each) => each.trim()).map(plain));
const numbersOf = (line) => all(line.split(/[,;]/).filter((each) => each.trim()).map((each) => (Number.isFinite(Number(each)) ? Number(each) : undefined)));
const two = (line, of) => { const parts = pieces(line, "="); return parts.length === 2 ? all([plain(parts[0]), of(parts[1])]) : undefined; };

const QUOTES = "Put a value in double quotes if it contains a separator, or begins or ends with a space.";
const WAYS = {
  values: { how: `Separated by commas, or one per line. ${QUOTES}`, isFlat: true, parse: listOf, write: (value) => written(value, ","), wrong: "cannot be read" },
  numbers: { how: "Separated by commas, or one per line.", example: "15, 30, 45", isFlat: true, parse: numbersOf, write: String, wrong: "has something that is not a number" },
  map: { how: `One per line: VALUE = NEW VALUE. ${QUOTES}`, example: "01 = North\n02 = North", parse: (line) => two(line, plain),
    write: ([from, to]) => `${written(from, "=")} = ${written(to, "=")}`, wrong: "is not of the form VALUE = NEW VALUE" },
  groups: { how: `One per line: NEW VALUE = VALUE, VALUE, … ${QUOTES}`, example: "alone = Single, Widowed",
    parse: (line) => two(line, listOf), write: ([made, from]) => `${written(made, "=")} = ${from.map((each) => written(each, "=,")).join(", ")}`, wrong: "is not of the form NEW VALUE = VALUE, VALUE" },
};

const lined = (kind, isMap) => (key, title, part, context) => {
  const { how, example, isFlat = false, parse, write, wrong } = WAYS[kind], first = context.first ?? part.default ?? [];
  const input = el("textarea", { rows: isFlat ? 2 : 3, cols: 40, placeholder: example, required: context.required }, (isMap ? Object.entries(first) : first).map(write).join(isFlat ? ", " : "\n"));
  const lines = () => input.value.split("\n").map((line, i) => [i + 1, line]).filter(([, line]) => line.trim()).map(([i, line]) => [i, parse(line)]);
  const { told, isFaulty } = faultOf([input], () => {
    const found = lines(), bad = found.find(([, value]) => value === undefined);
    if (bad) return `Line ${bad[0]} ${wrong}.`;
    const again = kind === "map" && found.find(([, [from]], i) => found.findIndex(([, [other]]) => other === from) < i);
    return again ? `Line ${again[0]} repeats a value of an earlier line.` : "";
  });
  const read = () => {
    const found = lines().map(([, value]) => value);
    if (!found.length || isFaulty()) return undefined;
    if (isFlat) return found.flat();
    const made = new Map();
    for (const [from, to] of found) made.set(from, kind === "groups" ? [...(made.get(from) ?? []), ...to] : to);
    return Object.fromEntries(made);
  };
  return { key, read, isFaulty, element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, how), told) };
};

export const values = lined("values");
export const numbers = lined("numbers");
export const map = lined("map", true);
export const groups = lined("groups", true);

export function json(key, title, part, context) {
  const input = el("textarea", { rows: 3, cols: 40, placeholder: part.type === "array" ? "[ … ]" : "{ … }" }, context.first === undefined ? "" : JSON.stringify(context.first));
  const parsed = () => { try { return [JSON.parse(input.value)]; } catch { return []; } };
  const { told, isFaulty } = faultOf([input], () => (input.value.trim() && !parsed().length ? "Not valid JSON." : ""));
  return { key, isFaulty, read: () => (input.value.trim() && !isFaulty() ? parsed()[0] : undefined),
    element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, "As JSON; leave empty for none."), told) };
}

function orNothing(found) {
  return Object.keys(found).length ? found : undefined;
}
