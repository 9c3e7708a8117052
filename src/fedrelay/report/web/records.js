// Faults and what was done about them, and what it takes to do it all again.

// Where something went wrong; −1 is the round as a whole, and a client of a real federation has a name.
function placeOf(event, name) {
  if (name === "client" && event.node) return String(event.node);
  return (event[name] ?? -1) < 0 ? NONE : String(event[name]);
}

function faultsSection(page) {
  const frame = figure("faults");
  function draw() {
    const { events, methods } = page.doc;
    if (!events.length) return frame.empty("No faults were noted.");
    const columns = ["round", "route", "hop", "client"];
    frame.show(
      [
        element(
          "div",
          {
            class: "wide",
            style: "max-height:24rem;overflow:auto",
            tabindex: 0,
            role: "region",
            "aria-label": "List of faults",
          },
          element(
            "table",
            {},
            headings(["Method", "seed", ...columns, "what happened", "what was done"]),
            element(
              "tbody",
              {},
              events.map((event) =>
                element(
                  "tr",
                  {},
                  element("td", {}, methods[event.method].name),
                  element("td", {}, count(event.seed)),
                  columns.map((name) => element("td", {}, placeOf(event, name))),
                  element("td", { class: "words" }, String(event.what ?? NONE)),
                  element("td", { class: "words" }, String(event.done ?? NONE)),
                ),
              ),
            ),
          ),
        ),
        ...(page.doc.events_in_all > events.length
          ? [
              element(
                "p",
                { class: "note" },
                `The first ${count(events.length)} of ${count(page.doc.events_in_all)} are listed.`,
              ),
            ]
          : []),
      ],
      () => [
        ["method", "seed", ...columns, "node", "what", "done"],
        ...events.map((event) => [
          methods[event.method].name,
          event.seed,
          ...columns.map((name) => event[name]),
          event.node,
          event.what,
          event.done,
        ]),
      ],
    );
  }
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
