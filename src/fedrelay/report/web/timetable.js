// The same journeys as a timetable: one line for each model, one column for each turn, server to server.

const MOST_LINES = 60;

function drawTimetable(frame, choice, journey, stage, federation, faults, focus, numbers) {
  const shown = stage.routes.slice(0, MOST_LINES);
  const longest = Math.max(1, ...shown.map((route) => route.length));
  const width = room(frame.plot);
  const column = Math.max(34, Math.min(84, (width - 220) / longest));
  const [left, line, top] = [104, shown.length > 24 ? 34 : 44, 30];
  const right = left + longest * column;
  const total = right + 104;
  const height = top + shown.length * line + 18;
  const middle = top + ((shown.length - 1) * line) / 2 + line / 2;
  const svg = shape("svg", {
    viewBox: `0 0 ${total} ${height}`,
    width: total,
    height,
    role: "img",
    "aria-label": "Timetable: one line for each model",
  });
  const every = Math.ceil(longest / 24);
  for (let turn = 0; turn < longest; turn += every)
    svg.append(
      shape(
        "text",
        { class: "soft", x: left + (turn + 0.5) * column, y: 18, "text-anchor": "middle", style: "font-size:11px" },
        turn === 0 ? "turn 1" : String(turn + 1),
      ),
    );
  const hit = new Set(faults.map((event) => `${event.route} ${event.client}`));
  const peers = stage.relay === "peers" || stage.relay === "none";
  shown.forEach((route, index) => {
    if (!route.length) return;
    const y = top + index * line + line / 2;
    const colour = methodColour(index);
    const last = left + (route.length - 0.5) * column;
    const slot = stage.slots ? stage.slots[index] : null;
    const waits = slot !== null && slot !== undefined;
    const track = followable(route, index, focus);
    const start =
      waits || peers ? `M${left - 26},${y}` : `M34,${middle}C${left - 34},${middle} ${left - 44},${y} ${left - 8},${y}`;
    const home =
      stage.merges && !peers
        ? `C${right + 30},${y} ${right + 26},${middle} ${right + 62},${middle}`
        : `L${right + 40},${y}`;
    track.append(
      shape("path", {
        d: `${start}L${last},${y}`,
        fill: "none",
        stroke: colour,
        "stroke-width": 2.2,
        "stroke-dasharray": stage.relay === "server" ? "1 4" : null,
        "stroke-linecap": "round",
      }),
      peers
        ? null
        : shape("path", {
            d: `M${last},${y}L${right},${y}${home}`,
            fill: "none",
            stroke: colour,
            "stroke-width": 2,
            "stroke-dasharray": "4 4",
          }),
    );
    if (waits && !peers)
      for (const x of stage.merges ? [left - 40] : [left - 40, right + 52])
        track.append(
          shape("rect", {
            x: x - 12,
            y: y - 11,
            width: 24,
            height: 22,
            rx: 5,
            fill: "var(--card)",
            stroke: colour,
            "stroke-width": 2,
          }),
          shape(
            "text",
            { x, y: y + 4, "text-anchor": "middle", style: "font-size:11px", "font-weight": 600 },
            String(slot),
          ),
        );
    route.forEach((client, turn) => {
      const counts = federation && federation.counts[client];
      const x = left + (turn + 0.5) * column;
      const node = shape(
        "g",
        { class: "client", "data-client": client, transform: `translate(${x} ${y}) scale(${line > 40 ? 1.1 : 0.9})` },
        mix(counts, true),
      );
      node.addEventListener("pointermove", (event) =>
        showTip(event, `Client ${client}, turn ${turn + 1} of model ${index + 1}`, clientFacts(counts)),
      );
      node.addEventListener("pointerleave", hideTip);
      track.append(
        node,
        shape(
          "text",
          { class: "soft", x, y: y + (line > 40 ? 22 : 18), "text-anchor": "middle", style: "font-size:9.5px" },
          String(client),
        ),
      );
      if (hit.has(`${index} ${client}`))
        track.append(
          shape(
            "text",
            { class: "fault", x: x + 9, y: y - 7, style: "fill:var(--warn);font-size:16px", "font-weight": 800 },
            "!",
          ),
        );
    });
    svg.append(track);
  });
  if (!peers) {
    const station = (x, text, filled) =>
      shape(
        "g",
        {},
        shape("circle", {
          cx: x,
          cy: middle,
          r: 26,
          fill: filled ? "var(--ink)" : "var(--card)",
          stroke: "var(--ink)",
          "stroke-width": 2,
        }),
        shape(
          "text",
          {
            x,
            y: middle + 4,
            "text-anchor": "middle",
            "font-weight": 600,
            style: `font-size:11px;fill:var(${filled ? "--paper" : "--ink"})`,
          },
          text,
        ),
      );
    if (!stage.slots) svg.append(station(30, "server", false));
    if (stage.merges) svg.append(station(right + 76, shown.length > 1 ? "merge" : "server", true));
  }
  frame.show(
    [
      element("div", { class: "scroll", tabindex: total > width ? 0 : null }, svg),
      ...(stage.routes.length > shown.length
        ? [
            element(
              "p",
              { class: "note" },
              `${count(shown.length)} of ${count(stage.routes.length)} models are listed.`,
            ),
          ]
        : []),
    ],
    numbers,
  );
}
