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
