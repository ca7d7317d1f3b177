/* The view as a part of the address, so that a link shows the same. */

const FIELDS = ["variable", "issue", "lead", "point"];

/** What the address asks for; what is missing is undefined. */
export function fromAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const asked = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? undefined]));
  const point = asked.point?.split(",").map(Number);
  const lead = Number(asked.lead);
  return {
    variable: asked.variable,
    issue: asked.issue,
    lead: asked.lead !== undefined && Number.isFinite(lead) ? Math.round(lead) : undefined,
    point: point?.length === 2 && point.every(Number.isFinite) ? point : undefined,
  };
}

/** Put the view into the address without a new entry of the history. */
export function toAddress({ variable, issue, lead, point }) {
  const query = new URLSearchParams();
  if (variable) query.set("variable", variable);
  if (issue) query.set("issue", issue);
  query.set("lead", lead);
  if (point) query.set("point", point.map((part) => Number(part.toFixed(6))).join(","));
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  history.replaceState(null, "", `#${text}`);
}
