// Prints sample rows as JSON.stringify writes them: node make_node.js orders|sensors|events
let seed = 11;
const r = () => { seed = (seed * 1103515245 + 12345) & 0x7fffffff; return seed / 0x7fffffff; };
const pick = (a) => a[Math.floor(r() * a.length)];
const hex = (n) => Array.from({ length: n }, () => Math.floor(r() * 16).toString(16)).join("");
const uuid = () => `${hex(8)}-${hex(4)}-4${hex(3)}-a${hex(3)}-${hex(12)}`;
const names = ["Müller", "山田太郎", "a\"quote\\slash/", "tab\there", "😀 shop", "plain", "<b>&amp;</b>", "\u0001\u001f\u007f\b\f\r\n"];
const order = (i) => ({ order_id: i, customer: pick(names), placed_at: new Date(1772344800000 + i * 1000 + Math.floor(r() * 1000)).toISOString(), total: Math.round(r() * 1e5) / 100, currency: pick(["EUR", "USD"]), paid: r() < 0.7, lines: Array.from({ length: Math.floor(r() * 4) }, () => ({ sku: "SKU-" + Math.floor(r() * 9999), qty: 1 + Math.floor(r() * 9), price: Math.round(r() * 1e4) / 100 })), coupon: pick([null, "SPRING", undefined]), note: pick([undefined, "x", ""]) });
const sensor = (i) => ({ device: uuid(), ts: 1772323200000 + i * 250, temperature: pick([r() * 100 - 40, 20, -5, r() * 1e-9, 0]), pressure: r() * 10 ** Math.floor(r() * 25), ok: pick([true, false, null]), readings: Array.from({ length: Math.floor(r() * 5) }, () => Math.round(r() * 1e3) / 1e3), tags: Object.fromEntries(["site", "rack", "größe", "z/1"].filter(() => r() < 0.5).map((k) => [k, pick(["x", "é", "<b>"])])) });
const event = (i) => ({ event: pick(["page_view", "click", "search"]), user_id: Math.floor(r() * 2 ** 53), session: uuid(), at: new Date(1772344800000 + i * 37).toISOString().slice(0, -1), day: new Date(1772344800000 + i * 86400000).toISOString().slice(0, 10), url: "https://shop.example/p/" + Math.floor(r() * 999) + "?q=" + pick(["a&b=c", "naïve", "x+y"]), referrer: pick([null, "https://example.org/"]), screen: { w: pick([1280, 1920]), h: pick([720, 1080]), dpr: pick([1, 1.5, 2]) }, score: pick([1e-5, 1e-7, 0.1, 3, 1e16, 1e21, 123456789.125]) });
const make = { orders: order, sensors: sensor, events: event }[process.argv[2]];
for (let i = 0; i < 200; i++) console.log(JSON.stringify(make(i)));
