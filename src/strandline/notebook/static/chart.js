// A value over time as steps; the model has lines {name: [[from, until, value], …]}, title and status.
const WIDTH = 760, HEIGHT = 260, LEFT = 56, RIGHT = 110, TOP = 26, BOTTOM = 26;
const COLOURS = ["#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96"];
const SVG = "http://www.w3.org/2000/svg";

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function clock(milliseconds) {
  return new Date(milliseconds).toISOString().slice(11, 19);
}

function render({ model, el }) {
  el.classList.add("strandline");
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, "font-size": 12 });
  const line = document.createElement("p");
  el.append(svg, line);

  function draw() {
    const lines = model.get("lines");
    const steps = Object.values(lines).flat();
    const parts = [node("text", { x: LEFT, y: 16 }, model.get("title"))];
    if (steps.length) {
      const begin = Math.min(...steps.map((s) => s[0])), end = Math.max(...steps.map((s) => s[1]));
      const low = Math.min(0, ...steps.map((s) => s[2])), high = Math.max(...steps.map((s) => s[2]), low + 1e-9);
      const x = (t) => (LEFT + (WIDTH - LEFT - RIGHT) * (t - begin) / (end - begin || 1)).toFixed(1);
      const y = (v) => (TOP + (HEIGHT - TOP - BOTTOM) * (1 - (v - low) / (high - low))).toFixed(1);
      for (const value of [low, (low + high) / 2, high]) {
        parts.push(node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
        parts.push(node("text", { x: LEFT - 6, y: y(value), dy: 4, "text-anchor": "end" }, Number(value.toPrecision(4))));
      }
      for (const part of [0, 0.5, 1]) {
        const at = begin + part * (end - begin);
        parts.push(node("text", { x: x(at), y: HEIGHT - 8, "text-anchor": "middle" }, clock(at)));
      }
      Object.keys(lines).sort().forEach((name, number) => {
        const colour = COLOURS[number % COLOURS.length];
        const path = lines[name].map(([from, until, value]) => `M${x(from)} ${y(value)}H${x(until)}`).join("");
        parts.push(node("path", { d: path, stroke: colour, "stroke-width": 1.6, fill: "none" }));
        parts.push(node("text", { x: WIDTH - RIGHT + 12, y: TOP + 12 + 18 * number, fill: colour }, name));
      });
    }
    svg.replaceChildren(...parts);
    line.textContent = model.get("status");
  }

  model.on("change", draw);
  draw();
}

export default { render };
