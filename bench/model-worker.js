// model-worker.js: a worker thread with a model of its own, on one thread; runs it as often as it is told.
import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { Model } from 'dgx-spark'
import { transformer } from '../test/fixtures/models/transformer.js'
import { randomFeeds } from './model-sources.js'

/** @import { Sizes } from '../test/fixtures/models/transformer.js' */

/** @typedef {{ run: (times: number) => Promise<Float32Array>, terminate: () => Promise<number> }} ModelWorker `run` gives the last output */

/** Starts a worker with a transformer of these sizes. @param {Sizes} sizes @returns {ModelWorker} */
export function startModelWorker(sizes) {
  const worker = new Worker(new URL(import.meta.url), { workerData: sizes })
  const run = async (/** @type {number} */ times) => {
    worker.postMessage(times)
    const [output] = await once(worker, 'message') // rejects with an error of the worker
    return output
  }
  return { run, terminate: () => worker.terminate() }
}

async function serve() {
  const model = await Model.fromGraph(transformer(workerData), { backend: 'cpu', threads: 1 })
  const feeds = randomFeeds(model)
  parentPort?.on('message', async (/** @type {number} */ times) => {
    let outputs = await model.run(feeds)
    for (let i = 1; i < times; i++) outputs = await model.run(feeds)
    parentPort?.postMessage(outputs.output?.toFloat32())
  })
}

if (!isMainThread) await serve()
