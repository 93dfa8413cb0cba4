// Step 6: the bundle, its checks, and the approval by a second person.

import { all, get, guarded, post } from "./api.js";
import { byId, count, el, figure, fill, name, sentence, several, when } from "./dom.js";
import { follow } from "./jobs.js";
import { specText } from "./masking.js";
import { at, begin, current, noFile, projectId, python, resultAt } from "./page.js";
import { people } from "./people.js";
import { reportLinks, reportsSideBySide } from "./reports.js";
import { drawChanges } from "./since.js";

const WORDS = { preparing: "being prepared", requested: "waiting for approval", approved: "approved", rejected: "rejected", failed: "could not be prepared" };
// Findings that are gone once their column is left out.
const OF_A_COLUMN = new Set(["formula-name", "geography-split", "household-size", "household-split", "index-column", "invisible-name", "read-off", "unconfirmed-identifier"]);
const state = { who: null, may: () => false, maskings: [], shown: null, listed: new Map(), releases: [], assessed: [] };

begin(async ({ who, project, may }) => {
  Object.assign(state, { who, may });
  if (project.data_version === 0) {
    fill(byId("job"), noFile());
    return;
  }
  if (who.single_user) byId("lead").textContent = "Single-user mode: you both request and approve. For a release that others rely on, have a second person review it: safeswap serve.";
  const [made, description] = await Promise.all([all(at("/maskings"), 500), get(at("/description"))]);
  const maskings = state.maskings = current(made, project);
  byId("stale").hidden = maskings.length === made.length;
  byId("stale").textContent = `${several(made.length - maskings.length, "masking was", "maskings were")} made from an earlier version of the data and cannot be released.`;
  if (may("work") && !maskings.length) fill(byId("job"), el("p", { class: "empty" }, "Nothing has been masked from this file yet. ", el("a", { href: `/projects/${projectId}/method` }, "Mask the data"), " or choose a candidate on the ",
    el("a", { href: `/projects/${projectId}/map` }, "map"), "."));
  const wanted = new URLSearchParams(location.search).get("masking");
  fill(byId("masking"), maskings.map((each) => el("option", { value: each.id, selected: each.id === wanted }, `${specText(each.spec.spec)} (${when(each.created_at)})`)));
  fill(byId("drop"), description.attributes.map((attribute) => el("label", {}, el("input", { type: "checkbox", value: attribute.name }), " ", name(attribute.name))));
  byId("title").value = project.name;
  byId("two-files-box").hidden = !description.attributes.some((each) => each.household) || !description.attributes.some((each) => each.kind === "household");
  byId("two-files").checked = !byId("two-files-box").hidden && project.file_name.includes(" + ");
  const refresh = python(script);
  byId("indicators").href = `/projects/${projectId}/indicators`;
  state.assessed = may("work") ? (await all(at("/assessments"), 200)).filter((each) => each.spec.indicators) : [];
  const offerErrors = () => { byId("publish-errors-box").hidden = !assessed(); };
  offerErrors();
  byId("masking").addEventListener("change", () => { refresh(); offerErrors(); });
  connect();
  byId("ask").hidden = !(may("work") && maskings.length);  // not before: a browser would send the form by itself
  const [releases] = await Promise.all([list(), people(who, may)]);
  const asked = new URLSearchParams(location.search).get("release");
  const first = releases.find((each) => each.id === asked) ?? (wanted ? undefined : releases[0]);
  if (may("decide") && first?.state === "requested") byId("all").before(byId("ask")); // an officer came to decide
  if (first) await open(first);
});

// The newest comparison of indicators for the masking, whose errors may be published.
const assessed = () => state.assessed.find((each) => each.spec.masking === byId("masking").value);

async function indicatorsToPublish() {
  if (!assessed() || !byId("publish-errors").checked) return "";
  const { summary } = await get(at(`/assessments/${assessed().id}`));
  return summary.scores.find((each) => each.measure.startsWith("indicators"))?.measure ?? "";
}

function script() {
  const chosen = state.maskings.find((each) => each.id === byId("masking").value);
  return chosen ? { spec: chosen.spec.spec, replicate: chosen.spec.replicate ?? 0, recipe: chosen.spec.recipe ?? [], release: true } : {};
}

async function list() {
  const found = await all(at("/releases"), 500);
  byId("all").hidden = !found.length;
  fill(byId("releases"), found.map((each) => el("tr", {}, el("td", {}, when(each.requested_at)), el("td", {}, name(each.requested_by)), el("td", {}, name(each.terms.title || "–")),
    el("td", {}, WORDS[each.state]), el("td", {}, name(each.decided_by || "–")), el("td", {}, el("button", { type: "button", class: "small", "aria-label": `Look at the release requested ${when(each.requested_at)}`, on: { click: guarded(async () => open(await get(at(`/releases/${each.id}`)))) } }, "Look")))));
  state.releases = found;
  state.listed = new Map(found.map((each) => [each.id, each.state]));
  return found;
}

async function open(release) {
  // Of one that failed, all that was found is told again.
  const isFailed = release.state === "failed" && state.may("work");
  if ((release.state === "preparing" || isFailed) && release.job_id) {
    byId("one").hidden = true;
    const job = await follow(await get(`/jobs/${release.job_id}`), byId("job"), "Preparing and checking the release");
    if (job.state === "failed") offerToLeaveOut(release, job.error?.fields?.findings ?? []);
    if (!isFailed) release = await get(at(`/releases/${release.id}`));
  } else if (state.maskings.length) fill(byId("job"));
  state.shown = release;
  byId("one").hidden = false;
  byId("one-title").textContent = release.terms.title ? `Release: ${release.terms.title}` : "The release";
  byId("state").className = ["failed", "rejected"].includes(release.state) || release.is_stale ? "warning" : "good";
  fill(byId("state"), release.is_stale ? "The data have changed since it was requested: it can no longer be approved." : `It ${release.state === "failed" ? "" : "is "}${WORDS[release.state]}${release.reason ? ": " : "."}`, release.reason ? name(sentence(release.reason)) : null, release.records ? ` ${several(release.records, "record")}.` : null);
  drawChecks(release);
  const facts = await factsOf(release);
  // What speaks against it comes first.
  fill(byId("remarks"), [...new Set([...facts?.flags ?? [], ...facts?.raised ?? [], ...facts?.decision.obstacles ?? [], ...release.remarks])].map((text) => el("p", { class: "warning" }, name(sentence(text)))));
  byId("figures-box").hidden = !facts?.figures.length;
  fill(byId("figures"), (facts?.figures ?? []).map((each) => el("tr", { class: each.ok === false ? "warning" : "", title: each.sentence }, el("td", {}, name(each.title)), el("td", {}, name(each.scenario || "–")),
    el("td", { class: "n" }, figure(each.before)), el("td", { class: "n" }, figure(each.after)), el("td", {}, each.limit ? `${each.limit} ${each.ok ? "✓" : "✗"}` : "–"))));
  const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`);
  byId("attacks-box").hidden = !release.attacks.length;
  fill(byId("policy-line"), release.policy ? ["Policy: ", name(release.policy), ". "] : "", worst(release.attacks));
  fill(byId("attacks"), release.attacks.map((each) => el("tr", { class: each.is_above ? "warning" : "" }, el("td", { title: each.note }, name(each.attack.replaceAll("_", " "))), el("td", { class: "n" }, share(each.success)),
    el("td", { class: "n" }, share(each.baseline)), el("td", { class: "n", title: each.interval ? `95%: ${share(each.interval[0])} to ${share(each.interval[1])}` : "" }, each.advantage < 0 ? "none" : share(each.advantage)), el("td", { class: "n" }, share(each.allowed)))));
  fill(byId("differencing"), release.ledger ? [el("h3", {}, "Released before?"), el("p", { class: release.needs_reason ? "warning" : "note" }, release.ledger),
    ...release.differencing.map((each) => el("p", { class: each.alarm ? "warning" : "note" }, name(each.sentence)))] : null);
  fill(byId("files"), release.files.map((file) => el("tr", {}, el("td", {}, name(file.name)), el("td", { class: "n" }, count(file.size)), el("td", { class: "mono", title: file.sha256 }, `${file.sha256.slice(0, 16)}…`))));
  byId("details").hidden = !release.files.length && !release.checks.length;
  byId("hash").textContent = release.manifest_hash || "not yet";
  fill(byId("who-line"), "Requested by ", name(release.requested_by), release.decided_by ? [", decided by ", name(release.decided_by)] : null, ".",
    release.state === "requested" && !release.may_reject ? " Another person with the role of officer must review it." : null);
  byId("decide").hidden = !release.may_reject;
  byId("approval").hidden = !release.may_approve;
  byId("override-box").hidden = !release.needs_reason;
  byId("attack-override-box").hidden = !release.needs_attack_override;
  fill(byId("attack-override-line"), release.attack_override ? ["Reason given for releasing above the policy: ", name(release.attack_override)] : null);
  byId("looked").checked = false;
  byId("approve").disabled = true;
  byId("download").hidden = !release.may_download;
  byId("download").href = resultAt(`/releases/${release.id}/bundle.zip`);
  for (const [id, document_] of [["report", "report.html"], ["dictionary", "dictionary.csv"]]) {
    byId(id).hidden = !release.files.length;
    byId(id).href = resultAt(`/releases/${release.id}/documents/${document_}`);
  }
  byId("reports-box").hidden = !release.files.length;
  fill(byId("reports"), reportLinks(`/releases/${release.id}`, state.may));
  reportsSideBySide(byId("side-by-side"), `/releases/${release.id}`, release.files.length > 0, state.may);
  drawChanges(byId("since"), release, state.releases, { maskings: state.maskings, factsOf, facts });
  // Another person may have decided meanwhile; if not, leave the list and the focus in it alone.
  if (state.listed.get(release.id) !== release.state) await list();
}

// What holds of the whole first, and whatever failed; what holds of each step of a pipeline is folded.
function drawChecks({ checks, masking }) {
  const steps = new Set(state.maskings.find((each) => each.id === masking)?.spec.spec.steps?.map((step) => step.name)), isOfStep = (check) => check.ok && steps.has(check.sentence.split(": ")[0]);
  const line = (check) => el("li", { class: check.ok ? "ok" : "not-ok" }, el("span", { class: "sign", "aria-hidden": "true" }, check.ok ? "✓" : "✗"), el("span", { class: "unseen" }, check.ok ? "Passed: " : "Failed: "), name(check.sentence));
  fill(byId("checks"), checks.filter((check) => !isOfStep(check)).map(line));
  const folded = checks.filter(isOfStep);
  byId("step-checks").hidden = !folded.length;
  fill(byId("step-checks"), el("summary", {}, `${several(folded.length, "check", "checks")} of the single steps, all passed`), el("ul", { class: "checks" }, folded.map(line)));
}

// Where leaving columns out mends all that was found, offer the same request without them: without what gives a change
// away, or without what was changed.
function offerToLeaveOut(release, findings) {
  if (!state.maskings.some((each) => each.id === release.masking) || !findings.every((each) => OF_A_COLUMN.has(each.code))) return;
  const ways = [(each) => each.revealed_by || each.column, (each) => each.column].map((way) => [...new Set(findings.map(way))]);
  const offered = ways.filter((columns, i) => columns.length && !columns.some((column) => release.terms.drop.includes(column)) && (i === 0 || columns.join() !== ways[0].join()));
  byId("job").firstElementChild.append(...offered.map((columns) => el("p", {}, el("button", { type: "button", class: "leave-out",
    on: { click: guarded(() => request(release.masking, { ...release.terms, drop: [...release.terms.drop, ...columns] })) } }, "Leave out ", name(columns.join(", ")), " and request again"))));
}

// The attack that comes nearest to its limit, in words.
function worst(attacks) {
  const above = attacks.filter((each) => each.is_above), limited = attacks.filter((each) => each.allowed !== null && each.allowed !== undefined);
  if (above.length) return `${several(above.length, "attack is", "attacks are")} above the policy: ${above.map((each) => each.attack.replaceAll("_", " ")).join(", ")}.`;
  const [free] = attacks.filter((each) => !limited.includes(each)).toSorted((a, b) => b.advantage - a.advantage);
  return `${several(attacks.length, "attack")} tried, ${several(limited.length, "has a limit", "have a limit")}, none is above it.`
    + (free?.advantage > 0 ? ` The best of those without a limit: ${free.attack.replaceAll("_", " ")}, with an advantage of ${(100 * free.advantage).toFixed(1)}%.` : "");
}

// What the chair of a board is told; only who may decide is shown it here.
const factsOf = (release) => (state.may("decide") && release.files.length ? get(at(`/releases/${release.id}/reports/chair?format=json`)) : null);

function connect() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); requestAsStated(); });
  byId("looked").addEventListener("change", () => { byId("approve").disabled = !byId("looked").checked; });
  byId("decide").addEventListener("submit", (event) => { event.preventDefault(); decide("approval", { manifest_hash: state.shown.manifest_hash, override_reason: byId("override").value, ...(byId("attack-override-box").hidden ? {} : { attack_override: byId("attack-override").value }) }); });
  byId("reject").addEventListener("click", () => decide("rejection", { reason: byId("reason").value }));
}

const requestAsStated = guarded(async () => request(byId("masking").value, {
  title: byId("title").value, data_format: byId("format").value, identifiers: byId("identifiers").value, publish_rate: byId("publish-rate").checked, unmasked: byId("unmasked").checked, two_files: byId("two-files").checked,
  drop: [...byId("drop").querySelectorAll("input:checked")].map((box) => box.value), override: byId("ask-override").value, publish_errors: await indicatorsToPublish(),
}));

async function request(masking, terms) {
  byId("request").disabled = true;
  try {
    await open(await post(at("/releases"), { masking, terms }, { once: true }));
  } finally {
    byId("request").disabled = false;
    await list();
  }
}

const decide = guarded(async (way, body) => {
  await open(await post(at(`/releases/${state.shown.id}/${way}`), body));
});
