// Jobs: show their progress, find them again after a reload, cancel them on request.

import { call, get, guarded } from "./api.js";
import { el, fill, name, say, sentence } from "./dom.js";
import { at } from "./page.js";

const WORDS = { queued: "Waiting for a worker", running: "Running", succeeded: "Done", failed: "Failed", cancelled: "Cancelled" };

let last = null;
document.addEventListener("focusin", (event) => { last = event.target; });

// Follow a job to its end, showing it in `box`; returns the finished job.
export async function follow(job, box, title) {
  // A button that is disabled while its job runs loses the focus: the keyboard goes on from what it led to. It may be
  // enabled again by now.
  const isLost = last && (document.activeElement === document.body || (document.activeElement === last && last.disabled));
  const bar = el("progress", { max: 1, "aria-label": title });
  const line = el("span", { class: "job-line" });
  const cancel = el("button", { type: "button", on: { click: guarded(async () => {
    cancel.disabled = true;
    await call("DELETE", `/jobs/${job.id}`);
  }) } }, "Cancel");
  fill(box, el("div", { class: "job card", "aria-busy": "true" }, el("strong", {}, title), bar, line, cancel));
  let pause = 150, said = 0, away = false;
  const remaining = timed();
  while (job.state === "queued" || job.state === "running") {
    if (!away) show(job, bar, line, remaining(job));
    if (job.state === "running" && Date.now() - said > 5000) { say(`${title}: ${Math.round(100 * job.progress)}%`); said = Date.now(); }
    await new Promise((resolve) => { setTimeout(resolve, pause); });
    pause = Math.min(1.3 * pause, 1500);
    try { job = (await call("GET", `/jobs/${job.id}`)).value; away = false; } catch (error) {
      if (error.status !== 0 && error.status !== 503) throw error;
      away = true;
      line.textContent = "The service does not answer; retrying.";
      pause = 1500;
    }
  }
  say(`${title}: ${WORDS[job.state]}`);
  if ((isLost || last === cancel) && [last, document.body].includes(document.activeElement)) { box.tabIndex = -1; box.focus({ preventScroll: true }); }
  if (job.state === "succeeded") fill(box);
  else fill(box, el("div", { class: "job card failed", role: "alert" }, el("strong", {}, `${title}: ${WORDS[job.state].toLowerCase()}.`),
    job.error ? told(job.error) : null));
  return job;
}

// What went wrong, each finding of several on a line of its own; then what to do.
function told({ detail, hint, fields }) {
  const found = (fields?.findings ?? []).map((each) => each.message).filter(Boolean);
  return [found.length > 1 ? el("ul", {}, found.map((text) => el("li", {}, name(sentence(text))))) : el("p", {}, name(sentence(detail))), hint ? el("p", { class: "note" }, name(sentence(hint))) : null];
}

// The time that is left, from how fast the job went so far; empty while that is not known.
function timed() {
  let from = null;
  return (job) => {
    if (job.state !== "running") { from = null; return ""; }
    from ??= { at: Date.now(), progress: job.progress };
    const passed = (Date.now() - from.at) / 1000, done = job.progress - from.progress;
    if (passed < 2 || done < 0.02) return "";
    const left = (passed * (1 - job.progress)) / done;
    return left < 90 ? `about ${Math.max(1, Math.round(left))} s left` : `about ${Math.round(left / 60)} min left`;
  };
}

function show(job, bar, line, left) {
  if (job.state === "queued") bar.removeAttribute("value"); else bar.value = job.progress;
  const again = job.attempts > 1 ? ` (attempt ${job.attempts})` : "";
  fill(line, job.state === "queued" ? WORDS.queued : `${Math.round(100 * job.progress)}%`, again, left ? ` · ${left}` : "", job.message ? [" · ", name(job.message)] : null);
}

// Return an unfinished job of this kind, or null: after a reload the page follows it again.
export async function underWay(kind) {
  const found = await get(at(`/jobs?kind=${kind}&state=running&state=queued&limit=1`));
  return found.items[0] ?? null;
}
