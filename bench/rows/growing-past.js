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
  const ours = await openSide('dgx-spark', file)
  const theirs = peer && (await openSide('onnxruntime-node', file))
  yield {
    name: 'growing past',
    shape: `stories260K x${growing.steps}, run`,
    dtype: 'f32',
    calls: growing.steps,
    bytes: 2 * layers * heads * depth * 4 * (growing.steps / 2), // of a past of middle length
    run: ours.decode,
    check: async () => {
      if (theirs) assert.deepEqual(await ours.decode(), await theirs.decode())
    },
    ...(peer && theirs && { peer: { name: peer.name, spins: true, run: theirs.decode } }),
  }
  await ours.model.dispose()
  await theirs?.model.dispose()
}

/** @param {keyof typeof packages} name @param {string} file */
async function openSide(name, file) {
  const engine = await packages[name]()
  const model = await engine.open(file, { threads: 1 })
  return { model, decode: () => decode(engine, model) }
}

/** The tokens behind the first one, from an empty past. @param {Package} engine @param {Engine} model */
async function decode(engine, model) {
  const mask = new BigInt64Array(growing.steps).fill(1n)
  const names = Array.from({ length: layers }, (_, layer) => [`${layer}.key`, `${layer}.value`]).flat()
  const empty = engine.tensor(new Float32Array(), [1, heads, 0, depth])
  /** @type {Record<string, EngineTensor>} */
  let past = Object.fromEntries(names.map(name => [`past_key_values.${name}`, empty]))
  const tokens = [growing.first]
  for (let step = 0; step < growing.steps; step++) {
    const outputs = await model.run({
      input_ids: engine.tensor(BigInt64Array.of(BigInt(tokens.at(-1) ?? 0)), [1, 1]),
      attention_mask: engine.tensor(mask.subarray(0, step + 1), [1, step + 1]),
      position_ids: engine.tensor(BigInt64Array.of(BigInt(step)), [1, 1]),
      ...past,
    })
    tokens.push(indexOfMax(outputs.logits?.data))
    past = Object.fromEntries(
      names.map(name => [`past_key_values.${name}`, outputs[`present.${name}`] ?? empty]),
    )
  }
  return tokens
}

/** @param {Float32Array} logits */
function indexOfMax(logits) {
  let best = 0
  for (let i = 1; i < logits.length; i++) if ((logits[i] ?? 0) > (logits[best] ?? 0)) best = i
  return best
}
