// Plotly is large. It loads after the page's own script, while the requests are under way.

import { call, get, Refused } from "./api.js";
import { at } from "./page.js";

export const drawable = new Promise((resolve, reject) => {
  const program = document.getElementById("plotly");
  const failed = () => reject(new Refused({ detail: "The charting library could not be loaded.", hint: "Reload the page." }, 0));
  if (window.Plotly) resolve();
  else if (document.readyState === "complete") failed();
  program.addEventListener("load", resolve);
  program.addEventListener("error", failed);
});
// A rejection reaches whoever awaits it; without a chart nobody does.
drawable.catch(() => {});

// Resolves when the chart is visible, so that other work waits for it; a background tab is never painted.
export const painted = () => new Promise((resolve) => {
  requestAnimationFrame(() => setTimeout(resolve));
  setTimeout(resolve, 500);
});

// Prefetch the chart data with the first requests, by the id in the page's address or as the latest. Once the id to show
// is known, use the data if they belong to it, and fetch again if not.
export function payloadOf(kind, name, stated) {
  const early = call("GET", at(`/${kind}/${encodeURIComponent(stated || "latest")}/${name}`)).catch(() => null);
  return async (id) => {
    const answer = await early;
    return answer?.at === `../${id}/${name}` ? answer.value : get(at(`/${kind}/${id}/${name}`));
  };
}

// Chromium caches the compiled form of a script from its second run on. When Plotly has just come over the network and the
// chart is drawn, run it again in a hidden frame, so that the next page finds it compiled. A parsed document (unlike an
// added script element) reuses what this page has compiled, and takes a tenth of a second.
export function cacheCompiled(root) {
  const program = document.getElementById("plotly");
  const isNew = () => navigator.userAgentData && performance.getEntriesByName(program.src)[0]?.transferSize > 0;
  root.addEventListener("safeswap-ready", () => { if (isNew()) requestIdleCallback(again); }, { once: true });
  const again = () => {
    const frame = document.createElement("iframe");
    Object.assign(frame, { hidden: true, title: "Preparing the next page", srcdoc: `<script src="${program.getAttribute("src")}"></script>` });
    frame.addEventListener("load", () => setTimeout(() => frame.remove(), 2000));
    document.body.append(frame);
  };
}
