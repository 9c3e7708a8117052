// The page: head, sections, theme, and the link to a run that is still going on.

const page = {
  doc: JSON.parse(document.getElementById("document").textContent),
  hidden: new Set(),
  served: document.documentElement.dataset.live === "yes",
  redraw: () => {},
};
const root = document.documentElement;

// As the system wishes, until the reader says otherwise.
function theme() {
  let chosen = kept();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    page.redraw();
  };
  set();
  dark.addEventListener("change", set);
  document.querySelector(".theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    set();
    try {
      localStorage.setItem("fedrelay-theme", chosen);
    } catch {
      /* pages from disk may not keep anything */
    }
  });
}

function kept() {
  try {
    return localStorage.getItem("fedrelay-theme");
  } catch {
    return null;
  }
}

function head() {
  const { title, facts, methods } = page.doc;
  document.title = `${title} · FedRelay`;
  const awaited = methods.length ? page.doc.awaited || [] : [];
  return [
    element("h1", {}, title),
    element(
      "div",
      { class: "card", hidden: !Object.keys(facts).length },
      element(
        "dl",
        { class: "facts" },
        Object.entries(facts).map(([name, value]) =>
          element("div", {}, element("dt", {}, name), element("dd", {}, value)),
        ),
      ),
    ),
    element("div", { class: "headlines" }, headlines(page.doc)),
    awaited.length ? element("p", { class: "note" }, `Not there yet: ${awaited.join(", ")}.`) : "",
  ];
}

function build() {
  const sections = [
    curvesSection,
    relaySection,
    targetsSection,
    resultsSection,
    federationSection,
    forgettingSection,
    trafficSection,
    faultsSection,
    againSection,
  ].map((make) => make(page));
  const top = element("div", { id: "top" });
  document.querySelector("nav").append(...sections.map(({ id, title, short }) => element("a", { href: `#${id}` }, short || title)));
  document
    .querySelector("main")
    .append(
      top,
      ...sections.map(({ id, title, lead, nodes }) =>
        element(
          "section",
          { id, "aria-labelledby": `${id}-title` },
          element("h2", { id: `${id}-title` }, title),
          element("p", { class: "lead" }, lead),
          nodes,
        ),
      ),
      element("footer", {}, `FedRelay ${page.doc.fedrelay} · ${page.doc.folders.join(", ")}`),
    );
  page.redraw = () => {
    hideTip();
    top.replaceChildren(...head());
    for (const section of sections) section.draw();
  };
  page.redraw();
  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (innerWidth !== width) {
        width = innerWidth;
        page.redraw();
      }
    }, 150);
  });
}

// What a live page says of itself, in a word.
function pulse({ states, runs_in_all: all }) {
  if (states.running) return "live";
  const over = ["complete", "diverged", "fruitless"].reduce((sum, state) => sum + (states[state] || 0), 0);
  return !all || over < all ? "waiting" : "complete";
}

// A page from `fedrelay watch` asks for news; a report is finished, wherever it is opened from.
function follow() {
  if (!page.served) return;
  const sign = document.querySelector(".live");
  const say = (text, on) => {
    sign.textContent = text;
    sign.className = `live ${on ? "on" : "off"}`;
  };
  let mark = "";
  let trouble = "";

  async function ask() {
    const answer = await fetch("document.json", { headers: { "If-None-Match": mark }, cache: "no-store" });
    if (answer.status !== 200) return;
    const found = await answer.json();
    trouble = found.error || "";
    if (trouble) return;
    mark = answer.headers.get("ETag");
    page.doc = found;
    page.redraw();
  }

  async function again() {
    const began = performance.now();
    try {
      await ask();
      const word = pulse(page.doc);
      say(trouble || word, !trouble && word === "live");
    } catch {
      say("the server has stopped", false);
    }
    setTimeout(again, Math.max(1000, 5 * (performance.now() - began))); // large runs are asked for less often
  }
  again();
}

theme();
build();
follow();
