// Step 6: the bundle, its checks, and the approval by a second person.

import { all, get, guarded, post } from "./api.js";
import { byId, count, el, fill, name, several, when } from "./dom.js";
import { follow } from "./jobs.js";
import { specText } from "./masking.js";
import { at, begin, projectId, python, resultAt } from "./page.js";
import { people } from "./people.js";

const WORDS = { preparing: "being prepared", requested: "waiting for approval", approved: "approved", rejected: "rejected", failed: "could not be prepared" };
const state = { who: null, maskings: [], shown: null, listed: new Map() };

begin(async ({ who, project, may }) => {
  state.who = who;
  if (project.data_version === 0) {
    fill(byId("job"), el("p", { class: "empty" }, "There are no data yet. ", el("a", { href: `/projects/${projectId}/data` }, "Upload a file.")));
    return;
  }
  if (who.single_user) byId("lead").textContent = "Single-user mode: you both request and approve. For a release that others rely on, have a second person review it: safeswap serve.";
  const [maskings, description] = await Promise.all([all(at("/maskings"), 500), get(at("/description"))]);
  state.maskings = maskings;
  byId("ask").hidden = !(may("work") && maskings.length);
  if (may("work") && !maskings.length) fill(byId("job"), el("p", { class: "empty" }, "Nothing has been masked yet. ", el("a", { href: `/projects/${projectId}/method` }, "Mask the data"), " or choose a candidate on the ",
    el("a", { href: `/projects/${projectId}/map` }, "map"), "."));
  const wanted = new URLSearchParams(location.search).get("masking");
  fill(byId("masking"), maskings.map((each) => el("option", { value: each.id, selected: each.id === wanted }, `${specText(each.spec.spec)} (${when(each.created_at)})`)));
  fill(byId("drop"), description.attributes.map((attribute) => el("label", {}, el("input", { type: "checkbox", value: attribute.name }), " ", name(attribute.name))));
  byId("title").value = project.name;
  const refresh = python(script);
  byId("masking").addEventListener("change", refresh);
  connect();
  const [releases] = await Promise.all([list(), people(who, may)]);
  const asked = new URLSearchParams(location.search).get("release");
  const first = releases.find((each) => each.id === asked) ?? (wanted ? undefined : releases[0]);
  if (first) await open(first);
});

function script() {
  const chosen = state.maskings.find((each) => each.id === byId("masking").value);
  return chosen ? { spec: chosen.spec.spec, replicate: chosen.spec.replicate ?? 0, recipe: chosen.spec.recipe ?? [], release: true } : {};
}

async function list() {
  const found = await all(at("/releases"), 500);
  byId("all").hidden = !found.length;
  fill(byId("releases"), found.map((each) => el("tr", {}, el("td", {}, when(each.requested_at)), el("td", {}, name(each.requested_by)), el("td", {}, name(each.terms.title || "–")),
    el("td", {}, WORDS[each.state]), el("td", {}, name(each.decided_by || "–")), el("td", {}, el("button", { type: "button", class: "small", "aria-label": `Look at the release requested ${when(each.requested_at)}`, on: { click: guarded(async () => open(await get(at(`/releases/${each.id}`)))) } }, "Look")))));
  state.listed = new Map(found.map((each) => [each.id, each.state]));
  return found;
}

async function open(release) {
  if (release.state === "preparing" && release.job_id) {
    await follow(await get(`/jobs/${release.job_id}`), byId("job"), "Preparing and checking the release");
    release = await get(at(`/releases/${release.id}`));
  }
  state.shown = release;
  byId("one").hidden = false;
  byId("one-title").textContent = release.terms.title ? `Release: ${release.terms.title}` : "The release";
  byId("state").className = release.state === "failed" || release.state === "rejected" ? "warning" : "good";
  fill(byId("state"), `It ${release.state === "failed" ? "" : "is "}${WORDS[release.state]}${release.reason ? ": " : "."}`, release.reason ? [name(release.reason), "."] : null, release.records ? ` ${several(release.records, "record")}.` : null);
  fill(byId("checks"), release.checks.map((check) => el("li", { class: check.ok ? "ok" : "not-ok" }, el("span", { class: "sign", "aria-hidden": "true" }, check.ok ? "✓" : "✗"),
    el("span", { class: "unseen" }, check.ok ? "Passed: " : "Failed: "), name(check.sentence))));
  fill(byId("remarks"), release.remarks.map((text) => el("p", { class: "warning" }, name(text))));
  fill(byId("differencing"), release.ledger ? [el("h3", {}, "Released before?"), el("p", { class: release.needs_reason ? "warning" : "note" }, release.ledger),
    ...release.differencing.map((each) => el("p", { class: each.alarm ? "warning" : "note" }, name(each.sentence)))] : null);
  fill(byId("files"), release.files.map((file) => el("tr", {}, el("td", {}, name(file.name)), el("td", { class: "n" }, count(file.size)), el("td", { class: "mono", title: file.sha256 }, `${file.sha256.slice(0, 16)}…`))));
  byId("details").hidden = !release.files.length && !release.checks.length;
  byId("hash").textContent = release.manifest_hash || "not yet";
  fill(byId("who-line"), "Requested by ", name(release.requested_by), release.decided_by ? [", decided by ", name(release.decided_by)] : null, ".",
    release.state === "requested" && !release.may_approve ? " Another person with the role of officer must review it." : null);
  byId("decide").hidden = !release.may_approve;
  byId("override-box").hidden = !release.needs_reason;
  byId("looked").checked = false;
  byId("approve").disabled = true;
  byId("download").hidden = !release.may_download;
  byId("download").href = resultAt(`/releases/${release.id}/bundle.zip`);
  for (const [id, document_] of [["report", "report.html"], ["dictionary", "dictionary.csv"]]) {
    byId(id).hidden = !release.files.length;
    byId(id).href = resultAt(`/releases/${release.id}/documents/${document_}`);
  }
  // Another person may have decided meanwhile; if not, leave the list and the focus in it alone.
  if (state.listed.get(release.id) !== release.state) await list();
}

function connect() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); request(); });
  byId("looked").addEventListener("change", () => { byId("approve").disabled = !byId("looked").checked; });
  byId("decide").addEventListener("submit", (event) => { event.preventDefault(); decide("approval", { manifest_hash: state.shown.manifest_hash, override_reason: byId("override").value }); });
  byId("reject").addEventListener("click", () => decide("rejection", { reason: byId("reason").value }));
}

const request = guarded(async () => {
  const terms = { title: byId("title").value, data_format: byId("format").value, identifiers: byId("identifiers").value, publish_rate: byId("publish-rate").checked, unmasked: byId("unmasked").checked,
    drop: [...byId("drop").querySelectorAll("input:checked")].map((box) => box.value) };
  byId("request").disabled = true;
  try {
    await open(await post(at("/releases"), { masking: byId("masking").value, terms }, { once: true }));
  } finally {
    byId("request").disabled = false;
    await list();
  }
});

const decide = guarded(async (way, body) => {
  await open(await post(at(`/releases/${state.shown.id}/${way}`), body));
});
