// Communication: transfers and bytes by the way they went, bytes by what was carried.

function trafficSection(page) {
  const choice = { what: "transfers" };
  const WAYS = [
    ["s2c", "server → client", methodColour(0)],
    ["c2s", "client → server", methodColour(4)],
    ["c2c", "client → client", methodColour(2)],
  ];
  const VIEWS = {
    transfers: "Transfers by way",
    bytes: "Bytes by way",
    payloads: "Bytes by what is carried",
  };
  const frame = figure("communication", {
    controls: [
      segments("What is counted", Object.entries(VIEWS), choice.what, (value) => {
        choice.what = value;
        draw();
      }),
    ],
  });

  function draw() {
    const noted = page.doc.methods.filter((method) => method.traffic[choice.what]);
    const missing = page.doc.methods.filter((method) => !noted.includes(method)).map((method) => method.name);
    const untold = missing.length ? `Not noted by ${missing.join(", ")}.` : "";
    const rows = noted
      .filter((method) => !page.hidden.has(method.name))
      .map((method) => ({ name: method.name, parts: new Map(Object.entries(method.traffic[choice.what])) }));
    if (!rows.some(({ parts }) => [...parts.values()].some(Boolean)))
      return frame.empty(untold || "Nothing has travelled.", untold !== "");
    const payloads = [...new Set(rows.flatMap(({ parts }) => [...parts.keys()]))];
    const series =
      choice.what === "payloads" ? payloads.map((name, index) => [name, name, methodColour(index)]) : WAYS;
    const text = choice.what === "transfers" ? count : bytes;
    frame.show(
      [
        ...stackedBars(frame, rows, series, text, { label: VIEWS[choice.what], mark: "traffic" }),
        ...(untold ? [element("p", { class: "note" }, untold)] : []),
      ],
      sheet,
    );
  }

  const sheet = () => [
    ["method", "counted", "kind", "value"],
    ...page.doc.methods.flatMap((method) =>
      Object.keys(VIEWS).flatMap((what) =>
        Object.entries(method.traffic[what] || {}).map(([name, value]) => [
          method.name,
          what === "transfers" ? "transfers" : "bytes",
          name,
          value,
        ]),
      ),
    ),
  ];

  return {
    id: "communication",
    title: "Communication",
    lead: "Everything that was sent over the whole run, profiles of clients included; means over seeds. What travels beside a model counts as a transfer of its own.",
    nodes: [frame.card],
    draw,
  };
}
