// algorithm.ts: what decides in a simulated world: functions that are traced once, objects with memory, graphs and ONNX files.
import { argumentError, expectObject } from '../core/checks.js'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import type { Graph } from '../graph/graph.js'
import type { TracedOperand } from './traced.js'
import type { Numbers, TracedValues, World } from './world.js'

/** Actions by name: values of the simulation, or numbers for all scenarios. */
export type Actions = Readonly<Record<string, TracedOperand>>

/** An algorithm without memory. It is called once, with values that stand for those of all scenarios and steps. */
export type Policy = (observation: TracedValues) => Actions

/** What a {@link PolicyWithMemory} decides in a step. */
export interface Decision {
  /** What it does. */
  readonly action: Actions
  /** What it remembers for the next step; a value that is missing stays as it was. */
  readonly memory?: Readonly<Record<string, TracedOperand>>
}

/** An algorithm that remembers from step to step. */
export interface PolicyWithMemory {
  /** What it is called. */
  readonly name?: string
  /** What it remembers, and the first values: a number, or a row. */
  readonly memory?: Readonly<Record<string, Numbers>>
  /** Decides: the actions, and what it remembers then. It is called once, as a {@link Policy}. */
  act(observation: TracedValues, memory: TracedValues): Decision
}

/**
 * What decides in a world.
 * - a function, or an object with memory, in TypeScript;
 * - a graph, or the path of an ONNX file: inputs are named as observations, [batch] or [batch, 1], or one of them is called
 *   `observation`, [batch, observations]. An output is named as an action, or called `action`, [batch, actions]. What it remembers
 *   are inputs `state_<name>` with outputs `next_state_<name>` of their shape, which begin with zeros;
 * - a list of these: each gives some of the actions.
 */
export type Algorithm = Policy | PolicyWithMemory | Graph | string | readonly Algorithm[]

/** A part of an algorithm: TypeScript, or a graph in canonical form. */
export type AlgorithmPart = PolicyWithMemory | { readonly graph: Graph; readonly label: string }

/**
 * The parts of an algorithm; files are read.
 * @throws SparkError ERR_ARGUMENT for what is no algorithm, and as `Model.load` does for files
 */
export async function algorithmParts(algorithm: Algorithm, what = 'algorithm'): Promise<AlgorithmPart[]> {
  if (Array.isArray(algorithm)) {
    if (algorithm.length === 0) throw argumentError(what, 'at least one algorithm', algorithm)
    const parts = await Promise.all(algorithm.map((each, i) => algorithmParts(each, `${what}[${i}]`)))
    return parts.flat()
  }
  if (typeof algorithm === 'string') {
    const { readModelGraph } = await import('./model-graph.js')
    return [{ graph: await readModelGraph(algorithm), label: algorithm }]
  }
  if (typeof algorithm === 'function')
    return [{ name: algorithm.name, act: observation => ({ action: (algorithm as Policy)(observation) }) }]
  const object = algorithm as PolicyWithMemory | Graph
  if (typeof object === 'object' && object !== null) {
    if ('act' in object && typeof object.act === 'function') return [object]
    if ('nodes' in object) {
      const { canonicalGraph } = await import('./model-graph.js')
      return [{ graph: await canonicalGraph(object), label: `graph '${object.name}'` }]
    }
  }
  throw argumentError(
    what,
    'a function, an object with act(), a graph, the path of an ONNX file, or a list of these',
    algorithm,
  )
}

/** A short name of an algorithm, for tables. */
export function algorithmName(algorithm: Algorithm): string {
  if (typeof algorithm === 'string') return algorithm.split(/[\\/]/).at(-1)!
  if (Array.isArray(algorithm)) return algorithm.map(algorithmName).join(' + ')
  const { name } = algorithm as { readonly name?: string }
  return name || 'algorithm'
}

/** Values that say which names there are when another one is asked for. */
export function namedValues(what: string, values: TracedValues): TracedValues {
  const known = Object.keys(values)
  return new Proxy(values, {
    get(target, name) {
      if (typeof name !== 'string' || name in target || name === 'then' || name === 'toJSON')
        return Reflect.get(target, name)
      throw new SparkError(
        'ERR_ARGUMENT',
        `there is no ${what} '${name}'${didYouMean(name, known)}; there are: ${known.join(', ')}`,
      )
    },
  })
}

/**
 * Refuses actions that a world does not have.
 * @throws SparkError ERR_ARGUMENT
 */
export function expectActions({ actions, name }: Pick<World, 'actions' | 'name'>, given: unknown): void {
  expectObject('action', 'an object of actions by name', given)
  const known = Object.keys(actions)
  for (const key of Object.keys(given))
    if (!Object.hasOwn(actions, key))
      throw new SparkError(
        'ERR_ARGUMENT',
        `the world '${name}' has no action '${key}'${didYouMean(key, known)}; it has: ${known.join(', ')}`,
      )
}
