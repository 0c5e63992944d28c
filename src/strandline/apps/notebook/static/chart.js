// A value over time as steps; the model has lines {name: [[from, until, value], …]}, title and status.
const WIDTH = 760, HEIGHT = 280, LEFT = 64, RIGHT = 130, TOP = 30, BOTTOM = 28;
// Of middle brightness: legible on white and on black.
const COLOURS = ["#1c7ed6", "#e8590c", "#2f9e44", "#e64980", "#7950f2", "#868e96"];
const SVG = "http://www.w3.org/2000/svg";
const NAMED = 12, LONGEST = 15; // lines in the legend, and characters of a name there
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const UNITS = [
  1, 10, 100, SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
];

function node(name, attributes, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

// Multiples of 1, 2 or 5 times a power of ten, about `count` of them, from below `low` to above `high`.
function roundValues(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999) ?? 10 * power;
  const first = Math.floor(low / step), last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, n) => (first + n) * step);
}

function roundTimes(begin, end, count) {
  const rough = (end - begin) / count;
  const step = UNITS.find((unit) => unit >= rough) ?? Math.ceil(rough / DAY) * DAY;
  const first = Math.ceil(begin / step), last = Math.floor(end / step);
  const found = Array.from({ length: last - first + 1 }, (_, n) => (first + n) * step);
  return { step, times: found.length ? found : [begin] };
}

// As much of an instant as tells the marks of an axis apart.
function clock(milliseconds, step, days) {
  const text = new Date(milliseconds).toISOString();
  if (step >= DAY) return text.slice(0, 10);
  const time = step < SECOND ? text.slice(11, 23) : step < MINUTE ? text.slice(11, 19) : text.slice(11, 16);
  return days ? `${text.slice(5, 10)} ${time}` : time;
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 6, notation: size >= 1e6 ? "compact" : "standard" }).format(value);
}

function short(name) {
  return name.length > LONGEST ? name.slice(0, LONGEST - 1) + "…" : name;
}

// Steps that touch are one line; where nothing was known, it is broken.
function path(steps, x, y) {
  let reached = null, made = "";
  for (const [from, until, value] of steps) {
    made += (from === reached ? `V${y(value)}` : `M${x(from)} ${y(value)}`) + `H${x(until)}`;
    reached = until;
  }
  return made;
}

function extent(lines) {
  // A loop: there may be more steps than a call takes arguments.
  const found = { begin: Infinity, end: -Infinity, low: 0, high: 0 };
  for (const steps of Object.values(lines)) {
    for (const [from, until, value] of steps) {
      found.begin = Math.min(found.begin, from);
      found.end = Math.max(found.end, until);
      found.low = Math.min(found.low, value);
      found.high = Math.max(found.high, value);
    }
  }
  if (found.high === found.low) found.high = found.low + 1;
  return found;
}

function axes({ begin, end }, values, x, y) {
  const parts = [];
  for (const value of values) {
    parts.push(node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    parts.push(node("text", { x: LEFT - 8, y: y(value), dy: 4, "text-anchor": "end", class: "axis" }, number(value)));
  }
  const { step, times } = roundTimes(begin, end, 6);
  const days = new Date(begin).toISOString().slice(0, 10) !== new Date(end).toISOString().slice(0, 10);
  for (const time of times) {
    const low = HEIGHT - BOTTOM;
    parts.push(node("line", { x1: x(time), x2: x(time), y1: low, y2: low + 4, class: "grid" }));
    parts.push(node("text", { x: x(time), y: low + 18, "text-anchor": "middle", class: "axis" }, clock(time, step, days)));
  }
  return parts;
}

function series(lines, x, y) {
  const names = Object.keys(lines).sort(), parts = [];
  names.forEach((name, place) => {
    const colour = COLOURS[place % COLOURS.length], round = Math.floor(place / COLOURS.length);
    const dashes = round ? { "stroke-dasharray": `${7 - Math.min(round, 3) * 2} 3` } : {};
    const look = { stroke: colour, "stroke-width": 1.8, fill: "none", ...dashes };
    parts.push(node("path", { d: path(lines[name], x, y), class: "line", ...look }, node("title", {}, name)));
    const height = TOP + 8 + 18 * place, left = WIDTH - RIGHT + 12;
    if (name === "" || place > NAMED) return;
    if (place === NAMED) {
      parts.push(node("text", { x: left, y: height + 4, class: "axis" }, `… ${names.length - NAMED} more`));
      return;
    }
    parts.push(node("path", { d: `M${left} ${height}h14`, ...look }));
    parts.push(node("text", { x: left + 20, y: height + 4, class: "name" }, short(name), node("title", {}, name)));
  });
  return parts;
}

function render({ model, el }) {
  el.classList.add("strandline");
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, "font-size": 12, role: "img" });
  const line = document.createElement("p");
  el.append(svg, line);

  function draw() {
    const lines = model.get("lines"), title = model.get("title");
    const parts = [node("title", {}, title), node("text", { x: LEFT, y: 16, class: "heading" }, title)];
    if (Object.values(lines).some((steps) => steps.length)) {
      const range = extent(lines), { begin, end } = range;
      const values = roundValues(range.low, range.high, 6), low = values[0], high = values[values.length - 1];
      const x = (t) => (LEFT + (WIDTH - LEFT - RIGHT) * (t - begin) / (end - begin || 1)).toFixed(1);
      const y = (v) => (TOP + (HEIGHT - TOP - BOTTOM) * (1 - (v - low) / (high - low))).toFixed(1);
      parts.push(...axes(range, values, x, y), ...series(lines, x, y));
    } else {
      const centre = { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT / 2, "text-anchor": "middle", class: "axis" };
      parts.push(node("text", centre, "nothing to draw yet"));
    }
    svg.replaceChildren(...parts);
    line.textContent = model.get("status");
  }

  model.on("change", draw);
  draw();
  return () => model.off("change", draw);
}

export default { render };
