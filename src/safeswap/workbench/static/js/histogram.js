// The distribution of a number in bands that each hold enough records; the ends are open, so no extreme is shown.

import { count, el, svg } from "./dom.js";
import { grouped } from "./numbers.js";

const WIDTH = 340, HEIGHT = 72, FOOT = 14, DIGIT = 7;

// Where a band begins, in full: large numbers may differ in their last digits only.
const figure = (value) => (Math.abs(value) >= 1e12 || (value && Math.abs(value) < 1e-4) ? value.toExponential(4) : grouped(Number(value.toPrecision(12))));

export function histogram({ breaks, counts }) {
  if (!counts.length) return el("span", { class: "note" }, "no bands: too few records have a value, or too many the same");
  const words = counts.map((_, i) => (i === 0 ? `below ${figure(breaks[0])}` : i === breaks.length ? `${figure(breaks[i - 1])} and above` : `${figure(breaks[i - 1])} to ${figure(breaks[i])}`));
  const label = counts.map((number, i) => `${words[i]}: ${count(number)}`).join("; "), most = Math.max(...counts), wide = WIDTH / counts.length;
  const chart = svg("svg", { class: "histogram bars", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const longest = Math.max(0, ...breaks.map((each) => figure(each).length)), every = Math.max(Math.ceil(breaks.length / 6), Math.ceil((DIGIT * (longest + 1)) / wide));
  counts.forEach((number, i) => {
    const title = svg("title"), high = ((HEIGHT - FOOT - 4) * number) / most;
    title.textContent = `${words[i]}: ${count(number)}`;
    chart.append(svg("g", {}, title, svg("rect", { x: i * wide + 1, y: HEIGHT - FOOT - high, width: wide - 2, height: Math.max(1, high) })));
    if (i < breaks.length && i % every === 0) {
      const text = svg("text", { x: (i + 1) * wide, y: HEIGHT - 2, class: "tick" });
      text.textContent = figure(breaks[i]);
      chart.append(text);
    }
  });
  return chart;
}
