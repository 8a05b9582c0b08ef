// bandwidth.js: memory bandwidth by number of threads, measured with the C library's copy and search.
import { Worker } from 'node:worker_threads'

const bytes = 128 * 2 ** 20 // of a thread, beyond its share of a cache
const measureMs = 300

// Copies half of its memory to the other half, or reads all of it, until the time is over; reports bytes per ms.
const script = `
const { parentPort, workerData: { bytes, measureMs, reading, gate } } = require('node:worker_threads')
const memory = Buffer.alloc(bytes, 2)
const half = bytes / 2
const once = reading ? () => memory.indexOf(1) : () => memory.copy(memory, half, 0, half)
once()
parentPort.postMessage('ready')
Atomics.wait(new Int32Array(gate), 0, 0)
const begin = performance.now()
let runs = 0
while (performance.now() - begin < measureMs) runs += once() === undefined ? 0 : 1
parentPort.postMessage((runs * bytes) / (performance.now() - begin))
`

/** GB/s that threads copy (bytes read plus written) or read. @param {number} threads @param {boolean} reading */
export async function bandwidth(threads, reading) {
  const gate = new SharedArrayBuffer(4)
  const workers = Array.from(
    { length: threads },
    () => new Worker(script, { eval: true, workerData: { bytes, measureMs, reading, gate } }),
  )
  const next = (/** @type {Worker} */ worker) =>
    new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
  await Promise.all(workers.map(next))
  const rates = workers.map(next)
  Atomics.store(new Int32Array(gate), 0, 1)
  Atomics.notify(new Int32Array(gate), 0)
  const sum = (await Promise.all(rates)).reduce((a, b) => a + b, 0)
  await Promise.all(workers.map(worker => worker.terminate()))
  return sum / 1e6
}
