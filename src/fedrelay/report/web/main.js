// The page: head, sections, theme, and the link to a run that is still going on.

const page = {
  doc: JSON.parse(document.getElementById("document").textContent),
  hidden: new Set(),
  served: document.documentElement.dataset.live === "yes",
  redraw: () => {},
};
const root = document.documentElement;

function theme() {
  const kept = (() => {
    try {
      return localStorage.getItem("fedrelay-theme");
    } catch {
      return null;
    }
  })();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (value) => {
    root.dataset.theme = value;
    page.redraw();
  };
  set(kept || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => {
    if (!kept) set(dark.matches ? "dark" : "light");
  });
  document.querySelector(".theme").addEventListener("click", () => {
    set(root.dataset.theme === "dark" ? "light" : "dark");
    try {
      localStorage.setItem("fedrelay-theme", root.dataset.theme);
    } catch {
      /* pages from disk may not keep anything */
    }
  });
}

// What the level of a method is a mean of; short runs have fewer evaluations than are asked for.
function lately({ course }) {
  const many = Math.min(page.doc.last, course.evaluated);
  if (many === 1) return "the only evaluation";
  return `mean of ${many < page.doc.last ? "all" : "the last"} ${many} evaluations`;
}

function head() {
  const { title, facts, methods, targets, states } = page.doc;
  const federated = methods.filter(
    (method) => method.method !== "centralized" && method.standing.accuracy_last.mean !== null,
  );
  const best = federated.reduce(
    (found, method) =>
      !found || method.standing.accuracy_last.mean > found.standing.accuracy_last.mean ? method : found,
    null,
  );
  const lines = [];
  const headline = (number, text) =>
    lines.push(element("div", { class: "card headline" }, element("b", {}, number), element("span", {}, text)));
  if (best)
    headline(
      percent(best.standing.accuracy_last.mean),
      `${best.name}, ${lately(best)}${best.runs.every((run) => run.status === "complete") ? "" : ", so far"}`,
    );
  const gains = targets.map(({ share, accuracy }) => {
    const rounds = (method) => method.standing.costs_to[String(share)]?.round;
    const reached = federated.filter(rounds).sort((one, other) => rounds(one) - rounds(other));
    return {
      accuracy,
      fast: reached[0],
      slow: reached.at(-1),
      factor: reached.length > 1 ? rounds(reached.at(-1)) / rounds(reached[0]) : 0,
    };
  });
  const gain = gains.reduce((found, each) => (each.factor > found.factor ? each : found), { factor: 1 });
  if (gain.fast)
    headline(
      `${gain.factor.toFixed(1)}×`,
      `fewer rounds to ${percent(gain.accuracy)} with ${gain.fast.name} than with ${gain.slow.name}`,
    );
  const alike = new Set(federated.map((method) => method.course.round.at(-1))).size === 1; // what more rounds cost is no merit of fewer
  const sent = alike
    ? federated
        .filter((method) => method.standing.bytes)
        .sort((one, other) => one.standing.bytes - other.standing.bytes)[0]
    : null;
  if (sent)
    headline(
      bytes(sent.standing.bytes),
      `sent by ${sent.name}${federated.length > 1 ? ", the least of all" : " in all"}`,
    );
  const done = states.complete || 0;
  if (page.doc.runs_in_all)
    headline(
      `${done} of ${page.doc.runs_in_all}`,
      `${page.doc.runs_in_all === 1 ? "run" : "runs"} complete${Object.entries(states)
        .filter(([name]) => name !== "complete")
        .map(([name, number]) => `, ${number} ${name}`)
        .join("")}`,
    );
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
    element("div", { class: "headlines" }, lines),
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
