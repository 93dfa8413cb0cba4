// The program that draws charts is large. It runs after the page's own script, while the answers are on their way.

import { call, get, Refused } from "./api.js";
import { at } from "./page.js";

export const drawable = new Promise((resolve, reject) => {
  const program = document.getElementById("plotly");
  const failed = () => reject(new Refused({ detail: "The program that draws the chart could not be loaded.", hint: "Load the page anew." }, 0));
  if (window.Plotly) resolve();
  else if (document.readyState === "complete") failed();
  program.addEventListener("load", resolve);
  program.addEventListener("error", failed);
});
// Whoever waits for it is told; where there is nothing to draw, nobody waits.
drawable.catch(() => {});

// What else a screen does, it does when the chart can be seen; in a tab that nobody looks at nothing is painted.
export const painted = () => new Promise((resolve) => {
  requestAnimationFrame(() => setTimeout(resolve));
  setTimeout(resolve, 500);
});

// What a chart shows is asked for with the first questions, by the id in the page's address or as the latest; once it is
// known which one is to be shown, it is taken if it belongs to that, and asked for anew if not.
export function payloadOf(kind, name, stated) {
  const early = call("GET", at(`/${kind}/${encodeURIComponent(stated || "latest")}/${name}`)).catch(() => null);
  return async (id) => {
    const answer = await early;
    return answer?.at === `../${id}/${name}` ? answer.value : get(at(`/${kind}/${id}/${name}`));
  };
}

// Chromium keeps the compiled form of a program from the second time on that it runs. When the program has just come over
// the network and the chart is drawn, it runs once more where nobody sees it: the next page finds it compiled. In a document
// that is read (not by a script that is added) it is the program that this page has compiled, and takes a tenth of a second.
export function compiledForNextTime(root) {
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
