// models.js: whole models, beside ONNX Runtime with their f32 weights.
import assert from 'node:assert'
import { Model, SparkError, Tensor } from 'dgx-spark'
import { elementArrayOf } from '#lib/core/dtype.js'
import { numel } from '#lib/core/shape.js'
import { inferFacts, isStatic } from '#lib/graph/shape-inference.js'
import { graphStatistics } from '#lib/graph/statistics.js'
import { modelSources, randomFeeds } from '../model-sources.js'
import { Operands } from '../operands.js'

/** @import { ElementType } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Graph } from '#lib/graph/graph.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { ModelFile } from '../model-sources.js' */

/** @typedef {(row: { name: string, shape: string, dtype: string }) => boolean} Wanted whether a row is */
/** @typedef {Record<string, Tensor<ElementType>>} Feeds */

const name = 'models'

/** Models that have a row with weights in bf16, too. */
const inBf16 = /^(resnet50|vgg19|inception_v1|transformer .*)$/

/** Relative error of an output as a whole, ‖a − b‖ / ‖b‖, by the dtype of a row. */
export const modelTolerances = /** @type {Record<string, number>} */ ({
  f32: 1e-4,
  int8: 1e-4,
  f16: 1e-2,
  bf16: 3e-2,
})

/** @param {Kernels} kernels @param {Peer | null} peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* models(kernels, peer, wanted) {
  if (kernels.backend === 'js') return
  for (const source of modelSources()) {
    const own = [source.dtype, ...(inBf16.test(source.name) ? ['bf16'] : [])]
    const dtypes = own.filter(dtype => wanted({ name, shape: source.name, dtype }))
    if (dtypes.length === 0) continue
    const opened = await source.open()
    for (const dtype of dtypes)
      yield* modelRow(kernels, peer, { name, shape: source.name, dtype }, opened, randomFeeds)
    await opened.dispose()
  }
}

/**
 * The row of a model.
 * @param {Kernels} kernels @param {Peer | null} peer @param {{ name: string, shape: string, dtype: string }} row
 * @param {ModelFile} opened @param {(model: Model) => Feeds} feedsOf @returns {AsyncGenerator<Case>}
 */
export async function* modelRow(kernels, peer, row, { file }, feedsOf) {
  const { dtype } = row
  const precision = dtype === 'bf16' ? 'bf16' : 'fp32'
  const model = await Model.load(file, { backend: kernels.backend, precision })
  const feeds = feedsOf(model)
  const beside = await peer?.model(file, feeds)
  const runner =
    kernels.backend === 'cuda' ? await boundOnDevice(kernels, model, feeds) : asCalled(model, feeds)
  yield {
    ...row,
    flops: flopsOf(model, feeds),
    run: runner.run,
    check: async () => {
      const expected = beside ? await beside.outputs() : await onCpu(file, feeds)
      await runner.run()
      const outputs = await runner.run() // on a GPU the third run of a model is the first one that is replayed
      for (const [output, values] of Object.entries(expected)) {
        expectNear(output, outputs[output]?.toFloat32(), values, modelTolerances[dtype] ?? 0)
      }
    },
    ...(beside && peer && { peer: { name: peer.name, spins: true, run: beside.run } }),
  }
  await beside?.dispose()
  runner.dispose()
  model.dispose()
}

/** @typedef {{ run: () => Promise<Feeds>, dispose: () => void }} Runner gives the outputs */

/** Runs with new outputs each. @param {Model} model @param {Feeds} feeds @returns {Runner} */
const asCalled = (model, feeds) => ({ run: () => model.run(feeds), dispose() {} })

/**
 * Runs one after another on inputs and outputs that stay where the GPU reads and writes them; as called where the model
 * is more than one plan.
 * @param {Kernels} kernels @param {Model} model @param {Feeds} feeds @returns {Promise<Runner>}
 */
async function boundOnDevice(kernels, model, feeds) {
  const operands = new Operands(kernels)
  /** @type {Feeds} */
  const tensors = {}
  for (const [name, { dtype, shape }] of Object.entries({ ...feeds, ...outputsOf(model, feeds) })) {
    const array = feeds[name]?.data ?? new (elementArrayOf(dtype))(numel(shape))
    const held = await operands.put(/** @type {Float32Array} */ (array))
    tensors[name] = Tensor.from(held, { dtype, shape })
  }
  try {
    const bound = await model.bind(tensors)
    let last = Promise.resolve()
    const run = async () => {
      last = last.then(() => bound.run()) // it has one run at a time, and a batch of calls comes at once
      await last
      return bound.outputs
    }
    const dispose = () => {
      bound.dispose()
      operands.dispose()
    }
    return { run, dispose }
  } catch (error) {
    operands.dispose()
    if (error instanceof SparkError && error.code === 'ERR_UNSUPPORTED') return asCalled(model, feeds)
    throw error
  }
}

/** Types of the outputs whose shapes follow from those of the inputs. @param {Model} model @param {Feeds} feeds */
function outputsOf({ graph }, feeds) {
  const facts = factsOf(graph, feeds)
  const known = graph.outputs.flatMap(({ name }) => {
    const type = facts.get(name)?.type
    return isStatic(type) && type?.kind === 'tensor' ? [[name, type]] : []
  })
  return /** @type {Record<string, { dtype: ElementType, shape: number[] }>} */ (Object.fromEntries(known))
}

/** Arithmetic of a run, as `dgx-spark inspect` counts it. @param {{ graph: Graph }} model @param {Record<string, { shape: readonly number[] }>} feeds */
export const flopsOf = ({ graph }, feeds) => graphStatistics(graph, factsOf(graph, feeds)).flops

/** The facts of the values of a run. @param {Graph} graph @param {Record<string, { shape: readonly number[] }>} feeds */
const factsOf = (graph, feeds) =>
  inferFacts(graph, {
    shapes: Object.fromEntries(Object.entries(feeds).map(([name, { shape }]) => [name, shape])),
  })

/** Outputs of our own kernels of the CPU. @param {string} file @param {Feeds} feeds */
async function onCpu(file, feeds) {
  const model = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  const outputs = Object.entries(await model.run(feeds))
  model.dispose()
  return Object.fromEntries(outputs.map(([name, output]) => [name, output.toFloat32()]))
}

/** @param {string} name @param {Float32Array | undefined} actual @param {Float32Array} expected @param {number} tolerance */
export function expectNear(name, actual, expected, tolerance) {
  assert.equal(actual?.length, expected.length, `output ${name}: another number of elements`)
  let [error, square] = [0, 0]
  for (const [i, value] of expected.entries()) {
    error += ((actual?.[i] ?? Number.NaN) - value) ** 2
    square += value ** 2
  }
  const relative = Math.sqrt(error / square)
  assert.ok(square > 0 && relative <= tolerance, `output ${name}: relative error ${relative}`)
}
