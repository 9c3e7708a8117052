// Faults and what was done about them, and what it takes to do it all again.

const PLACES = ["round", "client", "route", "hop"];

// Where something went wrong; −1 is the round as a whole, and a client of a real federation has a name.
function placeOf(event, name) {
  if (name === "client" && event.node) return String(event.node);
  return (event[name] ?? -1) < 0 ? NONE : String(event[name]);
}

function faultsSection(page) {
  const frame = figure("faults");
  const MOST_KINDS = 6; // colours for what was done; what is rarer shares one

  function draw() {
    const { events, faults, methods } = page.doc;
    if (!faults.length) return frame.empty("No faults were noted.");
    const open = frame.plot.querySelector(".each")?.open;
    const several = (name) => new Set(events.map((event) => event[name])).size > 1;
    frame.show(
      [
        ...chart(faults),
        element(
          "details",
          { class: "each", open },
          element("summary", {}, "one by one"),
          element(
            "div",
            {
              class: "wide",
              style: "max-height:24rem;overflow:auto",
              tabindex: 0,
              role: "region",
              "aria-label": "List of faults",
            },
            list(events, methods, several),
          ),
        ),
        ...(page.doc.events_in_all > events.length
          ? [
              element(
                "p",
                { class: "note" },
                `All ${count(page.doc.events_in_all)} are counted; ${count(events.length)} are listed, the first of each run.`,
              ),
            ]
          : []),
      ],
      () => [
        ["method", "seed", ...PLACES, "node", "what", "done", "faults_in_all"],
        ...events.map((event) => [
          methods[event.method].name,
          event.seed,
          ...PLACES.map((name) => event[name]),
          event.node ?? "",
          event.what,
          event.done,
          page.doc.events_in_all,
        ]),
      ],
    );
  }

  // How often each thing went wrong, split by what was done about it.
  function chart(faults) {
    const ranked = (key) =>
      [...summed(faults.map((fault) => [fault[key], fault.times]))]
        .sort((one, other) => other[1] - one[1])
        .map(([word]) => word);
    const actions = ranked("done");
    const kept = actions.slice(0, actions.length > MOST_KINDS ? MOST_KINDS - 1 : MOST_KINDS);
    const others = "something else";
    const action = ({ done }) => (kept.includes(done) ? done : others);
    const shown = actions.length > kept.length ? [...kept, others] : kept;
    const rows = ranked("what").map((what) => ({
      name: what,
      parts: summed(faults.filter((fault) => fault.what === what).map((fault) => [action(fault), fault.times])),
    }));
    const series = shown.map((name, index) => [name, name, methodColour(index)]);
    const label = "How often each thing went wrong, and what was done";
    return stackedBars(frame, rows, series, count, { label, mark: "mishap" });
  }

  const list = (events, methods, several) =>
    element(
      "table",
      {},
      headings([
        ...(several("method") ? ["Method"] : []),
        ...(several("seed") ? ["seed"] : []),
        "round",
        "what happened",
        "what was done",
        ...PLACES.slice(1),
      ]),
      element(
        "tbody",
        {},
        events.map((event) =>
          element(
            "tr",
            {},
            several("method") ? element("td", {}, methods[event.method].name) : null,
            several("seed") ? element("td", {}, String(event.seed)) : null,
            element("td", {}, placeOf(event, "round")),
            element("td", { class: "words" }, String(event.what ?? NONE)),
            element("td", { class: "words" }, String(event.done ?? NONE)),
            PLACES.slice(1).map((name) => element("td", {}, placeOf(event, name))),
          ),
        ),
      ),
    );

  return {
    id: "faults",
    title: "Faults",
    lead: "What went wrong on the way, and what was done about it.",
    nodes: [frame.card],
    draw,
  };
}

function againSection(page) {
  const card = element("div", { class: "card" });
  function draw() {
    const open = new Set([...card.querySelectorAll("details[open]")].map((each) => each.dataset.name));
    card.replaceChildren(
      ...(page.doc.specs.length
        ? page.doc.specs.map((spec) =>
            element(
              "details",
              { "data-name": spec.name, open: open.has(spec.name) },
              element("summary", {}, spec.name),
              element(
                "p",
                {},
                element("code", {}, spec.command),
                spec.own.length
                  ? element(
                      "span",
                      { class: "note" },
                      ` — started from Python with ${spec.own.join(" and ")} of its own`,
                    )
                  : null,
              ),
              element(
                "p",
                { class: "note" },
                Object.entries(spec.versions)
                  .map(([name, value]) => `${name} ${value}`)
                  .join(" · "),
              ),
              element("p", { class: "note" }, "data fingerprint ", element("code", {}, String(spec.data_fingerprint))),
              element("pre", { tabindex: 0 }, spec.text),
            ),
          )
        : [element("p", { class: "empty" }, "No run has begun yet.")]),
    );
  }
  return {
    id: "again",
    title: "Do it again",
    lead: "The resolved experiment and the versions it ran with. The same spec and seed give the same bits, whatever the number of workers.",
    nodes: [card],
    draw,
  };
}
