// Client of the service's public API. Every error response becomes a Refused with a readable message.

import { byId, el, fill, name, sentence } from "./dom.js";

const BASE = "/api/v1";
let csrf = "";

// The name of a parameter as forms write it: "steps.0.breaks" is "Steps 1, breaks".
function titled(parameter) {
  const text = parameter.replace(/\.(\d+)/g, (_, place) => ` ${Number(place) + 1}`).replaceAll(".", ", ").replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}

// A hint that names addresses or headers of the service is for programs.
const OF_PROGRAMS = /\b(GET|POST|PUT|PATCH|DELETE) (\/|it\b)|X-CSRF-Token/;

// A parameter with its value, as programs write it, in the words of a form: match_size="any" is “Match size”: any.
const inWords = (hint) => hint.replace(/\b([a-z_]+)=(["'])(.*?)\2/g, (_, parameter, __, value) => `“${titled(parameter)}”: ${value}`);

export class Refused extends Error {
  constructor(problem, status) {
    super(problem.detail || "Unexpected response from the service.");
    this.status = status;
    this.code = problem.code || "";
    this.hint = OF_PROGRAMS.test(problem.hint) ? "" : inWords(problem.hint || "");
    this.fields = problem.fields || {};
    // Of a form, its own words: "Rate must be above 0."
    const wrong = this.fields.problems?.filter((each) => each.parameter);
    if (wrong?.length) {
      this.message = wrong.map(({ parameter, problem: text }) => `${titled(parameter)}${/^(must|is|are) /.test(text) ? " " : ": "}${text}`).join("; ") + ".";
      this.hint = "";
    }
  }

  // What is wrong and what to do, as sentences.
  get text() {
    return [this.message, this.hint].filter(Boolean).map(sentence).join(" ");
  }
}

// Whatever takes more than 0.3 s shows that it runs.
const SOON = 300;
let pending = 0, timer = 0;
async function shown(work) {
  if (++pending === 1) timer = setTimeout(() => { document.documentElement.dataset.busy = ""; }, SOON);
  try { return await work(); } finally {
    if (--pending === 0) { clearTimeout(timer); delete document.documentElement.dataset.busy; }
  }
}

export const call = (method, path, options = {}) => shown(() => send(method, path, options));

async function send(method, path, { body, etag, stream, once = false, signal }) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = csrf;
  if (etag) headers["If-Match"] = etag;
  if (once) headers["Idempotency-Key"] = crypto.randomUUID();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer, value;
  try {
    answer = await fetch(BASE + path, {
      method, headers, credentials: "same-origin", signal, body: stream ?? (body === undefined ? undefined : JSON.stringify(body)),
    });
    const type = answer.headers.get("content-type") || "";
    value = answer.status === 204 ? null : type.includes("json") ? await answer.json() : await answer.text();
  } catch {
    if (signal?.aborted) throw new Refused({ detail: "Cancelled.", hint: "Nothing was changed.", code: CANCELLED }, 0);
    throw new Refused({ detail: "The service does not answer.", hint: "It may be restarting: try again in a moment.", code: "no-answer" }, 0);
  }
  if (answer.status === 401 && document.documentElement.dataset.screen !== "log-in") {
    location.assign("/log-in?next=" + encodeURIComponent(location.pathname));
    return new Promise(() => {});
  }
  if (!answer.ok) throw new Refused(typeof value === "object" ? value : {}, answer.status);
  return { value, etag: answer.headers.get("etag"), at: answer.headers.get("content-location"), status: answer.status };
}

// A question changes nothing. One that takes more than 2 s can be cancelled, wherever on the page it was asked.
const LONG = 2000, CANCELLED = "cancelled", questions = new Set();
export const isCancelled = (error) => error instanceof Refused && error.code === CANCELLED;

async function question(method, path, options, latest = false) {
  if (latest) for (const each of questions) if (each.path === path) each.control.abort();
  const own = { path, control: new AbortController() }, long = setTimeout(offerCancel, LONG);
  questions.add(own);
  try { return (await call(method, path, { ...options, signal: own.control.signal })).value; } finally {
    clearTimeout(long);
    questions.delete(own);
    if (!questions.size) byId("asking")?.remove();
  }
}

function offerCancel() {
  if (byId("asking")) return;
  let before = null;
  const cancel = el("button", { type: "button", on: { focus: (event) => { before = event.relatedTarget; }, click: () => {
    for (const each of questions) each.control.abort();
    before?.focus();
  } } }, "Cancel");
  // Behind a dialog nothing can be clicked.
  (document.querySelector("dialog[open]") ?? document.body).append(el("div", { id: "asking", class: "card" }, el("span", { role: "status" }, "Still working…"), cancel));
}

export const get = (path) => question("GET", path, {});
export const ask = (path, body) => question("POST", path, { body });
// Asked again with every change of a form: the answer to an earlier one is not wanted any more.
export const askLatest = (path, body) => question("POST", path, { body }, true);
export const post = async (path, body, options = {}) => (await call("POST", path, { body: body ?? {}, ...options })).value;

// Fetch all pages of a list.
export async function all(path, most = 10000) {
  const items = [];
  let cursor = "";
  do {
    const joint = path.includes("?") ? "&" : "?";
    const page = await get(`${path}${joint}limit=200${cursor ? "&cursor=" + encodeURIComponent(cursor) : ""}`);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}

// Upload a file. XMLHttpRequest, because fetch reports no upload progress.
export function upload(path, file, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", BASE + path);
    request.setRequestHeader("X-CSRF-Token", csrf);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (event) => progress(event.lengthComputable ? event.loaded / event.total : 0));
    request.addEventListener("error", () => reject(new Refused({ detail: "The file could not be uploaded.", hint: "Try again." }, 0)));
    request.addEventListener("load", () => {
      let value = {};
      try { value = JSON.parse(request.responseText); } catch { /* not JSON: reported below */ }
      if (request.status === 202) resolve(value); else reject(new Refused(value, request.status));
    });
    request.send(file);
  });
}

export async function session() {
  const found = await get("/session");
  csrf = found.csrf_token;
  return found;
}

export async function logIn(credentials) {
  const { value } = await call("POST", "/session", { body: credentials });
  csrf = value.csrf_token;
  return value;
}

export const logOut = () => call("DELETE", "/session");

// Show an error and its hint, in the same place on every page.
export function showProblem(error) {
  const box = byId("problem");
  if (!error) { box.hidden = true; return; }
  if (!(error instanceof Refused)) console.error(error);
  const text = error instanceof Refused ? error.message : "Unexpected error on this page.";
  const hint = error instanceof Refused ? error.hint : "Reload the page; if the error persists, contact your administrator.";
  fill(box, el("strong", {}, name(sentence(text))), hint ? el("span", {}, " ", name(sentence(hint))) : null,
    el("button", { type: "button", class: "quiet", "aria-label": "Close", on: { click: () => { box.hidden = true; } } }, "×"));
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

// Wrap a function so that its errors are shown. A button shows that it runs, and does not run twice at once.
export const guarded = (act) => async (...given) => {
  const button = given[0] instanceof Event && given[0].currentTarget instanceof HTMLButtonElement ? given[0].currentTarget : null;
  if (button?.getAttribute("aria-busy")) return undefined;
  button?.setAttribute("aria-busy", "true");
  try { showProblem(null); return await act(...given); } catch (error) { showProblem(error); return undefined; } finally { button?.removeAttribute("aria-busy"); }
};
