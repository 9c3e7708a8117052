// The page: head, sections, theme, and updates of a page that `fedrelay watch` serves.

const root = document.documentElement;
const page = {
  doc: JSON.parse(document.getElementById("document").textContent),
  hidden: new Set(),
  served: root.dataset.live === "yes",
  cards: new Map(),
  redraw() {
    hideTip();
    document.getElementById("top").replaceChildren(...head());
    for (const { id, cards } of page.doc.sections) {
      for (const card of cards) page.cards.get(card.name).update(card);
      closeIfEmpty(document.getElementById(id), cards);
    }
  },
};

function storedTheme() {
  try {
    return localStorage.getItem("fedrelay-theme");
  } catch {
    return null; // pages from disk may have no storage
  }
}

// The system's theme, until the reader chooses one.
function followTheme() {
  let chosen = storedTheme();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    if (page.cards.size) page.redraw();
  };
  set();
  dark.addEventListener("change", set);
  document.querySelector(".theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    set();
    try {
      localStorage.setItem("fedrelay-theme", chosen);
    } catch {
      /* no storage */
    }
  });
}

// A section without content is one line: its title and why there is nothing.
function closeIfEmpty(section, cards) {
  const empty = cards.every(({ figures, table, details = [] }) => !Object.keys(figures).length && !table && !details.length);
  section.classList.toggle("closed", empty);
  section.querySelector(".nothing").textContent = empty ? cards.map((card) => card.empty).filter(Boolean).join(" ") : "";
}

function head() {
  const { title, facts, differing = {}, headlines, methods, missing = [], failures = [] } = page.doc;
  document.title = `${title} · FedRelay`;
  const fact = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  const headline = ({ number, text }) =>
    element("div", { class: "card headline" }, element("b", {}, number), element("span", {}, text));
  return [
    element("h1", {}, title),
    element(
      "div",
      { class: "card", hidden: !Object.keys(facts).length },
      element("dl", { class: "facts" }, Object.entries(facts).map(fact)),
      Object.keys(differing).length
        ? [
            element("h2", { class: "small" }, "What differs between methods"),
            element("dl", { class: "facts differing" }, Object.entries(differing).map(fact)),
          ]
        : "",
    ),
    element("div", { class: "headlines" }, headlines.map(headline)),
    ...failures.map((text) => element("p", { class: "note loss" }, text)),
    methods.length && missing.length ? element("p", { class: "note" }, `Not there yet: ${missing.join(", ")}.`) : "",
  ];
}

function build() {
  const { sections, fedrelay, folders } = page.doc;
  for (const { cards } of sections)
    for (const { name } of cards) page.cards.set(name, name === "routes" ? new RouteMapCard(page, name) : new Card(page, name));
  document.querySelector("nav").append(...sections.map(({ id, title }) => element("a", { href: `#${id}` }, title)));
  document.querySelector("main").append(
    element("div", { id: "top" }),
    ...sections.map(({ id, title, lead, cards }) =>
      element(
        "section",
        { id, "aria-labelledby": `${id}-title` },
        element("h2", { id: `${id}-title` }, title),
        element("p", { class: "lead" }, lead),
        element("p", { class: "nothing" }),
        cards.map(({ name }) => page.cards.get(name).node),
      ),
    ),
    element("footer", {}, `FedRelay ${fedrelay} · ${folders.join(", ")}`),
  );
  page.redraw();
  let [width, waiting] = [innerWidth, 0];
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (innerWidth !== width) page.redraw();
      width = innerWidth;
    }, 150);
  });
}

function liveState({ states, runs_in_all: all }) {
  if (states.running) return "live";
  const over = sum(["complete", "diverged", "untrained"].map((state) => states[state]));
  return !all || over < all ? "waiting" : "complete";
}

// A page that is served asks for a newer document; a page from disk does not.
function follow() {
  if (!page.served) return;
  const sign = document.querySelector(".live");
  let [etag, error] = ["", ""];

  async function ask() {
    const answer = await fetch("document.json", { headers: { "If-None-Match": etag }, cache: "no-store" });
    if (answer.status !== 200) return;
    const found = await answer.json();
    error = found.error || "";
    if (error) return;
    etag = answer.headers.get("ETag");
    page.doc = found;
    page.redraw();
  }

  async function again() {
    const began = performance.now();
    let state;
    try {
      await ask();
      state = error || liveState(page.doc);
    } catch {
      state = "the server has stopped";
    }
    sign.textContent = state;
    sign.className = `live ${state === "live" ? "on" : "off"}`;
    setTimeout(again, Math.max(1000, 5 * (performance.now() - began))); // ask less often for large documents
  }
  again();
}

followTheme();
build();
follow();
