"""A worker for backstop in plain HTTP, with nothing but Python's own library: python3 worker.py QUEUE"""
import datetime, http.client, json, os, socket, sys, threading, time, traceback, urllib.error, urllib.request
SERVER, QUEUE, TOKEN = os.environ.get("BACKSTOP_URL", "http://127.0.0.1:7007"), sys.argv[1], os.environ.get("BACKSTOP_TOKEN")
HOST, LEASE_MS, held = socket.gethostname(), int(os.environ.get("BACKSTOP_LEASE_MS", "15000")), {}
ME = {"worker": f"{HOST}/{os.getpid()}", "host": HOST, "pid": os.getpid(), "started_at": datetime.datetime.now(datetime.timezone.utc).isoformat()}

def handle(job):  # your work: raise to fail, and the job is tried again as its queue's policy says
    time.sleep(job["payload"].get("seconds", 0))
    if job["attempt"] <= job["payload"].get("fails", 0): raise ConnectionError(f"attempt {job['attempt']} did not get through")
    print("done", job["id"], json.dumps(job["payload"]), flush=True)

def call(path, body):  # safe to repeat: a settlement that was applied is applied once
    head = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {})
    while True:
        try: return json.load(urllib.request.urlopen(urllib.request.Request(f"{SERVER}/v1/{path}", json.dumps(body).encode(), head), timeout=60))
        except urllib.error.HTTPError as error:
            print(f"{path}: {error}: {error.read().decode() if error.code < 500 else 'trying again'}", file=sys.stderr, flush=True); error.code < 500 and error.code not in (408, 429) and sys.exit(1)
        except (OSError, http.client.HTTPException, ValueError) as error: print(f"{path}: {error}; trying again", file=sys.stderr, flush=True)
        time.sleep(min(1, LEASE_MS / 6000))
def beat():  # as long as this goes on, nobody else gets the job: whatever ends it ends the process
    try:
        while not time.sleep(LEASE_MS / 3000): held and call("beat", {**ME, "leases": list(held.values()), "lease_ms": LEASE_MS})
    finally: os._exit(1)
threading.Thread(target=beat, daemon=True).start()
while True:
    for job in call("lease", {"queues": [QUEUE], "max": 1, **ME, "lease_ms": LEASE_MS, "wait_ms": 20000})["jobs"]:
        end = held[job["id"]] = {"id": job["id"], "lease": job["lease"]}
        try: handle(job); end = {**end, "outcome": "done"}
        except Exception as error: end = {**end, "outcome": "failed", "error": {"message": str(error), "type": type(error).__name__, "stack_trace": traceback.format_exc()}}
        call("settle", {"settle": [end]}); del held[job["id"]]
