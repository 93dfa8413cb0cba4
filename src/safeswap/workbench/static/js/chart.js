// The program that draws charts is large. It runs after the page's own script, while the answers are on their way.

import { Refused } from "./api.js";

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
