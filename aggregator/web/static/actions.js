// Acknowledge and silence, by the API's own operations. Each needs a token: it is typed into a dialog, kept in
// this tab's sessionStorage alone, and sent in the Authorization header; no cookie, so no other site can act.

const KEY = "kilowatch.token";
const root = new URL(document.querySelector("base")?.href ?? "./", location.href);

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Partial<HTMLElementTagNameMap[Tag]>} fields
 * @param {(Node | string)[]} children
 */
function element(tag, fields, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, fields);
  made.append(...children);
  return made;
}

/**
 * Opens a dialog; resolves with the values of its fields that are not empty, or null when it is left.
 * @param {Act} act
 * @param {string} note
 * @param {Field[]} fields
 * @returns {Promise<Record<string, string> | null>}
 */
function ask({ title, button }, note, fields) {
  return new Promise((done) => {
    const dialog = element("dialog", { className: "act" });
    dialog.setAttribute("aria-labelledby", "act-title");
    const labels = fields.map(([name, label, more]) =>
      element("label", {}, `${label} `, element("input", { name, autocomplete: "off", required: true, ...more })));
    const leave = element("button", { type: "button", textContent: "Cancel" });
    const form = element("form", { method: "dialog" }, element("h2", { textContent: title, id: "act-title" }),
      element("p", { textContent: note }), ...labels, element("p", {}, element("button", { textContent: button }), " ", leave));
    dialog.append(form);
    document.body.append(dialog);
    /** @type {Record<string, string> | null} */
    let result = null;
    leave.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    form.addEventListener("submit", () => {
      const given = [...form.querySelectorAll("input")].map(({ name, value }) => [name, value.trim()]);
      result = Object.fromEntries(given.filter(([, value]) => value));
    });
    dialog.showModal();
  });
}

/** @type {Field} */
const TOKEN = ["token", "Token", { type: "password", spellcheck: false }];
const NOTE = "A token with the scope that is needed: kilowatch token add NAME. It stays in this tab.";

/** @param {Act} act @param {ActData} data @param {object} body */
async function send({ method, path, scope }, data, body) {
  const answer = await fetch(new URL(path(data), root), {
    method,
    headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY)}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    credentials: "omit",
    cache: "no-store",
  });
  if (answer.ok) return;
  /** @type {Fault} */
  const { error } = await answer.json().catch(() => ({}));
  if (answer.status === 401) sessionStorage.removeItem(KEY);
  const needed = answer.status === 403 ? ` (the scope needed is ${scope})` : "";
  throw new Error(`${error?.what ?? answer.statusText}${needed}. ${error?.cure ?? ""}`);
}

/** @param {string} value @returns {Field} */
const why = (value) => ["why", "Why", { value, maxLength: 500 }];
/** @param {ActData} data */
const ackOf = ({ incident }) => `api/v1/incidents/${encodeURIComponent(incident)}/ack`;
/** @type {Record<ActName, Act>} */
const ACTS = {
  acknowledge: {
    title: "Acknowledge this incident", button: "Acknowledge", scope: "ack", method: "POST", path: ackOf,
    fields: () => [why("I am on it"), ["for", "For how long (empty: until it is over)", { required: false, placeholder: "2h" }]],
  },
  unacknowledge: {
    title: "Withdraw the acknowledgement", button: "Withdraw", scope: "ack", method: "DELETE", path: ackOf, fields: () => [why("")],
  },
  silence: {
    title: "Silence alerts", button: "Silence", scope: "silence", method: "POST", path: () => "api/v1/silences",
    fields: ({ matchers }) => [["matchers", "Alerts that match all of", { value: matchers, spellcheck: false }], ["for", "For how long", { value: "2h" }], why("")],
  },
  unsilence: {
    title: "End this silence", button: "End it", scope: "silence", method: "DELETE",
    path: ({ silence }) => `api/v1/silences/${encodeURIComponent(silence)}`, fields: () => [why("no longer needed")],
  },
};

/** @param {HTMLElement} button @param {string} words @param {string} role */
function say(button, words, role) {
  const line = button.closest(".actions");
  line?.querySelector(".status")?.remove();
  const shown = element("span", { className: "status" });
  shown.setAttribute("role", role);
  line?.append(shown);
  shown.textContent = words; // read aloud, because it comes later
}

/** @param {Found["button[data-act]"]} button */
async function act(button) {
  const what = ACTS[button.dataset.act];
  const data = { ...button.closest("[data-incident]")?.dataset, ...button.dataset };
  const known = sessionStorage.getItem(KEY);
  const got = await ask(what, known ? "" : NOTE, [...(known ? [] : [TOKEN]), ...what.fields(data)]);
  if (!got) return button.focus();
  const { token, matchers, ...rest } = got;
  if (token) sessionStorage.setItem(KEY, token);
  button.disabled = true;
  try {
    await send(what, data, matchers ? { ...rest, matchers: matchers.split(/\s+/) } : rest);
    say(button, "done", "status");
    location.reload();
  } catch (error) {
    say(button, /** @type {Error} */ (error).message, "alert");
  } finally {
    button.disabled = false;
  }
}

function show() {
  for (const line of document.querySelectorAll(".actions[hidden]")) line.hidden = false;
}

document.addEventListener("click", (event) => {
  const button = event.target?.closest?.("button[data-act]");
  if (button) act(button);
});
show();
document.addEventListener("kilowatch:placed", show);
