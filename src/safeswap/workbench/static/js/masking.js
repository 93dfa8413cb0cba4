// Run a masking from any screen; describe a specification in a few words.

import { get, post } from "./api.js";
import { el, fill, name } from "./dom.js";
import { follow } from "./jobs.js";
import { at, projectId } from "./page.js";

export async function maskWith(spec, replicate, box) {
  const job = await post(at("/maskings"), { spec, replicate }, { once: true });
  return followMasking(job, box);
}

// Follow a masking to its end, then link to its result.
export async function followMasking(job, box) {
  const ended = await follow(job, box, "Masking");
  if (ended.state !== "succeeded") return null;
  const found = await get(at(`/maskings/${ended.result.id}`));
  fill(box, el("p", { class: "good", role: "status" }, "Masked: ", name(specText(found.spec.spec)), ". ", name(found.summary.plan), ". ", ...links(found.id)));
  return found;
}

export function links(id) {
  const to = (href, text) => el("a", { href: `/projects/${projectId}/${href}` }, text);
  return [to(`results/${id}`, "The result"), " · ", to(`records?masking=${id}`, "Its records"), " · ", to(`release?masking=${id}`, "Release it")];
}

export function specText(spec) {
  const { method, ...rest } = spec;
  const parts = Object.entries(rest).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length))
    .map(([key, value]) => (key === method ? plain(value) : `${key.replaceAll("_", " ")} ${plain(value)}`));
  return `${method}: ${parts.join(", ")}`;
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(" + ");
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}
