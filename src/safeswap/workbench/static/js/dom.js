// DOM helpers. Text is always inserted as text: nothing here parses HTML.

import { counted, grouped } from "./numbers.js";

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "class") made.className = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name in made && typeof made[name] === "boolean") made[name] = Boolean(value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A text as a sentence: with a capital and a full stop.
export const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// Isolate a name of unknown script: right-to-left text must not reorder the line around it.
export const name = (text) => el("bdi", {}, text);

export function say(text) {
  byId("live").textContent = text;
}

export const count = (value) => (value === null || value === undefined ? "–" : counted(Number(value)));

// A count with its noun: "1 record", "2 records".
export const several = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e12 || size < 1e-4) return value.toExponential(2);
  return grouped(Number(value.toPrecision(4)));
}

export const share = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(value < 0.1 ? 2 : 1) + "%");

// Local time in the same format everywhere; formatted by hand, as numbers are.
export function when(text) {
  if (!text) return "–";
  const moment = new Date(text), two = (part) => String(part).padStart(2, "0");
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${two(moment.getHours())}:${two(moment.getMinutes())}`;
}
