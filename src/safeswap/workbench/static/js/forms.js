// A form made from the schema of a specification: any method has one, those of plug-ins too.

import { el, name } from "./dom.js";

// Gives the form's element and a function that reads the values as they stand; what is left at its default is left out.
export function schemaForm(schema, { attributes, skip = [], changed = () => {}, first = {} }) {
  const fields = Object.entries(schema.properties ?? {}).filter(([key]) => !skip.includes(key))
    .map(([key, part]) => stated(key, resolved(part, schema), { schema, attributes, required: (schema.required ?? []).includes(key), first: first[key] }));
  const box = el("div", { class: "schema", on: { input: changed, change: changed } }, fields.map((each) => each.element));
  // What has to be given and is not there yet.
  const missing = () => fields.filter((each) => each.required && each.read() === undefined).map((each) => each.title);
  return { element: box, missing, read: () => Object.fromEntries(fields.map((each) => [each.key, each.read()]).filter(([, value]) => value !== undefined)) };
}

function resolved(part, schema) {
  const kinds = part.anyOf?.filter((each) => each.type !== "null");
  const plain = kinds?.length === 1 ? { ...kinds[0], ...part, anyOf: undefined, optional: true } : part;
  const place = plain.$ref?.replace("#/$defs/", "");
  return place ? { ...schema.$defs[place], ...plain, nested: true } : plain;
}

function stated(key, part, context) {
  const title = sentence(key.replaceAll("_", " "));
  return { ...field(key, title, part, context), title, required: context.required && part.default === undefined };
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

function field(key, title, part, context) {
  if (key === "attribute" && part.type === "string") return attribute(key, title, part, context);
  if (part.enum) return choice(key, title, part, context);
  if (part.type === "boolean") return tick(key, title, part, context);
  if (part.type === "number" || part.type === "integer") return number(key, title, part, context);
  if (part.type === "string") return text(key, title, part, context);
  if (part.type === "array" && part.items?.type === "string") return names(key, title, part, context);
  if (part.type === "array" && part.items?.type === "array") return lists(key, title, part, context);
  return json(key, title, part, context);
}

const note = (part, context) => [part.description ? el("span", { class: "note block" }, name(sentence(part.description))) : null,
  context.required ? el("span", { class: "note block" }, "Has to be given.") : null];

function choice(key, title, part, context) {
  const input = el("select", {}, part.enum.map((value) => el("option", { value, selected: value === (context.first ?? part.default) }, String(value))));
  return { key, element: el("label", {}, title, input, note(part, context)), read: () => (input.value === part.default ? undefined : input.value) };
}

function tick(key, title, part, context) {
  const input = el("input", { type: "checkbox", checked: context.first ?? part.default ?? false });
  return { key, element: el("label", {}, input, " ", title, note(part, context)), read: () => (input.checked === (part.default ?? false) ? undefined : input.checked) };
}

function number(key, title, part, context) {
  const least = part.minimum ?? part.exclusiveMinimum, most = part.maximum ?? part.exclusiveMaximum;
  const input = el("input", { type: "number", step: part.type === "integer" ? 1 : "any", min: least, max: most, value: context.first ?? part.default ?? "", required: context.required });
  return { key, element: el("label", {}, title, input, note(part, context)),
    read: () => (input.value === "" || (Number(input.value) === part.default) ? undefined : Number(input.value)) };
}

function attribute(key, title, part, context) {
  const input = el("select", {}, context.required ? null : el("option", { value: "" }, "none"), context.attributes.map((each) => el("option", { value: each, selected: each === context.first }, each)));
  return { key, element: el("label", {}, title, input, note({ description: part.description }, {})), read: () => input.value || undefined };
}

function text(key, title, part, context) {
  // A single text is the name of an attribute in every specification so far; others may be typed.
  const list = `${key}-names`;
  const input = el("input", { value: context.first ?? part.default ?? "", list, maxlength: 500, required: context.required });
  const known = el("datalist", { id: list }, context.attributes.map((each) => el("option", { value: each })));
  return { key, element: el("label", {}, title, input, known, note(part, context)), read: () => (input.value === "" || input.value === part.default ? undefined : input.value) };
}

function names(key, title, part, context) {
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

function lists(key, title, part, context) {
  const input = el("textarea", { rows: 3, cols: 40, placeholder: "Race, Sex\nRace, Education", required: context.required }, (context.first ?? part.default ?? []).map((row) => row.join(", ")).join("\n"));
  return { key, element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, "One on each line: attributes parted by commas.")),
    read: () => { const rows = input.value.split("\n").map((row) => row.split(",").map((each) => each.trim()).filter(Boolean)).filter((row) => row.length); return rows.length ? rows : undefined; } };
}

function json(key, title, part, context) {
  const input = el("textarea", { rows: 3, cols: 40, placeholder: part.type === "array" ? "[ … ]" : "{ … }" }, context.first === undefined ? "" : JSON.stringify(context.first));
  const fault = el("span", { class: "note block", role: "alert" });
  return { key, element: el("label", {}, title, input, note(part, context), el("span", { class: "note block" }, "As JSON; empty: not stated."), fault),
    read: () => {
      fault.textContent = "";
      if (!input.value.trim()) return undefined;
      try { return JSON.parse(input.value); } catch { fault.textContent = "This is no JSON."; return undefined; }
    } };
}
