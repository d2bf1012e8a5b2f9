// A worker for backstop in plain HTTP, with nothing but Node's own fetch (18 or later): node worker.mjs QUEUE
const SERVER = process.env.BACKSTOP_URL ?? "http://127.0.0.1:7007", QUEUE = process.argv[2];
const WORKER = `node/${process.pid}`, held = new Map(), token = process.env.BACKSTOP_TOKEN ?? "";

async function handle(job) { // your work: throw to fail, and the job is tried again as its queue's policy says
  if (job.attempt <= (job.payload.fails ?? 0)) throw new RangeError(`attempt ${job.attempt} did not get through`);
  console.log("done", job.id, JSON.stringify(job.payload));
}

async function call(path, body) { // safe to repeat: a settlement that was applied is applied once
  const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  for (;;) {
    const answer = await fetch(`${SERVER}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) })
      .catch((error) => console.error(`${path}: ${error.message}; trying again`));
    if (answer?.ok) return answer.json();
    if (answer && answer.status < 500 && answer.status !== 429) { console.error(path, await answer.text()); process.exit(1); }
    await new Promise((later) => setTimeout(later, 1_000));
  }
}

// As long as this goes on, nobody else gets the job.
setInterval(() => held.size && call("beat", { worker: WORKER, leases: [...held.values()] }), 5_000);
for (;;) {
  const { jobs } = await call("lease", { queues: [QUEUE], max: 1, worker: WORKER, lease_ms: 15_000, wait_ms: 20_000 });
  for (const job of jobs) {
    held.set(job.id, { id: job.id, lease: job.lease });
    const end = await handle(job).then(() => ({ outcome: "done" }), (error) => ({ outcome: "failed", error: { message: error.message, type: error.name, stack_trace: error.stack } }));
    await call("settle", { settle: [{ id: job.id, lease: job.lease, ...end }] }); held.delete(job.id);
  }
}
