// Countdowns run on between two looks at the aggregator, and stop at zero. Of an old page they show none: it may long be another.

/** @type {WeakMap<Element, { left: string, now: number }>} */
const began = new WeakMap();

/** @param {number} seconds */
function words(seconds) {
  const whole = Math.min(86399, Math.max(0, Math.floor(seconds)));
  return new Date(1000 * whole).toISOString().slice(11, 19).replace(/^00:|^0/, "");
}

function tick() {
  const now = performance.now();
  const old = document.body.classList.contains("stale");
  for (const each of document.querySelectorAll("[data-countdown]")) {
    const left = each.dataset.countdown;
    let its = began.get(each);
    if (its?.left !== left) began.set(each, (its = { left, now }));
    const text = old ? "?" : words(+left - (now - its.now) / 1000);
    if (each.textContent !== text) each.textContent = text; // a word that stays is no work for the browser
  }
}

// Milliseconds between two ticks. An update, every two seconds, is a tick too: it comes before the second one that follows the
// last update, so that the page is not painted twice within a moment.
const EVERY = 1030;
let ticking = 0;

function start() {
  clearInterval(ticking);
  ticking = setInterval(tick, EVERY);
  tick();
}

start();
document.addEventListener("kilowatch:placed", start);
