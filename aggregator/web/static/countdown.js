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
    const left = each.dataset.countdown;
    if (began.get(each)?.left !== left) began.set(each, { left, now });
    const old = document.body.classList.contains("stale");
    each.textContent = old ? "?" : words(left - (now - began.get(each).now) / 1000);
  }
}

tick();
setInterval(tick, 1000);
document.addEventListener("kilowatch:placed", tick);
