// growing-past.js: greedy decoding through plain runs: the keys and values of a run are the past of the next one.
import assert from 'node:assert'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { packages } from '../engines.js'
import { growing } from '../nets.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Engine, EngineTensor, Package } from '../engines.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

const layers = 5
const [heads, depth] = [4, 8]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* growingPast({ backend }, peer) {
  const file = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', growing.file)
  if (backend !== 'cpu' || !existsSync(file)) return
  const { model, engine } = await openSide('dgx-spark', file)
  const theirs = peer && (await openSide('onnxruntime-node', file))
  const ways = {
    run: () => decode(engine, model),
    bindState: async () => {
      const states = model.bindState?.() ?? model
      const tokens = await decode(engine, states, false)
      states.dispose()
      return tokens
    },
  }
  const peerRun = theirs && (() => decode(theirs.engine, theirs.model))
  for (const [way, run] of Object.entries(ways)) {
    yield {
      name: 'growing past',
      shape: `stories260K x${growing.steps}, ${way}`,
      dtype: 'f32',
      calls: growing.steps,
      bytes: 2 * layers * heads * depth * 4 * (growing.steps / 2), // of a past of middle length
      run,
      check: async () => {
        if (peerRun) assert.deepEqual(await run(), await peerRun())
      },
      ...(peer && peerRun && { peer: { name: peer.name, spins: true, run: peerRun } }),
    }
  }
  await model.dispose()
  await theirs?.model.dispose()
}

/** @param {keyof typeof packages} name @param {string} file */
async function openSide(name, file) {
  const engine = await packages[name]()
  return { engine, model: await engine.open(file, { threads: 1 }) }
}

/**
 * The first token and those behind it, from an empty past.
 * @param {Package} engine @param {Pick<Engine, 'run'>} model @param {boolean} [feedsBack] whether the past is an input
 */
async function decode(engine, model, feedsBack = true) {
  const mask = new BigInt64Array(growing.steps).fill(1n)
  const names = Array.from({ length: layers }, (_, layer) => [`${layer}.key`, `${layer}.value`]).flat()
  const empty = engine.tensor(new Float32Array(), [1, heads, 0, depth])
  /** @type {(outputs: Record<string, EngineTensor>) => Record<string, EngineTensor>} */
  const pastOf = outputs =>
    Object.fromEntries(names.map(name => [`past_key_values.${name}`, outputs[`present.${name}`] ?? empty]))
  let past = feedsBack ? pastOf({}) : {}
  const tokens = [growing.first]
  for (let step = 0; step < growing.steps; step++) {
    const outputs = await model.run({
      input_ids: engine.tensor(BigInt64Array.of(BigInt(tokens.at(-1) ?? 0)), [1, 1]),
      attention_mask: engine.tensor(mask.subarray(0, step + 1), [1, step + 1]),
      position_ids: engine.tensor(BigInt64Array.of(BigInt(step)), [1, 1]),
      ...past,
    })
    tokens.push(indexOfMax(outputs.logits?.data))
    if (feedsBack) past = pastOf(outputs)
  }
  return tokens
}

/** @param {Float32Array} logits */
function indexOfMax(logits) {
  let best = 0
  for (let i = 1; i < logits.length; i++) if ((logits[i] ?? 0) > (logits[best] ?? 0)) best = i
  return best
}
