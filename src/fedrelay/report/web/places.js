// Where clients stand on the relay map: the server in the middle, those a model visits around it, the others outside.

const MOST_IDLE_DOTS = 1500;
const MOST_TRACKS = 150;
const MOST_SHARED_TRACKS = 12;

const onEllipse = (centre, radii, angle) => ({
  x: centre.x + radii.x * Math.cos(angle),
  y: centre.y + radii.y * Math.sin(angle),
});
const firstVisits = (routes) => [...new Set(routes.flat())];
const away = (from, to, distance) => {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) / length) * distance, y: from.y + ((to.y - from.y) / length) * distance };
};

// Which clients stand together: fixed groups, else the routes of this round, else nobody.
function clusters(journey, stage) {
  if (journey.groups.length > 1)
    return { fixed: true, list: journey.groups.map((members) => byVisit(members, stage.routes)) };
  const visited = stage.routes.flat();
  const disjoint = new Set(visited).size === stage.routes.reduce((sum, route) => sum + new Set(route).size, 0);
  if (disjoint && stage.routes.length > 1 && stage.routes.some((route) => route.length > 1))
    return { fixed: false, list: stage.routes.map((route) => [...new Set(route)]) };
  return null;
}

function byVisit(members, routes) {
  const inside = new Set(members);
  const order = firstVisits(routes).filter((client) => inside.has(client));
  const visited = new Set(order);
  return [...order, ...members.filter((client) => !visited.has(client))];
}

function arrange(journey, stage, width, height) {
  const centre = { x: width / 2, y: height / 2 };
  const visited = new Set(stage.routes.flat());
  const found = { centre, at: new Map(), blobs: [], ring: [], radii: null, unseen: 0 };
  const together = clusters(journey, stage);
  const edge = { x: width / 2 - 14, y: height / 2 - 14 };
  if (together) placeClusters(found, together, visited, edge);
  else placeRing(found, stage, visited, edge, journey);
  placeIdle(found, journey, edge);
  return found;
}

function placeClusters(found, { fixed, list }, visited, edge) {
  const busy = list.map((members, index) => ({
    members,
    index,
    visited: members.some((client) => visited.has(client)),
  }));
  const everything = !fixed || spread(found.centre, edge, busy.length).r >= 20;
  const placed = everything ? busy : busy.filter((each) => each.visited);
  const margin = everything && fixed ? 0 : 26;
  const { points, r: radius } = spread(found.centre, { x: edge.x - margin, y: edge.y - margin }, placed.length);
  placed.forEach((each, place) => {
    const middle = points[place];
    found.blobs.push({
      ...middle,
      r: radius,
      number: each.index,
      members: each.members.length,
      visited: each.visited,
      fixed,
    });
    const toServer = Math.atan2(found.centre.y - middle.y, found.centre.x - middle.x);
    const many = each.members.length;
    const circle = many > 1 ? radius * 0.64 : 0;
    const dot =
      many > 1 ? Math.min(radius * 0.18 + 1, 13, circle * Math.sin(Math.PI / many) * 0.68) : Math.min(13, radius * 0.4);
    each.members.forEach((client, turn) => {
      const angle = toServer + ((turn + 0.5) * 2 * Math.PI) / many;
      found.at.set(client, {
        x: middle.x + circle * Math.cos(angle),
        y: middle.y + circle * Math.sin(angle),
        r: Math.max(1.6, dot),
        visited: visited.has(client),
        outward: angle,
        named: radius >= 38,
      });
    });
  });
}

// So many circles around an ellipse, as large as they can be without touching each other or the server.
function spread(centre, edge, many) {
  const start = many === 2 && edge.x > edge.y ? 0 : -Math.PI / 2;
  let r = Math.min(many <= 3 ? 150 : 104, Math.min(edge.x, edge.y) * 0.6);
  let points = [];
  for (let attempt = 0; attempt < 40; attempt += 1) {
    const radii = { x: edge.x - r, y: edge.y - r };
    points = evenlyAround(centre, radii, many, start);
    const nearest =
      many < 2
        ? Infinity
        : Math.min(
            ...points.map((point, index) => {
              const next = points[(index + 1) % many];
              return Math.hypot(next.x - point.x, next.y - point.y);
            }),
          );
    const inner = Math.min(...points.map((point) => Math.hypot(point.x - centre.x, point.y - centre.y)));
    if (nearest >= 2 * r + 6 && inner >= r + 70) break;
    r *= 0.93;
  }
  return { points, r };
}

// Points with equal ways between them; equal angles would crowd the flat sides of an ellipse.
function evenlyAround(centre, radii, many, start) {
  const fine = 720;
  const ring = Array.from({ length: fine + 1 }, (_, each) =>
    onEllipse(centre, radii, start + (2 * Math.PI * each) / fine),
  );
  const walked = [0];
  for (let each = 1; each <= fine; each += 1)
    walked.push(walked[each - 1] + Math.hypot(ring[each].x - ring[each - 1].x, ring[each].y - ring[each - 1].y));
  let at = 0;
  return Array.from({ length: many }, (_, place) => {
    while (walked[at] < (walked[fine] * place) / many) at += 1;
    return ring[at];
  });
}

function placeRing(found, stage, visited, edge, journey) {
  const longest = stage.routes.reduce((best, route) => (route.length > best.length ? route : best), []);
  const order =
    longest.length > 1 ? firstVisits([longest, ...stage.routes]) : [...visited].sort((one, other) => one - other);
  const everybody = visited.size >= journey.clients;
  const share = everybody ? 0.9 : 0.72;
  found.radii = { x: Math.min(edge.x * share - 16, edge.y * share * 1.75), y: edge.y * share - 16 };
  found.ring = order;
  const around = Math.PI * (found.radii.x + found.radii.y);
  order.forEach((client, place) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * place) / order.length;
    found.at.set(client, {
      ...onEllipse(found.centre, found.radii, angle),
      r: Math.max(1.6, Math.min(13, (around / order.length) * 0.36)),
      visited: true,
      outward: angle,
      angle,
      named: true,
    });
  });
}

function placeIdle(found, journey, edge) {
  const idle = [];
  for (let client = 0; client < journey.clients && idle.length <= MOST_IDLE_DOTS; client += 1)
    if (!found.at.has(client)) idle.push(client);
  const shown = idle.slice(0, MOST_IDLE_DOTS);
  found.unseen = journey.clients - found.at.size - shown.length;
  const perRow = Math.max(24, Math.floor((Math.PI * (edge.x + edge.y)) / 9));
  const rows = Math.ceil(shown.length / perRow);
  shown.forEach((client, place) => {
    const row = Math.floor(place / perRow);
    const inRow = Math.min(perRow, shown.length - row * perRow);
    const angle = -Math.PI / 2 + (2 * Math.PI * (place - row * perRow + (row % 2) / 2)) / inRow;
    const inset = Math.min(7, 40 / rows) * row;
    found.at.set(client, {
      ...onEllipse(found.centre, { x: edge.x - inset + 6, y: edge.y - inset + 6 }, angle),
      r: rows > 1 || shown.length > 120 ? 2 : 3.6,
      visited: false,
      outward: angle,
    });
  });
}

// No taller than what is drawn; while rounds go by it only grows, so that nothing jumps.
function fit(scene, found) {
  const tops = [found.centre.y - 78, ...found.blobs.map((blob) => blob.y - blob.r)];
  const bottoms = [found.centre.y + 78, ...found.blobs.map((blob) => blob.y + blob.r)];
  for (const place of found.at.values()) {
    tops.push(place.y - place.r - 20);
    bottoms.push(place.y + place.r + 20);
  }
  scene.top = Math.min(scene.top ?? Infinity, tops.reduce((least, each) => Math.min(least, each)) - 4);
  scene.bottom = Math.max(scene.bottom ?? 0, bottoms.reduce((most, each) => Math.max(most, each)) + 4);
  scene.svg.setAttribute("viewBox", `0 ${scene.top.toFixed(1)} ${scene.width} ${(scene.bottom - scene.top).toFixed(1)}`);
}

// The way of one model: a list of pieces (out, hop, back), each with a path.
function way(found, stage, index, from, to) {
  const route = stage.routes[index];
  const stops = route.map((client) => found.at.get(client)).filter(Boolean);
  if (!stops.length) return [];
  const shared = found.radii && stage.routes.length > 1 && stage.routes.some((each) => each.length > 1);
  const many = Math.min(stage.routes.length, MOST_SHARED_TRACKS);
  const lane = shared ? (index - (many - 1) / 2) * Math.min(4.5, 30 / many) : 0;
  const alone = stops.length === 1;
  const pieces = [{ kind: "out", d: bent(from, stops[0], alone ? 0.09 : 0.04) }];
  for (let turn = 1; turn < stops.length; turn += 1)
    pieces.push({ kind: "hop", d: hop(found, stops[turn - 1], stops[turn], lane) });
  pieces.push({ kind: "back", d: bent(stops.at(-1), to, alone ? 0.09 : 0.04) });
  return pieces;
}

// From rim to rim, a little to the right of the straight line, so that there and back stay apart.
function bent(from, to, bend) {
  const [start, end] = [away(from, to, from.r || 0), away(to, from, (to.r || 0) + 2)];
  const middle = {
    x: (start.x + end.x) / 2 - (end.y - start.y) * bend,
    y: (start.y + end.y) / 2 + (end.x - start.x) * bend,
  };
  return `M${spot(start)}Q${spot(middle)} ${spot(end)}`;
}

const spot = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;

function hop(found, from, to, lane) {
  const neighbours = found.radii && from.angle !== undefined && to.angle !== undefined;
  const step = neighbours ? (to.angle - from.angle + 4 * Math.PI) % (2 * Math.PI) : 0;
  if (!neighbours || found.ring.length < 3 || step > (2 * Math.PI) / found.ring.length + 0.01)
    return bent(from, to, 0.06);
  const radii = { x: found.radii.x + lane, y: found.radii.y + lane };
  const gap = Math.min(step * 0.3, (from.r + 2) / Math.min(radii.x, radii.y));
  const inset = lane ? 0 : gap;
  const pieces = Math.max(2, Math.ceil(step * 16)); // short enough to look round
  const points = Array.from({ length: pieces + 1 }, (_, each) =>
    spot(onEllipse(found.centre, radii, from.angle + inset + ((step - 2 * inset) * each) / pieces)),
  );
  return `M${points.join("L")}`;
}
