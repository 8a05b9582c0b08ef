// threads.js: models of several worker threads side by side, and the part of a run that kernels take.
import assert from 'node:assert'
import { Model } from 'dgx-spark'
import { requireAddon } from '#lib/native.js'
import { median } from '../harness.js'
import { modelSources, randomFeeds } from '../model-sources.js'
import { startModelWorker } from '../model-worker.js'

/** @import { ElementType, Tensor } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */
/** @import { Source } from '../model-sources.js' */

const sizes = [
  { layers: 2, width: 256, heads: 4, tokens: 64, runs: 20 },
  { layers: 2, width: 64, heads: 4, tokens: 8, runs: 200 },
]
const shortestMs = 1 // of a run of which kernels should take nearly all
const profiledRuns = 25

/** @param {Kernels} kernels @param {Peer | null} _ @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* threads({ backend }, _, wanted) {
  if (backend !== 'cpu') return
  for (const size of sizes) yield* twoWorkers(size)
  for (const source of modelSources().filter(({ dtype }) => dtype === 'f32')) {
    if (wanted({ name: 'time in kernels', shape: source.name, dtype: 'f32' })) yield* timeInKernels(source)
  }
}

/** Two workers that share the runs of a model, beside one that does all. @param {typeof sizes[number]} size @returns {AsyncGenerator<Case>} */
async function* twoWorkers({ runs, ...size }) {
  const [one, other] = [startModelWorker(size), startModelWorker(size)]
  try {
    yield {
      name: 'two workers',
      shape: `${size.layers}x${size.width} T${size.tokens} 1 thread`,
      dtype: 'f32',
      bytes: runs * 2 * size.tokens * size.width * 4,
      run: () => Promise.all([one.run(runs / 2), other.run(runs / 2)]),
      check: async () => assert.deepEqual(await one.run(1), await other.run(1)),
      peer: { name: 'one worker', run: () => one.run(runs) },
    }
  } finally {
    await Promise.all([one.terminate(), other.terminate()])
  }
}

/** A model whose runs take longer than a millisecond, and how much of them its kernels take. @param {Source} source @returns {AsyncGenerator<Case>} */
async function* timeInKernels(source) {
  const { file, dispose } = await source.open()
  const model = await Model.load(file, { backend: 'cpu' })
  const feeds = randomFeeds(model)
  const { wall } = await profiled(model, feeds)
  if (wall > shortestMs) {
    yield {
      name: 'time in kernels',
      shape: source.name,
      dtype: 'f32',
      bytes: Object.values(feeds).reduce(
        (sum, { data }) => sum + (ArrayBuffer.isView(data) ? data.byteLength : 0),
        0,
      ),
      percent: async () => (await profiled(model, feeds)).percent,
      run: () => model.run(feeds),
      check: async () => assert.ok((await profiled(model, feeds)).percent <= 100),
    }
  }
  model.dispose()
  await dispose()
}

/**
 * Medians over runs whose steps are timed: milliseconds until JavaScript has the answer, and the percentage that the
 * steps take of them.
 * @param {Model} model @param {Record<string, Tensor<ElementType>>} feeds
 */
async function profiled(model, feeds) {
  const addon = requireAddon()
  const { planProfile, planStepTimes } = addon
  let [wall, steps] = [0, 0]
  addon.planProfile = async (plan, brief) => {
    const start = performance.now()
    await planProfile(plan, brief)
    wall += performance.now() - start
    steps += planStepTimes(plan).reduce((sum, time) => sum + time, 0)
  }
  const walls = []
  const percents = []
  try {
    for (let run = 0; run < profiledRuns; run++) {
      ;[wall, steps] = [0, 0]
      await model.profile(feeds, { runs: 1 })
      walls.push(wall)
      percents.push((100 * steps) / wall)
    }
  } finally {
    addon.planProfile = planProfile
  }
  return { wall: median(walls), percent: median(percents) }
}
