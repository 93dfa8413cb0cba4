// Shared by all pages: user, project, colour theme and the Python script.

import { ask, call, get, guarded, isCancelled, logOut, session, showProblem } from "./api.js";
import { byId, el, say } from "./dom.js";
import { drawStrip, loadSettings } from "./scenario.js";

export const projectId = document.documentElement.dataset.project ?? "";
export const resultId = document.documentElement.dataset.result ?? "";
export const at = (path) => `/projects/${projectId}${path}`;
// The address of a document that the service itself renders, such as a report.
export const resultAt = (path) => `/api/v1${at(path)}`;

// `first` makes the requests that do not depend on the user, so that all requests run at once.
export async function begin(show, first = () => null) {
  theme();
  try {
    // Whoever may not read the project sees no scenario.
    const [who, project, answers, settings] = await Promise.all([session(), projectId ? get(at("")) : null, first(), projectId ? loadSettings().catch(() => null) : null]);
    byId("who").textContent = who.single_user ? "" : `${who.display_name || who.name} (${who.role})`;
    byId("log-out").hidden = who.single_user;
    byId("log-out").addEventListener("click", guarded(async () => { await logOut(); location.assign("/log-in"); }));
    if (project) {
      byId("project-name").textContent = project.name;
      document.title = `${document.title.split(" · ")[0]} · ${project.name} · safeswap`;
      markSteps(project);
      if (settings && project.data_version) drawStrip(who.permissions.includes("work"));
    }
    await show({ who, project, answers, may: (permission) => who.permissions.includes(permission) });
    document.documentElement.dataset.ready = "true";
    if (settings && project.data_version) markDone(project, settings);
  } catch (error) {
    if (isCancelled(error)) error.hint = "Reload the page to see it.";
    showProblem(error);
    document.documentElement.dataset.ready = "error";
  }
}

// What to do first in a project without a file.
export const noFile = () => el("p", { class: "empty" }, "This project has no file yet. ", el("a", { href: `/projects/${projectId}/data` }, "Upload one"), " first.");

// Results of the project's present data; those made from data that were replaced can be looked at, not used.
export const isCurrent = (result, project) => result.data_version === project.data_version;
export const current = (results, project) => results.filter((each) => isCurrent(each, project));

// The mark of a result in a list that was made from data that were replaced.
export const ageOf = (result, project) => (isCurrent(result, project) ? null : el("span", { class: "note" }, " (earlier data)"));

// Mark the steps that need data.
function markSteps(project) {
  for (const link of document.querySelectorAll("[data-step]")) {
    const waits = link.dataset.step !== "data" && project.data_version === 0;
    link.classList.toggle("waits", waits);
    if (waits) link.setAttribute("title", "Upload a file first");
  }
  const bar = document.querySelector(".steps"), now = bar?.querySelector("[aria-current]");
  if (now) bar.scrollLeft = now.offsetLeft - bar.offsetLeft - (bar.clientWidth - now.offsetWidth) / 2;  // on a phone the bar scrolls
}

// Tick the steps in which something was made of the present data, and the last once a release of them was approved. Asked for when the page is there: nobody waits for it.
async function markDone(project, settings) {
  // Who leaves the page before the answer is there needs none.
  const newest = (path) => call("GET", at(path)).then(({ value }) => value.items, () => []);
  const isMade = async (path) => current(await newest(`${path}?limit=1`), project).length > 0;
  // The newest approved one tells: a release is of the data that were present when it was asked for.
  const isReleased = async () => {
    const [approved] = await newest("/releases?state=approved&limit=1");
    return approved !== undefined && (await call("GET", at(`/maskings/${approved.masking}`)).then(({ value }) => current([value], project).length > 0, () => false));
  };
  const made = { data: true, risk: Boolean(settings.scenario), method: isMade("/maskings"), map: isMade("/studies"), records: isMade("/confidentiality"), release: isReleased() };
  for (const [step, isDone] of Object.entries(made)) {
    const link = document.querySelector(`[data-step="${step}"]`);
    if (await isDone) {
      link.classList.add("done");
      link.querySelector(".number").textContent = "✓";
      link.append(el("span", { class: "unseen" }, " (done)"));
    }
  }
  document.documentElement.dataset.marked = "";
}

export function theme() {
  const button = byId("theme-switch");
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    document.cookie = `safeswap-theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
    show();
    document.dispatchEvent(new Event("safeswap-theme"));
  });
  show();
}

// `asked` returns what the screen currently shows; the script is made when the panel is open, and on every change.
export function python(asked) {
  const box = byId("python");
  const refresh = guarded(async () => {
    if (!box.open) return;
    byId("python-text").textContent = (await ask(at("/script"), asked())).script;
  });
  box.addEventListener("toggle", refresh);
  byId("python-copy").addEventListener("click", guarded(async () => {
    await navigator.clipboard.writeText(byId("python-text").textContent);
    say("Copied.");
  }));
  return refresh;
}
