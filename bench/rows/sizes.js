// sizes.js: models whose sizes change from run to run, and how long their runs hold the event loop up. Cold: the first run of
// each size; warm: all sizes have been seen.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { packages } from '../engines.js'
import { feedsOf } from '../feeds.js'
import { median, threadsOf } from '../harness.js'
import { changing, openNet, sizesOf } from '../nets.js'
import { expectNear, flopsOf } from './models.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Engine, EngineTensor, Package } from '../engines.js' */
/** @import { Input, Size } from '../feeds.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */

const dtype = 'f32'
const tolerance = 1e-4

/** @param {Kernels} kernels @param {Peer | null} peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* sizes({ backend }, peer, wanted) {
  if (backend !== 'cpu') return
  for (const { row: name, net, first, sizes: lists } of changing) {
    const all = sizesOf(lists)
    const states = /** @type {const} */ (['cold', 'warm'])
    const rows = states.map(state => ({ name, shape: `${net} x${all.length} ${state}`, dtype, state }))
    if (!rows.some(wanted)) continue
    const { file, graph, inputs, dispose } = await openNet(net)
    const engine = await packages['dgx-spark']()
    const flops = all.map(size => flopsOf({ graph }, feedsOf(engine, inputs, size)))
    const sides = [await openSide('dgx-spark', file, inputs, first, all)]
    if (peer) sides.push(await openSide('onnxruntime-node', file, inputs, first, all))
    const [ours, theirs] = sides
    for (const { state, ...row } of rows.filter(wanted)) {
      const parts = (/** @type {Side | undefined} */ side) => ({
        run: () => side?.pass(),
        ...(state === 'cold' && { prepare: () => side?.reopen() }),
      })
      yield {
        ...row,
        ...parts(ours),
        calls: all.length,
        flops: flops.reduce((sum, count) => sum + count, 0) / all.length,
        check: () => expectEqual(ours, theirs),
        details: () => detailsOf(state, ours, theirs),
        ...(peer && { peer: { name: peer.name, spins: true, ...parts(theirs) } }),
      }
    }
    for (const side of sides) await side.dispose()
    await dispose()
  }
}

/**
 * @typedef {object} Side a net in one engine
 * @property {() => Promise<void>} reopen loads it anew and runs it for another size
 * @property {(see?: (outputs: Record<string, EngineTensor>) => void) => Promise<void>} pass runs it once for each size
 * @property {() => Promise<number[]>} holdUps milliseconds by which a run for each size holds the event loop up
 * @property {() => unknown} dispose
 */

/** @param {keyof typeof packages} name @param {string} file @param {Input[]} inputs @param {Size} first @param {Size[]} all @returns {Promise<Side>} */
async function openSide(name, file, inputs, first, all) {
  /** @type {Package} */
  const engine = await packages[name]()
  /** @type {Engine | undefined} */
  let model
  const reopen = async () => {
    await model?.dispose()
    model = await engine.open(file, { threads: threadsOf() })
    await model.run(feedsOf(engine, inputs, first))
  }
  await reopen()
  return {
    reopen,
    pass: async see => {
      for (const size of all) {
        const outputs = await model?.run(feedsOf(engine, inputs, size))
        if (outputs) see?.(outputs)
      }
    },
    holdUps: async () => {
      const times = []
      for (const size of all) {
        const feeds = feedsOf(engine, inputs, size)
        times.push(await holdUp(() => model?.run(feeds)))
      }
      return times
    },
    dispose: () => model?.dispose(),
  }
}

/** The longest time between two turns of the event loop, in milliseconds. @param {() => unknown} work */
async function holdUp(work) {
  await nextTurn()
  let [last, longest, isRunning] = [performance.now(), 0, true]
  const note = () => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
  }
  const turn = () => {
    note()
    if (isRunning) setImmediate(turn)
  }
  setImmediate(turn)
  await work()
  note()
  isRunning = false
  return longest
}

/** @param {'cold' | 'warm'} state @param {Side | undefined} ours @param {Side | undefined} theirs */
async function detailsOf(state, ours, theirs) {
  /** @type {number[][]} */
  const sides = []
  for (const side of [ours, theirs]) {
    if (state === 'cold') await side?.reopen()
    sides.push((await side?.holdUps()) ?? [])
  }
  const [own = [], peer = []] = sides
  const of = (/** @type {(times: number[]) => number} */ choose) =>
    /** @type {const} */ ({ unit: 'ms', ours: choose(own), peer: choose(peer) })
  return { 'event loop held up': of(median), 'event loop held up at most': of(times => Math.max(...times)) }
}

/** @param {Side | undefined} ours @param {Side | undefined} theirs */
async function expectEqual(ours, theirs) {
  /** @type {Record<string, EngineTensor>[]} */
  const expected = []
  await theirs?.pass(outputs => expected.push(outputs))
  await ours?.pass(outputs => {
    for (const [name, { data }] of Object.entries(expected.shift() ?? {}))
      expectNear(name, outputs[name]?.data, data, tolerance)
  })
}
