// A form generated from the schema of a specification, for any method including plug-ins.

import { el } from "./dom.js";
import { attribute, choice, groups, json, levels, map, names, note, number, numberOfEach, numbers, orderedNames, sentence, text, tick, values } from "./fields.js";

// Returns the form's element and a function that reads its values; defaults are omitted. `kindOf` and `levelsOf` tell
// the kind and the levels of an attribute, so that a field offers only what it takes.
export function schemaForm(schema, { attributes, kindOf, levelsOf, skip = [], changed = () => {}, first = {} }) {
  const fields = [], read = (key) => fields.find((each) => each.key === key)?.read();
  const whenChanged = (key, act) => fields.find((each) => each.key === key)?.element.addEventListener("change", act);
  for (const [key, part] of Object.entries(schema.properties ?? {}).filter(([each]) => !skip.includes(each))) {
    fields.push(stated(key, resolved(part, schema), { schema, attributes, kindOf, levelsOf, read, whenChanged, required: (schema.required ?? []).includes(key), first: first[key] }));
  }
  const box = el("div", { class: "schema", on: { input: changed, change: changed } }, fields.map((each) => each.element));
  // Required values that are missing, and input that cannot be parsed.
  const lacking = (each) => (each.required && each.read() === undefined && !each.isFaulty?.() ? [each.title] : each.missing?.() ?? (each.isFaulty?.() ? [each.title] : []));
  return { element: box, missing: () => [...new Set(fields.flatMap(lacking))], isFaulty: () => fields.some((each) => each.isFaulty?.()),
    read: () => Object.fromEntries(fields.map((each) => [each.key, each.read()]).filter(([, value]) => value !== undefined)) };
}

function resolved(part, schema) {
  const kinds = part.anyOf?.filter((each) => each.type !== "null");
  const plain = kinds?.length === 1 ? { ...kinds[0], ...part, anyOf: undefined, optional: true } : part;
  const place = plain.$ref?.replace("#/$defs/", "");
  return place ? { ...schema.$defs[place], ...plain } : plain;
}

function stated(key, part, context) {
  const title = sentence(key.replaceAll("_", " "));
  return { ...field(key, title, part, context), title, required: context.required && part.default === undefined };
}

function field(key, title, part, context) {
  return maker(key, part, context.schema)(key, title, part, context);
}

function maker(key, part, schema) {
  if (part.const !== undefined) return fixed;
  if (part.levels_of) return levels(part.type === "string");
  if (part.type === "string" && (key === "attribute" || part.kinds)) return attribute;
  if (part.enum) return choice;
  if (part.type === "boolean") return tick;
  if (part.type === "number" || part.type === "integer") return number;
  if (part.type === "string") return text;
  if (part.type === "object") return part.properties ? nested : ofEach(part.additionalProperties ?? {});
  return part.type === "array" ? ofSeveral(resolved(part.items ?? {}, schema), part) : json;
}

function ofEach({ type, items }) {
  if (type === "number" || type === "integer") return numberOfEach;
  if (type === "string") return map;
  return type === "array" && items?.type === "string" ? groups : json;
}

function ofSeveral(item, part) {
  if (item.type === "string") return item.format === "value" ? values : part.ordered ? orderedNames : names;
  if (item.type === "number" || item.type === "integer") return numbers;
  const isList = item.type === "array" && item.items?.type === "string";
  return isList || item.discriminator || item.type === "object" ? several : json;
}

const fixed = (key, title, part) => ({ key, element: null, read: () => part.const });

// --- Fields with fields of their own.

// A nested specification; an optional one applies once it is ticked.
function nested(key, title, part, context) {
  const form = within(part, context, context.first ?? undefined), may = part.optional && !context.required;
  const wanted = el("input", { type: "checkbox", checked: Boolean(context.first) }), isWanted = () => !may || wanted.checked;
  const inner = el("div", { hidden: !isWanted() }, form.element);
  wanted.addEventListener("change", () => { inner.hidden = !isWanted(); });
  return { key, read: () => (isWanted() ? form.read() : undefined), missing: () => (isWanted() ? form.missing().map((each) => `${title}: ${each}`) : []),
    isFaulty: () => isWanted() && form.isFaulty(),
    element: el("fieldset", {}, el("legend", {}, may ? el("label", {}, wanted, " ", title) : title), note(part, context), inner) };
}

const within = (part, { schema, attributes, kindOf, levelsOf }, first) => schemaForm({ ...part, $defs: schema.$defs }, { attributes, kindOf, levelsOf, first });

// Any number of nested specifications; if there are several kinds, the kind is chosen first.
function several(key, title, part, context) {
  const rows = new Map(), list = el("ol", { class: "several" }), item = { kinds: part.kinds, ...resolved(part.items, context.schema) }, told = item.discriminator?.propertyName;
  const kind = el("select", { "aria-label": `${title}: kind` }, Object.keys(item.discriminator?.mapping ?? {}).map((value) => el("option", { value }, value.replaceAll("_", " "))));
  const formOf = (first) => {
    if (told) return within(resolved({ $ref: item.discriminator.mapping[first?.[told] ?? kind.value] }, context.schema), context, first);
    return item.properties ? within(item, context, first) : field(key, title, item, { ...context, required: false, first: first ?? [] });
  };
  const add = (first) => {
    const form = formOf(first), row = el("li", {}, told ? el("b", {}, sentence(form.read()[told].replaceAll("_", " "))) : null, form.element,
      el("button", { type: "button", class: "small", on: { click: () => { rows.delete(row); row.remove(); changed(); more.focus(); } } }, "Remove"));
    rows.set(row, form);
    list.append(row);
  };
  const more = el("button", { type: "button", class: "small", "aria-label": `Add to ${title.toLowerCase()}`, on: { click: () => { add(); changed(); } } }, "Add");
  const element = el("fieldset", {}, el("legend", {}, title), note(part, context), list, el("p", { class: "actions" }, told ? kind : null, more));
  const number = () => [...rows.keys()].forEach((row, i) => row.lastElementChild.setAttribute("aria-label", `Remove ${title.toLowerCase()} ${i + 1}`));
  const changed = () => { number(); element.dispatchEvent(new Event("change", { bubbles: true })); };
  for (const each of context.first ?? part.default ?? []) add(each);
  number();
  const forms = () => [...rows.values()];
  // An empty part would be omitted, and those after it renumbered.
  const lacking = (form) => form.missing?.() ?? (form.isFaulty() || form.read() === undefined ? [""] : []);
  return { key, element, isFaulty: () => forms().some((form) => form.isFaulty()),
    missing: () => forms().flatMap((form, i) => lacking(form).map((each) => `${title} ${i + 1}${each && `: ${each}`}`)),
    read: () => (rows.size ? forms().map((form) => form.read()).filter((value) => value !== undefined) : undefined) };
}
