// Communication: transfers and bytes by kind, bytes by what was carried.

function trafficSection(page) {
  const choice = { what: "transfers" };
  const KINDS = {
    s2c: ["server → client", "--m0"],
    c2s: ["client → server", "--m4"],
    c2c: ["client → client", "--m2"],
  };
  const frame = figure("communication", {
    controls: [
      segments(
        "What is counted",
        [
          ["transfers", "Transfers by way"],
          ["bytes", "Bytes by way"],
          ["payloads", "Bytes by what is carried"],
        ],
        choice.what,
        (value) => {
          choice.what = value;
          draw();
        },
      ),
    ],
  });

  function draw() {
    const shown = page.doc.methods.filter((method) => !page.hidden.has(method.name) && method.traffic[choice.what]);
    const untold = page.doc.methods.filter((method) => !method.traffic[choice.what]).map((method) => method.name);
    const sums = shown.map((method) => Object.values(method.traffic[choice.what]).reduce((sum, each) => sum + each, 0));
    const most = Math.max(0, ...sums);
    if (!most)
      return frame.empty(untold.length ? `Not noted by ${untold.join(", ")}.` : "Nothing has travelled.", untold.length > 0);
    const payloads = [...new Set(shown.flatMap((method) => Object.keys(method.traffic.payloads)))];
    const parts =
      choice.what === "payloads"
        ? payloads.map((name, index) => [name, [name, `--m${index % 7}`]])
        : Object.entries(KINDS);
    const text = choice.what === "transfers" ? count : bytes;
    const width = room(frame.plot);
    const [line, right] = [50, width - 84];
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${shown.length * line + 4}`,
      role: "img",
      "aria-label": "Communication of every method",
    });
    shown.forEach((method, index) => {
      let x = 0;
      svg.append(shape("text", { x: 0, y: index * line + 14 }, method.name));
      for (const [key, [name, colour]] of parts) {
        const value = method.traffic[choice.what][key] || 0;
        if (!value) continue;
        const long = (value / most) * right;
        const bar = shape("rect", {
          class: "traffic",
          x,
          y: index * line + 20,
          width: Math.max(0.5, long - 1),
          height: 20,
          rx: 3,
          fill: `var(${colour})`,
        });
        bar.addEventListener("pointermove", (event) =>
          showTip(event, method.name, [
            [name, text(value), `var(${colour})`],
            ["share", percent(value / sums[index], 0)],
          ]),
        );
        bar.addEventListener("pointerleave", hideTip);
        svg.append(bar);
        x += long;
      }
      svg.append(shape("text", { class: "soft", x: x + 8, y: index * line + 34 }, text(sums[index])));
    });
    frame.show(
      [
        svg,
        element(
          "div",
          { class: "key" },
          parts.map(([, [name, colour]]) =>
            element("span", {}, element("i", { class: "swatch", style: `background:var(${colour})` }), name),
          ),
        ),
      ],
      () => [
        ["method", "counted", "kind", "value"],
        ...page.doc.methods.flatMap((method) =>
          ["transfers", "bytes", "payloads"].flatMap((what) =>
            Object.entries(method.traffic[what] || {}).map(([name, value]) => [
              method.name,
              what === "transfers" ? "transfers" : "bytes",
              name,
              value,
            ]),
          ),
        ),
      ],
    );
    if (untold.length) frame.plot.append(element("p", { class: "note" }, `Not noted by ${untold.join(", ")}.`));
  }

  return {
    id: "communication",
    title: "Communication",
    lead: "Everything that was sent over the whole run, profiles of clients included; means over seeds.",
    nodes: [frame.card],
    draw,
  };
}
