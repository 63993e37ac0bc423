// What every page does: sign in where a token is needed, and load a live page again every few seconds.

const KEY = "kilowatch.token";
const EVERY = 5000;

async function load() {
  const token = sessionStorage.getItem(KEY);
  const answer = await fetch(location.href, {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    credentials: "omit",
  });
  return { status: answer.status, page: new DOMParser().parseFromString(await answer.text(), "text/html") };
}

const FOCUS = "a, button, input, select, summary, svg[tabindex]";

// Puts one element in the place of another, piece by piece: what has not changed stays, so that ten thousand
// cells cost as little as those that are new, and the focus and the scroll position stay where they are.
function renew(now, next) {
  if (now.isEqualNode(next)) return;
  const whole = now.nodeType !== 1 || now.nodeName !== next.nodeName || now.matches("svg, dialog") ||
    [...now.attributes].some((each) => next.getAttribute(each.name) !== each.value) ||
    now.attributes.length !== next.attributes.length;
  if (whole) return now.replaceWith(next);
  const [old, fresh] = [[...now.childNodes], [...next.childNodes]];
  fresh.forEach((each, place) => (old[place] ? renew(old[place], each) : now.append(each)));
  for (const each of old.slice(fresh.length)) each.remove();
}

function place(page) {
  const [now, next] = [document.querySelector("main"), page.querySelector("main")];
  if (!next || now.isEqualNode(next)) return;
  const focused = [...now.querySelectorAll(FOCUS)].indexOf(document.activeElement);
  now.toggleAttribute("data-live", next.hasAttribute("data-live"));
  renew(now, next);
  document.title = page.title;
  renew(document.querySelector("header"), page.querySelector("header"));
  if (focused >= 0) now.querySelectorAll(FOCUS)[focused]?.focus({ preventScroll: true });
  document.dispatchEvent(new Event("kilowatch:placed"));
}

// A person who types, selects or answers a dialog is not disturbed.
function busy() {
  const at = document.activeElement;
  return document.hidden || document.querySelector("dialog[open]") !== null || !getSelection().isCollapsed ||
    (at !== null && at.matches("main input, main select"));
}

async function again() {
  if (document.querySelector("main[data-live]") && !busy()) {
    const found = await load().catch(() => null);
    document.body.classList.toggle("stale", found === null || found.status >= 500);
    if (found?.status === 200 && !busy()) place(found.page);
  }
  setTimeout(again, EVERY);
}

async function signIn(form) {
  const status = form.querySelector(".status");
  const found = await load().catch(() => null);
  if (found === null) status.textContent = "The aggregator does not answer.";
  else if (found.status === 401) {
    if (sessionStorage.getItem(KEY)) status.textContent = "This token is wrong or has expired.";
    sessionStorage.removeItem(KEY);
    form.elements.token.focus();
  } else place(found.page);
}

const form = document.querySelector("#sign-in");
if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, form.elements.token.value.trim());
    signIn(form);
  });
  if (sessionStorage.getItem(KEY)) signIn(form);
}
setTimeout(again, EVERY);
