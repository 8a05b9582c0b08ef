// Models that are compiled once for all sizes: what they compute is, bit for bit, what a compilation for these sizes computes.
import t from 'tap'
import { SparkError } from '#lib/core/errors.js'
import { numel } from '#lib/core/shape.js'
import type { Graph, ValueInfo } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { parseOnnx } from '#lib/io/onnx/read.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, type HostValue, hostConstant } from '#lib/model/values.js'
import { loadAddon } from '#lib/native.js'
import { conformanceCases, noModels } from '../fixtures/models/onnx-models.js'

const backend = loadAddon().addon ? 'cpu' : 'js'
const kernels = await openKernels({ backend })

/** The graph with inputs and outputs of any sizes. */
function opened(graph: Graph): Graph {
  const open = ({ name, type }: ValueInfo): ValueInfo =>
    type?.kind === 'tensor' && type.shape
      ? { name, type: { ...type, shape: type.shape.map(() => null) } }
      : { name, ...(type && { type }) }
  const outputs = graph.outputs.map(({ name }) => ({ name }))
  return { ...graph, inputs: graph.inputs.map(open), outputs, values: new Map() }
}

/** A tensor whose elements stand there twice along an axis. */
function doubled(value: HostTensor, axis: number): HostTensor {
  const block = numel(value.shape.slice(axis))
  const outer = numel(value.shape.slice(0, axis))
  const shape = value.shape.map((size, i) => (i === axis ? 2 * size : size))
  const data = value.data.slice(0, 0).constructor as new (length: number) => Float32Array
  const result = new data(2 * value.data.length)
  for (let i = 0; i < outer; i++) {
    const part = value.data.slice(i * block, (i + 1) * block) as Float32Array
    result.set(part, 2 * i * block)
    result.set(part, (2 * i + 1) * block)
  }
  return { ...value, shape, data: result }
}

const isLarge = (value: HostValue, axis: number): value is HostTensor =>
  value.kind === 'tensor' && value.dtype !== 'string' && (value.shape[axis] ?? 0) > 1

/** Inputs of other sizes that the case may accept as well. */
function* variants(inputs: readonly HostValue[]): Generator<HostValue[]> {
  const ranks = inputs.map(value => (value.kind === 'tensor' ? value.shape.length : 0))
  for (let axis = 0; axis < Math.max(0, ...ranks); axis++) {
    if (!inputs.some(value => isLarge(value, axis))) continue
    yield inputs.map(value => (isLarge(value, axis) ? doubled(value, axis) : value))
    yield inputs.map((value, i) => (i === 0 && isLarge(value, axis) ? doubled(value, axis) : value))
  }
}

const same = (a: HostValue, b: HostValue): boolean =>
  a.kind !== 'tensor' || b.kind !== 'tensor'
    ? a.kind === b.kind
    : String(a.shape) === String(b.shape) && a.data.every((element, i) => Object.is(element, b.data[i]))

const copied = (values: readonly HostValue[]): HostValue[] =>
  values.map(value => (value.kind === 'tensor' ? { ...value, data: value.data.slice() } : value))

async function resultsOf(
  runner: GraphRunner,
  inputs: readonly HostValue[],
): Promise<HostValue[] | SparkError> {
  try {
    return copied(await runner.run(inputs))
  } catch (error) {
    if (error instanceof SparkError) return error
    throw error
  }
}

const random = new Set([
  'Bernoulli',
  'RandomNormalLike',
  'RandomUniformLike',
  'RandomNormal',
  'RandomUniform',
  'Multinomial',
  'Dropout',
])

t.test('conformance cases at several sizes', { skip: noModels }, async t => {
  const failures: string[] = []
  let [runs, shared] = [0, 0]
  for (const { name, model, inputs: constants } of conformanceCases()) {
    const inputs = constants.map(hostConstant)
    const graph = canonicalise(parseOnnx(model, name))
    if (graph.nodes.some(({ op }) => random.has(op))) continue
    const symbolic = new GraphRunner(opened(graph), kernels)
    try {
      for (const feeds of [...variants(inputs), inputs, ...variants(inputs)]) {
        const before = symbolic.compilations
        const actual = await resultsOf(symbolic, feeds)
        if (actual instanceof SparkError) continue
        const fixed = new GraphRunner(opened(graph), kernels)
        const expected = await resultsOf(fixed, feeds)
        fixed.dispose()
        runs++
        if (symbolic.compilations === before) shared++
        if (expected instanceof SparkError || !actual.every((value, i) => same(value, expected[i]!)))
          failures.push(
            `${name} at ${feeds.map(value => (value.kind === 'tensor' ? `[${value.shape}]` : value.kind))}`,
          )
      }
    } catch (error) {
      failures.push(`${name}: ${(error as Error).stack}`)
    }
    symbolic.dispose()
  }
  t.comment(`${runs} runs, ${shared} of what was compiled before`)
  t.same(failures.slice(0, 20), [], `${failures.length} failures`)
  t.ok(shared > runs / 2)
})
