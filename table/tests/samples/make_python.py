"""Prints sample rows as json.dumps writes them: python3 make_python.py orders|sensors|events [compact|unicode]."""
import datetime as dt
import json
import random
import sys
import uuid

kind, style = sys.argv[1], (sys.argv[2:] or ["default"])[0]
r = random.Random(7)
start = dt.datetime(2026, 3, 1, 6, 0, tzinfo=dt.timezone.utc)
names = ["Müller", "Nguyễn Văn A", "O'Brien & Sons", "山田太郎", "Анна", "a\"quote\\slash/", "tab\there", "😀 shop", "plain"]


def order(i):
    row = {"order_id": i, "customer": r.choice(names), "placed_at": (start + dt.timedelta(seconds=i, microseconds=r.choice([0, r.randrange(10**6)]))).isoformat(),
           "total": round(r.random() * 10 ** r.randrange(1, 6), 2), "currency": r.choice(["EUR", "USD", "JPY"]), "paid": r.random() < .7,
           "lines": [{"sku": f"SKU-{r.randrange(9999):04}", "qty": r.randrange(1, 9), "price": r.randrange(1, 99999) / 100} for _ in range(r.randrange(0, 4))],
           "coupon": r.choice([None, "SPRING", "10% <off>"])}
    if r.random() < .3:
        row["note"] = r.choice(["leave at door", "", "line\nbreak\u2028\u0001\x7f"])
    return row


def sensor(i):
    return {"device": str(uuid.UUID(int=r.getrandbits(128))), "ts": 1772323200000 + i * 250, "temperature": r.choice([r.uniform(-40, 60), 20.0, -0.0, r.uniform(0, 1) * 10 ** -r.randrange(3, 12)]),
            "pressure": r.random() * 10 ** r.randrange(0, 18), "ok": r.choice([True, False, None]), "readings": [round(r.gauss(0, 1), 3) for _ in range(r.randrange(0, 5))],
            "tags": {k: r.choice(["x", "é", "<b>"]) for k in r.sample(["site", "rack", "größe", "z/1"], r.randrange(0, 4))}}


def event(i):
    return {"event": r.choice(["page_view", "click", "search"]), "user_id": r.randrange(2**53), "session": str(uuid.UUID(int=r.getrandbits(128))),
            "at": str(start.replace(tzinfo=None) + dt.timedelta(milliseconds=i * 37)), "day": (start + dt.timedelta(days=i)).date().isoformat(),
            "url": f"https://shop.example/p/{r.randrange(999)}?q={r.choice(['a&b=c', 'naïve', 'x+y'])}", "referrer": r.choice([None, "https://example.org/"]),
            "screen": {"w": r.choice([1280, 1920]), "h": r.choice([720, 1080]), "dpr": r.choice([1, 1.5, 2.0])}, "score": r.choice([1e-5, 0.1, 3.0, 1e16, 123456789.125])}


make = {"orders": order, "sensors": sensor, "events": event}[kind]
options = {"default": {}, "compact": {"separators": (",", ":")}, "unicode": {"ensure_ascii": False}}[style]
for i in range(200):
    print(json.dumps(make(i), **options))
