// The policy of the agency: the largest advantage of each attack that a release may have. Officers may change it.

import { call, guarded } from "./api.js";
import { el, fill, name, say, when } from "./dom.js";

const SOURCES = { stored: "Set in this service", configured: "From the configuration of the service", default: "The default: only attacks whose success is a fault of the release" };

// The policy with its version; null from a service without one.
export async function loadPolicy() {
  try {
    const found = await call("GET", "/release-policy");
    return { ...found.value, etag: found.etag };
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

export function drawPolicy(box, policy, mayGovern) {
  if (!policy) { fill(box); return; }
  const limits = Object.entries(policy.limits), percent = (value) => `${(100 * value).toFixed(1)}%`;
  const text = el("textarea", { rows: 10, class: "mono", spellcheck: "false", maxlength: 65536, "aria-label": "Policy, as TOML" }, policy.text);
  const keep = guarded(async (event) => {
    event.preventDefault();
    const found = await call("PUT", "/release-policy", { body: { text: text.value }, etag: policy.etag });
    say("The policy is kept.");
    drawPolicy(box, { ...found.value, etag: found.etag }, mayGovern);
  });
  fill(box, el("section", { class: "card", "aria-labelledby": "policy-title" }, el("h2", { id: "policy-title" }, "Policy: ", name(policy.name)),
    el("p", { class: "note" }, SOURCES[policy.source] ?? policy.source, policy.set_by ? [", by ", name(policy.set_by), policy.set_at ? ` on ${when(policy.set_at)}` : ""] : null, ". An attack is above its limit if its whole interval is."),
    el("table", { class: "fit", "aria-label": "Limits of the policy" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Attack"), el("th", { scope: "col", class: "n" }, "Largest advantage"))),
      el("tbody", {}, limits.map(([attack, limit]) => el("tr", {}, el("th", { scope: "row" }, attack.replaceAll("_", " ")), el("td", { class: "n" }, percent(limit)))))),
    mayGovern ? el("details", {}, el("summary", {}, "Change the policy"), el("form", { novalidate: true, on: { submit: keep } }, text, el("p", { class: "actions" }, el("button", { type: "submit" }, "Keep this policy")))) : null));
}
