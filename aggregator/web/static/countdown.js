// Countdowns run on between two looks at the aggregator; they stop at zero, and never show a time that is over. Of an old
// page they show none: it may long be another.

const began = new WeakMap();

function words(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${two(minutes)}:${two(rest)}`;
}

function tick() {
  const now = performance.now();
  for (const each of document.querySelectorAll("[data-countdown]")) {
    if (!began.has(each)) began.set(each, now);
    const old = document.body.classList.contains("stale");
    each.textContent = old ? "?" : words(Number(each.dataset.countdown) - (now - began.get(each)) / 1000);
  }
}

tick();
setInterval(tick, 1000);
document.addEventListener("kilowatch:placed", tick);
