// Number formats. Written by hand: creating the first Intl format takes as long as drawing the axes of a chart.

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

// A number with its noun: "1 record", "2 records".
const several = (number, one, many = one + "s") => counted(number) + " " + (number === 1 ? one : many);
