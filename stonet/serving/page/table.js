/* Tables: an alternative to map and chart, and the forecasts at one's own sites. */

const cell = (name, text, scope) => {
  const made = document.createElement(name);
  made.textContent = text;
  if (scope) made.scope = scope;
  return made;
};

/** Fill a table. The first cell of each row names it. `lines` are arrays of text. */
export function fillTable(table, caption, heads, lines) {
  const title = document.createElement("caption");
  title.textContent = caption;
  const head = document.createElement("thead");
  const names = document.createElement("tr");
  names.append(...heads.map((text) => cell("th", text, "col")));
  head.append(names);
  const body = document.createElement("tbody");
  body.append(...lines.map(([first, ...rest]) => {
    const row = document.createElement("tr");
    row.append(cell("th", first, "row"), ...rest.map((text) => cell("td", text)));
    return row;
  }));
  table.replaceChildren(title, head, body);
}
