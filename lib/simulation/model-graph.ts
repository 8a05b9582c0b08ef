// model-graph.ts: models as parts of the step of a simulation.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { setBatchSize } from '../graph/rewrites/batch-size.js'
import { readOnnx } from '../io/onnx/read.js'
import { rewriteForInference } from '../pipeline.js'
import type { Traced, Tracer } from './traced.js'
import type { TracedValues } from './world.js'

/**
 * A model from a file, in canonical form.
 * @throws SparkError as `Model.load`
 */
export const readModelGraph = async (file: string): Promise<Graph> => canonicalGraph(await readOnnx(file))

/** A graph in canonical form. */
export async function canonicalGraph(graph: Graph): Promise<Graph> {
  return rewriteForInference('specialise', await rewriteForInference('load', graph, {}), {})
}

/** Whether a graph was written for a batch size that is a number, so that it must be changed. */
export const hasFixedBatch = (graph: Graph): boolean =>
  inputsOf(graph).some(({ type }) => type?.kind === 'tensor' && typeof type.shape?.[0] === 'number')

/** The inputs that are no constants. */
export const inputsOf = ({ inputs, initializers }: Graph): ValueInfo[] =>
  inputs.filter(({ name }) => !initializers.has(name))

/** The graph for batches of so many scenarios. */
export const forBatch = (graph: Graph, batch: number): Graph =>
  hasFixedBatch(graph) ? setBatchSize(graph, batch) : graph

const statePrefix = 'state_'
const nextPrefix = 'next_'

/** What a model remembers: the sizes of its inputs called state_…, without the batch. */
export function memoryOf(graph: Graph, label: string): Map<string, readonly number[]> {
  const outputs = new Set(graph.outputs.map(({ name }) => name))
  const memory = new Map<string, readonly number[]>()
  for (const { name, type } of inputsOf(graph)) {
    if (!name.startsWith(statePrefix)) continue
    const sizes = type?.kind === 'tensor' ? type.shape?.slice(1) : undefined
    if (!outputs.has(`${nextPrefix}${name}`))
      throw new SparkError(
        'ERR_ARGUMENT',
        `${label}: the input '${name}' needs an output '${nextPrefix}${name}' that it becomes after a step`,
      )
    if (!sizes?.every(size => typeof size === 'number'))
      throw new SparkError('ERR_SHAPE', `${label}: only the first size of '${name}' may be open`)
    memory.set(name, sizes as readonly number[])
  }
  return memory
}

/** What a model decides, and what it remembers then. */
export interface ModelStep {
  readonly action: Record<string, Traced>
  readonly memory: Record<string, Traced>
}

/**
 * Adds a model that decides to the graph of a step.
 * @param memory - values of its inputs state_…, of their shapes
 * @param actions - names of the actions of the world
 * @throws SparkError ERR_ARGUMENT for an input or output that the world does not know
 */
export function addModel(
  tracer: Tracer,
  { graph, label }: { readonly graph: Graph; readonly label: string },
  observation: TracedValues,
  memory: TracedValues,
  actions: readonly string[],
): ModelStep {
  const inputs = new Map<string, Traced>()
  for (const { name, type } of inputsOf(graph)) {
    const isVector = type?.kind === 'tensor' && type.shape?.length === 1
    const value =
      memory[name] ?? (name === 'observation' ? joined(Object.values(observation)) : observation[name])
    if (!value) throw unknownEnd(label, `input '${name}'`, ['observation', ...Object.keys(observation)])
    inputs.set(name, isVector ? tracer.add('Squeeze', [value, tracer.integers(1)]) : value)
  }
  const outputs = tracer.inline(graph, inputs)
  const step: ModelStep = { action: {}, memory: {} }
  for (const [name, value] of outputs) {
    if (name.startsWith(nextPrefix) && Object.hasOwn(memory, name.slice(nextPrefix.length)))
      step.memory[name.slice(nextPrefix.length)] = value
    else if (name === 'action')
      for (const [i, action] of actions.entries()) step.action[action] = value.columns(i, i + 1)
    else if (actions.includes(name))
      step.action[name] = tracer.add('Reshape', [value, tracer.integers(-1, 1)])
    else throw unknownEnd(label, `output '${name}'`, ['action', ...actions])
  }
  return step
}

const joined = ([first, ...others]: readonly Traced[]): Traced => first!.concat(...others)

const unknownEnd = (label: string, what: string, known: readonly string[]): SparkError =>
  argumentError(`${what} of ${label}`, `one of ${known.join(', ')}`, what)
