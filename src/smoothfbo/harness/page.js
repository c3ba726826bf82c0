"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const darkness = window.matchMedia("(prefers-color-scheme: dark)");

// On a dark background: black and grey become light, all other colours lighter by the same part, so that shades of one
// colour stay apart.
function lit(colour) {
  if (["#000000", "#555555"].includes(colour)) return "#d5d6dc";
  const parts = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  return "#" + parts.map(part => Math.round(part + 0.35 * (255 - part)).toString(16).padStart(2, "0")).join("");
}
// Colours of the page.
function dressed(chart, dark) {
  const ink = dark ? "#ececf0" : "#1d1d1f", grid = dark ? "#3a3b41" : "#e6e6e6";
  const copy = structuredClone(chart);
  Object.assign(copy.layout, {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: ink},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: grid, activecolor: ink}});
  for (const axis of ["xaxis", "yaxis"]) Object.assign(copy.layout[axis], {gridcolor: grid, linecolor: grid});
  if (dark) for (const trace of copy.data)
    if (trace.line && trace.line.color) trace.line.color = lit(trace.line.color);
  return copy;
}
const options = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"]};
function drawAll(dark) {
  charts.forEach((chart, index) => {
    const {data, layout} = dressed(chart, dark);
    Plotly.react("chart-" + index, data, layout, options);
  });
}
drawAll(darkness.matches);
// The scroll bar comes with the charts and takes some of their width.
requestAnimationFrame(() => document.querySelectorAll(".chart").forEach(chart => Plotly.Plots.resize(chart)));
darkness.addEventListener("change", () => drawAll(darkness.matches));

// A chart in a fold has no width until the fold is opened; on paper all folds are open.
document.querySelectorAll("details").forEach(fold => fold.addEventListener("toggle", () =>
  fold.querySelectorAll(".chart").forEach(chart => Plotly.Plots.resize(chart))));
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach(fold => { fold.open = true; });
  drawAll(false);
});
window.addEventListener("afterprint", () => drawAll(darkness.matches));

document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
  const column = [...head.parentElement.children].indexOf(head);
  const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const x = key(a), y = key(b), difference = parseFloat(x) - parseFloat(y);
    return direction * (Number.isNaN(difference) ? String(x).localeCompare(String(y)) : difference);
  };
  body.append(...[...body.rows].sort(compare));
}));
