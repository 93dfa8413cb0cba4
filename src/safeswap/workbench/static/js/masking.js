// Run a masking from any screen; describe a specification in a few words.

import { call, get, guarded, post } from "./api.js";
import { el, fill, name, say, share } from "./dom.js";
import { follow } from "./jobs.js";
import { at, projectId } from "./page.js";

// `study` is the one that the specification was chosen from, if any.
export async function maskWith(spec, replicate, box, study = null) {
  const job = await post(at("/maskings"), { spec, replicate, ...(study ? { study } : {}) }, { once: true });
  return followMasking(job, box);
}

// Follow a masking to its end, then link to its result.
export async function followMasking(job, box) {
  const ended = await follow(job, box, "Masking");
  if (ended.state !== "succeeded") return null;
  const found = await get(at(`/maskings/${ended.result.id}`));
  fill(box, el("p", { class: "good", role: "status" }, "Masked: ", name(specText(found.spec.spec)), ". ", name(told(found.summary)), ". ", ...links(found.id), " · ",
    undoButton(found.id, () => fill(box, el("p", { class: "good", role: "status" }, "The masking was undone.")))));
  box.scrollIntoView({ block: "nearest" });
  return found;
}

// What was done; maskings of earlier versions tell their plan only.
const told = (summary) => { const text = summary.done || summary.plan; return text[0].toUpperCase() + text.slice(1); };

export function links(id) {
  const to = (href, text) => el("a", { href: `/projects/${projectId}/${href}` }, text);
  return [to(`results/${id}`, "The result"), " · ", to(`records?masking=${id}`, "Its records"), " · ", to(`release?masking=${id}`, "Release it")];
}

// The original never changes: to undo a masking is to erase what was found of it.
export function undoButton(id, after) {
  return el("button", { type: "button", class: "small", title: "Erase this masking; the steps of the pipeline stay", on: { click: guarded(async () => {
    await call("DELETE", at(`/maskings/${id}`));
    say("The masking was undone.");
    document.dispatchEvent(new Event("safeswap-masked"));
    after?.();
  }) } }, "Undo this masking");
}

export function specText(spec) {
  if (spec.method === "pipeline") return spec.steps.filter((step) => !step.off).map(stepText).join(" → ");
  const { method, ...rest } = spec;
  const parts = Object.entries(rest).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length))
    .map(([key, value]) => (key === method ? plain(value) : `${key.replaceAll("_", " ")} ${plain(value)}`));
  return `${method.replaceAll("_", " ")}: ${parts.join(", ")}`;
}

// A step of a pipeline in a few words.
function stepText({ method, steps, swap, attributes, geography, keys, scenario, rate }) {
  const title = method.replaceAll("_", " ");
  if (method === "recode") return `${title} ${[...new Set(steps.flatMap((step) => step.attributes ?? [step.attribute]))].join(" + ")}`;
  if (scenario && method === "suppress") return `${title} (${scenario})`;
  const what = swap ?? attributes ?? geography ?? keys ?? [];
  return `${title} ${what.join(" + ")}${rate === undefined ? "" : ` ${share(rate)}`}`.trim();
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(" + ");
  return value !== null && typeof value === "object" ? Object.entries(value).map(([key, each]) => `${key.replaceAll("_", " ")} ${plain(each)}`).join(" ") : String(value);
}
