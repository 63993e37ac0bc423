// Charts: the reading under the pointer or the arrow keys, and zoom by a drag, + and -. The time is in the URL.

const POINTS_APART = 2.5;
let drag = null;

function chartOf(target) {
  return target instanceof Element ? target.closest("figure.chart svg[data-points]") : null;
}

function pointsOf(svg) {
  return svg.dataset.points.split(" ").filter(Boolean).map((pair) => pair.split(":").map(Number));
}

// Seconds since the start of the chart at a place of the screen.
function secondsAt(box, svg, place) {
  return Math.min(1, Math.max(0, (place - box.left) / box.width)) * Number(svg.dataset.seconds);
}

function mark(svg, name, from, to) {
  const part = (seconds) => (100 * seconds) / Number(svg.dataset.seconds);
  let shape = svg.querySelector(`.${name}`);
  if (!shape) {
    shape = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    shape.setAttribute("class", name);
    shape.setAttribute("height", "100%");
    svg.append(shape);
  }
  shape.setAttribute("x", `${part(Math.min(from, to))}%`);
  shape.setAttribute("width", from === to ? 1 : `${part(Math.abs(to - from))}%`);
}

// Shows the reading nearest to an instant; in a gap it is not known.
function show(svg, seconds) {
  const near = pointsOf(svg).reduce(
    (best, one) => (best && Math.abs(best[0] - seconds) <= Math.abs(one[0] - seconds) ? best : one), null);
  const known = near && Math.abs(near[0] - seconds) <= POINTS_APART * Number(svg.dataset.step);
  const at = known ? near[0] : seconds;
  svg.dataset.cursor = at;
  mark(svg, "cursor", at, at);
  const time = new Date(Number(svg.dataset.start) + 1000 * at).toISOString().slice(0, 19).replace("T", " ");
  const words = known ? `${near[1].toFixed(1)} ${svg.dataset.unit}` : "not known";
  svg.parentElement.querySelector("output").textContent = `${time} UTC: ${words}`;
}

function zoom(svg, from, to) {
  const start = Number(svg.dataset.start);
  const url = new URL(location.href);
  url.searchParams.set("from", new Date(start + 1000 * from).toISOString());
  url.searchParams.set("to", new Date(Math.min(Date.now(), start + 1000 * to)).toISOString());
  location.assign(url);
}

document.addEventListener("pointermove", (event) => {
  const svg = drag?.svg ?? chartOf(event.target);
  if (!svg) return;
  const seconds = secondsAt(drag?.box ?? svg.getBoundingClientRect(), svg, event.clientX);
  show(svg, seconds);
  if (drag) mark(svg, "chosen", drag.from, seconds);
});

document.addEventListener("pointerdown", (event) => {
  const svg = chartOf(event.target);
  if (!svg || event.button !== 0 || event.pointerType === "touch") return;
  const box = svg.getBoundingClientRect();
  drag = { svg, box, x: event.clientX, from: secondsAt(box, svg, event.clientX) };
  event.preventDefault();
});

document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { svg, box, x, from } = drag;
  drag = null;
  svg.querySelector(".chosen")?.remove();
  if (Math.abs(event.clientX - x) < 8) return;
  const to = secondsAt(box, svg, event.clientX);
  zoom(svg, Math.min(from, to), Math.max(from, to));
});

document.addEventListener("keydown", (event) => {
  const svg = chartOf(event.target);
  if (!svg || event.ctrlKey || event.metaKey || event.altKey) return;
  const [all, step] = [Number(svg.dataset.seconds), Number(svg.dataset.step)];
  const at = Number(svg.dataset.cursor ?? all);
  const half = { "+": all / 4, "=": all / 4, "-": all }[event.key];
  const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (half === undefined && way === undefined) return;
  event.preventDefault();
  if (way) show(svg, Math.min(all, Math.max(0, at + way * Math.max(step, all / 100))));
  else zoom(svg, at - half, at + half);
});
