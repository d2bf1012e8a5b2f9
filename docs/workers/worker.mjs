// A worker for backstop in plain HTTP, with nothing but Node's own fetch (18 or later): node worker.mjs QUEUE
import { hostname } from "node:os";
const SERVER = process.env.BACKSTOP_URL ?? "http://127.0.0.1:7007", QUEUE = process.argv[2], LEASE_MS = Number(process.env.BACKSTOP_LEASE_MS ?? 15_000);
const me = { worker: `${hostname()}/${process.pid}`, host: hostname(), pid: process.pid, started_at: new Date().toISOString() };
const held = new Map(), token = process.env.BACKSTOP_TOKEN ?? "", sleep = (ms) => new Promise((later) => setTimeout(later, ms));

async function handle(job) { // your work: throw to fail, and the job is tried again as its queue's policy says
  await sleep(1_000 * (job.payload.seconds ?? 0));
  if (job.attempt <= (job.payload.fails ?? 0)) throw new RangeError(`attempt ${job.attempt} did not get through`);
  console.log("done", job.id, JSON.stringify(job.payload));
}

async function call(path, body) { // safe to repeat: a settlement that was applied is applied once
  const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  for (;;) {
    const told = await fetch(`${SERVER}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) })
      .then(async (answer) => answer.ok ? { body: await answer.json() } : { status: answer.status, why: await answer.text().catch((error) => error.message) }).catch((error) => ({ status: 503, why: error.message }));
    if (told.body) return told.body;
    console.error(path, told.status, told.why);
    if (told.status < 500 && ![408, 429].includes(told.status)) process.exit(1);
    await sleep(Math.min(1_000, LEASE_MS / 6));
  }
}
// As long as this goes on, nobody else gets the job.
setInterval(() => held.size && call("beat", { ...me, leases: [...held.values()], lease_ms: LEASE_MS }), LEASE_MS / 3);
for (;;) for (const job of (await call("lease", { queues: [QUEUE], max: 1, ...me, lease_ms: LEASE_MS, wait_ms: 20_000 })).jobs) {
  held.set(job.id, { id: job.id, lease: job.lease });
  const end = await handle(job).then(() => ({ outcome: "done" }), (error) => ({ outcome: "failed", error: { message: error.message, type: error.name, stack_trace: error.stack } }));
  await call("settle", { settle: [{ id: job.id, lease: job.lease, ...end }] }); held.delete(job.id);
}
