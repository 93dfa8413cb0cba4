// Numbers as text. By hand: the first of the browser's own formats takes as long to make as the axes of a chart.

function formatted(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-4) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

// With a comma between thousands.
function grouped(number) {
  const [whole, rest] = String(number).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? "." + rest : "");
}

const counted = (number) => grouped(Math.round(1000 * number) / 1000);

// A number and what it counts: "1 record", "2 records".
const several = (number, one, many = one + "s") => counted(number) + " " + (number === 1 ? one : many);
