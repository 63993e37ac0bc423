// Charts: one time for all of a page, under the pointer or by the arrow keys, with what each reads then; zoom by a drag, + and -.
// Both are in the URL: the time as `#at=` once it is clicked or Enter is pressed.

const CHARTS = "figure.chart svg[data-points]";
const POINTS_APART = 2.5;
const HALVES = new Map([["+", 0.25], ["=", 0.25], ["-", 1]]); // of what a zoom shows: in parts of what is shown now
const WAYS = new Map([["ArrowLeft", -1], ["ArrowRight", 1]]);
let at = NaN; // the time that is shown, ms since 1970
/** @type {Drag | null} */
let drag = null;

/** @param {Event} event */
const chartOf = ({ target }) => target?.closest?.(CHARTS);

/** @param {Chart} svg @returns {[number, number]} Its first and its last time. */
const endsOf = ({ dataset: { start, seconds } }) => [+start, +start + 1000 * +seconds];

/** @param {DOMRect} box @param {Chart} svg @param {number} place Of the screen. */
function timeAt(box, svg, place) {
  const [start, end] = endsOf(svg);
  return start + Math.min(1, Math.max(0, (place - box.left) / box.width)) * (end - start);
}

/**
 * Marks a time, or a span between two; without one it takes the mark away.
 * @param {Chart} svg
 * @param {string} name
 */
function mark(svg, name, from = NaN, to = from) {
  const [start, end] = endsOf(svg);
  let shape = svg.querySelector(`.${name}`);
  if (!(from >= start && from <= end)) return shape?.remove();
  if (!shape) svg.append((shape = document.createElementNS(svg.namespaceURI, "rect")));
  const part = (/** @type {number} */ time) => `${(100 * time) / (end - start)}%`;
  const all = { class: name, height: "100%", x: part(Math.min(from, to) - start), width: from === to ? "1" : part(Math.abs(to - from)) };
  for (const [key, value] of Object.entries(all)) shape.setAttribute(key, value);
}

/**
 * Shows what a chart reads at the time of the page: the reading next to it; in a gap it is not known.
 * @param {Chart} svg
 */
function read(svg) {
  const output = svg.parentElement?.querySelector("output");
  if (!output) return;
  output.dataset.words ??= output.textContent;
  mark(svg, "cursor", at);
  if (!svg.querySelector(".cursor")) return void (output.textContent = output.dataset.words);
  const { start, step, points, unit } = svg.dataset;
  let [least, words] = [1000 * POINTS_APART * +step, "not known"];
  for (const point of points.split(" ")) {
    const [seconds = NaN, reading = NaN] = point.split(":").map(Number);
    const apart = Math.abs(+start + 1000 * seconds - at);
    if (apart <= least) [least, words] = [apart, `${reading.toFixed(1)} ${unit}`];
  }
  const time = iso(at).slice(svg.closest(".small") ? 11 : 0, 19);
  output.textContent = `${time.replace("T", " ")} UTC: ${words}`;
}

/** @param {number} time What all charts show. */
function show(time) {
  at = time;
  document.querySelectorAll(CHARTS).forEach(read);
}

/** @param {number} time */
const iso = (time) => new Date(time).toISOString();

/** Puts the time into the URL: a link and the back button lead to it. */
const keep = () => history.pushState(null, "", `${location.href.split("#")[0]}#at=${iso(at)}`);

const kept = () => show(Date.parse(location.hash.split("#at=")[1] ?? ""));

/** @param {number} from @param {number} to */
function zoom(from, to) {
  const url = new URL(location.href);
  url.searchParams.set("from", iso(from));
  url.searchParams.set("to", iso(Math.min(Date.now(), to)));
  location.assign(url);
}

document.addEventListener("pointermove", (event) => {
  const svg = drag?.svg ?? chartOf(event);
  if (!svg) return;
  show(timeAt(drag?.box ?? svg.getBoundingClientRect(), svg, event.clientX));
  if (drag) mark(svg, "chosen", drag.from, at);
});

document.addEventListener("pointerdown", (event) => {
  const svg = chartOf(event);
  if (!svg || event.button !== 0 || event.pointerType === "touch") return;
  const box = svg.getBoundingClientRect();
  drag = { svg, box, x: event.clientX, from: timeAt(box, svg, event.clientX) };
  svg.focus();
  event.preventDefault();
});

document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { svg, box, x, from } = drag;
  drag = null;
  mark(svg, "chosen");
  show(timeAt(box, svg, event.clientX));
  Math.abs(event.clientX - x) < 8 ? keep() : zoom(Math.min(from, at), Math.max(from, at));
});

document.addEventListener("keydown", (event) => {
  const svg = chartOf(event);
  if (!svg || event.ctrlKey || event.metaKey || event.altKey) return;
  const [start, end] = endsOf(svg);
  const now = at >= start && at <= end ? at : end;
  const half = (HALVES.get(event.key) ?? 0) * (end - start);
  const way = (WAYS.get(event.key) ?? 0) * Math.max(1000 * +svg.dataset.step, (end - start) / 100);
  if (half) zoom(now - half, now + half);
  else if (way) show(Math.min(end, Math.max(start, now + way)));
  else if (event.key === "Escape") show(NaN);
  else if (event.key === "Enter" && at) keep();
  else return;
  event.preventDefault();
});

addEventListener("popstate", kept);
document.addEventListener("kilowatch:placed", () => show(at));
kept();
