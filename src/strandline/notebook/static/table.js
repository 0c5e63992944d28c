// A table of the current snapshot; the model has columns, rows, more and status.
function render({ model, el }) {
  el.classList.add("strandline");
  const table = document.createElement("table");
  const line = document.createElement("p");
  el.append(table, line);

  function row(cells, tag) {
    const made = document.createElement("tr");
    for (const value of cells) {
      const cell = document.createElement(tag);
      cell.textContent = value === null ? "NULL" : String(value);
      if (value === null) cell.classList.add("null");
      if (typeof value === "number") cell.classList.add("number");
      made.append(cell);
    }
    return made;
  }

  function draw() {
    const head = document.createElement("thead");
    head.append(row(model.get("columns"), "th"));
    const body = document.createElement("tbody");
    body.append(...model.get("rows").map((cells) => row(cells, "td")));
    table.replaceChildren(head, body);
    const more = model.get("more");
    line.textContent = (more ? `… ${more} more · ` : "") + model.get("status");
  }

  model.on("change", draw);
  draw();
}

export default { render };
