// A table of the current snapshot; the model has columns, numbers (which columns are), rows, more and status.
function shown(value) {
  if (value === null) return "NULL";
  return Array.isArray(value) ? `[${value.map(shown).join(", ")}]` : String(value);
}

function render({ model, el }) {
  el.classList.add("strandline");
  const frame = document.createElement("div"), table = document.createElement("table");
  const line = document.createElement("p");
  frame.append(table);
  el.append(frame, line);

  function row(cells, tag) {
    const numbers = model.get("numbers"), made = document.createElement("tr");
    cells.forEach((value, column) => {
      const cell = document.createElement(tag);
      cell.textContent = cell.title = shown(value);
      cell.classList.toggle("null", value === null);
      cell.classList.toggle("number", Boolean(numbers[column]));
      made.append(cell);
    });
    return made;
  }

  function nothing(width) {
    const made = document.createElement("tr"), cell = document.createElement("td");
    cell.textContent = "no rows";
    cell.className = "null";
    cell.colSpan = Math.max(1, width);
    made.append(cell);
    return made;
  }

  function draw() {
    const columns = model.get("columns"), rows = model.get("rows"), more = model.get("more");
    const head = document.createElement("thead"), body = document.createElement("tbody");
    head.append(row(columns, "th"));
    body.append(...(rows.length ? rows.map((cells) => row(cells, "td")) : [nothing(columns.length)]));
    table.replaceChildren(head, body);
    line.textContent = (more ? `… ${more.toLocaleString("en")} more · ` : "") + model.get("status");
  }

  model.on("change", draw);
  draw();
  return () => model.off("change", draw);
}

export default { render };
