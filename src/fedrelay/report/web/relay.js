// The relay map: how models travelled in a round, as a picture, round by round.

const RELAYS = {
  direct: "clients hand the model to each other",
  server: "between clients the model goes through the server",
  peers: "every client sends its model to every other; there is no server",
  none: "all data are in one place, nothing travels",
};

const IN_ALL = ["rounds_in_all", "routes_in_all", "turns_in_all"];

function relaySection(page) {
  const choice = { view: "map", focus: null, playing: false };
  const run = chooser("run", () => {
    choice.focus = null;
    draw(true);
  });
  const slider = element("input", {
    type: "range",
    min: 0,
    max: 0,
    value: 0,
    "aria-label": "Round",
    oninput: () => {
      stop();
      draw();
    },
  });
  const said = element("output", {});
  const play = element(
    "button",
    {
      type: "button",
      class: "play",
      "aria-label": "Play the rounds",
      onclick: () => (choice.playing ? stop() : start()),
    },
    "▶",
  );
  const caption = element("p", { class: "caption", "aria-live": "polite" });
  const key = element("div", { class: "key" });
  const note = element("p", { class: "note" });
  const frame = figure("relay", {
    controls: [
      run.node,
      segments(
        "View",
        [
          ["map", "Map"],
          ["timetable", "Timetable"],
        ],
        choice.view,
        (value) => {
          choice.view = value;
          canvas = null;
          draw();
        },
      ),
      element("div", { class: "slider" }, play, slider, said),
    ],
    below: [key, note],
  });
  frame.card.insertBefore(caption, frame.plot);
  let canvas = null;
  let frameRequest = 0;
  let plays = 0;

  function start() {
    if (slider.value === slider.max) slider.value = 0;
    choice.playing = true;
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    plays += 1;
    draw();
    next(plays);
  }

  function stop() {
    choice.playing = false;
    cancelAnimationFrame(frameRequest);
    canvas?.tokens.replaceChildren();
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play the rounds");
  }

  // Pausing and playing again begins anew; what was under way before finds that it is over.
  function next(own) {
    const advance = () => {
      if (!choice.playing || own !== plays) return;
      if (Number(slider.value) >= Number(slider.max)) {
        stop();
        return;
      }
      slider.value = Number(slider.value) + 1;
      draw();
      next(own);
    };
    if (choice.view === "map" && canvas && !calm()) travel(canvas, advance);
    else setTimeout(advance, 900);
  }

  function draw(fresh = false) {
    const { journeys, methods } = page.doc;
    const wanted = run.offer(
      journeys.map((each, index) => [String(index), `${methods[each.method].name}, seed ${each.seed}`]),
    );
    if (!run.offered && journeys.some((each) => each.rounds.length)) {
      run.offered = true;
      run.select.value = String(mostTelling(journeys));
      return draw(true);
    }
    const journey = journeys[Number(wanted || 0)];
    if (!journey || !journey.rounds.length) {
      canvas = null;
      key.replaceChildren();
      note.textContent = "";
      caption.textContent = "";
      return frame.empty(
        failures(page.doc) || "No round is done yet.",
        journeys.some((each) => each.rounds.length),
      );
    }
    const atEnd = slider.value === slider.max;
    slider.max = journey.rounds.length - 1;
    if (fresh) slider.value = page.served ? slider.max : 0;
    else if (atEnd && page.served && !choice.playing) slider.value = slider.max;
    const stage = journey.rounds[Number(slider.value)];
    said.textContent = `round ${count(stage.round)} of ${count(journey.rounds.at(-1).round)}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    const federation = journey.federation === null ? null : page.doc.federations[journey.federation];
    const faults = stage.faults || [];
    caption.textContent = sentence(stage, methods[journey.method].name);
    if (choice.view === "map") drawMap(journey, stage, federation, faults);
    else drawTimetable(frame, choice, journey, stage, federation, faults, focus, () => sheet(journey));
    key.replaceChildren(...keys(stage, federation, faults));
    note.textContent = limits(journey, stage, federation);
  }

  // What to show first: chains side by side say most, a single chain more than trips to one client.
  function mostTelling(journeys) {
    const chained = (each) => each.rounds.some((stage) => stage.routes.some((route) => route.length > 1));
    const aside = (each) => chained(each) && each.rounds.some((stage) => stage.routes.length > 1);
    return Math.max(0, [aside, chained].map((telling) => journeys.findIndex(telling)).find((index) => index >= 0) ?? 0);
  }

  function sentence(stage, name) {
    const lengths = (stage.lengths || stage.routes.map((route) => route.length)).filter(Boolean);
    const trips = lengths.length + (stage.more_routes || 0); // a route that lost all its clients never set off
    const [short, long] = [Math.min(...lengths), Math.max(...lengths)];
    const models = trips === 1 ? "One model travels" : `${count(trips)} models travel`;
    const visits =
      long === 1
        ? trips === 1
          ? "to one client"
          : "to one client each"
        : `through ${short === long ? count(long) : `${count(short)} to ${count(long)}`} clients${trips > 1 ? " each" : ""}, one after another`;
    if (stage.relay === "none") return `${name}: ${RELAYS.none}.`;
    if (!trips) return `${name}: no model came back from a client.${troubles(stage)}`;
    if (stage.relay === "peers") return `${name}: ${count(trips)} clients train models of their own; ${RELAYS.peers}.`;
    const end = stage.merges
      ? trips > 1
        ? "then the server merges them"
        : "then it goes home"
      : `then ${trips > 1 ? "they wait in their slots" : "it waits in its slot"}; nothing is merged this round`;
    const handed = long > 1 && stage.relay === "server" ? ` (${RELAYS.server})` : "";
    return `${name}: ${models} ${visits}${handed}, ${end}.${troubles(stage)}`;
  }

  // "4 dropout, 1 straggler", over all that went wrong in the round.
  function troubles({ troubles: found }) {
    if (!found) return "";
    const counted = Object.entries(found).map(([what, times]) => `${count(times)} ${what}`);
    return ` What went wrong is marked with !: ${counted.join(", ")}.`;
  }

  function keys(stage, federation, faults) {
    const line = (dash, text) =>
      element(
        "span",
        {},
        shape(
          "svg",
          { width: 26, height: 8, "aria-hidden": "true" },
          shape("line", {
            x1: 1,
            x2: 25,
            y1: 4,
            y2: 4,
            stroke: "currentColor",
            "stroke-width": 2,
            "stroke-dasharray": dash,
          }),
        ),
        text,
      );
    const lines =
      stage.relay === "none"
        ? []
        : stage.relay === "peers"
          ? [line("", "models to and fro")]
          : [line("", "on the way"), line("4 4", stage.merges ? "home to the server" : "to its slot")];
    if (stage.relay === "server" && stage.routes.some((route) => route.length > 1))
      lines.push(line("1 4", "handed on through the server"));
    const classes = federation ? federation.counts[0].length : 0;
    const held =
      classes && classes <= FEW_CLASSES
        ? swatches(Array.from({ length: classes }, (_, each) => [`class ${each}`, classColour(each, classes)])).children
        : [];
    return [...lines, ...(faults.length ? [element("span", { class: "loss" }, "! fault")] : []), ...held];
  }

  function limits(journey, stage, federation) {
    const drawn = canvas ? canvas.drawn : null;
    return [
      journey.rounds.length < journey.rounds_in_all
        ? `Of ${count(journey.rounds_in_all)} rounds ${count(journey.rounds.length)}, evenly chosen, are kept in this page.`
        : "",
      stage.more_routes
        ? `${count(stage.more_routes)} more models travelled in this round than are kept in this page.`
        : "",
      unmarked(stage),
      choice.view === "map" && drawn && drawn.tracks < stage.routes.length
        ? `${count(drawn.tracks)} of ${count(stage.routes.length)} models are drawn; the timetable shows more.`
        : "",
      choice.view === "map" && drawn && drawn.unseen > 0
        ? `${count(drawn.unseen)} more clients that no model visits are not drawn.`
        : "",
      !journey.groups.length && journey.groups_in_all
        ? `There are ${count(journey.groups_in_all)} groups, too many to draw all of them.`
        : "",
      !federation && journey.unknown ? `The class mix of clients is not known: ${journey.unknown}.` : "",
    ]
      .filter(Boolean)
      .join(" ");
  }

  function unmarked({ troubles: found = {}, faults = [] }) {
    const all = Object.values(found).reduce((sum, times) => sum + times, 0);
    return faults.length < all ? `Of ${count(all)} faults in this round the first ${count(faults.length)} are marked.` : "";
  }

  function focus(index) {
    choice.focus = choice.focus === index ? null : index;
    for (const node of frame.plot.querySelectorAll("[data-route]"))
      node.style.opacity = choice.focus === null || Number(node.dataset.route) === choice.focus ? "" : "0.1";
  }

  function drawMap(journey, stage, federation, faults) {
    const width = room(frame.plot);
    const height = Math.round(width < 560 ? width * 1.15 : Math.min(660, width * 0.62));
    const id = `${run.select.value} ${width} ${page.doc.journeys.length}`;
    if (!canvas || canvas.id !== id || !canvas.svg.isConnected) canvas = newCanvas(id, width, height);
    canvas.svg.setAttribute("aria-label", caption.textContent);
    frame.show(canvas.svg, () => sheet(journey));
    const found = arrange(journey, stage, width, height);
    canvas.drawn = { unseen: found.unseen, tracks: 0 };
    fit(canvas, found);
    drawBlobs(canvas, found);
    drawTracks(canvas, found, stage, focus);
    drawClients(canvas, found, federation, faults);
    drawServer(canvas, found, stage);
    canvas.tokens.replaceChildren();
    if (choice.focus !== null) {
      const kept = choice.focus;
      choice.focus = null;
      focus(kept);
    }
  }

  const sheet = (journey) => [
    ["method", "seed", "round", "route", "turn", "client", "relay", "slot", "merges", ...IN_ALL],
    ...journey.rounds.flatMap((stage) =>
      stage.routes.flatMap((route, index) =>
        route.map((client, turn) => [
          page.doc.methods[journey.method].name,
          journey.seed,
          stage.round,
          index,
          turn + 1,
          client,
          stage.relay,
          stage.slots ? stage.slots[index] : null,
          stage.merges,
          journey.rounds_in_all,
          stage.routes.length + (stage.more_routes || 0),
          stage.lengths ? stage.lengths[index] : route.length,
        ]),
      ),
    ),
  ];

  function travel(scene, done) {
    const began = performance.now();
    const ways = [...scene.tracks.querySelectorAll("path.whole")].slice(0, 60).map((path) => ({
      path,
      length: path.getTotalLength(),
      token: shape("circle", { r: 5.5, fill: path.dataset.colour, stroke: "var(--card)", "stroke-width": 2 }),
    }));
    scene.tokens.replaceChildren(...ways.map(({ token }) => token));
    const lasts = Math.min(4200, 900 + 140 * Math.max(1, ...ways.map(({ path }) => Number(path.dataset.hops))));
    const move = (now) => {
      const share = Math.min(1, (now - began - 350) / lasts);
      for (const { path, length, token } of ways) {
        const place = path.getPointAtLength(Math.max(0, share) * length);
        token.setAttribute("cx", place.x);
        token.setAttribute("cy", place.y);
      }
      if (share < 1) frameRequest = requestAnimationFrame(move);
      else setTimeout(done, 250);
    };
    frameRequest = requestAnimationFrame(move);
  }

  return {
    id: "relay",
    title: "The relay map",
    short: "Relay map",
    lead: "How models travelled, round by round. Every dot is a client, coloured by the classes it holds; every coloured line is one model on its way. Press a line to follow that model alone.",
    nodes: [frame.card],
    draw,
  };
}
